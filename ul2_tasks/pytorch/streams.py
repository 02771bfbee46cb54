"""What a name of SeqIO's registries gives `UL2IterableDataset`: an iterator of TensorFlow that can say where it is."""

from __future__ import annotations

import dataclasses
import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.datasets import facts_of, with_id_shift
from ul2_tasks.example_features import IMAGES, LOSS_MASK, SINGLE_EXAMPLE
from ul2_tasks.pytorch.forks import tensorflow_has_run
from ul2_tasks.pytorch.indexed import single_example, to_torch
from ul2_tasks.pytorch.processes import Reader
from ul2_tasks.pytorch.states import ANOTHER, CHECKPOINT, OF_STREAMS, REMEDY, check_same, number_of, state_of
from ul2_tasks.random_access.numbering import Numbering
from ul2_tasks.tasks.providers import MARKS, DenoisingMixture
from ul2_tasks.tasks.registration import Registration
from ul2_tasks.tasks.tf_data import reading_of

# A new snapshot is written only when this many times as long has passed since the last one as that one took to write.
SECONDS_PER_SECOND_OF_WRITING = 20.0

_SINGLE_EXAMPLE = {**SINGLE_EXAMPLE, "tokens": "input_ids"}
_ADVICE = "Each DataLoader worker of each process reads a shard of its own: use fewer workers, or more documents."


def open_stream(
    mixture: str | Registration,
    sequence_length: Mapping[str, int],
    reader: Reader,
    converter: seqio.FeatureConverter | None,
    pipeline: Mapping[str, Any],
) -> Stream:
    """An iterator over what the reader reads of a mixture. `pipeline` has the settings of `get_dataset`, and what else is compared.

    TensorFlow is kept from seeing GPUs, because it would take all of their memory, unless it ran in this process before.
    """
    if not tensorflow_has_run():
        tf.config.set_visible_devices([], "GPU")

    def converted(examples: tf.data.Dataset) -> tf.data.Dataset:
        return examples if converter is None else converter(examples, task_feature_lengths=sequence_length)

    provider = _provider(mixture)
    examples = _examples(provider, sequence_length, reader, converter, pipeline)
    if facts_of(examples) is None:  # of other tasks
        for feature in [*provider.output_features.values()][:1]:
            examples = with_id_shift(examples, feature.vocabulary)
    facts, reading = facts_of(examples), reading_of(examples)
    shift = facts.id_shift if facts else 0
    if reading is None:
        return Stream(converted(examples), pipeline, reader.shard, shift)

    def build(start: int) -> tf.data.Dataset:
        share = reader.share(start, reading.numbering.turns)
        return converted(dataclasses.replace(reading, share=share).dataset())

    settings = {key: value for key, value in pipeline.items() if key not in OF_STREAMS}
    return Numbers(build, {**reading.fingerprint, **settings, **reader.worker_of_several}, reader, reading.numbering, shift)


def _provider(mixture: str | Registration) -> seqio.Task | seqio.Mixture:
    name = mixture.apply() if isinstance(mixture, Registration) else mixture
    registered = {*seqio.MixtureRegistry.names(), *seqio.TaskRegistry.names()}
    if name not in registered:
        raise ValueError(
            f"mixture must be registered in this process, got {name!r}, and only {sorted(registered)} are. Register it first, or"
            f" pass ul2_tasks.Registration({name!r}, modules=[..]) with a module that does. See"
            " docs/help/troubleshooting.md#spawned-workers-do-not-know-the-mixture."
        )
    return seqio.get_mixture_or_task(name)


def _examples(
    provider: seqio.Task | seqio.Mixture,
    sequence_length: Mapping[str, int],
    reader: Reader,
    converter: seqio.FeatureConverter | None,
    pipeline: Mapping[str, Any],
) -> tf.data.Dataset:
    settings: dict[str, Any] = {key: pipeline[key] for key in ("split", "seed", "use_cached", "num_epochs")}
    features = getattr(converter, "TASK_FEATURES", ())  # which some of SeqIO's do not have
    if isinstance(provider, DenoisingMixture) and (marks := sorted(MARKS.intersection(features))):
        settings["passthrough_features"] = marks
    settings["shuffle"] = pipeline.get("shuffle", True)
    shard_info = seqio.ShardInfo(*reader.of_shards)
    try:
        return provider.get_dataset(sequence_length, shard_info=shard_info, **settings)
    except ValueError as error:
        if shard_info.num_shards == 1 or not re.search(r"\b(shards|hosts)\b", str(error)):
            raise
        raise ValueError(f"shard {reader.shard}: {error} {_ADVICE}") from error


class Stream:
    """An iterator over a dataset that can say where it is, and go on from there.

        elements given    0 ................... 40 ........... 57
                                                |              |
                                           a snapshot      state(): 57 were given, and the snapshot of 40

    To resume, the snapshot is read, and then 17 elements are taken and thrown away.
    """

    def __init__(self, dataset: tf.data.Dataset, pipeline: Mapping[str, Any], shard: str, id_shift: int):
        self._iterator = iter(dataset)
        self._checkpoint = tf.train.Checkpoint(iterator=self._iterator)
        self._id_shift = id_shift
        self.pipeline = pipeline
        self._shard = shard
        self._given, self._has_ended = 0, False
        self._snapshot: Mapping[str, Any] | None = None
        self._written = time.monotonic()  # when the snapshot was written
        self._seconds_to_write = 0.0

    def resume(self, state: Mapping[str, Any]) -> bool:
        """Goes on where the state was taken; for an iterator that has given nothing yet. Says whether it was at the end."""
        default = {"shuffle": True}  # which states do not say
        check_same({**default, **state["pipeline"]}, {**default, **self.pipeline}, may_lack={"shard"} if "number" in state else ())
        if "number" in state:
            raise ValueError(f"{ANOTHER}: the state is an index, and here examples are a stream. {REMEDY}")
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
                raise ValueError(f"{ANOTHER}: {ended}. {REMEDY}") from error
        return bool(state.get("ended"))

    def state(self) -> dict[str, Any]:
        """Where it is, see `UL2IterableDataset.state_dict`. Writes a snapshot if one is due."""
        now = time.monotonic()
        due = now - self._written >= SECONDS_PER_SECOND_OF_WRITING * self._seconds_to_write
        # The first snapshot is always due, because it has the pipeline's fingerprint.
        if self._given and (self._snapshot is None or (due and self._given > self._snapshot["given"])):
            self._snapshot = {"given": self._given, "files": _checkpoint_files(self._checkpoint)}
            self._written = time.monotonic()
            self._seconds_to_write = self._written - now
        ended = {"ended": True} if self._has_ended else {}
        return state_of({"pipeline": dict(self.pipeline), "given": self._given, "snapshot": self._snapshot, **ended})

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> dict[str, Any]:
        return self._as_given(self._take())

    def _as_given(self, element: Mapping[str, tf.Tensor]) -> dict[str, Any]:
        _check_trained(element)
        ids = {name: _to_torch(element[key]) - self._id_shift for key, name in _SINGLE_EXAMPLE.items() if key in element}
        others = {key: value for key, value in element.items() if key not in _SINGLE_EXAMPLE}
        return ids | {key: value.numpy().tolist() if key == IMAGES else _to_torch(value) for key, value in others.items()}

    def _take(self) -> Mapping[str, tf.Tensor]:
        """The next element."""
        try:
            element = next(self._iterator)
        except StopIteration:
            if self.pipeline["num_epochs"] is None:
                raise ValueError(self._ended()) from None
            self._has_ended = True
            raise
        self._given += 1
        return element

    def _ended(self) -> str:
        """What is wrong where data without an end has ended."""
        if not self._given:
            return f"shard {self._shard} has no documents. {_ADVICE}"
        ended = f"shard {self._shard} must have no end (num_epochs=None), but ended after {self._given} elements"
        return f"{ended}. Look whether its files changed, and start from the beginning."


class Numbers(Stream):
    """The same where examples have numbers, so that a number says where it is.

    `build` makes the dataset of this process and worker from a number on. `numbering` is that of single examples.
    """

    def __init__(
        self,
        build: Callable[[int], tf.data.Dataset],
        pipeline: Mapping[str, Any],
        reader: Reader,
        numbering: Numbering,
        id_shift: int,
    ):
        dataset = build(0)
        reading = reading_of(dataset)  # of rows, where a converter makes them by number
        told = reading.fingerprint if reading else {}
        named = {key: told[key] for key in ("rows_version",) if key in told}
        super().__init__(dataset, {**pipeline, **named}, reader.shard, id_shift)
        self._build, self._reader, self._start = build, reader, 0
        epochs = pipeline["num_epochs"]
        self._stop = None if epochs is None else (reading.numbering if reading else numbering).first_of(epochs)

    def resume(self, state: Mapping[str, Any]) -> bool:
        self._start = number_of(state, self.pipeline)
        self._iterator = iter(self._build(self._start))
        return self._start == self._stop

    def state(self) -> dict[str, Any]:
        number = self._reader.number(self._start, self._given)
        if self._stop is not None:
            number = self._stop if self._has_ended else min(number, self._stop)
        return state_of({"pipeline": dict(self.pipeline), "number": number})

    def _as_given(self, element: Mapping[str, tf.Tensor]) -> dict[str, Any]:
        """Examples with masks as a description gives them."""
        if LOSS_MASK not in element:
            return super()._as_given(element)
        arrays = {key: value.numpy() for key, value in element.items()}
        own = {key: arrays[key] - np.int32(self._id_shift) for key in ("inputs", "targets", "tokens") if key in arrays}
        return {name: to_torch(values) for name, values in single_example(arrays | own).items()}


def _check_trained(element: Mapping[str, tf.Tensor]) -> None:
    """Raises a ValueError where `labels` would have a target of a prompt-completion pair that is not trained on."""
    if LOSS_MASK not in element or "targets" not in element:
        return
    if untrained := int(tf.math.count_nonzero(element[LOSS_MASK] == 0)):
        raise ValueError(
            f"feature_converter must be a HuggingFaceFeatureConverter for an example with {untrained} of {len(element['targets'])}"
            " targets that are not trained on, got None. Pass feature_converter=HuggingFaceFeatureConverter(..)."
        )


def _checkpoint_files(checkpoint: tf.train.Checkpoint) -> dict[str, bytes]:
    """Writes a checkpoint, and returns its files by name."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.write(f"{folder}/{CHECKPOINT}")
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
            checkpoint.read(f"{folder}/{CHECKPOINT}").assert_consumed()
        except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
            raise ValueError(f"{ANOTHER}: {_differences(error.message)}. {REMEDY}") from error


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


def _to_torch(value: tf.Tensor) -> Any:
    """A tensor of PyTorch; of strings a list, or one string."""
    array = value.numpy()
    if value.dtype == tf.string:
        return [text.decode() for text in array] if value.shape.rank else array.decode()
    return to_torch(array)
