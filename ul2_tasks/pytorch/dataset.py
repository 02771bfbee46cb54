"""Mixtures as a PyTorch dataset: sharded over processes and workers, reproducible, resumable."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ul2_tasks.converters.hugging_face import HuggingFaceFeatureConverter
from ul2_tasks.mixtures.mix import Mix
from ul2_tasks.mixtures.mixture import Mixture
from ul2_tasks.pytorch.forks import check_process
from ul2_tasks.pytorch.states import STATE_VERSION, check_form, check_version, state_of
from ul2_tasks.random_access.sequence import Examples
from ul2_tasks.saved_names import saved_chat_task, saved_name
from ul2_tasks.scalars import is_integer
from ul2_tasks.tasks.arguments import epochs_of
from ul2_tasks.tasks.examples import examples
from ul2_tasks.tasks.registration import Registration

try:
    import torch

    from ul2_tasks.pytorch.indexed import Indexed
    from ul2_tasks.pytorch.processes import Reader, given_process, reading_process
except ImportError as error:
    raise ImportError(f"ul2_tasks.pytorch.dataset needs the package torch ({error}); pip install 'ul2_tasks[torch]'") from error

if TYPE_CHECKING:
    import seqio

    from ul2_tasks.pytorch.streams import Stream


class UL2IterableDataset(torch.utils.data.IterableDataset):
    """The examples of a mixture: of one that is described, or of a mixture or task that is registered with SeqIO, by its name.

        mixture = ul2_tasks.Mixture(source="corpus/*.jsonl.gz", vocabulary="my.model")
        dataset = UL2IterableDataset(
            mixture, {"inputs": 512, "targets": 512}, feature_converter=HuggingFaceFeatureConverter("longest", batch_size=8)
        )
        for batch in torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2):
            loss = model(**batch).loss

    Without `feature_converter` it gives single examples without padding, {"input_ids": [tokens] int64, "labels": [tokens] int64}.
    Both end with EOS and have the tokenizer's own ids. Of conversations it gives `input_ids`, `loss_mask` and `span_id`; of texts
    with images `images`, too, the bytes of each. Give the DataLoader a batch size and a function that pads, such as
    `transformers.DataCollatorForSeq2Seq`. A prompt-completion pair with targets that are not trained on is an error here: it needs
    a converter. With a `feature_converter` it gives what the converter makes, whole batches or padded examples. Integers become
    int64, strings become str or lists of str, and all else keeps its type.

    **Of a description**, a `Mixture`, a `Mix`, or what `examples` returned of one, the process imports neither TensorFlow nor
    SeqIO, and examples have numbers. They are those of the name that `register` or `mix` gives the same arguments, where that is
    read by number, and each loads the other's state. Packed rows (`examples(.., pack=True)`) come as they are, [length] int64 for
    each feature.

    **By number.** Where examples have numbers, as those of a description, or by name those of a cache of `ul2 cache`
    (`use_cached=True`), batch n is the same set of examples on any number of processes and workers, and a state is a number: that
    of the first example that is still to come. It can be loaded with other processes and workers. R processes with batches of B
    have the examples n * R * B up to (n + 1) * R * B at step n. Give the batch size, where the feature converter doesn't have it,
    if a DataLoader with several workers joins single examples: it takes a batch from each worker in turn. To begin at any step with
    a plain DataLoader, load `{**dataset.state_dict(), "number": step * R * B}`. What follows is about all other examples, which are
    a stream.

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

    **TensorFlow** reads what is registered, in the process that iterates. Unless it ran there before, it is first kept from seeing
    GPUs, because it would take all of their memory. A worker that was forked from a process in which TensorFlow had run would hang
    or crash. This is an error here: such a DataLoader needs multiprocessing_context="spawn". If TensorFlow had not run, a fork
    works, and starts faster.
    """

    def __init__(
        self,
        mixture: Mixture | Mix | Examples | str | Registration,
        sequence_length: Mapping[str, int] | None = None,
        *,
        split: str = "train",
        seed: int | None = 0,
        use_cached: bool = False,
        cache_dirs: Sequence[str | os.PathLike] = (),
        num_epochs: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        feature_converter: HuggingFaceFeatureConverter | seqio.FeatureConverter | None = None,
        batch_size: int | None = None,
    ):
        """Opens the corpus of a description; of a name, no file.

        Args:
            mixture: a `Mixture` or `Mix`; or what `examples` returned of one; or the name of a registered mixture or task; or a
                `Registration`, which is applied in the process that iterates. In workers that are spawned, only the tasks that
                `import ul2_tasks` registers are there without it.
            sequence_length: {"inputs": int, "targets": int}, the budgets in tokens. What `examples` returned has its own, and
                its own split, seed and cache.
            split, num_epochs: see `seqio.Task.get_dataset`.
            seed: of the order and the noise. With None, by name, they differ each time, and there is no state.
            use_cached: by name, see `seqio.Task.get_dataset`.
            cache_dirs: of a description, see `examples`.
            rank, world_size: the number of this process, and how many there are. By default 0 and 1 where accelerate reads,
                otherwise those of `torch.distributed` if it is initialised, otherwise the environment variables RANK and
                WORLD_SIZE, otherwise 0 and 1.
            feature_converter: converts the examples; those of a description, a `HuggingFaceFeatureConverter` alone.
            batch_size: the DataLoader's, where it joins single examples and several workers read by number; see above.

        Raises:
            ValueError: rank or world_size is given without the other, or rank is not in 0 .. world_size - 1; or batch_size is
                below 1, or given beside that of the feature converter; or an argument does not go with the mixture; or see
                `examples`.
        """
        process = given_process(rank, world_size)
        converted = getattr(feature_converter, "batch_size", None)
        if batch_size is not None and (converted or not is_integer(batch_size, at_least=1)):
            raise ValueError(
                f"batch_size is {batch_size!r}, and the feature converter's {converted!r}; expected one of them, 1 or more: the"
                " DataLoader's, where it joins single examples"
            )
        self._settings: dict[str, Any] = {"split": split, "seed": seed, "use_cached": use_cached, "num_epochs": num_epochs}
        if isinstance(mixture, Mixture | Mix):
            _check_left_out("of a description; name the folders of its cache, cache_dirs=[..]", use_cached=(use_cached, False))
            lengths = _given(sequence_length)
            mixture = examples(mixture, lengths, split=split, seed=seed, cache_dirs=cache_dirs)  # type: ignore[arg-type]
        elif isinstance(mixture, Examples):
            _check_left_out(
                "of what examples returned; give it to ul2_tasks.examples(..)",
                sequence_length=(sequence_length, None),
                split=(split, "train"),
                seed=(seed, 0),
                use_cached=(use_cached, False),
                cache_dirs=(tuple(cache_dirs), ()),
            )
        elif isinstance(mixture, str | Registration):
            _check_left_out("of a name; give use_cached=True, and seqio.add_global_cache_dirs", cache_dirs=(tuple(cache_dirs), ()))
            self._sequence_length = dict(_given(sequence_length))
            importlib.import_module("ul2_tasks.pytorch.streams")  # here, so that workers that are forked need not
        else:
            raise ValueError(
                f"mixture must be a Mixture, a Mix, what ul2_tasks.examples returned of one, or a name, got {mixture!r:.100}."
                " Register what is described in another way, and give its name."
            )
        if isinstance(mixture, Examples):
            _check_converter(feature_converter, mixture)
            self._settings["num_epochs"] = epochs_of(num_epochs)
        self._mixture = mixture
        self._process, self._started_in = process, None
        self._feature_converter = feature_converter
        self._in_a_row = converted or batch_size or 1
        self._joined = converted or 1
        self._loaded: Mapping[str, Any] | None = None
        self._stream: Indexed | Stream | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For a worker that is spawned. It cannot ask torch.distributed for its process, and starts an iterator of its own."""
        return {**self.__dict__, "_started_in": reading_process(self._process), "_stream": None}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """
        Raises:
            RuntimeError: the mixture is a name, and this process was forked from one in which TensorFlow had run.
            ValueError: there are fewer documents than shards; `rank` and accelerate share out the data twice; the state that was
                loaded is of another pipeline; or what the mixture's `get_dataset` raises. During the iteration: a pass over the
                corpus, or over a shard of it, gave no example, see `passes.repeat`.
        """
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
        indexed = self._mixture
        start = {"number": indexed.first} if isinstance(indexed, Examples) else {"given": 0, "snapshot": None}
        return dict(self._loaded or state_of({"pipeline": self._describe(), **start}))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iterator will go on where the state was taken.

        Raises:
            ValueError: it is no state, or one of another version of this package; or there is no seed.
        """
        self._check_seed()
        check_version(state, STATE_VERSION)
        check_form(state)
        self._loaded, self._stream = dict(state), None

    def _check_seed(self) -> None:
        if self._settings["seed"] is None:
            raise ValueError(
                "seed is None: without a seed the dataset gives other examples each time, and none is resumed; give seed="
            )

    def _reader(self) -> Reader:
        worker = torch.utils.data.get_worker_info()
        which = (worker.id, worker.num_workers) if worker else (0, 1)
        return Reader(*reading_process(self._process, self._started_in), *which, self._in_a_row, self._joined)

    def _describe(self) -> dict[str, Any]:
        """What must be the same to load a state; of a stream also the fingerprint in the checkpoint itself, see `providers`."""
        mixture, converter = self._mixture, self._feature_converter
        if isinstance(mixture, Examples):
            told = {**mixture.describe(), "sequence_length": repr(sorted(mixture.budgets.items()))}
            told["num_epochs"] = self._settings["num_epochs"]
            return told | {"feature_converter": "packed rows" if mixture.numbering.packed else _describe_converter(converter)}
        return {
            "mixture": saved_chat_task(mixture.name if isinstance(mixture, Registration) else mixture),
            "sequence_length": repr(sorted(self._sequence_length.items())),
            **self._settings,
            "shard": self._reader().shard,
            "feature_converter": _describe_converter(converter),
        }

    def _new_stream(self) -> Indexed | Stream:
        mixture, reader, converter = self._mixture, self._reader(), self._feature_converter
        if isinstance(mixture, Examples):
            return Indexed(mixture, reader, converter, self._settings["num_epochs"], self._describe())
        check_process()
        from ul2_tasks.pytorch.streams import open_stream

        return open_stream(mixture, self._sequence_length, reader, converter, self._describe())


def _given(sequence_length: Mapping[str, int] | None) -> Mapping[str, int]:
    if sequence_length is None:
        raise ValueError('sequence_length must be {"inputs": int, "targets": int}, got None. Give the budgets in tokens.')
    return sequence_length


def _check_left_out(what: str, **arguments: tuple[object, object]) -> None:
    """Raises a ValueError for an argument that is not its default, (value, default), beside a mixture that does not take it."""
    for name, (value, default) in arguments.items():
        if value != default:
            raise ValueError(f"{name} must be {default!r}, got {value!r}: it is no argument {what}.")


def _check_converter(converter: object, of: Examples) -> None:
    if converter is None:
        return
    if of.numbering.packed or not isinstance(converter, HuggingFaceFeatureConverter) or converter.row_format.span_id:
        expected = "None" if of.numbering.packed else "a HuggingFaceFeatureConverter without span_id, or None"
        what = "packed rows" if of.numbering.packed else "the examples of a description"
        raise ValueError(
            f"feature_converter must be {expected} for {what}, got {converter!r:.100}. Leave it out, or register the mixture and"
            " give its name."
        )


def _describe_converter(converter: object) -> str | None:
    if converter is None:
        return None
    is_ours = isinstance(converter, HuggingFaceFeatureConverter)
    words = repr(converter) if is_ours else f"{saved_name(type(converter).__name__)} {sorted(vars(converter).items())}"
    return re.sub(r" at 0x[0-9a-f]+", "", words)
