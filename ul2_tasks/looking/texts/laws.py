"""The laws: what must hold for any corpus, and whether it holds in a sample."""

from __future__ import annotations

from collections.abc import Sequence

from ul2_tasks.looking.statistics import Law, Tally
from ul2_tasks.looking.texts.counts import Counts
from ul2_tasks.looking.texts.measurements import OtherTask, SharedText, TaskStatistics
from ul2_tasks.looking.texts.theory import SIGNIFICANCE

_OF_EXAMPLES = {  # by the kind of a fault, see `Counts`
    "truncated": "nothing is truncated",
    "unreadable": "mode, sentinels and EOS are in their places, each sentinel once in inputs and once in targets",
    "miscounted": "every chunk has exactly the noise tokens and spans of its length",
    "special": "no padding, sentinel or mode is inside a chunk",
    "empty": "inputs are never empty",
}
LEAST_PAIRS = 20  # of examples with the same number, for a verdict on the text that they share


def check_laws(
    counts: Sequence[Counts], tasks: Sequence[TaskStatistics], others: Sequence[OtherTask], shared_text: Sequence[SharedText]
) -> list[Law]:
    """Checks all laws; `others` are the tasks of other kinds."""
    faults = Tally()
    for task in counts:
        for kind, times in task.faults.counts.items():
            faults.add(kind, task.faults.first[kind], times)
    examples = sum(task.examples for task in tasks)
    return [
        *(Law.counted(law, kind, faults, examples) for kind, law in _OF_EXAMPLES.items()),
        _rates_law([*tasks, *others]),
        _span_lengths_law(tasks),
        _shared_text_law(shared_text),
    ]


def _rates_law(tasks: Sequence[TaskStatistics | OtherTask]) -> Law:
    wrong = [task for task in tasks if not task.share["low"] <= task.share["examples"] <= task.share["high"]]
    found = [
        f"{task.task} is {task.share['examples']:.2%}, wanted {task.share['wanted']:.2%}, within {task.share['low']:.2%} .."
        f" {task.share['high']:.2%}"
        for task in wrong
    ]
    return Law("rates are within their binomial bounds", not wrong, "; ".join(found) or f"all {len(tasks)} tasks are")


def _span_lengths_law(tasks: Sequence[TaskStatistics]) -> Law:
    p_values = {task.task: p_value for task in tasks if (p_value := task.spans["p_value"]) is not None}
    wrong = {task: p_value for task, p_value in p_values.items() if p_value < SIGNIFICANCE}
    found = ", ".join(f"{task} p = {p_value:.2g}" for task, p_value in (wrong or p_values).items())
    return Law("span lengths are as likely as in theory", not wrong, found or "nothing drawn, or too few full chunks to tell")


def _shared_text_law(pairs: Sequence[SharedText]) -> Law:
    """Whether the n-th examples of two tasks share text more often than by chance.

    With stock tasks all of them do, because each task reads the same documents in the same order. But in a small corpus any two
    examples share text, which is no fault. So the examples of the same number are compared with examples of different numbers:
    these show what chance gives in this very corpus, whatever its size, its documents and its repeated phrases. With
    `LEAST_PAIRS` pairs an excess of one half over chance has a probability of about `theory.SIGNIFICANCE` or less.
    """
    law = "denoisers read different text at a time"
    enough = [
        (at_once, by_chance, " and ".join(pair["tasks"]))
        for pair in pairs
        if pair["examples"] >= LEAST_PAIRS
        and (at_once := pair["at_once"]) is not None
        and (by_chance := pair["by_chance"]) is not None
    ]
    if not enough:
        return Law(law, True, "nothing to compare, or too few examples to tell")
    at_once, by_chance, names = max(enough, key=lambda found: found[0] - found[1])
    found = f"{at_once:.0%} of the n-th examples of {names} share text, {by_chance:.0%} of those of different numbers"
    return Law(law, at_once - by_chance <= 0.5, found)
