"""A collate function over elements of `Examples`: the batches that `UL2IterableDataset` gives, with a sampler of one's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ul2_tasks.converters.chat_hugging_face import HuggingFaceChatConverter, chat_inputs
from ul2_tasks.converters.hugging_face import HuggingFaceFeatureConverter
from ul2_tasks.converters.row_format import packed_inputs
from ul2_tasks.example_features import TASK, TASK_ID, Feature, token_features
from ul2_tasks.pytorch.dataset import check_converter
from ul2_tasks.pytorch.indexed import model_inputs, to_torch
from ul2_tasks.random_access.batches import features_of, members_of
from ul2_tasks.random_access.sequence import Examples


@dataclasses.dataclass(frozen=True)
class ExamplesCollator:
    """Makes a batch of elements, see `HuggingFaceFeatureConverter.collator`. It can be pickled.

    `features` are those of an example that is not packed, `lengths` the budgets in tokens, and `tasks` the names that `task_id`
    counts.
    """

    converter: HuggingFaceFeatureConverter | HuggingFaceChatConverter
    features: Mapping[str, Feature]
    lengths: Mapping[str, int]
    tasks: tuple[str, ...]

    @classmethod
    def of(cls, converter: HuggingFaceFeatureConverter | HuggingFaceChatConverter, examples: Examples) -> ExamplesCollator:
        """For these examples, or a ValueError where the converter does not fit them."""
        if not isinstance(examples, Examples):
            raise ValueError(
                f"examples must be what ul2_tasks.examples(..) returns of texts, or of a Chat, got {examples!r:.100}. Pass these."
            )
        if getattr(converter, "batch_size", None) is not None:
            raise ValueError(
                f"batch_size must be None for a collator, got {converter.batch_size}. Pass it to the DataLoader, which has it."
            )
        check_converter(converter, examples, is_optional=False)
        if converter.task_id and converter.pack and not examples.task_id:
            raise ValueError(
                "examples must have the task of each target of a packed sequence, got some without. Pass task_id=True to"
                " ul2_tasks.examples(.., pack=True)."
            )
        lengths = {key: length for key, length in examples.budgets.items() if length is not None}
        tasks = tuple(each.task for each in examples.tasks)
        return cls(converter, features_of(members_of(examples.numbering)), lengths, tasks)

    def __call__(self, elements: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """[B, length] int64 for each model input, in the order of the elements."""
        if isinstance(elements, str | Mapping) or not len(elements):
            raise ValueError(f"elements must be a list of at least one element of examples, got {elements!r:.100}.")
        converter, of_tokens = self.converter, token_features(self.features)
        names = [*self.features, *([TASK] if converter.task_id else [])]
        if converter.pack:
            names = [*(f"{key}_segment_ids" for key in of_tokens), *([TASK_ID] if converter.task_id else [])]
        for number, element in enumerate(elements):
            if not (isinstance(element, Mapping) and element.keys() >= {*names}):
                got = sorted(element) if isinstance(element, Mapping) else element
                raise ValueError(
                    f"element {number} of the batch must have {sorted(names)}, as those of the examples that the collator was made"
                    f" for, got {got!r:.200}. Pass these examples to the DataLoader, or to Trainer with"
                    " remove_unused_columns=False."
                )
        sizes: dict[str, np.ndarray] = {}
        if converter.pack:
            rows = {key: np.stack([element[key] for element in elements]) for key in elements[0]}
        else:
            sizes = {key: np.array([len(element[key]) for element in elements], np.int64) for key in of_tokens}
            rows = self._side_by_side(elements, sizes)
        if isinstance(converter, HuggingFaceChatConverter):
            batch = chat_inputs(converter, rows, sizes, self.lengths)
        elif converter.pack:
            batch = packed_inputs(rows, converter.row_format, dtype=np.int32)
        else:
            batch = model_inputs(converter.row_format, self.lengths, rows, sizes, 0)
        return {name: to_torch(values) for name, values in batch.items()}

    def _side_by_side(self, elements: Sequence[Mapping[str, Any]], sizes: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Each feature of examples, a row for each, [B, longest]."""
        is_fixed = isinstance(self.converter, HuggingFaceChatConverter) or self.converter.row_format.padding == "max_length"
        for key, longest in self.lengths.items() if is_fixed else ():
            if sizes[key].max() > longest:
                raise ValueError(
                    f"element {sizes[key].argmax()} of the batch must have at most {longest} tokens of {key}, as the examples that"
                    f" the collator was made for, got {sizes[key].max()}. Pass these examples to the DataLoader."
                )
        rows = {}
        for key, feature in self.features.items():
            of_each = sizes[feature.per_token_of]
            rows[key] = np.zeros([len(elements), of_each.max()], feature.dtype)
            rows[key][np.arange(of_each.max()) < of_each[:, np.newaxis]] = np.concatenate([element[key] for element in elements])
        if self.converter.task_id:
            of_each = np.array([self.tasks.index(element[TASK]) for element in elements], np.int32)
            rows[TASK_ID] = np.broadcast_to(of_each[:, np.newaxis], rows[token_features(self.features)[-1]].shape)
        return rows
