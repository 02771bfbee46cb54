"""Where the noise goes: exact counts, t5's distribution, the geometric marginal, uniform placement."""

import itertools
from math import comb

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from support import KINDS, denoiser_id
from t5.data.preprocessors import random_spans_noise_mask

from ul2_tasks import T5GEMMA2, UL2, SequentialDenoiser, SpanDenoiser
from ul2_tasks.denoising.spans import random_spans
from ul2_tasks.order.order import noise_keys

SIGNIFICANCE = 1e-3  # the seeds are fixed: a test either always passes or always fails


def masks(denoiser, length, count, seed=0):
    """[count, length] bool, drawn as one block of rows."""
    kept, noise = random_spans(denoiser, tf.fill([count], length), length, tf.constant([seed, 1]))
    kept, noise = kept.numpy(), noise.numpy()
    segments = np.zeros((count, kept.shape[1] + noise.shape[1]), int)
    segments[:, ::2], segments[:, 1::2] = kept, noise
    is_noise = np.tile(np.arange(segments.shape[1]) % 2 == 1, count)
    return np.repeat(is_noise, segments.ravel()).reshape(count, length)


def t5_masks(denoiser, length, count):
    def draw(index):
        seeds = tf.stack([[index, 2], [index, 3]])
        return random_spans_noise_mask(length, denoiser.noise_density, seeds, denoiser.mean_span_length)

    dataset = tf.data.Dataset.range(count, output_type=tf.int32).map(draw, num_parallel_calls=tf.data.AUTOTUNE)
    return next(dataset.batch(count).as_numpy_iterator())


def span_lengths(mask):
    """Lengths of the noise spans of one mask."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(int), [0]])))
    return edges[1::2] - edges[::2]


@pytest.mark.parametrize("denoiser", KINDS, ids=denoiser_id)
@pytest.mark.parametrize("max_length", [1, 3, 150])
def test_rows_of_every_length_have_exactly_their_noise_and_spans(denoiser, max_length):
    lengths = np.arange(1, max_length + 1, dtype=np.int32)
    kept, noise = (t.numpy() for t in random_spans(denoiser, tf.constant(lengths), max_length, tf.constant([1, 2])))
    assert kept.shape[1] == noise.shape[1] + 1
    np.testing.assert_array_equal(kept.sum(1) + noise.sum(1), lengths)
    for row, length in enumerate(lengths):
        _, k = denoiser.noise_counts(int(length))
        fewest, most = denoiser.noise_range(int(length))
        assert fewest <= noise[row].sum() <= most
        assert (noise[row] > 0).sum() == k, "as many spans as solved, none empty, the rest of the row zero"
        assert (noise[row, :k] > 0).all()
        assert (kept[row, 1:k] > 0).all(), "no two spans touch"
        assert (kept[row, k + 1 :] == 0).all()
        if length > 1 and getattr(denoiser, "placement", "t5") == "t5":
            assert kept[row, 0] > 0, "t5 keeps the first token"
            assert kept[row, k] == 0, "t5 masks the last token"


# (L, r, mu) and the number of masks: C(n-1, k-1) C(L-n-1, k-1)
SMALL = [
    (8, 0.5, 2, comb(3, 1) * comb(3, 1)),
    (12, 0.5, 3, comb(5, 1) * comb(5, 1)),
    (14, 0.3, 2, comb(3, 1) * comb(9, 1)),
    (16, 0.25, 2, comb(3, 1) * comb(11, 1)),
    (13, 0.45, 2, comb(5, 2) * comb(6, 2)),
]


@pytest.mark.parametrize(("length", "rate", "mean", "number"), SMALL)
def test_every_mask_of_t5_is_as_likely_here_as_there(length, rate, mean, number):
    denoiser = SpanDenoiser(name="d", mean_span_length=mean, noise_density=rate)
    ours, theirs = masks(denoiser, length, 20_000), t5_masks(denoiser, length, 5_000)
    kinds, kind = np.unique(np.concatenate([ours, theirs]), axis=0, return_inverse=True)
    assert len(kinds) == number
    kind = kind.ravel()
    table = [np.bincount(part, minlength=number) for part in np.split(kind, [len(ours)])]
    assert scipy.stats.chi2_contingency(table).pvalue > SIGNIFICANCE
    assert scipy.stats.chisquare(table[0]).pvalue > SIGNIFICANCE, "all masks are equally likely"


@pytest.mark.parametrize(("length", "rate", "mean"), [(7, 0.4, 2), (8, 0.5, 2), (9, 0.2, 2), (10, 0.3, 1)])
def test_uniform_placement_makes_every_mask_equally_likely(length, rate, mean):
    denoiser = SpanDenoiser(name="d", mean_span_length=mean, noise_density=rate, placement="uniform")
    n, k = denoiser.noise_counts(length)
    every = [mask for mask in itertools.product([0, 1], repeat=length) if sum(mask) == n and len(span_lengths(np.array(mask))) == k]
    assert len(every) == comb(n - 1, k - 1) * comb(length - n + 1, k)
    seen, counts = np.unique(masks(denoiser, length, 40_000), axis=0, return_counts=True)
    assert {tuple(mask) for mask in seen.astype(int)} == set(every)
    assert scipy.stats.chisquare(counts).pvalue > SIGNIFICANCE


@pytest.mark.parametrize(("length", "rate"), [(40, 0.25), (41, 0.5), (40, 0.75)])
def test_the_uniform_split_is_uniform_with_the_mean_of_the_fixed_one(length, rate):
    denoiser = SequentialDenoiser(name="s", noise_density=rate, split="uniform")
    count = 20_000
    kept, noise = random_spans(denoiser, tf.fill([count], length), length, tf.constant([8, 9]))
    fewest, most = denoiser.noise_range(length)
    counts = np.bincount(noise.numpy()[:, 0], minlength=length)
    assert counts[:fewest].sum() == counts[most + 1 :].sum() == 0
    assert scipy.stats.chisquare(counts[fewest : most + 1]).pvalue > SIGNIFICANCE
    assert (fewest + most) / 2 == denoiser.noise_counts(length)[0]
    np.testing.assert_array_equal(kept.numpy()[:, 1], 0)


def keys(count: int, seed: int = 0) -> tf.Tensor:
    """A key for each row, as `order.order.noise_keys` has them."""
    return tf.constant(noise_keys(seed, np.zeros(count, np.int64), np.arange(count)))


@pytest.mark.parametrize("denoiser", [*T5GEMMA2, UL2[0]], ids=denoiser_id)
def test_with_a_key_a_row_has_its_spans_in_any_block(denoiser):
    lengths, key = tf.constant([100, 37, 100, 64, 100]), keys(5)
    whole = random_spans(denoiser, lengths, 100, key)
    some = [4, 1]
    for all_rows, of_some in zip(whole, random_spans(denoiser, tf.gather(lengths, some), 100, tf.gather(key, some))):
        np.testing.assert_array_equal(all_rows.numpy()[some], of_some)
    assert np.array_equal(whole[0].numpy().sum(1) + whole[1].numpy().sum(1), lengths)


def test_keys_of_neighbours_draw_independently():
    """Of one row and the next, and of a row's noise and its kept runs."""
    rows = 20_000
    kept, noise = random_spans(T5GEMMA2[0], tf.fill([rows], 100), 100, keys(rows))
    first, run = noise.numpy()[:, 0], kept.numpy()[:, 0]
    for one, other in ((first[:-1], first[1:]), (run[:-1], run[1:]), (first, run)):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(rows)
