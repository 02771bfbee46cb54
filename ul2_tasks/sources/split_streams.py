"""Some of a dataset's documents, by their ids or texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from ul2_tasks.example_features import DOCUMENTS_PER_BATCH
from ul2_tasks.graphs import python_op
from ul2_tasks.sources.records import PROBLEM


def documents_that(
    is_own: Callable[[np.ndarray], np.ndarray], dataset: tf.data.Dataset, text_key: str, key: str, missing: str | None, source: str
) -> tf.data.Dataset:
    """The documents of which a function says so of many keys at once: the text and, where they are there, the key and the problem.

    Where `missing` is given, it is the problem of a document whose key is empty. `source` is for an error.
    """
    if not isinstance(dataset.element_spec, Mapping):
        dataset = dataset.map(lambda text: {text_key: text})
    kept = {text_key, key, PROBLEM} & set(dataset.element_spec)
    if key not in kept:
        raise ValueError(
            f"text_key and id_key must be features of {source}, {sorted(dataset.element_spec)}, got {key!r}. See"
            " docs/help/troubleshooting.md#a-field-is-missing."
        )

    def own(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        ids = batch[key] if batch[key].dtype == tf.string else tf.strings.as_string(batch[key])
        if missing:
            problem = batch.get(PROBLEM, tf.zeros_like(ids))
            batch = batch | {PROBLEM: tf.where((ids == "") & (problem == ""), missing, problem)}
        mask = tf.ensure_shape(python_op(is_own, [ids], tf.bool), [None])
        return {name: tf.boolean_mask(value, mask) for name, value in batch.items()}

    batches = dataset.map(lambda document: {name: document[name] for name in kept}).batch(DOCUMENTS_PER_BATCH)
    return batches.map(own, num_parallel_calls=tf.data.AUTOTUNE).unbatch()
