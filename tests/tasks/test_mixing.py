"""Which denoiser comes next: independent draws by rate, the same for the same seed."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from ul2_tasks.tasks.mixing import sample_examples

SIGNIFICANCE = 1e-3
RATES = [1.0, 1.0, 1.0, 1.0, 4.0]


def endless(count):
    return [tf.data.Dataset.from_tensors(number).repeat() for number in range(count)]


def drawn(rates, seed, count) -> np.ndarray:
    batches = sample_examples(endless(len(rates)), rates, seed).take(count).batch(1000)
    return np.concatenate(list(batches.as_numpy_iterator()))


@pytest.mark.parametrize(
    ("rates", "seed"), [(RATES, 0), (RATES, 2**40), ([3, 1], 1), ([0.2, 0.5, 1e-3], 2), ([5, 0, 5], 3)], ids=str
)
def test_rates_are_the_shares_of_the_examples(rates, seed):
    count = 8000
    counts = np.bincount(drawn(rates, seed, count), minlength=len(rates))
    expected = count * np.array(rates) / sum(rates)
    assert (counts[expected == 0] == 0).all()
    assert scipy.stats.chisquare(counts[expected > 0], expected[expected > 0]).pvalue > SIGNIFICANCE


def test_a_seed_decides_the_order_and_none_gives_another_each_time():
    assert (drawn(RATES, 3, 5000) == drawn(RATES, 3, 5000)).all()
    assert (drawn(RATES, 3, 5000) != drawn(RATES, 4, 5000)).any()
    assert (drawn(RATES, None, 200) != drawn(RATES, None, 200)).any()


def test_it_ends_when_the_dataset_that_was_drawn_has_no_more():
    ends = tf.data.Dataset.from_tensors(0).repeat(100)
    sequence = list(sample_examples([ends, endless(2)[1]], [1, 1], 5).as_numpy_iterator())
    whole = drawn([1, 1], 5, len(sequence) + 1)
    assert len(sequence) - sum(sequence) == 100
    assert whole.tolist() == [*sequence, 0], "the next one would have been of the dataset that ended"
