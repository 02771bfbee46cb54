"""The laws and bounds against enumeration."""

import collections
import itertools
from math import comb

import numpy as np
import pytest
import scipy.stats
from support import DENOISERS, denoiser_id

from ul2_tasks.looking.texts.theory import binomial_interval, chi_square_p_value, part_probabilities, span_probabilities

OUTSIDE = 1e-6


@pytest.mark.parametrize(("total", "parts"), [(total, parts) for total in range(1, 10) for parts in range(1, total + 1)])
def test_each_part_has_the_marginal_of_all_compositions(total, parts):
    cuts = itertools.combinations(range(1, total), parts - 1)
    compositions = [np.diff([0, *places, total]).tolist() for places in cuts]
    assert len(compositions) == comb(total - 1, parts - 1)
    for part in {0, parts // 2, parts - 1}:
        counts = collections.Counter(composition[part] for composition in compositions)
        wanted = [counts[length] / len(compositions) for length in range(1, total - parts + 2)]
        np.testing.assert_allclose(part_probabilities(total, parts), wanted, rtol=1e-12)


@pytest.mark.parametrize(
    ("total", "parts"), [(77, 26), (2458, 77), (8192, 683), (16000, 2), (16000, 5333), (16000, 16000), (16000, 1)]
)
def test_long_chunks_have_it_too(total, parts):
    law = part_probabilities(total, parts)
    assert law.sum() == pytest.approx(1, abs=1e-12)
    assert law @ np.arange(1, law.size + 1) == pytest.approx(total / parts, rel=1e-9), "parts add up to the total"
    if parts > 1:
        for length in {1, 2, 3, 10, 40} & set(range(1, law.size + 1)):
            exact = comb(total - length - 1, parts - 2) * 10**30 // comb(total - 1, parts - 1) / 1e30
            assert law[length - 1] == pytest.approx(exact, rel=1e-9, abs=1e-29)


@pytest.mark.parametrize(("total", "parts"), [(3, 0), (3, 4), (0, 0), (0, 1)])
def test_what_has_no_composition_is_refused(total, parts):
    with pytest.raises(ValueError, match=f"parts must be at least 1 and at most the total, got {parts} of {total}"):
        part_probabilities(total, parts)


@pytest.mark.parametrize("denoiser", DENOISERS, ids=denoiser_id)
@pytest.mark.parametrize("length", [2, 3, 17, 150])
def test_the_law_of_spans_is_that_of_the_denoiser(denoiser, length):
    law = span_probabilities(denoiser, length)
    noise, spans = denoiser.noise_counts(length)
    assert law[0] == 0
    assert law.sum() == pytest.approx(1)
    assert law @ np.arange(law.size) == pytest.approx(noise / spans)
    fewest, most = denoiser.noise_range(length)
    assert law.size == (most if spans == 1 else noise - spans + 1) + 1
    if fewest < most:
        assert set(law[fewest:]) == {1 / (most - fewest + 1)}
        assert not law[:fewest].any()


@pytest.mark.parametrize("trials", [1, 7, 100, 4000, 1_000_000])
@pytest.mark.parametrize("probability", [1e-9, 1e-6, 0.001, 0.125, 0.5, 0.93])
def test_the_binomial_interval_leaves_out_what_it_may_and_no_more(trials, probability):
    low, high = binomial_interval(trials, probability, OUTSIDE)
    law = scipy.stats.binom(trials, probability)
    assert 0 <= low <= high <= trials
    assert law.cdf(low - 1) <= OUTSIDE / 2 <= law.cdf(low) * (1 + 1e-9)
    assert law.sf(high) <= OUTSIDE / 2 * (1 + 1e-3)
    assert high == low or law.sf(high - 1) > OUTSIDE / 2 * (1 - 1e-3)


@pytest.mark.parametrize(("trials", "probability", "count"), [(50, 0, 0), (50, 1, 50), (0, 0.3, 0)])
def test_what_is_certain_has_an_interval_of_one(trials, probability, count):
    assert binomial_interval(trials, probability) == (count, count)


def test_without_merging_the_p_value_is_scipys():
    probabilities, observed = [0.1, 0.2, 0.3, 0.4], [12, 15, 33, 40]
    wanted = scipy.stats.chisquare(observed, np.array(probabilities) * 100).pvalue
    assert chi_square_p_value(observed, probabilities) == pytest.approx(wanted, rel=1e-9)


def test_rare_neighbours_are_merged_until_five_are_expected():
    probabilities = [0.02, 0.02, 0.02, 0.9, 0.02, 0.02]  # of 100: 2 + 2 + 2, 90 + 2 + 2
    observed = [1, 4, 2, 88, 0, 5]
    wanted = scipy.stats.chisquare([7, 93], [6, 94]).pvalue
    assert chi_square_p_value(observed, probabilities) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize(("observed", "probabilities"), [([50], [1.0]), ([3, 4], [0.5, 0.5]), ([0, 0], [0.5, 0.5])])
def test_too_little_to_compare_has_no_p_value(observed, probabilities):
    assert chi_square_p_value(observed, probabilities) is None


def test_what_cannot_be_has_p_value_0():
    assert chi_square_p_value([10, 1], [1.0, 0.0]) == 0


def test_p_values_of_faultless_samples_are_uniform():
    law = part_probabilities(77, 26)
    random = np.random.RandomState(0)
    p_values = [chi_square_p_value(random.multinomial(500, law / law.sum()), law) for _ in range(400)]
    assert scipy.stats.kstest(p_values, "uniform").pvalue > 1e-3
