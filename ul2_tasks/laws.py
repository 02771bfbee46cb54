"""What must hold whatever the corpus, and whether it does in a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ul2_tasks.measurements import Law, OtherTask, TaskStatistics
from ul2_tasks.tally import Tally
from ul2_tasks.theory import SIGNIFICANCE

LEAST_PAIRS = 20  # of examples of one number, for a verdict on the text that they share


def check_laws(
    tallies: Sequence[Tally],
    tasks: Sequence[TaskStatistics],
    others: Sequence[OtherTask],
    shared_text: Sequence[Mapping[str, object]],
    examples: int,
) -> list[Law]:
    """All laws, of the denoising tasks' tallies and statistics, of other tasks, of what pairs share, and of so many examples.

    `examples` are those of the denoising tasks.
    """

    def no_example(law: str, kind: str) -> Law:
        count = sum(tally.faults[kind] for tally in tallies)
        first = next((tally.first_faults[kind] for tally in tallies if tally.faults[kind]), "")
        return Law(
            law, not count, f"not in {count:,} of {examples:,} examples; {first}" if count else f"in all {examples:,} examples"
        )

    return [
        no_example("nothing is truncated", "truncated"),
        no_example("mode, sentinels and EOS are in their places, each sentinel once in inputs and once in targets", "unreadable"),
        no_example("every chunk has exactly the noise tokens and spans of its length", "miscounted"),
        no_example("no padding, sentinel or mode is inside a chunk", "special"),
        no_example("inputs are never empty", "empty"),
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
    p_values = {task.task: task.spans["p_value"] for task in tasks if task.spans["p_value"] is not None}
    wrong = {task: p_value for task, p_value in p_values.items() if p_value < SIGNIFICANCE}
    found = ", ".join(f"{task} p = {p_value:.2g}" for task, p_value in (wrong or p_values).items())
    return Law("span lengths are as likely as in theory", not wrong, found or "nothing drawn, or too few full chunks to tell")


def _shared_text_law(pairs: Sequence[Mapping[str, object]]) -> Law:
    """Stock tasks share text in all pairs of one number. In a small text any two examples do, which is no fault.

    So pairs of one number are held against pairs of different numbers, which are what chance gives in this very text,
    small or large, with documents long or short, with phrases that come again and again. With `LEAST_PAIRS` pairs an
    excess of a half over any chance is less probable than `theory.SIGNIFICANCE`, about.
    """
    law = "denoisers read different text at a time"
    told = [pair for pair in pairs if pair["examples"] >= LEAST_PAIRS and pair["by_chance"] is not None]
    if not told:
        return Law(law, True, "nothing to compare, or too few examples to tell")
    worst = max(told, key=lambda pair: pair["at_once"] - pair["by_chance"])
    at_once, by_chance = (f"{worst[key]:.0%}" for key in ("at_once", "by_chance"))
    names = " and ".join(worst["tasks"])
    found = f"{at_once} of the n-th examples of {names} share text, {by_chance} of those of different numbers"
    return Law(law, worst["at_once"] - worst["by_chance"] <= 0.5, found)
