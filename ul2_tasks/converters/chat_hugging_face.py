"""Turns conversations into the inputs of decoder-only models of Hugging Face: `HuggingFaceChatConverter`.

tokens             5    6 7 8 9       4    2 3       two conversations, of which 7 8 and 2 are trained on
loss_mask          0    0 1 1 0       0    1 0
span_id            0    0 1 2 0       0    2 0

packed, in a row of 10                                   padded
input_ids          5    6 7 8    9    4    2    3    0 0     5    6 7 8    9 0 ..
labels          -100 -100 7 8 -100 -100    2 -100 -100 ..  -100 -100 7 8 -100 ..
span_id            0    0 1 2    0    0    2    0    0 0     0    0 1 2    0 0 ..
position_ids       0    1 2 3    4    0    1    2    0 1     0    1 2 3    4 5 ..
attention_mask  (none)                                       1    1 1 1    1 0 ..

Each value is at the position of its token; a model shifts the labels itself. It does not predict the first token of a conversation,
which has no label. The ids are the tokenizer's own.
"""

from __future__ import annotations

from collections.abc import Mapping

import seqio
import tensorflow as tf

from ul2_tasks.converters.encoder_decoder import EXAMPLES_PER_BATCH, as_long_as, pack_rows, pool_size, with_features_alone
from ul2_tasks.converters.hugging_face_graph import shift_of_ids
from ul2_tasks.converters.marks import checked
from ul2_tasks.example_features import CHAT, IGNORED, LOSS_MASK, SPAN_ID
from ul2_tasks.graphs import no_autograph
from ul2_tasks.scalars import as_python, is_integer

TOKENS = "tokens"


class HuggingFaceChatConverter(seqio.FeatureConverter):
    """A SeqIO converter of conversations for decoder-only models of `transformers`.

        dataset = UL2IterableDataset("mine_chat", {"tokens": 4096}, feature_converter=HuggingFaceChatConverter())
        LossGroupTrainer(model, arguments, train_dataset=dataset).train()

    An element is a row of `task_feature_lengths["tokens"]` tokens, [length] int32 for each of:

    * `input_ids`: the tokenizer's own ids.
    * `labels`: the same ids where they are trained on, -100 elsewhere.
    * `span_id`: the loss group of each label, 1 for reasoning, 2 for the answer, 3 and more for others; 0 elsewhere. For
      `LossGroupTrainer`.
    * `position_ids`: they begin at 0 with each conversation of a packed row.
    * `attention_mask`, not with `pack`: 1 for tokens, 0 for padding.

    **Packed rows have no attention mask.** Models of Transformers (4.53 and later) find conversations in a row by positions, but
    only without a mask and a cache: otherwise each conversation would attend to the one before it. So `model.config.use_cache` must
    be False, as Trainer of Transformers 5 sets it. The padding of a row is a last conversation without labels. Flash attention
    uses the positions only in batches of one row.

    A conversation that is longer than a row raises an error.

    **Ids.** Tasks of this package tell the converter whether their ids are offset by one for SeqIO. For other tasks whose
    vocabulary has a `special_ids.id_shift` of 1, pass `vocabulary`.
    """

    TASK_FEATURES: Mapping[str, seqio.FeatureConverter.FeatureSpec] = {
        key: seqio.FeatureConverter.FeatureSpec(dtype=tf.as_dtype(feature.dtype)) for key, feature in CHAT.items()
    }
    PACKING_FEATURE_DTYPES: Mapping[str, tf.DType] = {}

    def __init__(self, pack: bool = True, pad_token_id: int = 0, vocabulary: seqio.Vocabulary | None = None):
        """
        Args:
            pack: whether several conversations share a row.
            pad_token_id: the id that pads `input_ids`.
            vocabulary: of the tasks, for tasks of other packages whose ids are offset by one.

        Raises:
            ValueError: an argument has a value that is not supported; or, when it converts, the tasks' ids are offset and those of
                `vocabulary` are not.
        """
        if not is_integer(pad_token_id, at_least=0):
            raise ValueError(f"pad_token_id must be an id, 0 or more, got {pad_token_id!r}.")
        self._pad_token_id = int(pad_token_id)
        self._vocabulary = vocabulary
        names = ("input_ids", "labels", "span_id", "position_ids", *(() if pack else ("attention_mask",)))
        self.MODEL_FEATURES = dict.fromkeys(names, seqio.FeatureConverter.FeatureSpec(dtype=tf.int32))
        super().__init__(pack=pack, apply_length_check=False)  # `checked` checks a batch at once

    def __call__(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
        """
        Args:
            ds: conversations, with `tokens` int32, and for each token `loss_mask` and `span_id` uint8.
            task_feature_lengths: {"tokens": int}, the length of a row.

        Returns:
            A dataset of rows.

        Raises:
            ValueError: there are other lengths; the dataset lacks a feature; or the vocabulary is not the tasks', see above.
        """
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
