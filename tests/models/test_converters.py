"""The converter for encoder-decoder models of t5x, of examples that come one by one: how many rows, errors, and how it resumes."""

import numpy as np
import pytest
import seqio
import tensorflow as tf

import ul2_tasks
from tests.support import saved_and_resumed
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


@pytest.mark.parametrize("pack", [False, True])
def test_no_examples_are_no_rows(pack):
    assert converted([], pack=pack) == []


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
