"""Turns conversations into the features of a model, many at a time: padded or packed, and shifted, with their loss masks.

Each token keeps its loss mask and its loss group. Rows are made by lengths, because in a mask 0 is a value, and not padding. The
features of t5x's models, of two conversations in a row of 10:

    tokens                   5 6 7 8 9    5 3 2 9        of a conversation
    loss_mask                0 0 1 1 0    0 1 1 0

    decoder_target_tokens    5 6 7 8 9    5 3 2 9    0
    decoder_input_tokens     0 5 6 7 8    0 5 3 2    0
    decoder_loss_weights     0 0 1 1 0    0 1 1 0    0        of the target at this position
    decoder_segment_ids      1 1 1 1 1    2 2 2 2    0
    decoder_positions        0 1 2 3 4    0 1 2 3    0
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.converters.encoder_decoder import (
    BOS_ID,
    EXAMPLES_PER_BATCH,
    as_long_as,
    decoder_arrays,
    decoder_features,
    model_arrays,
    model_features,
    pack_rows,
    pad_rows,
    pool_size,
    with_features_alone,
)
from ul2_tasks.converters.marks import absent, checked, padded
from ul2_tasks.converters.rows import row_source
from ul2_tasks.datasets import facts_of, known
from ul2_tasks.example_features import CHAT, LOSS_MASK, PROMPT_COMPLETION, SPAN_ID, TEXT, Feature
from ul2_tasks.graphs import no_autograph
from ul2_tasks.scalars import as_python


def _specs(spec: Mapping[str, Feature]) -> dict[str, seqio.FeatureConverter.FeatureSpec]:
    return {key: seqio.FeatureConverter.FeatureSpec(tf.as_dtype(feature.dtype)) for key, feature in spec.items()}


class _MarkedFeatureConverter(seqio.FeatureConverter):
    """What the two converters have in common. `SPEC` has the features of an example, `SIDES` the side of each token feature."""

    SPEC: Mapping[str, Feature]
    SIDES: Mapping[str, str]

    def __init_subclass__(cls):
        names = [f"{side}_input_tokens" for side in cls.SIDES.values()]
        names += ["decoder_target_tokens", "decoder_loss_weights", "decoder_span_ids"]
        cls.TASK_FEATURES = _specs(cls.SPEC)
        cls.MODEL_FEATURES = dict.fromkeys(names, seqio.FeatureConverter.FeatureSpec(tf.int32))
        packing = [f"{side}_{what}" for side in cls.SIDES.values() for what in ("segment_ids", "positions")]
        cls.PACKING_FEATURE_DTYPES = dict.fromkeys(packing, tf.int32)

    def __init__(self, pack: bool = True, use_custom_packing_ops: bool = False):
        """
        Args:
            pack: whether several conversations share a row. None is truncated, and none attends to another.
            use_custom_packing_ops: must be False. t5x passes it.

        Raises:
            ValueError: `use_custom_packing_ops` is True.
        """
        if use_custom_packing_ops:
            raise ValueError("use_custom_packing_ops must be False, got True: SeqIO's packing loses masks. Leave it out.")
        super().__init__(pack=pack, apply_length_check=False, bos_id=BOS_ID)  # `checked` checks a batch at once

    def __call__(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
        """The model's features.

        Args:
            ds: conversations.
            task_feature_lengths: of the rows, in tokens, for features of tokens only: masks have the length of their tokens.

        Returns:
            A dataset of rows.

        Raises:
            ValueError: there are lengths of other features, or some are missing; or the dataset lacks a feature.
        """
        if task_feature_lengths.keys() != self.SIDES.keys():
            raise ValueError(
                f"task_feature_lengths must have the keys {list(self.SIDES)}, got {dict(task_feature_lengths)}. Leave out masks,"
                " which have the length of their tokens."
            )
        lengths = {key: as_python(task_feature_lengths[feature.per_token_of]) for key, feature in self.SPEC.items()}
        return super().__call__(ds, lengths)

    def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, int]) -> Mapping[str, int]:
        """The length of each of the model's features."""
        side_lengths = {side: task_feature_lengths[key] for key, side in self.SIDES.items()}
        names = [*self.MODEL_FEATURES, *(self.PACKING_FEATURE_DTYPES if self.pack else ())]
        return {name: side_lengths[name.split("_")[0]] for name in names}

    @no_autograph
    def _convert_features(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
        if source := row_source(ds):
            rows_of_tokens = {key: task_feature_lengths[key] for key in self.SIDES}
            found = source.rows(rows_of_tokens, self.pack, self._arrays)
            if found is not None:
                return found
        ds = with_features_alone(ds, self.SPEC)

        def convert(examples: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            examples = checked(examples, task_feature_lengths, self.SPEC)
            if not self.pack:
                examples = padded(examples, self.SPEC)
            rows = (pack_rows if self.pack else pad_rows)(examples, task_feature_lengths, self.SPEC)
            return {
                **self._tokens(rows),
                "decoder_loss_weights": tf.cast(rows["loss_mask"], tf.int32),
                "decoder_span_ids": tf.cast(rows["span_id"], tf.int32),
            }

        examples_at_a_time = pool_size({key: task_feature_lengths[key] for key in self.SIDES}) if self.pack else EXAMPLES_PER_BATCH
        batches = ds.padded_batch(examples_at_a_time, padding_values={key: absent(feature) for key, feature in self.SPEC.items()})
        rows = batches.map(convert, num_parallel_calls=tf.data.AUTOTUNE).unbatch()
        return rows if self.pack else as_long_as(ds, rows)

    def _tokens(self, rows: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        raise NotImplementedError

    def _arrays(self, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The model's features of rows that are made whole, see `converters.rows.RowSource`."""
        of_both = decoder_arrays(rows, "tokens") if len(self.SIDES) == 1 else model_arrays(rows)
        span_ids = rows[SPAN_ID].astype(np.int32) if SPAN_ID in rows else TEXT * of_both["decoder_loss_weights"]
        return {**of_both, "decoder_span_ids": span_ids}


class ChatFeatureConverter(_MarkedFeatureConverter):
    """Converts conversations for a decoder-only model of t5x.

        seqio.get_dataset("chat", {"tokens": 4096}, ChatFeatureConverter(), num_epochs=None, seed=0)

    A conversation has `tokens` int32, and for each token `loss_mask` and `span_id` uint8. Rows have `decoder_target_tokens`, the
    tokens; `decoder_input_tokens`, shifted right by one position within each conversation; `decoder_loss_weights`, 0 or 1;
    `decoder_span_ids`; and with `pack=True` `decoder_segment_ids` and `decoder_positions`. All are int32.

    A conversation that is longer than the row raises an error. So does a mask that has another length than its tokens.
    """

    SPEC = CHAT
    SIDES: Mapping[str, str] = {"tokens": "decoder"}

    def _tokens(self, rows: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return decoder_features(rows, "tokens")


class PromptCompletionFeatureConverter(_MarkedFeatureConverter):
    """Converts prompts and completions for an encoder-decoder model of t5x.

        lengths = {"inputs": 2048, "targets": 2048}
        seqio.get_dataset("chat_prompt_completion", lengths, PromptCompletionFeatureConverter(), num_epochs=None, seed=0)

    An example has `inputs` and `targets` int32, and for each of the targets `loss_mask` and `span_id` uint8. Rows have the features
    of `EncDecFeatureConverter`, with the mask as `decoder_loss_weights`, and `decoder_span_ids`. Examples without both, such as
    those of denoisers, train on all targets, in the loss group `example_features.TEXT`.

    An example that is longer than the row raises an error. So does a mask that has another length than the targets.
    """

    SPEC = PROMPT_COMPLETION
    SIDES: Mapping[str, str] = {"inputs": "encoder", "targets": "decoder"}

    @no_autograph
    def __call__(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
        """See `ChatFeatureConverter`."""
        if not ds.element_spec.keys() & {LOSS_MASK, SPAN_ID}:
            marks = {LOSS_MASK: tf.constant(1, tf.uint8), SPAN_ID: tf.constant(TEXT, tf.uint8)}
            marked = ds.map(
                lambda example: example | {key: tf.fill(tf.shape(example["targets"]), value) for key, value in marks.items()},
                num_parallel_calls=tf.data.AUTOTUNE,
            )
            ds = known(marked, facts_of(ds))
        return super().__call__(ds, task_feature_lengths)

    def _tokens(self, rows: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return model_features(rows)
