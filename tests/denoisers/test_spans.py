"""Where the noise goes: exact counts, t5's distribution, the geometric marginal, uniform placement.

`tests/laws/test_law_of_masks.py` has the same noise of the graph.
"""

import itertools
from math import comb

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from t5.data.preprocessors import random_spans_noise_mask

from ul2_tasks import T5GEMMA2, SequentialDenoiser, SpanDenoiser
from ul2_tasks.denoisers.write import made, recipe
from ul2_tasks.order.order import noise_keys
from ul2_tasks.tokenizers.special_ids import SpecialTokens

SIGNIFICANCE = 1e-3  # the seeds are fixed: a test either always passes or always fails


SPECIAL = SpecialTokens(sentinels=tuple(range(500)), mode=(), eos=None, reserved=frozenset())
TEXT = 1000  # and more: the ids of text


def masks_of(denoiser, lengths, keys) -> list[np.ndarray]:
    """Which tokens of texts of these lengths are noise, [length] bool each."""
    lengths = np.asarray(lengths, np.int32)
    is_noise, count = np.zeros(lengths.sum(), bool), np.arange(len(lengths) + 1)
    tokens = np.arange(len(is_noise), dtype=np.int32) + TEXT
    (_, targets), _ = made(recipe(denoiser, SPECIAL, int(lengths.max()), (False, False)), tokens, lengths, count, keys)
    is_noise[targets[targets >= TEXT] - TEXT] = True
    return np.split(is_noise, np.cumsum(lengths)[:-1])


def masks(denoiser, length, count, seed=0):
    """[count, length] bool."""
    return np.stack(masks_of(denoiser, np.full(count, length), keys(count, seed)))


def keys(count: int, seed: int = 0) -> np.ndarray:
    return noise_keys(seed, np.zeros(count, np.int64), np.arange(count))


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


def test_of_tokens_that_may_touch_every_choice_is_equally_likely():
    denoiser = SpanDenoiser(name="d", mean_span_length=1, noise_density=0.4, placement="touching")
    seen, counts = np.unique(masks(denoiser, 8, 20_000), axis=0, return_counts=True)
    assert len(seen) == comb(8, 3)
    assert scipy.stats.chisquare(counts).pvalue > SIGNIFICANCE


@pytest.mark.parametrize(("length", "rate"), [(40, 0.25), (41, 0.5), (40, 0.75)])
def test_the_uniform_split_is_uniform_with_the_mean_of_the_fixed_one(length, rate):
    denoiser = SequentialDenoiser(name="s", noise_density=rate, split="uniform")
    count = 20_000
    found = masks(denoiser, length, count, seed=8)
    fewest, most = denoiser.noise_range(length)
    counts = np.bincount(found.sum(axis=1), minlength=length)
    assert counts[:fewest].sum() == counts[most + 1 :].sum() == 0
    assert scipy.stats.chisquare(counts[fewest : most + 1]).pvalue > SIGNIFICANCE
    assert (fewest + most) / 2 == denoiser.noise_counts(length)[0]
    assert (np.diff(found.astype(int), axis=1) >= 0).all(), "the noise is the end"


def test_keys_of_neighbours_draw_independently():
    """Of one row and the next, and of a row's noise and its kept runs."""
    rows = 20_000
    found = masks(T5GEMMA2[0], 100, rows)
    run = found.argmax(axis=1)  # the tokens before the first span
    first = (~found[np.arange(rows)[:, np.newaxis], np.minimum(run[:, np.newaxis] + np.arange(100), 99)]).argmax(axis=1)
    for one, other in ((first[:-1], first[1:]), (run[:-1], run[1:]), (first, run)):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(rows)
