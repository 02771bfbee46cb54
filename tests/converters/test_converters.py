"""The converter a batch at a time: SeqIO's features bit for bit, packed rows from which every example comes out whole."""

import collections
import itertools

import numpy as np
import pytest
import seqio
import tensorflow as tf
from support import saved_and_resumed

import ul2_tasks
from ul2_tasks import EncDecFeatureConverter

LENGTHS = {"inputs": 128, "targets": 96}


def examples(pairs) -> tf.data.Dataset:
    spec = {key: tf.TensorSpec([None], tf.int32) for key in ("inputs", "targets")}
    return tf.data.Dataset.from_generator(
        lambda: ({"inputs": np.array(inputs, np.int32), "targets": np.array(targets, np.int32)} for inputs, targets in pairs),
        output_signature=spec,
    )


def converted(pairs, lengths=LENGTHS, **settings) -> list[dict[str, np.ndarray]]:
    return list(EncDecFeatureConverter(**settings)(examples(pairs), lengths).as_numpy_iterator())


def pool(count: int):
    """Examples of any lengths of at least one token, ids all different from 0."""
    random = np.random.RandomState(count)
    lengths = zip(random.randint(1, 129, count), random.randint(1, 97, count))
    return [(random.randint(1, 9999, i).tolist(), random.randint(1, 9999, t).tolist()) for i, t in lengths]


@pytest.mark.parametrize("count", [0, 137])  # more than a batch
def test_unpacked_features_are_seqios_bit_for_bit(count):
    pairs = pool(count)
    ours = converted(pairs, pack=False)
    theirs = list(seqio.EncDecFeatureConverter(pack=False)(examples(pairs), LENGTHS).as_numpy_iterator())
    assert len(ours) == len(theirs) == len(pairs)
    for row, wanted in zip(ours, theirs):
        assert row.keys() == wanted.keys()
        for key in wanted:
            assert row[key].dtype == wanted[key].dtype
            np.testing.assert_array_equal(row[key], wanted[key], err_msg=key)


def test_as_many_rows_as_examples_are_announced():
    """t5x asks for the length of a dataset before it predicts; rows that examples share cannot be known before."""
    known = tf.data.Dataset.from_tensors({key: tf.ones([3], tf.int32) for key in LENGTHS}).repeat(300)
    for dataset in (known, known.repeat()):
        ours, theirs = (
            converter(pack=False)(dataset, LENGTHS).cardinality()
            for converter in (EncDecFeatureConverter, seqio.EncDecFeatureConverter)
        )
        assert ours == theirs == dataset.cardinality()
    assert len(list(EncDecFeatureConverter(pack=False)(known, LENGTHS))) == 300
    assert EncDecFeatureConverter(pack=False)(examples([]), LENGTHS).cardinality() == tf.data.UNKNOWN_CARDINALITY
    assert EncDecFeatureConverter(pack=True)(known, LENGTHS).cardinality() == tf.data.UNKNOWN_CARDINALITY


def unpacked(row) -> list[tuple[list[int], list[int]]]:
    """The examples of a packed row, each feature of which is checked against the definition."""
    segments = range(1, row["encoder_segment_ids"].max() + 1)
    for side, tokens in (("encoder", "encoder_input_tokens"), ("decoder", "decoder_target_tokens")):
        ids = row[f"{side}_segment_ids"]
        lengths = [np.count_nonzero(ids == segment) for segment in segments]
        padding = len(ids) - sum(lengths)
        assert ids.tolist() == [*np.repeat(segments, lengths), *[0] * padding], "in order, no gap, padding at the end"
        positions = [*itertools.chain.from_iterable(map(range, lengths)), *[0] * padding]
        assert row[f"{side}_positions"].tolist() == positions
        assert (row[tokens][ids == 0] == 0).all()
    # Encoder and decoder attend within equal ids alone: this pairing is what cross-attention sees.
    pairs = [
        tuple(
            row[tokens][row[ids] == segment].tolist()
            for tokens, ids in (("encoder_input_tokens", "encoder_segment_ids"), ("decoder_target_tokens", "decoder_segment_ids"))
        )
        for segment in segments
    ]
    shifted = [id for _, targets in pairs for id in [0, *targets[:-1]]]
    assert row["decoder_input_tokens"].tolist() == [*shifted, *[0] * (len(row["decoder_input_tokens"]) - len(shifted))]
    np.testing.assert_array_equal(row["decoder_loss_weights"], row["decoder_segment_ids"] > 0)
    return pairs


@pytest.mark.parametrize("count", [0, 137])
def test_every_example_comes_out_of_the_packed_rows_whole_and_once(count):
    pairs = pool(count)
    rows = converted(pairs, pack=True)
    got = [pair for row in rows for pair in unpacked(row)]
    assert collections.Counter(map(str, got)) == collections.Counter(map(str, pairs))
    if count > 1:
        theirs = seqio.EncDecFeatureConverter(pack=True)(examples(pairs), LENGTHS).as_numpy_iterator()
        for row, same in zip(rows, theirs, strict=True):
            assert row.keys() == same.keys()
            for key, values in same.items():
                np.testing.assert_array_equal(row[key], values, err_msg=key)


@pytest.mark.parametrize(
    ("pack", "pair", "feature", "length"),
    [
        (True, ([1] * 129, [1]), "inputs", 128),
        (False, ([1] * 129, [1]), "inputs", 128),
        (False, ([1], [1] * 97), "targets", 96),
    ],
)
def test_an_example_that_is_too_long_is_an_error_not_trimmed(pack, pair, feature, length):
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{feature} must have at most {length} tokens"):
        converted([([2, 1], [2, 1]), pair], pack=pack)


def test_other_features_are_left_behind_and_custom_packing_ops_are_refused():
    with_name = examples([([2, 1], [3, 1])]).map(lambda example: {**example, "name": "n", "idx": tf.constant([4])})
    (row,) = EncDecFeatureConverter(pack=False)(with_name, LENGTHS).as_numpy_iterator()
    assert "idx" not in row
    for converter in (EncDecFeatureConverter, ul2_tasks.PromptCompletionFeatureConverter):
        with pytest.raises(ValueError, match="use_custom_packing_ops"):
            converter(use_custom_packing_ops=True)


@pytest.mark.parametrize("pack", [True, False])
def test_it_resumes_in_the_middle_of_a_batch(tmp_path, pack):
    """Of examples of many lengths."""
    numbers = tf.data.Dataset.range(1, 2000, output_type=tf.int32)
    many = numbers.map(lambda id: {"inputs": tf.fill([id * 7 % 64 + 1], id), "targets": tf.fill([id * 5 % 48 + 1], id)})

    def batches():
        return EncDecFeatureConverter(pack=pack)(many, LENGTHS).batch(7)

    first, resumed = saved_and_resumed(batches, 25, tmp_path)
    for _ in range(30):
        wanted, got = next(first), next(resumed)
        for key in wanted:
            np.testing.assert_array_equal(got[key], wanted[key], err_msg=key)
