"""A collate function over elements of `Examples`: the batches that `UL2IterableDataset` gives, with a sampler of one's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ul2_tasks.converters.hugging_face import HuggingFaceFeatureConverter
from ul2_tasks.converters.row_format import RowFormat, packed_inputs
from ul2_tasks.example_features import EXAMPLE, TASK, TASK_ID, Feature
from ul2_tasks.pytorch.dataset import check_converter
from ul2_tasks.pytorch.indexed import model_inputs, to_torch
from ul2_tasks.random_access.batches import members_of
from ul2_tasks.random_access.records import features_of
from ul2_tasks.random_access.sequence import Examples


@dataclasses.dataclass(frozen=True)
class ExamplesCollator:
    """Makes a batch of elements, see `HuggingFaceFeatureConverter.collator`. It can be pickled.

    `features` are those of an example that is not packed, `lengths` the budgets in tokens, and `tasks` the names that `task_id`
    counts.
    """

    row_format: RowFormat
    features: Mapping[str, Feature]
    lengths: Mapping[str, int]
    tasks: tuple[str, ...]

    @classmethod
    def of(cls, converter: HuggingFaceFeatureConverter, examples: Examples) -> ExamplesCollator:
        """For these examples, or a ValueError where the converter does not fit them."""
        if not isinstance(examples, Examples):
            raise ValueError(f"examples must be what ul2_tasks.examples(..) returns of texts, got {examples!r:.100}. Pass these.")
        if converter.batch_size is not None:
            raise ValueError(
                f"batch_size must be None for a collator, got {converter.batch_size}. Pass it to the DataLoader, which has it."
            )
        check_converter(converter, examples, is_optional=False)
        if converter.row_format.task_id and converter.pack and not examples.task_id:
            raise ValueError(
                "examples must have the task of each target of a packed sequence, got some without. Pass task_id=True to"
                " ul2_tasks.examples(.., pack=True)."
            )
        lengths = {key: length for key, length in examples.budgets.items() if length is not None}
        tasks = tuple(each.task for each in examples.tasks)
        return cls(converter.row_format, features_of(members_of(examples.numbering)), lengths, tasks)

    def __call__(self, elements: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """[B, length] int64 for each model input, in the order of the elements."""
        if isinstance(elements, str | Mapping) or not len(elements):
            raise ValueError(f"elements must be a list of at least one element of examples, got {elements!r:.100}.")
        of_example = [*self.features, *([TASK] if self.row_format.task_id else [])]
        names = [f"{key}_segment_ids" for key in EXAMPLE] if self.row_format.pack else of_example
        for number, element in enumerate(elements):
            if not (isinstance(element, Mapping) and element.keys() >= {*names}):
                got = sorted(element) if isinstance(element, Mapping) else element
                raise ValueError(
                    f"element {number} of the batch must have {sorted(names)}, as those of the examples that the collator was made"
                    f" for, got {got!r:.200}. Pass these examples to the DataLoader."
                )
        if self.row_format.pack:
            stacked = {key: np.stack([element[key] for element in elements]) for key in elements[0]}
            batch = packed_inputs(stacked, self.row_format, dtype=np.int32)
        else:
            batch = self._padded(elements)
        return {name: to_torch(values) for name, values in batch.items()}

    def _padded(self, elements: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
        sizes = {key: np.array([len(element[key]) for element in elements], np.int64) for key in EXAMPLE}
        for key, longest in self.lengths.items() if self.row_format.padding == "max_length" else ():
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
        if self.row_format.task_id:
            of_each = np.array([self.tasks.index(element[TASK]) for element in elements], np.int32)
            rows[TASK_ID] = np.broadcast_to(of_each[:, np.newaxis], rows["targets"].shape)
        return model_inputs(self.row_format, self.lengths, rows, sizes, 0)
