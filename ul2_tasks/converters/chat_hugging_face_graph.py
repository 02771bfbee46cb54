"""`HuggingFaceChatConverter` of a `tf.data.Dataset`: its conversations are checked and packed in the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.converters.encoder_decoder import EXAMPLES_PER_BATCH, as_long_as, pack_rows, pool_size, with_features_alone
from ul2_tasks.converters.hugging_face_graph import shift_of_ids
from ul2_tasks.converters.marks import checked
from ul2_tasks.converters.rows import row_source
from ul2_tasks.example_features import CHAT, IGNORED, LOSS_MASK, SPAN_ID
from ul2_tasks.graphs import no_autograph
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

    def __init__(self, pack: bool, pad_token_id: int, vocabulary: seqio.Vocabulary | None, names: tuple[str, ...], write: Written):
        """Takes the settings, which are checked, and the names of the model inputs."""
        self._pad_token_id, self._vocabulary, self._write = pad_token_id, vocabulary, write
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
            is_token = rows["tokens_segment_ids" if self.pack else TOKENS] > 0  # SeqIO has 0 for padding alone
            return self._write({**rows, TOKENS: rows[TOKENS] - np.int32(shift)}, is_token)

        if (source := row_source(ds)) and (found := source.rows({TOKENS: length}, self.pack, written)) is not None:
            return found
        at_a_time = pool_size({TOKENS: length}) if self.pack else EXAMPLES_PER_BATCH

        def convert(examples: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            examples = checked(examples, task_feature_lengths, CHAT)
            rows = pack_rows(examples, task_feature_lengths, CHAT) if self.pack else _own_rows(examples, length)
            return _model_inputs(rows, shift, self._pad_token_id, self.MODEL_FEATURES)

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


def _model_inputs(
    rows: Mapping[str, tf.Tensor], shift: int, pad_token_id: int, names: Mapping[str, object]
) -> dict[str, tf.Tensor]:
    """[R, length] int32 for each of the model inputs that are named, see `HuggingFaceChatConverter`."""
    is_token, positions = rows["tokens_segment_ids"] > 0, rows["tokens_positions"]
    is_trained = is_token & (rows[LOSS_MASK] == 1) & (positions > 0)
    length = tf.shape(positions)[1]
    sizes = tf.math.count_nonzero(is_token, axis=1, keepdims=True, dtype=tf.int32)
    padding_starts = 0 if "attention_mask" in names else sizes
    ids = rows[TOKENS] - shift
    inputs = {
        "input_ids": tf.where(is_token, ids, pad_token_id),
        "labels": tf.where(is_trained, ids, IGNORED),
        "span_id": tf.where(is_trained, tf.cast(rows[SPAN_ID], tf.int32), 0),
        "position_ids": tf.where(is_token, positions, tf.range(length) - padding_starts),
        "attention_mask": tf.cast(is_token, tf.int32),
    }
    return {name: tf.ensure_shape(inputs[name], [None, rows[TOKENS].shape[1]]) for name in names}
