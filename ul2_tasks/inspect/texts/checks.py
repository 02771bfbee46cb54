"""The checks: what must hold for any corpus, and whether it holds in a sample."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from ul2_tasks.inspect.statistics import Check, Tally
from ul2_tasks.inspect.texts.counts import Counts
from ul2_tasks.inspect.texts.measurements import OtherTask, TaskStatistics

SIGNIFICANCE = 1e-6  # the fraction of all faultless samples that is taken for faulty
_OF_EXAMPLES = {  # by the kind of a fault, see `Counts`
    "truncated": "no truncation",
    "unreadable": "well-formed sentinels",
    "miscounted": "exact corruption rates",
    "special": "no special token in text",
    "empty": "no empty inputs",
}
LEAST_PAIRS = 20  # of examples with the same number, for a verdict on the text that they share


def run_checks(
    counts: Sequence[Counts],
    tasks: Sequence[TaskStatistics],
    others: Sequence[OtherTask],
    own: Mapping[str, Mapping[str, np.ndarray]],
) -> list[Check]:
    """All checks; `others` are the tasks of other kinds, and `own` are the `COLUMNS` of the examples of each task."""
    faults = Tally()
    for task in counts:
        for kind, times in task.faults.counts.items():
            faults.add(kind, task.faults.first[kind], times)
    examples = sum(task.examples for task in tasks)
    return [
        *(Check.counted(check, kind, faults, examples) for kind, check in _OF_EXAMPLES.items()),
        _rates_check([*tasks, *others]),
        _span_lengths_check(counts, own),
        _shared_text_check(counts),
    ]


def binomial_interval(trials: int, probability: float) -> tuple[int, int]:
    """The interval, both ends included, that a binomial count falls out of with a probability of at most `SIGNIFICANCE`.

    >>> binomial_interval(4000, 0.5)
    (1845, 2155)
    """
    if not 0 < probability < 1:
        return (round(trials * probability),) * 2
    numbers = np.arange(1, trials + 1)
    ratios = (trials - numbers + 1) / numbers * (probability / (1 - probability))  # of the probability of a count to that before it
    logarithms = np.concatenate([[0.0], np.cumsum(np.log(ratios))])
    law = np.exp(logarithms - logarithms.max())
    law /= law.sum()
    # Each tail is added up from its own end, where sums are as exact as the tail is small.
    low, above = (int(np.searchsorted(np.cumsum(tail), SIGNIFICANCE / 2, "right")) for tail in (law, law[::-1]))
    return low, trials - above


def _rates_check(tasks: Sequence[TaskStatistics | OtherTask]) -> Check:
    wrong = [task for task in tasks if not task.share["low"] <= task.share["examples"] <= task.share["high"]]
    found = [
        f"{task.task} is {task.share['examples']:.2%}, expected {task.share['expected']:.2%}, within {task.share['low']:.2%} .."
        f" {task.share['high']:.2%}"
        for task in wrong
    ]
    return Check("mixing rates as expected", not wrong, "; ".join(found) or f"all {len(tasks)} tasks are")


def _span_lengths_check(counts: Sequence[Counts], own: Mapping[str, Mapping[str, np.ndarray]]) -> Check:
    """Whether as many first spans of full chunks are at most of mean length as in random compositions.

    The spans are a random way to write n noise tokens as a sum of k parts, of which C(n-1, k-1) are equally likely; in
    C(n-m-1, k-1) of them the first part is longer than m.
    """
    wrong, compared = [], 0
    for task in counts:
        noise, spans = task.full.noise, task.full.spans
        first = own[task.task.name]["first_span"][own[task.task.name]["is_full"] > 0]
        if not first.size or not 1 < spans < noise:
            continue
        compared += 1
        mean = noise // spans
        expected = 1 - math.comb(noise - mean - 1, spans - 1) / math.comb(noise - 1, spans - 1)
        found, (low, high) = int((first <= mean).sum()), binomial_interval(first.size, expected)
        if not low <= found <= high:
            wrong.append(f"{task.task.name} begins with at most {mean} tokens in {found / first.size:.1%}, expected {expected:.1%}")
    return Check("span lengths as expected", not wrong, "; ".join(wrong) or f"of all {compared} tasks that draw them")


def _shared_text_check(counts: Sequence[Counts]) -> Check:
    """Whether the n-th examples of two tasks share text more often than by chance.

    With stock tasks all of them do, because each task reads the same documents in the same order. But in a small corpus any two
    examples share text, which is no fault. So the examples of the same number are compared with examples of different numbers:
    these show what chance gives in this very corpus, whatever its size, its documents and its repeated phrases. With
    `LEAST_PAIRS` pairs an excess of one half over chance has a probability of about `SIGNIFICANCE` or less.
    """
    check, found = "denoisers read different text", []
    for a, b in itertools.combinations(counts, 2):
        count = min(len(a.first_texts), len(b.first_texts))
        shared, pairs = _pairs_that_share(a.first_texts[:count], b.first_texts[:count], 0)
        by_chance = [_pairs_that_share(a.first_texts[:count], b.first_texts[:count], count * part // 4) for part in (1, 2, 3)]
        if pairs >= LEAST_PAIRS and (others := sum(pairs for _, pairs in by_chance)):
            chance = sum(shared for shared, _ in by_chance) / others
            found.append((shared / pairs, chance, f"{a.task.name} and {b.task.name}"))
    if not found:
        return Check(check, True, "nothing to compare, or too few examples to tell")
    at_once, chance, names = max(found, key=lambda each: each[0] - each[1])
    told = f"{at_once:.0%} of the n-th examples of {names} share text, {chance:.0%} of those of different numbers"
    return Check(check, at_once - chance <= 0.5, told)


def _pairs_that_share(a: Sequence[set[int]], b: Sequence[set[int]], shift: int) -> tuple[int, int]:
    """How many pairs of examples, number i of `a` and number i + shift of `b`, share a window; and in how many both have one."""
    pairs = [(ours, theirs) for ours, theirs in zip(a, [*b[shift:], *b[:shift]]) if ours and theirs]
    return sum(not ours.isdisjoint(theirs) for ours, theirs in pairs), len(pairs)
