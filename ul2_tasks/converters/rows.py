"""`RowSource`: a dataset of examples that can give the rows of a model whole, without giving its examples one by one before.

tf.data costs microseconds for each element and step. A feature converter asks the dataset that it gets: one that comes from
numbers (`addresses.dataset`) makes batches of rows, padded or packed; any other has no such source, and is batched again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from ul2_tasks.datasets import facts_of
from ul2_tasks.example_features import IMAGES


class RowSource(Protocol):
    @property
    def tasks(self) -> Sequence[Any]:
        """The tasks of the mixture, `random_access.tasks.TaskInfo`, which `task_id` counts from 0."""

    def rows(
        self,
        lengths: Mapping[str, int],
        pack: bool,
        convert: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]],
        with_task_id: bool = False,
    ) -> tf.data.Dataset | None:
        """The features of rows.

        `lengths` are those of the rows of each feature, in tokens. `convert` makes the features of a batch of rows, as `pad_rows`
        or `pack_rows` returns them, but in NumPy; `with_task_id` adds "task_id", see `random_access.batches.make_batch`. None
        where there are no rows of these lengths, or none are packed.
        """


def row_source(dataset: tf.data.Dataset) -> RowSource | None:
    """What gives the rows of a dataset, if it has that. Refuses images, see `refuse_images`."""
    refuse_images(dataset)
    facts = facts_of(dataset)
    return facts.source if facts else None


def refuse_images(dataset: tf.data.Dataset) -> None:
    """Raises a ValueError where examples have images, of which a converter of ids would leave the placeholders."""
    if isinstance(dataset.element_spec, Mapping) and IMAGES in dataset.element_spec:
        raise ValueError("the examples must have no images with this converter. Use T5Gemma2FeatureConverter.")
