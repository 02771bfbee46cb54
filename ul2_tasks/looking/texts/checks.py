"""The checks: what must hold for any corpus, and whether it holds in a sample."""

from __future__ import annotations

from collections.abc import Sequence

from ul2_tasks.looking.statistics import Check, Tally
from ul2_tasks.looking.texts.counts import Counts
from ul2_tasks.looking.texts.measurements import OtherTask, SharedText, TaskStatistics
from ul2_tasks.looking.texts.theory import SIGNIFICANCE

_OF_EXAMPLES = {  # by the kind of a fault, see `Counts`
    "truncated": "no truncation",
    "unreadable": "well-formed sentinels",
    "miscounted": "exact corruption rates",
    "special": "no special token in text",
    "empty": "no empty inputs",
}
LEAST_PAIRS = 20  # of examples with the same number, for a verdict on the text that they share


def run_checks(
    counts: Sequence[Counts], tasks: Sequence[TaskStatistics], others: Sequence[OtherTask], shared_text: Sequence[SharedText]
) -> list[Check]:
    """All checks; `others` are the tasks of other kinds."""
    faults = Tally()
    for task in counts:
        for kind, times in task.faults.counts.items():
            faults.add(kind, task.faults.first[kind], times)
    examples = sum(task.examples for task in tasks)
    return [
        *(Check.counted(check, kind, faults, examples) for kind, check in _OF_EXAMPLES.items()),
        _rates_check([*tasks, *others]),
        _span_lengths_check(tasks),
        _shared_text_check(shared_text),
    ]


def _rates_check(tasks: Sequence[TaskStatistics | OtherTask]) -> Check:
    wrong = [task for task in tasks if not task.share["low"] <= task.share["examples"] <= task.share["high"]]
    found = [
        f"{task.task} is {task.share['examples']:.2%}, expected {task.share['expected']:.2%}, within {task.share['low']:.2%} .."
        f" {task.share['high']:.2%}"
        for task in wrong
    ]
    return Check("mixing rates as expected", not wrong, "; ".join(found) or f"all {len(tasks)} tasks are")


def _span_lengths_check(tasks: Sequence[TaskStatistics]) -> Check:
    p_values = {task.task: p_value for task in tasks if (p_value := task.spans["p_value"]) is not None}
    wrong = {task: p_value for task, p_value in p_values.items() if p_value < SIGNIFICANCE}
    found = ", ".join(f"{task} p = {p_value:.2g}" for task, p_value in (wrong or p_values).items())
    return Check("span lengths as expected", not wrong, found or "nothing drawn, or too few full chunks to tell")


def _shared_text_check(pairs: Sequence[SharedText]) -> Check:
    """Whether the n-th examples of two tasks share text more often than by chance.

    With stock tasks all of them do, because each task reads the same documents in the same order. But in a small corpus any two
    examples share text, which is no fault. So the examples of the same number are compared with examples of different numbers:
    these show what chance gives in this very corpus, whatever its size, its documents and its repeated phrases. With
    `LEAST_PAIRS` pairs an excess of one half over chance has a probability of about `theory.SIGNIFICANCE` or less.
    """
    check = "denoisers read different text"
    enough = [
        (at_once, by_chance, " and ".join(pair["tasks"]))
        for pair in pairs
        if pair["examples"] >= LEAST_PAIRS
        and (at_once := pair["at_once"]) is not None
        and (by_chance := pair["by_chance"]) is not None
    ]
    if not enough:
        return Check(check, True, "nothing to compare, or too few examples to tell")
    at_once, by_chance, names = max(enough, key=lambda found: found[0] - found[1])
    found = f"{at_once:.0%} of the n-th examples of {names} share text, {by_chance:.0%} of those of different numbers"
    return Check(check, at_once - by_chance <= 0.5, found)
