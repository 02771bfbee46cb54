"""`HuggingFaceChatConverter` of a `tf.data.Dataset`: its conversations are checked and packed in the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.converters.encoder_decoder import EXAMPLES_PER_BATCH, as_long_as, pack_rows, pool_size, with_features_alone
from ul2_tasks.converters.hugging_face_graph import shift_of_ids
from ul2_tasks.converters.marks import checked
from ul2_tasks.converters.row_format import TASK_ID_OF_STREAM
from ul2_tasks.converters.rows import row_source
from ul2_tasks.example_features import CHAT
from ul2_tasks.graphs import no_autograph, python_op
from ul2_tasks.scalars import as_python

TOKENS = "tokens"
# Of rows in the tokenizer's own ids, and whether each place has a token: the model inputs, [rows, length] int32.
Written = Callable[[Mapping[str, np.ndarray], np.ndarray], dict[str, np.ndarray]]


class GraphChatConverter(seqio.FeatureConverter):
    """See `chat_hugging_face.HuggingFaceChatConverter`. `write` makes its model inputs of rows that are packed before."""

    TASK_FEATURES: Mapping[str, seqio.FeatureConverter.FeatureSpec] = {
        key: seqio.FeatureConverter.FeatureSpec(dtype=tf.as_dtype(feature.dtype)) for key, feature in CHAT.items()
    }
    PACKING_FEATURE_DTYPES: Mapping[str, tf.DType] = {}

    def __init__(self, pack: bool, vocabulary: seqio.Vocabulary | None, names: tuple[str, ...], write: Written, task_id: bool):
        """Takes the settings, which are checked, and the names of the model inputs."""
        if task_id:
            raise ValueError(TASK_ID_OF_STREAM)
        self._vocabulary, self._write = vocabulary, write
        self.MODEL_FEATURES = dict.fromkeys(names, seqio.FeatureConverter.FeatureSpec(dtype=tf.int32))
        super().__init__(pack=pack, apply_length_check=False)  # `checked` checks a batch at once

    def __call__(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
        """See `chat_hugging_face.HuggingFaceChatConverter`."""
        if task_feature_lengths.keys() != {TOKENS}:
            raise ValueError(f'task_feature_lengths must be {{"tokens": the length of a row}}, got {dict(task_feature_lengths)}.')
        return super().__call__(ds, dict.fromkeys(CHAT, as_python(task_feature_lengths[TOKENS])))

    def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, int]) -> Mapping[str, int]:
        """The length of each model input."""
        return dict.fromkeys(self.MODEL_FEATURES, task_feature_lengths[TOKENS])

    @no_autograph
    def _convert_features(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
        shift = shift_of_ids(ds, self._vocabulary)
        length = task_feature_lengths[TOKENS]

        def written(rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            is_token = rows.get("tokens_segment_ids", rows[TOKENS]) > 0  # of rows without segments SeqIO has 0 for padding alone
            return self._write({**rows, TOKENS: rows[TOKENS] - np.int32(shift)}, is_token)

        if (source := row_source(ds)) and (found := source.rows({TOKENS: length}, self.pack, written)) is not None:
            return found
        at_a_time = pool_size({TOKENS: length}) if self.pack else EXAMPLES_PER_BATCH

        def convert(examples: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            examples = checked(examples, task_feature_lengths, CHAT)
            rows = pack_rows(examples, task_feature_lengths, CHAT) if self.pack else _own_rows(examples, length)
            made = python_op(
                lambda *arrays: list(written(dict(zip(rows, arrays))).values()),
                list(rows.values()),
                [tf.int32] * len(self.MODEL_FEATURES),
            )
            return {name: tf.ensure_shape(values, [None, length]) for name, values in zip(self.MODEL_FEATURES, made)}

        batches = with_features_alone(ds, CHAT).padded_batch(
            at_a_time, padding_values={key: tf.constant(feature.absent, feature.dtype) for key, feature in CHAT.items()}
        )
        rows = batches.map(convert, num_parallel_calls=tf.data.AUTOTUNE).unbatch()
        return rows if self.pack else as_long_as(ds, rows)


def _own_rows(examples: Mapping[str, tf.Tensor], length: int) -> dict[str, tf.Tensor]:
    """A row for each conversation, of the features that `pack_rows` gives."""
    tokens = examples[TOKENS]
    width = [[0, 0], [0, length - tf.shape(tokens)[1]]]
    rows = {key: tf.pad(feature, width, constant_values=CHAT[key].absent) for key, feature in examples.items()}
    is_token = tf.cast(rows[TOKENS] >= 0, tf.int32)
    return {**rows, "tokens_segment_ids": is_token, "tokens_positions": is_token * tf.range(length)}
