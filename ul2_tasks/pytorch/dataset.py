"""Mixtures as a PyTorch dataset: sharded over processes and workers, reproducible, resumable."""

from __future__ import annotations

import functools
import os
import re
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import seqio
import tensorflow as tf

from ul2_tasks.addresses.dataset import fingerprint_of, shared_out
from ul2_tasks.addresses.resuming import ADDED
from ul2_tasks.converters.pictures import PIXELS
from ul2_tasks.corpus.passes import NO_EXAMPLE
from ul2_tasks.datasets import stated_id_shift, warn_if_changed, with_id_shift
from ul2_tasks.example_features import IMAGES, LOSS_MASK
from ul2_tasks.pytorch.forks import check_process, tensorflow_has_run
from ul2_tasks.scalars import is_integer
from ul2_tasks.tasks.providers import MARKS, DenoisingMixture
from ul2_tasks.tasks.registration import Registration

try:
    import torch

    from ul2_tasks.pytorch.processes import check_part, check_version, given_process, reading_process
except ImportError as error:
    raise ImportError(f"ul2_tasks.pytorch.dataset needs the package torch ({error}); pip install 'ul2_tasks[torch]'") from error

STATE_VERSION = 1
# A new snapshot is written only when this many times as long has passed since the last one as that one took to write.
SECONDS_PER_SECOND_OF_WRITING = 20.0

_SINGLE_EXAMPLE = {"inputs": "input_ids", "targets": "labels", "tokens": "input_ids"}
_CHECKPOINT = "iterator"
_CHECKPOINT_FILE = re.compile(rf"{_CHECKPOINT}\.(index|data-\d{{5}}-of-\d{{5}})")
_ADVICE = "each DataLoader worker of each process reads a shard of its own; use fewer workers, or more documents"


class UL2IterableDataset(torch.utils.data.IterableDataset):
    """The examples of a mixture, or of one task, shuffled and mixed as SeqIO does it.

        dataset = UL2IterableDataset(
            "ul2_mix", {"inputs": 512, "targets": 512}, feature_converter=HuggingFaceFeatureConverter("longest", batch_size=8)
        )
        for batch in torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2):
            loss = model(**batch).loss

    Without `feature_converter` it gives single examples without padding, {"input_ids": [tokens] int64, "labels": [tokens] int64}.
    Both end with EOS and have the tokenizer's own ids. Of conversations it gives `input_ids`, `loss_mask` and `span_id`; of texts
    with pictures `images`, too, the bytes of each. Give the DataLoader a batch size and a function that pads, such as
    `transformers.DataCollatorForSeq2Seq`. A reply that is not learned as a whole is an error here: it needs a converter. With a
    `feature_converter` it gives what the converter makes, whole batches or padded examples. Integers become int64, strings become
    str or lists of str, and all else keeps its type.

    **By number.** Where examples have numbers, as with a cache of `ul2 cache` (`use_cached=True`), batch n is the same set of
    examples on any number of processes and workers, and a state is a number: that of the first example that is still to come. It
    can be loaded with other processes and workers. R processes with batches of B have the examples n * R * B up to (n + 1) * R * B
    at step n. Give the batch size, where the feature converter doesn't have it, if a DataLoader with several workers joins single
    examples: it takes a batch from each worker in turn. To begin at any step with a plain DataLoader, load
    `{**dataset.state_dict(), "number": step * R * B}`. What follows is about all other examples, which are a stream.

    **Shards.** Worker w of W in process r of R reads shard r * W + w of R * W, so that each document is used by one worker. If
    files have fewer segments that can be read on their own than there are shards, each shard reads all of them to find its
    documents. The stream of a shard depends only on the arguments, the corpus and the shard. Other numbers of workers or
    processes make other batches. `num_epochs=None` repeats the corpus, each time with other noise; with a number, each pass over
    the dataset gives the same stream.

    **Resume.** `state_dict()` says where the last iterator is. After `load_state_dict(state)` the next iterator, in this process
    or a new one, gives what an uninterrupted one would have given from there. A state is a snapshot of the pipeline with its
    buffers (25 MB and 0.2 seconds for the default mixture at 512; the first one takes 2 or 3 seconds), and the number of elements
    given since. A snapshot at every training step would cost more than the step. With the number alone, a resume would have to
    read everything again, 0.6 seconds for a thousand examples. So a snapshot is written only when a state is asked for, and
    when 20 times as long has passed as the last one took: snapshots take 5 % of the time at most, and a resume reads
    again what was given since the last one. Only the pipeline and shard that saved a state can load it; for any other, a
    ValueError says what differs.

    * `torchdata.stateful_dataloader.StatefulDataLoader` keeps the states of its workers, or of the dataset if it has no workers.
      Save its `state_dict()`, and load it with the same number of workers.
    * With a plain DataLoader and `num_workers=0`, the dataset's `state_dict()` is right after each batch. Workers have their own
      copies of the dataset, and the dataset that the DataLoader was made of does not know where they are.
    * `transformers.Trainer` asks for no state. It resumes by reading the stream from its start, which is also exact.

    **Several processes.** Nothing more is needed. With a plain DataLoader in each process, each reads its share. `accelerate`, and
    so `transformers.Trainer`, shares iterable datasets out itself: its DataLoaders are seen, and get all of the data. With
    `accelerator_config={"dispatch_batches": False}` every process reads everything and keeps its share. By default, the first
    process of accelerate reads for all and concatenates batches, which must have one shape (`padding="max_length"`). Anything else
    that shares an iterable dataset out needs `rank=0, world_size=1`.

    **TensorFlow** reads the data in the process that iterates. Unless it ran there before, it is first kept from seeing GPUs,
    because it would take all of their memory. A worker that was forked from a process in which TensorFlow had run would hang
    or crash. This is an error here: such a DataLoader needs multiprocessing_context="spawn". If TensorFlow had not run, a fork
    works, and starts faster.
    """

    def __init__(
        self,
        mixture: str | Registration,
        sequence_length: Mapping[str, int],
        *,
        split: str = "train",
        seed: int | None = 0,
        use_cached: bool = False,
        num_epochs: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        feature_converter: seqio.FeatureConverter | None = None,
        batch_size: int | None = None,
    ):
        """Opens no file.

        Args:
            mixture: the name of a registered mixture or task; or a `Registration`, which is applied in the process that
                iterates. In workers that are spawned, only the tasks that `import ul2_tasks` registers are there without it.
            sequence_length: {"inputs": int, "targets": int}, the budgets in tokens.
            split, use_cached, num_epochs: see `seqio.Task.get_dataset`.
            seed: of the order and the noise. With None they differ each time, and there is no state.
            rank, world_size: the number of this process, and how many there are. By default 0 and 1 where accelerate reads,
                otherwise those of `torch.distributed` if it is initialised, otherwise the environment variables RANK and
                WORLD_SIZE, otherwise 0 and 1.
            feature_converter: converts the examples.
            batch_size: the DataLoader's, where it joins single examples and several workers read by number; see above.

        Raises:
            ValueError: rank or world_size is given without the other, or rank is not in 0 .. world_size - 1; or batch_size is
                below 1, or given beside that of the feature converter.
        """
        process = given_process(rank, world_size)
        converted = getattr(feature_converter, "batch_size", None)
        if batch_size is not None and (converted or not is_integer(batch_size, at_least=1)):
            raise ValueError(
                f"batch_size is {batch_size!r}, and the feature converter's {converted!r}; expected one of them, 1 or more: the"
                " DataLoader's, where it joins single examples"
            )
        self._mixture = mixture
        self._sequence_length = dict(sequence_length)
        self._settings = {"split": split, "seed": seed, "use_cached": use_cached, "num_epochs": num_epochs}
        self._process, self._started_in = process, None
        self._feature_converter = feature_converter
        self._in_a_row = converted or batch_size or 1
        self._joined = converted or 1
        self._loaded: Mapping[str, Any] | None = None
        self._stream: _Stream | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For a worker that is spawned. It cannot ask torch.distributed for its process, and starts an iterator of its own."""
        return {**self.__dict__, "_started_in": reading_process(self._process), "_stream": None}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """
        Raises:
            RuntimeError: this process was forked from one in which TensorFlow had run.
            ValueError: there are fewer documents than shards; `rank` and accelerate share out the data twice; the state that was
                loaded is of another pipeline; or what the mixture's `get_dataset` raises. During the iteration: a pass over the
                corpus, or over a shard of it, gave no example, see `passes.repeat`.
        """
        check_process()
        if not tensorflow_has_run():
            tf.config.set_visible_devices([], "GPU")
        stream = self._new_stream()
        if self._loaded is not None:
            stream.resume(self._loaded)
        self._stream, self._loaded = stream, None
        return stream

    def state_dict(self) -> dict[str, Any]:
        """Where the last iterator is. If there is no iterator yet, it is the state that was loaded, or the start.

        Returns:
            {"version": int, "pipeline": dict, "given": int, "snapshot": {"given": int, "files": {name: bytes}} or None}.
            "pipeline" is compared when the state is loaded. "given" is the number of examples or batches given so far, and in
            the snapshot, the number given when it was written. "files" are those of a TensorFlow checkpoint.
            Of examples by number: {"version": int, "pipeline": dict, "number": int}.

        Raises:
            ValueError: there is no seed, without which nothing can be resumed.
        """
        self._check_seed()
        if self._stream is not None:
            return self._stream.state()
        return dict(self._loaded or _state({"pipeline": self._describe(), "given": 0, "snapshot": None}))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iterator will go on where the state was taken.

        Raises:
            ValueError: it is no state, or one of another version of this package; or there is no seed.
        """
        self._check_seed()
        check_version(state, STATE_VERSION)
        _check_form(state)
        self._loaded, self._stream = dict(state), None

    def _check_seed(self) -> None:
        if self._settings["seed"] is None:
            raise ValueError(
                "seed is None: without a seed the dataset gives other examples each time, and none is resumed; give seed="
            )

    def _readers(self) -> tuple[int, int, int, int]:
        """The number of this process and how many there are, then the same of this worker."""
        worker = torch.utils.data.get_worker_info()
        return *reading_process(self._process, self._started_in), *((worker.id, worker.num_workers) if worker else (0, 1))

    def _shard(self) -> seqio.ShardInfo:
        rank, world_size, worker, workers = self._readers()
        return seqio.ShardInfo(rank * workers + worker, world_size * workers)

    def _describe(self) -> dict[str, Any]:
        """What must be the same to load a state, beside the fingerprint in the checkpoint itself, see `providers`."""
        mixture, shard = self._mixture, self._shard()
        return {
            "mixture": mixture.name if isinstance(mixture, Registration) else mixture,
            "sequence_length": repr(sorted(self._sequence_length.items())),
            **self._settings,
            "shard": f"{shard.index} of {shard.num_shards}",
            "feature_converter": _describe_converter(self._feature_converter),
        }

    def _new_stream(self) -> _Stream:
        examples, pipeline = self._examples(), self._describe()
        fingerprint = fingerprint_of(examples)
        if fingerprint is None:
            warn_if_changed(examples)
            for feature in [*self._provider().output_features.values()][:1]:
                examples = with_id_shift(examples, feature.vocabulary)
            return _Stream(self._converted(examples), pipeline, pipeline["shard"])
        rank, world_size, worker, workers = self._readers()
        shard = pipeline.pop("shard")
        pipeline = {**fingerprint, **pipeline} | ({"workers": f"{worker} of {workers}"} if workers > 1 else {})
        share = functools.partial(shared_out, examples, worker * world_size + rank, world_size * workers, self._in_a_row)
        return _Numbers(lambda start: self._converted(share(start)), pipeline, shard, self._joined * world_size * workers)

    def _provider(self) -> seqio.Task | seqio.Mixture:
        name = self._mixture.apply() if isinstance(self._mixture, Registration) else self._mixture
        registered = {*seqio.MixtureRegistry.names(), *seqio.TaskRegistry.names()}
        if name not in registered:
            raise ValueError(
                f"no mixture or task {name!r} is registered in this process, only {sorted(registered)}; register it first, or give"
                f" ul2_tasks.Registration({name!r}, modules=[..]), which spawned workers need, with a module that does"
            )
        return seqio.get_mixture_or_task(name)

    def _examples(self) -> tf.data.Dataset:
        provider, shard = self._provider(), self._shard()
        settings: dict[str, Any] = {**self._settings, "shuffle": True, "shard_info": shard}
        if isinstance(provider, DenoisingMixture) and (marks := sorted(MARKS.intersection(_features_of(self._feature_converter)))):
            settings["passthrough_features"] = marks
        try:
            return provider.get_dataset(self._sequence_length, **settings)
        except ValueError as error:
            if shard.num_shards == 1:
                raise
            raise ValueError(f"shard {shard.index} of {shard.num_shards}: {error} ({_ADVICE})") from error

    def _converted(self, examples: tf.data.Dataset) -> tf.data.Dataset:
        if self._feature_converter is None:
            return examples
        return self._feature_converter(examples, task_feature_lengths=self._sequence_length)


class _Stream:
    """An iterator over a dataset that can say where it is, and go on from there.

        elements given    0 ................... 40 ........... 57
                                                |              |
                                           a snapshot      state(): 57 were given, and the snapshot of 40

    To resume, the snapshot is read, and then 17 elements are taken and thrown away.
    """

    def __init__(self, dataset: tf.data.Dataset, pipeline: Mapping[str, Any], shard: str):
        self._iterator = iter(dataset)
        self._checkpoint = tf.train.Checkpoint(iterator=self._iterator)
        self._id_shift = stated_id_shift(dataset)
        self._pipeline = pipeline
        self._shard = shard
        self._given = 0
        self._snapshot: Mapping[str, Any] | None = None
        self._written = time.monotonic()  # when the snapshot was written
        self._seconds_to_write = 0.0

    def resume(self, state: Mapping[str, Any]) -> None:
        """Goes on where the state was taken; for an iterator that has given nothing yet."""
        _check_same(state["pipeline"], self._pipeline, may_lack={"shard"} if "number" in state else ())
        if "number" in state:
            raise ValueError(f"{_ANOTHER}: the state is a number, and here examples are a stream; {_REMEDY}")
        self._snapshot = state["snapshot"]
        if self._snapshot:
            started = time.monotonic()
            _restore(self._checkpoint, self._snapshot["files"])
            self._given = self._snapshot["given"]
            self._written = time.monotonic()
            self._seconds_to_write = self._written - started  # reading takes about as long as writing
        while self._given < state["given"]:
            try:
                self._take()
            except StopIteration as error:
                ended = f"the data ends after {self._given}, but {state['given']} were given when it was saved"
                raise ValueError(f"{_ANOTHER}: {ended}; {_REMEDY}") from error

    def state(self) -> dict[str, Any]:
        """Where it is, see `UL2IterableDataset.state_dict`. Writes a snapshot if one is due."""
        now = time.monotonic()
        due = now - self._written >= SECONDS_PER_SECOND_OF_WRITING * self._seconds_to_write
        # The first snapshot is always due, because it has the pipeline's fingerprint.
        if self._given and (self._snapshot is None or (due and self._given > self._snapshot["given"])):
            self._snapshot = {"given": self._given, "files": _checkpoint_files(self._checkpoint)}
            self._written = time.monotonic()
            self._seconds_to_write = self._written - now
        return _state({"pipeline": dict(self._pipeline), "given": self._given, "snapshot": self._snapshot})

    def __iter__(self) -> _Stream:
        return self

    def __next__(self) -> dict[str, Any]:
        element = self._take()
        _check_learned(element)
        ids = {name: _to_torch(element[key]) - self._id_shift for key, name in _SINGLE_EXAMPLE.items() if key in element}
        left_out = {*_SINGLE_EXAMPLE, *([PIXELS] if PIXELS in element and not len(element[PIXELS]) else [])}
        others = {key: value for key, value in element.items() if key not in left_out}
        return ids | {key: value.numpy().tolist() if key == IMAGES else _to_torch(value) for key, value in others.items()}

    def _take(self) -> Mapping[str, tf.Tensor]:
        """The next element. What TensorFlow raises about a shard without examples becomes a ValueError."""
        try:
            element = next(self._iterator)
        except StopIteration:
            if self._pipeline["num_epochs"] is None:
                raise ValueError(self._ended()) from None
            raise
        except tf.errors.InternalError as error:
            if "components but got" not in error.message:
                raise
            without = "its examples have other features; those of replies had no masks until version 1.0.3"
            raise ValueError(f"{_ANOTHER}: {without}; {_REMEDY}") from error
        except tf.errors.InvalidArgumentError as error:
            no_example = re.search(rf"\[({re.escape(NO_EXAMPLE)}.*?)\]\s", error.message)
            if not no_example:
                raise
            is_whole = self._shard == "0 of 1"
            raise ValueError(no_example[1] if is_whole else f"{no_example[1]} ({_ADVICE})") from None
        self._given += 1
        return element

    def _ended(self) -> str:
        """What is wrong where data without an end has ended."""
        if not self._given:
            return f"shard {self._shard} has no documents ({_ADVICE})"
        ended = f"shard {self._shard} ended after {self._given} elements, expected no end (num_epochs=None)"
        return f"{ended}; see whether its files changed, and start anew"


class _Numbers(_Stream):
    """The same where examples have numbers, so that a number says where it is.

    `build` makes the dataset of this process and worker from a number on. `each` is how many examples all processes and workers
    take while this one takes an element.
    """

    def __init__(self, build: Callable[[int], tf.data.Dataset], pipeline: Mapping[str, Any], shard: str, each: int):
        super().__init__(build(0), pipeline, shard)
        self._build, self._each, self._start = build, each, 0

    def resume(self, state: Mapping[str, Any]) -> None:
        # A state of before the first example names a shard, and has no fingerprint. One worker alone is not named. Those of 1.0.3
        # lack `ADDED`.
        saved = state["pipeline"]
        _check_same(saved, self._pipeline, may_lack=self._pipeline if "shard" in saved else {"workers", *ADDED})
        if state.get("given"):
            raise ValueError(f"{_ANOTHER}: the state is of a stream, and here examples have numbers; {_REMEDY}")
        self._start = state.get("number", 0)
        self._iterator = iter(self._build(self._start))

    def state(self) -> dict[str, Any]:
        return _state({"pipeline": dict(self._pipeline), "number": self._start + self._given * self._each})


def _features_of(converter: seqio.FeatureConverter | None) -> Collection[str]:
    """The features of examples that a converter reads."""
    return converter.TASK_FEATURES if isinstance(converter, seqio.FeatureConverter) else ()


def _check_learned(element: Mapping[str, tf.Tensor]) -> None:
    """Raises a ValueError where `labels` would say that a target of a reply is learned, and its mask says that it is not."""
    if LOSS_MASK not in element or "targets" not in element:
        return
    if unlearned := int(tf.math.count_nonzero(element[LOSS_MASK] == 0)):
        raise ValueError(
            f"{unlearned} of the {len(element['targets'])} targets of a reply are not to be learned, which `labels` of a single"
            " example cannot say, as a decoder reads them, too; give feature_converter=HuggingFaceFeatureConverter(..)"
        )


def _state(place: Mapping[str, Any]) -> dict[str, Any]:
    return {"version": STATE_VERSION, **place}


def _check_form(state: Mapping[str, Any]) -> None:
    """Raises a ValueError if a state of this version has not the parts that `UL2IterableDataset.state_dict` names."""
    pipeline, number, snapshot = state.get("pipeline"), state.get("number"), state.get("snapshot")
    given: Any = state.get("given", 0 if "number" in state else None)
    check_part("pipeline", pipeline, isinstance(pipeline, Mapping), "its settings by name")
    if "number" in state:
        check_part("number", number, is_integer(number, at_least=0) and number < 2**63, "that of an example, 0 or more")
    check_part("given", given, is_integer(given, at_least=0), "how many were given, 0 or more")
    if snapshot is None:
        return
    check_part("snapshot", snapshot, isinstance(snapshot, Mapping), "None, or {'given': int, 'files': {name: bytes}}")
    before, files = snapshot.get("given"), snapshot.get("files")
    check_part("snapshot's given", before, is_integer(before, at_least=1) and before <= given, f"1 to {given}")
    check_part("snapshot's files", files, isinstance(files, Mapping), "bytes by name")
    for name, content in files.items():  # they are written into a folder
        check_part("file", name, isinstance(name, str) and bool(_CHECKPOINT_FILE.fullmatch(name)), "a checkpoint's name")
        check_part(f"file {name}", content, isinstance(content, bytes), "bytes")


def _checkpoint_files(checkpoint: tf.train.Checkpoint) -> dict[str, bytes]:
    """Writes a checkpoint, and returns its files by name."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.write(f"{folder}/{_CHECKPOINT}")
        files = {}
        for name in sorted(os.listdir(folder)):
            with open(f"{folder}/{name}", "rb") as file:
                files[name] = file.read()
        return files


def _restore(checkpoint: tf.train.Checkpoint, files: Mapping[str, bytes]) -> None:
    """Reads a checkpoint from its files. A checkpoint of another pipeline is a ValueError that says what differs."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            with open(f"{folder}/{name}", "wb") as file:
                file.write(content)
        try:
            checkpoint.read(f"{folder}/{_CHECKPOINT}").assert_consumed()
        except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
            raise ValueError(f"{_ANOTHER}: {_differences(error.message)}; {_REMEDY}") from error


_ANOTHER = "the state was saved by another pipeline"
_REMEDY = "load it into one with the settings of the saved one, or start anew"


def _check_same(saved: Mapping[str, Any], present: Mapping[str, Any], may_lack: Collection[str]) -> None:
    compared = [key for key in present if key in saved or key not in may_lack]
    different = [f"{key} was {saved.get(key)!r}, is {present[key]!r}" for key in compared if saved.get(key) != present[key]]
    if different:
        raise ValueError(f"{_ANOTHER}: {'; '.join(different)}; {_REMEDY}")


def _differences(message: str) -> str:
    """What differs between the two fingerprints (see `providers`) in TensorFlow's message; the message if it has none."""
    found = re.search(r"Saved:\] \[(\{.*\})\] \[this one:\] \[(\{.*?\})\]\s", message)
    if not found:
        return message
    saved, present = (re.split(r", (?=\w+: )", fingerprint.replace("{", "").replace("}", "")) for fingerprint in found.groups())
    return "; ".join(
        f"{whose} {', '.join(item for item in items if item not in others)}"
        for whose, items, others in (("saved:", saved, present), ("this one:", present, saved))
    )


def _describe_converter(converter: seqio.FeatureConverter | None) -> str | None:
    if converter is None:
        return None
    return re.sub(r" at 0x[0-9a-f]+", "", f"{type(converter).__name__} {sorted(vars(converter).items())}")


def _to_torch(value: tf.Tensor) -> Any:
    """A tensor of PyTorch; of strings a list, or one string."""
    array = value.numpy()
    if value.dtype == tf.string:
        return [text.decode() for text in array] if value.shape.rank else array.decode()
    tensor = torch.from_numpy(array)
    return tensor.long() if value.dtype.is_integer else tensor
