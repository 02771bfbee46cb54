"""The results of a study as tables with intervals: `python benchmarks/study/summary.py results.jsonl`."""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.stats
from objectives import HELD_OUT, OBJECTIVES

Result = Mapping[str, Any]
LOSSES = {f"loss_{denoiser.name}": denoiser.name.upper() for denoiser in HELD_OUT} | {"loss_causal": "causal"}
TASKS = {
    "continuation_loss": "continuation, loss",
    "continuation_accuracy": "continuation, tokens right",
    "infilling_loss": "infilling, loss",
    "infilling_accuracy": "infilling, tokens right",
    "infilling_right": "infilling, all right",
}
CONFIDENCE = 0.95


def read_results(path: pathlib.Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def whole_seeds(results: Sequence[Result]) -> list[Result]:
    """The results of the seeds with which all objectives were trained."""
    trained = {(result["objective"], result["seed"]) for result in results}
    return [result for result in results if all((name, result["seed"]) in trained for name in OBJECTIVES)]


def by_seed(results: Sequence[Result], objective: str, measure: str) -> np.ndarray:
    """[seeds] a measure of an objective, in the order of the seeds."""
    own = sorted((result for result in results if result["objective"] == objective), key=lambda result: result["seed"])
    return np.array([result[measure] for result in own])


def half_width(values: np.ndarray) -> float:
    """Half of the interval of a mean, by Student's t; infinite for one value."""
    if len(values) < 2:
        return float("inf")
    return float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


def best(results: Sequence[Result], measure: str) -> set[str]:
    """The objective with the best mean, and those that cannot be told from it.

    Objectives share their seeds, so that an interval of their difference is one of the differences by seed.
    """
    values = {name: by_seed(results, name, measure) for name in OBJECTIVES}
    sign = 1 if measure.endswith(("accuracy", "right")) else -1
    first = max(values, key=lambda name: sign * values[name].mean())
    gaps = {name: values[first] - values[name] for name in OBJECTIVES}
    return {name for name, gap in gaps.items() if name == first or abs(gap.mean()) <= half_width(gap)}


def table(results: Sequence[Result], measures: Mapping[str, str]) -> str:
    """A table in Markdown: means and half widths; the best in bold, with all that cannot be told from it."""
    winners = {measure: best(results, measure) for measure in measures}

    def cell(name: str, measure: str) -> str:
        values = by_seed(results, name, measure) * (1 if "loss" in measure else 100)
        digits = 2 if "loss" in measure else 1
        shown = f"{values.mean():.{digits}f}" + (f" ± {half_width(values):.{digits}f}" if len(values) > 1 else "")
        return f"**{shown}**" if name in winners[measure] else shown

    rows = [["trained on", *measures.values()], ["---"] * (len(measures) + 1)]
    rows += [[objective.title, *(cell(name, measure) for measure in measures)] for name, objective in OBJECTIVES.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def work(results: Sequence[Result]) -> str:
    """A table in Markdown of what each objective's models have worked on, in means over the seeds."""
    rows = [["trained on", "text tokens", "inputs", "targets", "10^12 FLOPs"], ["---"] * 5]
    for name, objective in OBJECTIVES.items():
        text, inputs, targets, flops = (by_seed(results, name, key).mean() for key in ("text", "inputs", "targets", "flops"))
        rows.append([objective.title, f"{text:,.0f}", f"{inputs:,.0f}", f"{targets:,.0f}", f"{flops / 1e12:,.1f}"])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def tables(results: Sequence[Result]) -> str:
    """All tables, of the seeds with which all objectives were trained."""
    whole = whole_seeds(results)
    return "\n\n".join([work(whole), table(whole, LOSSES), table(whole, TASKS)]) if whole else "no seed has all objectives yet"


if __name__ == "__main__":
    print(tables(read_results(pathlib.Path(sys.argv[1]))))
