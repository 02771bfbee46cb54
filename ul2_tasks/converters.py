"""Examples to what an encoder-decoder model is fed: padded or packed, shifted, weighted, many examples at a time.

SeqIO's converters do this example by example, in seven steps of tf.data, each of which costs more than all that is done in
it. Here examples are batched, a batch is converted by one graph, and its rows are given out again one by one, so that all
else in SeqIO and t5x is as ever.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import seqio
import tensorflow as tf

from ul2_tasks.graphs import no_autograph
from ul2_tasks.packing import assign_rows

EXAMPLES_PER_BATCH = 128
# Those that share a row are chosen among so many: more fill the rows better, and hold more memory and checkpoint.
EXAMPLES_PER_POOL = 256, 1024
TOKENS_PER_POOL = 1 << 21

_NO_TOKEN = -1  # fills up the examples of a pool: 0 could be a token of a task that is not ours


class EncDecFeatureConverter(seqio.EncDecFeatureConverter):
    """`seqio.EncDecFeatureConverter`, a batch at a time, and with fuller rows when it packs.

    With `pack=False` the features are SeqIO's, bit for bit. With `pack=True` the rows are other ones than SeqIO's, which
    puts an example into the row that the one before it is in or into a new row. Here the rows of up to 1,024 examples
    are filled together, see `packing.assign_rows`: examples are neither split nor lost, and one's inputs and targets
    have the same segment id. An example that is too long is an error, with the numbers; nothing is trimmed.

    Features that are handed on (`passthrough_features`) are converted by SeqIO itself.
    """

    def __init__(
        self,
        pack: bool = True,
        use_custom_packing_ops: bool = False,
        bos_id: int = 0,
        passthrough_features: Mapping[str, seqio.FeatureConverter.FeatureSpec] | None = None,
    ):
        """
        Args:
            pack, bos_id, passthrough_features: as for `seqio.EncDecFeatureConverter`.
            use_custom_packing_ops: must be False; t5x passes it.
        """
        if use_custom_packing_ops:
            raise ValueError("use_custom_packing_ops is True: they are SeqIO's, and need a build of their own; set it to False")
        super().__init__(
            pack=pack,
            bos_id=bos_id,
            passthrough_features=passthrough_features,
            apply_length_check=bool(passthrough_features),  # or else a batch is checked, not each example
        )
        self._hands_on = bool(passthrough_features)

    @no_autograph
    def _convert_features(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
        if self._hands_on:
            return super()._convert_features(ds, task_feature_lengths)
        ds = with_features_alone(ds, self.TASK_FEATURES)
        examples_at_a_time = pool_size(task_feature_lengths) if self.pack else EXAMPLES_PER_BATCH

        def convert(examples: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            examples = {key: _within(task_feature_lengths[key], feature, key) for key, feature in examples.items()}
            rows = pack_rows(examples, task_feature_lengths) if self.pack else pad_rows(examples, task_feature_lengths)
            return model_features(rows, self.bos_id)

        # Batches of ragged tensors would need a step of tf.data for each example.
        batches = ds.padded_batch(examples_at_a_time, padding_values=_NO_TOKEN if self.pack else 0)
        rows = batches.map(convert, num_parallel_calls=tf.data.AUTOTUNE).unbatch()
        return rows if self.pack else as_long_as(ds, rows)


def with_features_alone(ds: tf.data.Dataset, features: Collection[str]) -> tf.data.Dataset:
    """The examples with these features and no others."""
    if ds.element_spec.keys() == set(features):
        return ds
    return ds.map(lambda example: {key: example[key] for key in features}, num_parallel_calls=tf.data.AUTOTUNE)


def as_long_as(ds: tf.data.Dataset, rows: tf.data.Dataset) -> tf.data.Dataset:
    """The rows, a row for each example of `ds`, which know their number where that of `ds` is known: t5x asks when it predicts."""
    is_known = ds.cardinality() != tf.data.UNKNOWN_CARDINALITY
    return rows.apply(tf.data.experimental.assert_cardinality(ds.cardinality())) if is_known else rows


def pool_size(lengths: Mapping[str, int]) -> int:
    """How many examples are packed together into rows of such lengths."""
    fewest, most = EXAMPLES_PER_POOL
    return min(max(fewest, TOKENS_PER_POOL // sum(lengths.values())), most)


def pad_rows(examples: Mapping[str, tf.Tensor], lengths: Mapping[str, int]) -> dict[str, tf.Tensor]:
    """Gives each example a row.

    Args:
        examples: of each feature [N, tokens] int32, padded with 0.
        lengths: those of the rows, at least the examples'.

    Returns:
        Of each feature [N, length] int32, padded with 0.
    """
    return {key: _widen(feature, lengths[key]) for key, feature in examples.items()}


def pack_rows(examples: Mapping[str, tf.Tensor], lengths: Mapping[str, int]) -> dict[str, tf.Tensor]:
    """Lets examples share rows.

    Args:
        examples: of each feature [N, tokens] int32, padded with -1.
        lengths: those of the rows, at least the examples'.

    Returns:
        Of each feature, and of `<feature>_segment_ids` and `<feature>_positions`, [R, length] int32, padded with 0: in each
        row the tokens of its examples, the number of the example in the row, from 1, and the place in the example, from 0.
    """
    example_lengths = {key: tf.math.count_nonzero(feature >= 0, axis=1, dtype=tf.int32) for key, feature in examples.items()}
    row = assign_rows(tf.stack(list(example_lengths.values()), axis=1), tuple(lengths[key] for key in examples))
    order = tf.argsort(row, stable=True)
    row = tf.gather(row, order)
    segment_ids = tf.range(tf.size(row)) - tf.searchsorted(row, row) + 1

    packed = {}
    for key, feature in examples.items():
        sizes = example_lengths[key]
        # Each example is two runs, its tokens and its padding; the first are chosen.
        runs = tf.reshape(tf.stack([sizes, tf.shape(feature)[1] - sizes], axis=1), [-1])
        tokens = tf.gather(tf.RaggedTensor.from_row_lengths(tf.reshape(feature, [-1]), runs, validate=False), 2 * order)
        sizes = tf.gather(sizes, order)
        row_sizes = tf.math.segment_sum(sizes, row)

        def in_rows(values: tf.Tensor, row_sizes: tf.Tensor = row_sizes, length: int = lengths[key]) -> tf.Tensor:
            return tf.RaggedTensor.from_row_lengths(values, row_sizes, validate=False).to_tensor(shape=[None, length])

        # Segment and position in one number, which counts up within an example.
        bits = lengths[key].bit_length()
        first = tf.bitwise.left_shift(segment_ids, bits)
        numbers = in_rows(tf.ragged.range(first, first + sizes).flat_values)
        packed[key] = in_rows(tokens.flat_values)
        packed[f"{key}_segment_ids"] = tf.bitwise.right_shift(numbers, bits)
        packed[f"{key}_positions"] = tf.bitwise.bitwise_and(numbers, (1 << bits) - 1)
    return packed


def model_features(rows: Mapping[str, tf.Tensor], bos_id: int) -> dict[str, tf.Tensor]:
    """The features of `seqio.EncDecFeatureConverter`.

    Args:
        rows: what `pad_rows` or `pack_rows` returns for `inputs` and `targets`.
        bos_id: what the decoder reads before the first token of an example.

    Returns:
        Of each feature [R, length] int32. With `bos_id=0` the decoder's inputs are the targets, one place later.
    """
    targets = rows["targets"]
    shifted = tf.pad(targets[:, :-1], [[0, 0], [1, 0]], constant_values=bos_id)
    features = {
        "encoder_input_tokens": rows["inputs"],
        "decoder_target_tokens": targets,
        "decoder_input_tokens": shifted,
        "decoder_loss_weights": tf.cast(targets != 0, tf.int32),
    }
    if "targets_segment_ids" not in rows:
        return features
    segments = rows["targets_segment_ids"]
    is_first = segments != tf.pad(segments[:, :-1], [[0, 0], [1, 0]])
    return {
        **features,
        "decoder_input_tokens": tf.where(is_first, bos_id, shifted),
        "encoder_segment_ids": rows["inputs_segment_ids"],
        "decoder_segment_ids": segments,
        "encoder_positions": rows["inputs_positions"],
        "decoder_positions": rows["targets_positions"],
    }


def _within(length: int, feature: tf.Tensor, key: str) -> tf.Tensor:
    message = f"an example's {key} are longer than the {length} tokens that task_feature_lengths has for them; raise it"
    with tf.control_dependencies([tf.debugging.assert_less_equal(tf.shape(feature)[1], length, message)]):
        return tf.identity(feature)


def _widen(rows: tf.Tensor, width: int) -> tf.Tensor:
    return tf.ensure_shape(tf.pad(rows, [[0, 0], [0, width - tf.shape(rows)[1]]]), [None, width])
