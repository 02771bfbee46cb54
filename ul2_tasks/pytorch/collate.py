"""A collate function over elements of `Examples`: the batches that `UL2IterableDataset` gives, with a sampler of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ul2_tasks.example_features import TASK, TASK_ID, token_features
from ul2_tasks.extras import needs
from ul2_tasks.models.arrays import side_by_side
from ul2_tasks.models.transformers import HuggingFaceChatConverter, HuggingFaceFeatureConverter
from ul2_tasks.random_access.batches import features_of, members_of
from ul2_tasks.random_access.sequence import Examples

with needs("ExamplesCollator", "torch"):
    import torch

    from ul2_tasks.pytorch.dataset import check_converter
    from ul2_tasks.pytorch.elements import to_torch


class ExamplesCollator:
    """A collate function for a DataLoader over `ul2_tasks.examples(..)`, with a sampler of your own.

        examples = ul2_tasks.examples(mixture, {"inputs": 512, "targets": 512})
        collator = ExamplesCollator(HuggingFaceFeatureConverter("longest", model=model), examples)
        loader = torch.utils.data.DataLoader(examples, batch_size=8, sampler=sampler, collate_fn=collator)

    A batch has the tensors that `UL2IterableDataset` gives of the same examples. The function can be pickled, and holds no
    examples.
    """

    def __init__(self, converter: HuggingFaceFeatureConverter | HuggingFaceChatConverter, examples: Examples):
        """
        Args:
            converter: makes the model inputs.
            examples: what `examples` returned, also with pack=True or as another epoch.

        Raises:
            ValueError: the converter has a batch size, which the DataLoader decides; or it does not fit the examples: `pack`
                differs, they are of another kind, or a sentinel or a mode has no row in the model's embedding.
        """
        if not isinstance(examples, Examples):
            raise ValueError(
                f"examples must be what ul2_tasks.examples(..) returns of texts, or of a Chat, got {examples!r:.100}. Pass these."
            )
        if converter.batch_size is not None:
            raise ValueError(
                f"batch_size must be None for a collator, got {converter.batch_size}. Pass it to the DataLoader, which has it."
            )
        check_converter(converter, examples, is_optional=False)
        if examples.numbering.lengths and converter.row_format.padding == "max_length" and not converter.pack:
            raise ValueError("padding must be 'longest', or pack True, for stages with lengths of their own, got 'max_length'.")
        if converter.task_id and converter.pack and not examples.task_id:
            raise ValueError(
                "examples must have the task of each target of a packed sequence, got some without. Pass task_id=True to"
                " ul2_tasks.examples(.., pack=True)."
            )
        self.converter, self.features = converter, features_of(members_of(examples.numbering))
        self.lengths = {key: length for key, length in examples.budgets.items() if length is not None}
        self.tasks = tuple(each.task for each in examples.tasks)

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
        sizes: dict[str, np.ndarray] | None = None
        if converter.pack:
            rows = {key: np.stack([element[key] for element in elements]) for key in elements[0]}
        else:
            sizes = {key: np.array([len(element[key]) for element in elements], np.int64) for key in of_tokens}
            rows = self._side_by_side(elements, sizes)
        batch = converter.row_format.arrays(rows, sizes, self.lengths)
        return {name: to_torch(values) for name, values in batch.items()}

    def _side_by_side(self, elements: Sequence[Mapping[str, Any]], sizes: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Each feature of examples, a row for each, [B, longest]."""
        is_fixed = self.converter.row_format.padding == "max_length"
        for key, longest in self.lengths.items() if is_fixed else ():
            if sizes[key].max() > longest:
                raise ValueError(
                    f"element {sizes[key].argmax()} of the batch must have at most {longest} tokens of {key}, as the examples that"
                    f" the collator was made for, got {sizes[key].max()}. Pass these examples to the DataLoader."
                )
        rows = {}
        for key, feature in self.features.items():
            rows[key], _ = side_by_side([element[key] for element in elements], feature.dtype)
        if self.converter.task_id:
            of_each = np.array([self.tasks.index(element[TASK]) for element in elements], np.int32)
            rows[TASK_ID] = np.broadcast_to(of_each[:, np.newaxis], rows[token_features(self.features)[-1]].shape)
        return rows
