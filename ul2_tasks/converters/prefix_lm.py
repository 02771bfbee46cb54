"""Turns examples into the features of a decoder-only model with a prefix: each is one sequence, its inputs and then its targets.

SeqIO's converter takes examples one at a time, and its rows have no index. Here a batch of rows is made from the indices of its
examples. So a run can continue at any row, on any number of hosts.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.aligned import zeros_for_tensors
from ul2_tasks.compiled import compiled
from ul2_tasks.converters.encoder_decoder import BOS_ID
from ul2_tasks.converters.rows import row_source
from ul2_tasks.example_features import EXAMPLE, LOSS_MASK, NO_TASK, TASK_ID
from ul2_tasks.scalars import as_python

_FEATURES = ("target_tokens", "input_tokens", "loss_weights", "causal_attention", "segment_ids", "positions", "task_ids")
_OF_PACKED = ("segment_ids", "positions")


class PrefixLMFeatureConverter(seqio.PrefixLMFeatureConverter):
    """Converts examples for decoder-only models of t5x as `seqio.PrefixLMFeatureConverter` does, but with random access.

    A row is the inputs and the targets of each of its examples, [inputs + targets] int32. With `pack=False` it is bit-identical to
    SeqIO's.

    With `pack=True` a row has the examples that a row of `EncDecFeatureConverter` has, so it has an index, and a run can resume on
    another number of hosts. No example is split or lost. Where examples have a `loss_mask` of their targets,
    `decoder_loss_weights` is 0 where it is 0.

    Examples of a stream are converted, and packed, by SeqIO's converter.
    """

    def __init__(self, pack: bool = True, use_custom_packing_ops: bool = False):
        """
        Args:
            pack, use_custom_packing_ops: as for `seqio.PrefixLMFeatureConverter`.
        """
        self._arguments = {"pack": pack, "use_custom_packing_ops": use_custom_packing_ops}
        super().__init__(**self._arguments, apply_length_check=False)  # that check is a step for each example, without index

    def _convert_features(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
        lengths = {key: as_python(length) for key, length in task_feature_lengths.items()}
        if (source := row_source(ds)) and (rows := source.rows(lengths, self.pack, self._model_arrays)) is not None:
            return rows
        if LOSS_MASK in ds.element_spec:
            raise ValueError(
                "examples with a loss_mask must be those of get_dataset, not changed after it, because SeqIO's converter"
                " ignores the mask. Change the batches instead, or use EncDecFeatureConverter."
            )
        return seqio.PrefixLMFeatureConverter(**self._arguments)(ds, task_feature_lengths)

    def _model_arrays(self, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The features of rows as `random_access.batches.make_batch` gives them, [R, inputs + targets] int32 each.

        Where rows have the tasks of their targets, so has `decoder_task_ids`, and -1 where nothing is trained on.
        """
        inputs, targets = (rows[key] for key in EXAMPLE)
        segment_ids = [rows.get(f"{key}_segment_ids", (rows[key] != EXAMPLE[key].padding).astype(np.int32)) for key in EXAMPLE]
        is_trained = rows[LOSS_MASK] == 1 if LOSS_MASK in rows else segment_ids[1] > 0
        task_ids = rows.get(TASK_ID, np.full_like(targets, NO_TASK))
        features = zeros_for_tensors(len(_FEATURES), (len(inputs), inputs.shape[1] + targets.shape[1]))
        _join(inputs, targets, *segment_ids, is_trained, task_ids, self.pack, *features)
        absent = {*(() if self.pack else _OF_PACKED), *(() if TASK_ID in rows else ("task_ids",))}
        return {f"decoder_{name}": values for name, values in zip(_FEATURES, features) if name not in absent}


@compiled
def _join(
    inputs,
    targets,
    segments_of_inputs,
    segments_of_targets,
    is_trained,
    of_task,
    pack,
    tokens,
    tokens_read,
    weights,
    in_prefix,
    segment_ids,
    positions,
    task_ids,
):
    """Writes the features of a decoder, from `tokens` on, [R, inputs + targets], which are 0.

    Segment ids count from 1 without a gap, and each segment has inputs and targets. The token that reads the last of the inputs,
    and tells the first of the targets, is in the prefix, too, as in SeqIO.
    """
    task_ids[:] = NO_TASK
    for row in range(len(inputs)):
        end, read, said, segment = 0, 0, 0, 1
        while read < inputs.shape[1] and segments_of_inputs[row, read] == segment:
            start = end
            while read < inputs.shape[1] and segments_of_inputs[row, read] == segment:
                tokens[row, end] = inputs[row, read]
                read += 1
                end += 1
            prefix = end + 1
            while said < targets.shape[1] and segments_of_targets[row, said] == segment:
                tokens[row, end] = targets[row, said]
                weights[row, end] = is_trained[row, said]
                if weights[row, end]:
                    task_ids[row, end] = of_task[row, said]
                said += 1
                end += 1
            for place in range(start, end):
                tokens_read[row, place] = BOS_ID if place == start else tokens[row, place - 1]
                in_prefix[row, place] = place < prefix
                segment_ids[row, place] = segment
                positions[row, place] = place - start
            segment += 1
        if end < tokens.shape[1]:
            tokens_read[row, end] = tokens[row, end - 1] if end and not pack else BOS_ID
