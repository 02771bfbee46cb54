"""Indexed examples as PyTorch takes them, without TensorFlow: single ones, batches of model inputs, or packed rows.

A single example of texts, of a prompt and a completion, and of a conversation:

    input_ids    inputs     inputs                      tokens
    labels       targets    targets, or -100            tokens, or -100           -100 where no loss is
    span_id                 of each label, or 0         of each label, or 0       its loss group
    targets                 targets                                               what a decoder reads
    task_id      of each label, or -1; where it is asked for
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from ul2_tasks.converters.transformers import HuggingFaceChatConverter, HuggingFaceFeatureConverter
from ul2_tasks.example_features import IGNORED, IMAGES, LOSS_MASK, NO_TASK, SINGLE_EXAMPLE, SPAN_ID, TASK_ID, with_task_id
from ul2_tasks.pytorch.processes import Reader
from ul2_tasks.pytorch.states import ANOTHER, REMEDY, number_of, state_of
from ul2_tasks.random_access.batches import features_of, members_of
from ul2_tasks.random_access.numbering import NO_END, check_hosts
from ul2_tasks.random_access.sequence import Examples, read_rows

_AT_A_TIME = 512  # examples: one alone costs ten times as much as among others


class Indexed:
    """An iterator over a reader's share of indexed examples. It is at a number, and begins at any.

    `epochs` is None for no end, and `pipeline` is what a state says beside the number.
    """

    def __init__(
        self,
        examples: Examples,
        reader: Reader,
        converter: HuggingFaceFeatureConverter | HuggingFaceChatConverter | None,
        epochs: int | None,
        pipeline: Mapping[str, Any],
    ):
        self._examples, self._reader, self._converter = examples, reader, converter
        self._with_task_id = examples.task_id if converter is None else converter.task_id
        spec = features_of(members_of(examples.numbering))
        self._features = with_task_id(spec) if self._with_task_id else spec
        self._budgets = {key: int(length) for key, length in examples.budgets.items() if length is not None}
        self.pipeline = {**pipeline, **reader.worker_of_several}
        self._stop = None if epochs is None else examples.end_of(epochs)
        self._start, self._given, self._has_ended = examples.first, 0, False
        self._elements = self._read()
        if epochs is not None:
            check_hosts(pipeline["mixture"], pipeline["split"], examples.end_of(epochs) - examples.first, reader.of_shards[1])

    def resume(self, state: Mapping[str, Any]) -> bool:
        """Goes on where the state was taken; for an iterator that has given nothing yet. Says whether it was at the end."""
        self._start = number_of(state, self.pipeline, self._start)
        first, stop = self._examples.first, self._stop
        if self._start < first or (stop is not None and self._start > stop):
            raise ValueError(
                f"{ANOTHER}: it is at index {self._start}, and the epochs here begin at {first} and end at {stop}. {REMEDY}"
            )
        return self._start == stop

    def state(self) -> dict[str, Any]:
        """Where it is, see `UL2IterableDataset.state_dict`."""
        return state_of({"pipeline": dict(self.pipeline), "number": self._number()})

    def _number(self) -> int:
        if self._stop is None:
            return self._reader.number(self._start, self._given)
        return self._stop if self._has_ended else min(self._reader.number(self._start, self._given), self._stop)

    def __iter__(self) -> Indexed:
        return self

    def __next__(self) -> dict[str, Any]:
        try:
            element = next(self._elements)
        except StopIteration:
            self._has_ended = True
            raise
        self._given += 1
        return {name: values if name == IMAGES else to_torch(values) for name, values in element.items()}

    def _read(self) -> Iterator[dict[str, Any]]:
        share, joined = self._reader.share(self._start, self._examples.numbering.turns), self._reader.joined
        own = NO_END if self._stop is None else share.count(self._stop)
        at_a_time = joined * max(1, _AT_A_TIME // joined)
        for first in range(0, own, at_a_time):
            numbers = share.numbers(np.arange(first, min(first + at_a_time, own)))
            rows, sizes, _ = read_rows(self._examples, numbers, self._with_task_id)
            count = len(next(iter(rows.values())))
            converter, is_packed = self._converter, bool(self._examples.numbering.packed)
            if converter is not None and converter.batch_size is not None:
                of = {key: values for key, values in rows.items() if key in self._features}
                for start in range(0, count, joined):
                    part = slice(start, start + joined)
                    yield converter.row_format.arrays(
                        {key: values[part] for key, values in of.items()},
                        {key: each[part] for key, each in sizes.items()},
                        first=first + start,
                    )
            elif converter is not None or is_packed:
                if converter is not None:
                    known = None if is_packed else sizes
                    rows = converter.row_format.arrays(rows, known, self._budgets, first=first)
                yield from ({key: values[row] for key, values in rows.items()} for row in range(count))
            else:
                for row in range(count):
                    example = {key: rows[key][row, : sizes[of.per_token_of][row]] for key, of in self._features.items()}
                    images = {IMAGES: rows[IMAGES][row, : sizes[IMAGES][row]].tolist()} if IMAGES in rows else {}
                    yield single_example(example) | images


def single_example(example: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """An example that is not padded, [tokens] of each feature, in the tokenizer's own ids; see the beginning of this file."""
    tasks = {TASK_ID: example[TASK_ID]} if TASK_ID in example else {}
    if LOSS_MASK not in example:
        return {name: example[key] for key, name in SINGLE_EXAMPLE.items()} | tasks
    is_chat = "tokens" in example
    input_ids, predicted = (example["tokens"],) * 2 if is_chat else (example["inputs"], example["targets"])
    is_trained = example[LOSS_MASK] == 1
    is_trained[0] &= not is_chat  # no model predicts the first token that it reads
    labels, spans = np.where(is_trained, predicted, np.int32(IGNORED)), np.where(is_trained, example[SPAN_ID], np.uint8(0))
    tasks = {key: np.where(is_trained, each, np.int32(NO_TASK)) for key, each in tasks.items()}
    return {"input_ids": input_ids, "labels": labels, SPAN_ID: spans} | ({} if is_chat else {"targets": predicted}) | tasks


def to_torch(values: np.ndarray) -> torch.Tensor:
    """A tensor of its own, with integers as int64."""
    tensor = torch.from_numpy(values)
    return tensor.long() if values.dtype.kind in "iu" else tensor
