"""Rows for t5x that say of which task each target is, by which a model measures the loss of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.converters.encoder_decoder import EncDecFeatureConverter
from ul2_tasks.converters.prefix_lm import PrefixLMFeatureConverter
from ul2_tasks.converters.rows import row_source
from ul2_tasks.datasets import facts_of
from ul2_tasks.example_features import NO_TASK, TASK_ID
from ul2_tasks.scalars import as_python

_TASK_IDS = {"decoder_task_ids": seqio.FeatureConverter.FeatureSpec(tf.int32)}


class _WithTaskIds(seqio.FeatureConverter):
    """A converter whose rows have `decoder_task_ids`, too: of each target the index of its task, int32.

    The index is -1 where there is no loss. The examples must have random access. Those of tasks that are not of this package, on
    which a run may be evaluated, are -1 everywhere.
    """

    def __init__(self, tasks: Sequence[str], **settings: Any):
        """
        Args:
            tasks: the names of the tasks that have an index.
            settings: the arguments of the converter without this feature.
        """
        super().__init__(**settings)
        self.tasks = tuple(tasks)

    def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, int]) -> Mapping[str, int]:
        """The length of each of the model's features."""
        lengths = super().get_model_feature_lengths(task_feature_lengths)
        return {**lengths, "decoder_task_ids": lengths["decoder_target_tokens"]}

    def _convert_features(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
        if facts_of(ds) is None:  # tasks of others

            def without_tasks(rows: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
                return {**rows, "decoder_task_ids": tf.fill(tf.shape(rows["decoder_target_tokens"]), NO_TASK)}

            return super()._convert_features(ds, task_feature_lengths).map(without_tasks, num_parallel_calls=tf.data.AUTOTUNE)
        rows = None
        if source := row_source(ds):
            names = [info.task for info in source.tasks]
            if others := sorted({*names} - {*self.tasks}):
                raise ValueError(f"the examples must be of the tasks {list(self.tasks)}, got some of {others}. Add these.")
            index = np.array([*(self.tasks.index(name) for name in names), NO_TASK], np.int32)

            def with_tasks(rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
                return self._model_arrays({**rows, TASK_ID: index[rows[TASK_ID]]})

            lengths = {key: as_python(length) for key, length in task_feature_lengths.items()}
            rows = source.rows(lengths, self.pack, with_tasks, with_task_id=True)
        if rows is None:
            raise ValueError(
                "the examples must be those of get_dataset of tasks of ul2_tasks for decoder_task_ids, got others. Leave"
                " other tasks out of the mixture, and change batches instead of examples."
            )
        return rows


class TaskIdFeatureConverter(_WithTaskIds, EncDecFeatureConverter):
    """`EncDecFeatureConverter` with `decoder_task_ids`, [targets] int32; see `_WithTaskIds`."""

    MODEL_FEATURES: Mapping[str, seqio.FeatureConverter.FeatureSpec] = {**EncDecFeatureConverter.MODEL_FEATURES, **_TASK_IDS}


class PrefixLMTaskIdFeatureConverter(_WithTaskIds, PrefixLMFeatureConverter):
    """`PrefixLMFeatureConverter` with `decoder_task_ids`, [inputs + targets] int32; see `_WithTaskIds`."""

    MODEL_FEATURES: Mapping[str, seqio.FeatureConverter.FeatureSpec] = {**PrefixLMFeatureConverter.MODEL_FEATURES, **_TASK_IDS}
