"""Examples as PyTorch takes them, without TensorFlow: single ones, batches of model inputs, or packed rows.

A single example of texts, of a prompt and a completion, and of a conversation:

    input_ids    inputs     inputs                      tokens
    labels       targets    targets, or -100            tokens, or -100           -100 where no loss is
    span_id                 of each label, or 0         of each label, or 0       its loss group
    targets                 targets                                               what a decoder reads
    loss_weight  of each label, where the texts have weights
    task_id      of each label, or -1; where it is asked for

Of corpora that are read by number a position is the number of the next example, which all readers share. Where one is read in
windows each reader has a stream of its own, and a position is what `windows.Stream` says: a few integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch

from ul2_tasks.example_features import (
    IGNORED,
    IMAGES,
    LOSS_MASK,
    LOSS_WEIGHT,
    RATE,
    RATES,
    SINGLE_EXAMPLE,
    SPAN_ID,
    TASK_ID,
    with_task_id,
)
from ul2_tasks.models.transformers import BESIDE_LABELS, HuggingFaceChatConverter, HuggingFaceFeatureConverter
from ul2_tasks.pytorch.appended import Appended
from ul2_tasks.pytorch.processes import Reader
from ul2_tasks.pytorch.states import ANOTHER, REMEDY, check_resumed, state_of
from ul2_tasks.random_access.batches import Mixed, features_of, make_batch, members_of, room_of
from ul2_tasks.random_access.numbering import NO_END, Slots, check_hosts
from ul2_tasks.random_access.sequence import Examples
from ul2_tasks.random_access.windows import Stream, Stretch, joined

Lengths: TypeAlias = Mapping[str, int | None]
_AT_A_TIME = 512  # examples: one alone costs ten times as much as among others


class Numbers:
    """The examples of a reader by number, from the first one on; to the end of so many epochs, None for no end."""

    def __init__(self, examples: Examples, reader: Reader, epochs: int | None):
        self._numbering, self._reader, self._budgets = examples.numbering, reader, examples.budgets
        self._first, self._stop = examples.first, None if epochs is None else examples.end_of(epochs)
        self._start = self._first

    def resume(self, place: Mapping[str, Any]) -> bool:
        """Begins at a place. Says whether it is the end."""
        self._start = place["number"]
        if self._start < self._first or (self._stop is not None and self._start > self._stop):
            raise ValueError(
                f"{ANOTHER}: it is at index {self._start}, and the epochs here begin at {self._first} and end at {self._stop}."
                f" {REMEDY}"
            )
        return self._start == self._stop

    def place(self, given: int, has_ended: bool) -> dict[str, Any]:
        """Where it is after so many elements."""
        if self._stop is None:
            return {"number": self._reader.number(self._start, given)}
        return {"number": self._stop if has_ended else min(self._reader.number(self._start, given), self._stop)}

    def follow(self, examples: Examples) -> None:
        """Goes on with other examples."""
        self._numbering = examples.numbering

    def reached(self, given: int) -> int:
        """See `Reader.reached`."""
        return self._reader.reached(self._start, given)

    def read(self, at_a_time: int, begin: int = 0) -> Iterator[tuple[int, Mixed, Slots, Lengths]]:
        """How many elements come next, at most so many, of what they are, and how long their rows; after the first ones."""
        share = self._reader.share(self._start, self._numbering.turns)
        own = NO_END if self._stop is None else share.count(self._stop)
        for first in range(begin, own, at_a_time):
            numbers = share.numbers(np.arange(first, min(first + at_a_time, own)))
            parts = self._numbering.by_lengths(numbers, self._budgets)
            if any(len(of) % self._reader.in_a_row for _, of in parts[:-1]):
                raise ValueError(
                    f"batch_size must be such that a batch of all processes ends where a stage with other lengths begins, got"
                    f" {self._reader.in_a_row}. Choose one that divides the schedule's."
                )
            for lengths, of in parts:
                yield len(of), self._numbering, self._numbering.slots(numbers[of]), lengths


class InWindows:
    """The same of a stream."""

    def __init__(self, stream: Stream, reader: Reader, budgets: Lengths):
        self._stream, self._joined, self._budgets = stream, reader.joined, budgets
        self._before, self._states = 0, stream.start[np.newaxis]  # those after `_before` examples, and after each one since

    def resume(self, place: Mapping[str, Any]) -> bool:
        self._states = np.array([place["windows"]], np.int64)
        return not len(self._stream.read(self._states[0], 1)[1].numbers)

    def place(self, given: int, has_ended: bool) -> dict[str, Any]:
        after = min(given * self._joined - self._before, len(self._states) - 1)  # the last batch may be smaller
        return {"windows": self._states[after].tolist()}

    def read(self, at_a_time: int, begin: int = 0) -> Iterator[tuple[int, Mixed, Slots, Lengths]]:
        while True:
            states, stretches = [self._states[-1:]], list[Stretch]()
            while (count := sum(map(len, states)) - 1) < at_a_time:
                after, stretch = self._stream.read(states[-1][-1], at_a_time - count)
                if not len(stretch.numbers):
                    break
                states.append(np.tile(after, (len(stretch.numbers), 1)))
                states[-1][:, 0] = stretch.numbers + 1  # in these windows
                stretches.append(stretch)
            self._before += len(self._states) - 1
            self._states = np.concatenate(states)
            if not stretches:
                return
            found = joined(stretches)
            yield len(found.numbers), found, found.slots, self._budgets


class Elements:
    """An iterator over a reader's share of examples, each as it is, as a converter has it, or so many in a batch.

    `stream` is None where they are read by number. `epochs` is None for no end, and `pipeline` is what a state says beside the
    place. `appended` are the stages that come while it reads.
    """

    def __init__(
        self,
        examples: Examples,
        stream: Stream | None,
        reader: Reader,
        converter: HuggingFaceFeatureConverter | HuggingFaceChatConverter | None,
        epochs: int | None,
        pipeline: Mapping[str, Any],
        *,
        appended: Appended | None = None,
    ):
        self._converter, self._joined, self._is_packed = converter, reader.joined, bool(examples.numbering.packed)
        members = members_of(examples.numbering)
        self._with_task_id = examples.task_id if converter is None else converter.task_id
        self._features = with_task_id(features_of(members)) if self._with_task_id else features_of(members)
        if stream is None and epochs is not None:
            check_hosts(pipeline["mixture"], pipeline["split"], examples.end_of(epochs) - examples.first, reader.of_shards[1])
        self._places = Numbers(examples, reader, epochs) if stream is None else InWindows(stream, reader, examples.budgets)
        self.pipeline = {**pipeline, **(reader.worker_of_several if stream is None else {"shard": reader.shard})}
        self._given, self._has_ended, self._elements = 0, False, self._read()
        self._appended, self._worker, self._seen = appended, torch.utils.data.get_worker_info(), -1

    def resume(self, state: Mapping[str, Any]) -> bool:
        """Goes on where the state was taken; for an iterator that has given nothing yet. Says whether it was at the end."""
        check_resumed(state, self.state())
        return self._places.resume(state)

    def state(self) -> dict[str, Any]:
        """Where it is, see `UL2IterableDataset.state_dict`."""
        stages = {"stages": self._appended.stages} if self._appended and self._appended.stages else {}
        return state_of({"pipeline": dict(self.pipeline), **self._places.place(self._given, self._has_ended), **stages})

    def reached(self, more: int = 0) -> int:
        """The number before which all is that was given, or will be with so many elements more."""
        return self._places.reached(self._given + more)  # type: ignore[union-attr]

    def follow(self, appended: Appended) -> None:
        """Goes on with the stages that were appended since it last did. Raises a ValueError where it has read beyond."""
        if self._seen == appended.count:
            return
        before, self._seen, examples = self.pipeline["schedule"]["stages"], appended.count, appended.examples
        schedule: Any = examples.describe()["schedule"]
        if late := [each["first"] for each in schedule["stages"] if each not in before and each["first"] < self.reached()]:
            raise ValueError(
                f"stages must be appended before a worker reads them ahead, got one from element {late[0]:,} on after"
                f" {self.reached():,} were read. Append stages further ahead."
            )
        self._places.follow(examples)  # type: ignore[union-attr]
        self.pipeline = {**self.pipeline, "schedule": schedule}
        self._elements = self._read(self._given * self._joined)

    def __iter__(self) -> Elements:
        return self

    def __next__(self) -> dict[str, Any]:
        if self._appended and self._worker:  # in the main process they are told
            self._appended.reach(self._worker.id, self.reached(1))
            self.follow(self._appended)
        try:
            element = next(self._elements)
        except StopIteration:
            self._has_ended = True
            raise
        self._given += 1
        return {name: values if name == IMAGES else to_torch(values) for name, values in element.items()}

    def _read(self, first: int = 0) -> Iterator[dict[str, Any]]:
        converter, joined = self._converter, self._joined
        for count, source, slots, lengths in self._places.read(joined * max(1, _AT_A_TIME // joined), first):
            rows, sizes, _ = make_batch(source, slots, room_of(source, lengths), self._with_task_id)
            if converter is not None and converter.batch_size is not None:
                of = {key: values for key, values in rows.items() if key in self._features}
                for start in range(0, count, joined):
                    part = slice(start, start + joined)
                    yield converter.row_format.arrays(
                        {key: values[part] for key, values in of.items()},
                        {key: each[part] for key, each in sizes.items()},
                        first=first + start,
                    )
            elif converter is not None or self._is_packed:
                if converter is not None:
                    given = {key: int(length) for key, length in lengths.items() if length is not None}
                    rows = converter.row_format.arrays(rows, None if self._is_packed else sizes, given, first=first)
                yield from ({key: values[row] for key, values in rows.items()} for row in range(count))
            else:
                for row in range(count):
                    example = {key: rows[key][row, : sizes[of.per_token_of][row]] for key, of in self._features.items()}
                    images = {IMAGES: rows[IMAGES][row, : sizes[IMAGES][row]].tolist()} if IMAGES in rows else {}
                    yield single_example(example) | images
            first += count


def single_example(example: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """An example that is not padded, [tokens] of each feature, in the tokenizer's own ids; see the beginning of this file."""
    if RATE in example or not {LOSS_MASK, LOSS_WEIGHT} & example.keys():
        tasks = {key: example[key] for key in (TASK_ID, *RATES) if key in example}
        return {name: example[key] for key, name in SINGLE_EXAMPLE.items()} | tasks
    is_chat = "tokens" in example
    input_ids, predicted = (example["tokens"],) * 2 if is_chat else (example["inputs"], example["targets"])
    is_trained = np.broadcast_to((example.get(LOSS_MASK, 1) == 1) & (example.get(LOSS_WEIGHT, 1) > 0), predicted.shape).copy()
    is_trained[0] &= not is_chat  # no model predicts the first token that it reads
    beside = {SPAN_ID: SPAN_ID in example, "targets": not is_chat, TASK_ID: TASK_ID in example, LOSS_WEIGHT: LOSS_WEIGHT in example}
    found = {"input_ids": input_ids, "labels": np.where(is_trained, predicted, np.int32(IGNORED))}
    for key in (key for key, is_there in beside.items() if is_there):
        nothing = BESIDE_LABELS.get(key)
        found[key] = predicted if nothing is None else np.where(is_trained, example[key], example[key].dtype.type(nothing))
    return found


def to_torch(values: np.ndarray) -> torch.Tensor:
    """A tensor of its own, with integers as int64. NumPy converts them: PyTorch would wake all its threads for it."""
    return torch.from_numpy(values.astype(np.int64) if values.dtype.kind in "iu" else values)
