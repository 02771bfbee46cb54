"""What is expected of a sample: the law of span lengths, bounds for counts, and a test of one against the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

from ul2_tasks.denoisers import Denoiser
from ul2_tasks.lengths import noise_counts, noise_range

SIGNIFICANCE = 1e-6  # the part of all faultless samples that is taken for faulty


def part_probabilities(total: int, parts: int) -> np.ndarray:
    """The law of one part of a uniformly random composition of `total` into `parts` positive parts.

    For two parts or more P(l) = C(total-l-1, parts-2) / C(total-1, parts-1): so many of all compositions begin with l. It
    is computed as P(1) = (parts-1) / (total-1) and the ratios P(l+1) / P(l) = (total-l-parts+1) / (total-l-1), all at most
    1, so that no number is too large for a float, however long the chunk.

    Returns:
        [total - parts + 1] float64: the probabilities of 1, 2, ..

    Raises:
        ValueError: not 1 <= parts <= total.

    >>> part_probabilities(4, 2).round(3).tolist()  # 1+3, 2+2, 3+1
    [0.333, 0.333, 0.333]
    """
    if not 1 <= parts <= total:
        raise ValueError(f"there is no composition of {total} into {parts} positive parts; expected 1 <= parts <= total")
    if parts == 1:
        return np.append(np.zeros(total - 1), 1.0)
    lengths = np.arange(1, total - parts + 1)
    ratios = (total - lengths - parts + 1) / (total - lengths - 1)
    return (parts - 1) / (total - 1) * np.cumprod(np.append(1.0, ratios))


def span_probabilities(denoiser: Denoiser, length: int) -> np.ndarray:
    """The law of the length of one noise span of a chunk: [max + 1] float64, the probabilities of 0, 1, .. max tokens.

    The spans of a `SpanDenoiser` are a uniformly random composition of its noise tokens, see `spans`; the span of a
    `SequentialDenoiser` has a fixed length, or is uniform over `lengths.noise_range`.
    """
    fewest, most = noise_range(denoiser, length)
    if fewest < most:
        return np.append(np.zeros(fewest), np.full(most - fewest + 1, 1 / (most - fewest + 1)))
    return np.append(0.0, part_probabilities(*noise_counts(denoiser, length)))


def binomial_interval(trials: int, probability: float, outside: float = SIGNIFICANCE) -> tuple[int, int]:
    """The counts that a binomial variable leaves with a probability of at most `outside`, half of it below and half above.

    Exact, where the normal approximation is not: also for rare events and few trials.

    Args:
        trials: N, at least 0.
        probability: p, in [0, 1].
        outside: in (0, 1).

    Returns:
        (low, high), both included.

    >>> binomial_interval(4000, 0.5)
    (1845, 2155)
    """
    low, high = stats.binom.interval(1 - outside, trials, probability)
    return max(0, int(low)), int(high)


def chi_square_p_value(observed: Sequence[int], probabilities: Sequence[float], least: float = 5) -> float | None:
    """Pearson's chi-square test: how probable counts at least as far from the law are, if they follow it.

    Neighbouring counts are merged until `least` are expected of each, the usual rule for the approximation to hold.

    Args:
        observed: [K] counts of independent draws.
        probabilities: [K] of the law; what they lack of 1 is expected of nothing.
        least: what must be expected of each bin.

    Returns:
        The p-value; 0 if something was drawn that cannot be; None if there are not two bins to compare.
    """
    observed, probabilities = np.asarray(observed, np.float64), np.asarray(probabilities, np.float64)
    if observed[probabilities == 0].any():
        return 0.0
    starts = [0]
    expected = probabilities * observed.sum()
    waiting = 0.0
    for position, value in enumerate(expected):
        waiting += value
        if waiting >= least:
            starts.append(position + 1)
            waiting = 0.0
    del starts[-1]  # of what is left, which is merged with the bin before it, or is nothing
    if len(starts) < 2:
        return None
    merged_observed, merged_expected = np.add.reduceat(observed, starts), np.add.reduceat(expected, starts)
    statistic = float(((merged_observed - merged_expected) ** 2 / merged_expected).sum())
    return float(stats.chi2.sf(statistic, len(starts) - 1))
