"""Turns examples into the features of an encoder-decoder model, many at a time: padded or packed, shifted, with loss weights.

SeqIO's converters take one example at a time through seven steps of tf.data, and each step costs more than the work done in
it. Here a batch of examples goes through one graph, and its rows are then given out one by one, as SeqIO and t5x expect them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.aligned import zeros_for_tensors
from ul2_tasks.compiled import compiled
from ul2_tasks.converters.marks import checked, example_spec, how_many, padded
from ul2_tasks.converters.rows import refuse_images, row_source
from ul2_tasks.example_features import EXAMPLE, LOSS_MASK, NO_TASK, TASK_ID, Feature, token_features
from ul2_tasks.graphs import no_autograph, python_op
from ul2_tasks.order.pack import best_fit
from ul2_tasks.scalars import as_python

BOS_ID = 0  # what a decoder reads before its first token, in t5x
EXAMPLES_PER_BATCH = 128
# How many examples are packed together, at least and at most. More of them fill the rows better, but need more memory and
# make checkpoints larger.
EXAMPLES_PER_POOL = 256, 1024
TOKENS_PER_POOL = 1 << 21


class EncDecFeatureConverter(seqio.EncDecFeatureConverter):
    """Converts examples for encoder-decoder models of t5x as `seqio.EncDecFeatureConverter` does, but faster and packed better.

    With `pack=False` the features are bit-identical to SeqIO's.

    With `pack=True` the packed sequences differ from SeqIO's, which puts each example into the sequence of the example before it
    or into a new one. Here up to 1,024 examples are distributed together, see `order.pack.best_fit`. No example is split or
    lost, and the inputs and targets of an example have the same segment id.

    An example that is longer than `task_feature_lengths` raises an error; nothing is trimmed.

    Where examples have a `loss_mask` of their targets, as prompt-completion pairs do, `decoder_loss_weights` is 0 where it is 0.
    """

    def __init__(self, pack: bool = True, use_custom_packing_ops: bool = False):
        """
        Args:
            pack: as for `seqio.EncDecFeatureConverter`.
            use_custom_packing_ops: must be False. It is here because t5x passes it.
        """
        if use_custom_packing_ops:
            raise ValueError(
                "use_custom_packing_ops must be False, got True, which needs ops that SeqIO builds separately. Leave it out."
            )
        super().__init__(pack=pack, apply_length_check=False, bos_id=BOS_ID)  # `_within` checks a batch at once

    @no_autograph
    def _convert_features(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
        spec = example_spec(ds)
        task_feature_lengths = {key: as_python(length) for key, length in task_feature_lengths.items()}
        if source := row_source(ds):
            found = source.rows(task_feature_lengths, self.pack, self._model_arrays)
            if found is not None:
                return found
        ds = with_features_alone(ds, spec)
        examples_at_a_time = pool_size(task_feature_lengths) if self.pack else EXAMPLES_PER_BATCH
        lengths = {key: task_feature_lengths[feature.per_token_of] for key, feature in spec.items()}
        is_marked = LOSS_MASK in spec

        def convert(examples: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            if is_marked:
                examples = checked(examples, lengths, spec)
                examples = examples if self.pack else padded(examples, spec)
            else:
                examples = {key: _within(lengths[key], feature, key) for key, feature in examples.items()}
            return model_features((pack_rows if self.pack else pad_rows)(examples, lengths, spec))

        # Batches of ragged tensors would need a step of tf.data for each example.
        is_counted = self.pack or is_marked  # then padding must be none of the values
        padding = {
            key: tf.constant(feature.absent if is_counted else feature.padding, feature.dtype) for key, feature in spec.items()
        }
        batches = ds.padded_batch(examples_at_a_time, padding_values=padding)
        rows = batches.map(convert, num_parallel_calls=tf.data.AUTOTUNE).unbatch()
        return rows if self.pack else as_long_as(ds, rows)

    def _model_arrays(self, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The features of rows as `random_access.batches.make_batch` gives them, [R, length] int32 each.

        Where rows have the tasks of their targets, so has `decoder_task_ids`, and -1 where nothing is trained on.
        """
        features = model_arrays(rows)
        if TASK_ID not in rows:
            return features
        is_trained = features["decoder_loss_weights"] != 0
        return {**features, "decoder_task_ids": np.where(is_trained, rows[TASK_ID], NO_TASK).astype(np.int32)}


def with_features_alone(ds: tf.data.Dataset, features: Collection[str]) -> tf.data.Dataset:
    """The same examples, with these features only. Refuses examples with images, of which the placeholders would be left."""
    refuse_images(ds)
    if ds.element_spec.keys() == set(features):
        return ds
    return ds.map(lambda example: {key: example[key] for key in features}, num_parallel_calls=tf.data.AUTOTUNE)


def as_long_as(ds: tf.data.Dataset, rows: tf.data.Dataset) -> tf.data.Dataset:
    """The same rows, one for each example of `ds`, with the number of elements that `ds` has if it is known.

    t5x asks for this number before it predicts.
    """
    is_known = ds.cardinality() != tf.data.UNKNOWN_CARDINALITY
    return rows.apply(tf.data.experimental.assert_cardinality(ds.cardinality())) if is_known else rows


def pool_size(lengths: Mapping[str, int]) -> int:
    """How many examples are packed together into rows of these lengths."""
    fewest, most = EXAMPLES_PER_POOL
    return min(max(fewest, TOKENS_PER_POOL // sum(lengths.values())), most)


def pad_rows(examples: Mapping[str, tf.Tensor], lengths: Mapping[str, int], spec: Mapping[str, Feature]) -> dict[str, tf.Tensor]:
    """Gives each example a row of its own.

    Examples are [N, tokens] and rows [N, length] for each feature, both padded as `spec` says. `lengths` are those of the rows, in
    tokens, and at least those of the examples.
    """
    return {key: _widen(examples[key], lengths[key], feature.padding) for key, feature in spec.items()}


def pack_rows(examples: Mapping[str, tf.Tensor], lengths: Mapping[str, int], spec: Mapping[str, Feature]) -> dict[str, tf.Tensor]:
    """Puts several examples into each row.

        inputs                  5 6 1 7 1 0        a row of two examples, [5, 6, 1] and [7, 1]
        inputs_segment_ids      1 1 1 2 2 0        which example of the row, from 1
        inputs_positions        0 1 2 0 1 0        which token of the example, from 0

    Examples are [N, tokens] for each feature, padded with `NO_TOKEN`. `lengths` are those of the rows, in tokens, and at least
    those of the examples. The result is [R, length] for each feature, and for `<feature>_segment_ids` and `<feature>_positions` of
    each feature of tokens, int32. Features are padded as `spec` says, the others with 0.
    """
    of_tokens = token_features(spec)
    example_lengths = {key: how_many(examples[key] >= 0) for key in of_tokens}
    budgets = tuple(lengths[key] for key in of_tokens)
    to_pack = tf.stack(list(example_lengths.values()), axis=1)
    row = tf.ensure_shape(python_op(lambda sizes: best_fit(sizes, budgets).astype(np.int32), [to_pack], tf.int32), [None])
    order = tf.argsort(row, stable=True)

    def runs(key: str) -> tf.RaggedTensor:
        # Each example is two runs, its values and its padding; every second run is chosen.
        sizes = example_lengths[spec[key].per_token_of]
        of_each = tf.reshape(tf.stack([sizes, tf.shape(examples[key])[1] - sizes], axis=1), [-1])
        return tf.RaggedTensor.from_row_lengths(tf.reshape(examples[key], [-1]), of_each, validate=False)

    return in_rows({key: runs(key) for key in spec}, 2 * order, tf.gather(row, order), lengths, spec)


def in_rows(
    examples: Mapping[str, tf.RaggedTensor],
    order: tf.Tensor,
    row: tf.Tensor,
    lengths: Mapping[str, int],
    spec: Mapping[str, Feature],
) -> dict[str, tf.Tensor]:
    """Writes examples one after the other into the rows that were chosen for them.

    `examples` are a RaggedTensor [N, tokens] for each feature. `order`, [n] int32, has the examples that are written, in the order
    of their rows. `row`, [n] int32, has the row of each of these, ascending, from 0 to R - 1; each row has one, and room for all of
    its own. `lengths`, `spec` and the result are those of `pack_rows`.

    >>> spec = {"inputs": EXAMPLE["inputs"]}
    >>> examples = {"inputs": tf.ragged.constant([[5, 6], [7], [8]], dtype=tf.int32)}
    >>> for key, rows in in_rows(examples, tf.constant([2, 0, 1]), tf.constant([0, 0, 1]), {"inputs": 4}, spec).items():
    ...     print(key, rows.numpy().tolist())
    inputs [[8, 5, 6, 0], [7, 0, 0, 0]]
    inputs_segment_ids [[1, 2, 2, 0], [1, 0, 0, 0]]
    inputs_positions [[0, 0, 1, 0], [0, 0, 0, 0]]
    """
    packed = {}
    for key, feature in spec.items():
        packed[key] = write_rows(examples[key], order, row, lengths[key], feature.padding)
        if feature.per_token_of == key:
            sizes = tf.gather(tf.cast(examples[key].row_lengths(), tf.int32), order)
            packed[f"{key}_segment_ids"], packed[f"{key}_positions"] = _segments(sizes, row, lengths[key])
    return packed


def write_rows(examples: tf.RaggedTensor, order: tf.Tensor, row: tf.Tensor, length: int, padding: int) -> tf.Tensor:
    """A feature of `in_rows`, [R, length]."""
    sizes = tf.cast(examples.row_lengths(), tf.int32)
    room = length - tf.math.segment_sum(tf.gather(sizes, order), row)
    # The padding of each row is one more example, after all others, and comes last in its row.
    runs = tf.RaggedTensor.from_row_lengths(
        tf.concat([examples.flat_values, tf.fill([tf.reduce_sum(room)], tf.cast(padding, examples.dtype))], axis=0),
        tf.concat([sizes, room], axis=0),
        validate=False,
    )
    rows = tf.range(tf.size(room))
    in_rows_order = tf.argsort(tf.concat([row, rows], axis=0), stable=True)
    wanted = tf.gather(tf.concat([order, tf.size(sizes) + rows], axis=0), in_rows_order)
    return tf.reshape(tf.gather(runs, wanted).flat_values, [-1, length])


def _segments(sizes: tf.Tensor, row: tf.Tensor, length: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The segment ids and the positions of rows, [R, length] int32 each.

    Rows with examples of the same lengths have the same. There are few such *layouts* where chunks are full, so each is made once.
    `sizes`, [n] int32, are the tokens of each example. `row` is that of `in_rows`.
    """
    of_rows = tf.RaggedTensor.from_value_rowids(sizes, row, validate=False).to_tensor()
    layouts, layout = tf.raw_ops.UniqueV2(x=of_rows, axis=[0])
    # Segment and position in one number, which counts up within an example.
    bits = length.bit_length()
    first = tf.bitwise.left_shift(tf.range(1, tf.shape(layouts)[1] + 1), bits)
    numbers = tf.ragged.range(*(tf.reshape(each, [-1]) for each in (tf.broadcast_to(first, tf.shape(layouts)), first + layouts)))
    in_layouts = tf.RaggedTensor.from_row_lengths(numbers.flat_values, tf.reduce_sum(layouts, axis=1), validate=False)
    table = in_layouts.to_tensor(0, shape=[None, length])
    segment_ids, positions = tf.bitwise.right_shift(table, bits), tf.bitwise.bitwise_and(table, (1 << bits) - 1)
    return tf.gather(segment_ids, layout), tf.gather(positions, layout)


def model_features(rows: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The features of `seqio.EncDecFeatureConverter`.

    `rows` are what `pad_rows` or `pack_rows` returns for `inputs`, `targets` and, where not all targets have a loss, `loss_mask`.
    Each feature is [R, length] int32. The decoder's inputs are the targets shifted right by one place, after `BOS_ID`.
    """
    is_trained = rows[LOSS_MASK] if LOSS_MASK in rows else rows["targets"] != EXAMPLE["targets"].padding
    features = {
        "encoder_input_tokens": rows["inputs"],
        **decoder_features(rows, "targets"),
        "decoder_loss_weights": tf.cast(is_trained, tf.int32),
    }
    if "inputs_segment_ids" not in rows:
        return features
    return {**features, "encoder_segment_ids": rows["inputs_segment_ids"], "encoder_positions": rows["inputs_positions"]}


def decoder_features(rows: Mapping[str, tf.Tensor], key: str) -> dict[str, tf.Tensor]:
    """What a decoder reads and what it is to say, without the weights of the loss.

    `rows` are what `pad_rows` or `pack_rows` returns, and `key` is the feature that it is to say. Each result is [R, length] int32.
    """
    targets = rows[key]
    shifted = tf.pad(targets[:, :-1], [[0, 0], [1, 0]], constant_values=BOS_ID)
    if f"{key}_segment_ids" not in rows:
        return {"decoder_target_tokens": targets, "decoder_input_tokens": shifted}
    segments = rows[f"{key}_segment_ids"]
    is_first = segments != tf.pad(segments[:, :-1], [[0, 0], [1, 0]])
    return {
        "decoder_target_tokens": targets,
        "decoder_input_tokens": tf.where(is_first, BOS_ID, shifted),
        "decoder_segment_ids": segments,
        "decoder_positions": rows[f"{key}_positions"],
    }


def model_arrays(rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`model_features` of rows in NumPy."""
    features = {"encoder_input_tokens": rows["inputs"], **decoder_arrays(rows, "targets")}
    if "inputs_segment_ids" not in rows:
        return features
    return {**features, "encoder_segment_ids": rows["inputs_segment_ids"], "encoder_positions": rows["inputs_positions"]}


def decoder_arrays(rows: Mapping[str, np.ndarray], key: str) -> dict[str, np.ndarray]:
    """`decoder_features` of rows in NumPy, with the weights of the loss."""
    targets, packed = rows[key], f"{key}_segment_ids" in rows
    segment_ids = rows[f"{key}_segment_ids"] if packed else np.zeros([0, 0], np.int32)
    shifted, weights = zeros_for_tensors(2, targets.shape)
    _shift_right(targets, segment_ids, BOS_ID, EXAMPLE["targets"].padding, shifted, weights)
    features = {
        "decoder_target_tokens": targets,
        "decoder_input_tokens": shifted,
        "decoder_loss_weights": rows[LOSS_MASK].astype(np.int32) if LOSS_MASK in rows else weights,
    }
    return {**features, "decoder_segment_ids": segment_ids, "decoder_positions": rows[f"{key}_positions"]} if packed else features


@compiled
def _shift_right(targets, segment_ids, bos_id, padding, shifted, weights):
    """Writes the decoder's inputs and the weights of the loss; `segment_ids` are empty where nothing is packed."""
    for row in range(targets.shape[0]):
        for place in range(targets.shape[1]):
            is_first = place == 0 or (len(segment_ids) > 0 and segment_ids[row, place] != segment_ids[row, place - 1])
            shifted[row, place] = bos_id if is_first else targets[row, place - 1]
            weights[row, place] = targets[row, place] != padding


def _within(length: int, feature: tf.Tensor, key: str) -> tf.Tensor:
    message = f"an example's {key} must have at most {length} tokens, as task_feature_lengths says. Raise it."
    with tf.control_dependencies([tf.debugging.assert_less_equal(tf.shape(feature)[1], length, message)]):
        return tf.identity(feature)


def _widen(rows: tf.Tensor, width: int, padding: int) -> tf.Tensor:
    padded = tf.pad(rows, [[0, 0], [0, width - tf.shape(rows)[1]]], constant_values=padding)
    return tf.ensure_shape(padded, [None, width])
