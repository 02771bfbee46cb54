"""What is expected of a sample: how its span lengths are distributed, bounds for its counts, and a test of the one by the other."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from ul2_tasks.denoising.denoisers import Denoiser

SIGNIFICANCE = 1e-6  # the fraction of all faultless samples that is taken for faulty


def part_probabilities(total: int, parts: int) -> np.ndarray:
    """The distribution of one part of a uniformly random composition of `total` into `parts` positive parts.

    A composition is a way to write `total` as an ordered sum. There are C(total-1, parts-1) of them, and those that begin with
    l continue with a composition of total - l into parts - 1 parts. So for two parts or more

        P(l) = C(total-l-1, parts-2) / C(total-1, parts-1)

    These numbers are too large for floats in long chunks. So P(l) is computed from P(1) = (parts-1) / (total-1) by the ratios
    P(l+1) / P(l) = (total-l-parts+1) / (total-l-1), which are all at most 1.

    The result is [total - parts + 1] float64: the probabilities of 1, 2, .. Raises a ValueError unless 1 <= parts <= total.

    >>> part_probabilities(4, 2).round(3).tolist()  # 1+3, 2+2, 3+1
    [0.333, 0.333, 0.333]
    """
    if not 1 <= parts <= total:
        raise ValueError(f"parts must be at least 1 and at most the total, got {parts} of {total}.")
    if parts == 1:
        return np.append(np.zeros(total - 1), 1.0)
    lengths = np.arange(1, total - parts + 1)
    ratios = (total - lengths - parts + 1) / (total - lengths - 1)
    return (parts - 1) / (total - 1) * np.cumprod(np.append(1.0, ratios))


def span_probabilities(denoiser: Denoiser, length: int) -> np.ndarray:
    """The distribution of the length of one noise span of a chunk.

    The spans are a uniformly random composition of the noise tokens, see `spans`, whose number is uniform over
    `Denoiser.noise_range`. The result is [longest + 1] float64: the probabilities of 0, 1, .. tokens.

    >>> from ul2_tasks.denoising.denoisers import SpanDenoiser
    >>> half = SpanDenoiser(name="half", mean_span_length=2, noise_density=0.5)
    >>> half.noise_counts(8), span_probabilities(half, 8).round(3).tolist()
    ((4, 2), [0.0, 0.333, 0.333, 0.333])
    """
    _, spans = denoiser.noise_counts(length)
    fewest, most = denoiser.noise_range(length)
    numbers = most - fewest + 1
    if spans == 1:
        return np.append(np.zeros(fewest), np.full(numbers, 1 / numbers))
    probabilities = np.zeros(most - spans + 2)
    for noise in range(fewest, most + 1):
        probabilities[1 : noise - spans + 2] += part_probabilities(noise, spans)
    return probabilities / numbers


def binomial_interval(trials: int, probability: float, outside: float = SIGNIFICANCE) -> tuple[int, int]:
    """The interval that a binomial count falls out of with a probability of at most `outside`, half of it on either side.

    It is exact for rare events and few trials too, where the normal approximation is not. Both ends are included.

    >>> binomial_interval(4000, 0.5)
    (1845, 2155)
    """
    low, high = stats.binom.interval(1 - outside, trials, probability)
    return max(0, int(low)), int(high)


def chi_square_p_value(observed: ArrayLike, probabilities: ArrayLike, least: float = 5) -> float | None:
    """Pearson's chi-square test: the probability of counts at least as far from a distribution, if the draws follow it.

    Neighbouring counts are merged until at least `least` draws are expected in each bin, the usual rule for the approximation
    to hold. `observed`, [K], is how many independent draws had each of K values, and `probabilities`, [K], is the distribution. The
    p-value is 0 if a value of probability 0 was drawn, and None if there are not two bins to compare.

    >>> round(chi_square_p_value([60, 40], [0.5, 0.5]), 3)
    0.046
    """
    observed, probabilities = np.asarray(observed, np.float64), np.asarray(probabilities, np.float64)
    if observed[probabilities == 0].any():
        return 0.0
    starts = [0]
    expected = probabilities * observed.sum()
    in_bin = 0.0
    for position, value in enumerate(expected):
        in_bin += value
        if in_bin >= least:
            starts.append(position + 1)
            in_bin = 0.0
    del starts[-1]  # what is left is too little for a bin of its own, and goes to the last one
    if len(starts) < 2:
        return None
    merged_observed, merged_expected = np.add.reduceat(observed, starts), np.add.reduceat(expected, starts)
    statistic = float(((merged_observed - merged_expected) ** 2 / merged_expected).sum())
    return float(stats.chi2.sf(statistic, len(starts) - 1))
