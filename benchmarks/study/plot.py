"""The figure of a study: `python benchmarks/study/plot.py results.jsonl study.svg` draws it from the results."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Sequence

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
from objectives import OBJECTIVES
from summary import LOSSES, Result, by_seed, half_width, read_results, whole_seeds

PANELS = {measure: f"{name}, loss" for measure, name in LOSSES.items()} | {
    "continuation_loss": "continuation, loss",
    "infilling_loss": "infilling, loss",
    "continuation_accuracy": "continuation, tokens right",
    "infilling_accuracy": "infilling, tokens right",
}
# Colours of Okabe and Ito, which people who see few colours can tell apart.
COLOURS = dict(zip(OBJECTIVES, ("#0072B2", "#56B4E9", "#E69F00", "#CC79A7", "#D55E00"), strict=True))


def plot(results: Sequence[Result], path: pathlib.Path) -> None:
    """A panel for each measure; in it, for each objective, its seeds as dots, and their mean with its interval."""
    seeds = len({result["seed"] for result in results})
    settings = {"svg.fonttype": "none", "svg.hashsalt": "study", "font.size": 8, "font.family": "sans-serif"}
    with matplotlib.rc_context(settings):
        figure, panels = plt.subplots(2, len(PANELS) // 2, figsize=(12, 4.9), sharey=True)
        for axes, (measure, title) in zip(panels.flat, PANELS.items()):
            for place, (name, colour) in enumerate(COLOURS.items()):
                values = by_seed(results, name, measure)
                axes.plot(values, [place - 0.22] * len(values), "o", markersize=2.5, color=colour, alpha=0.6)
                axes.errorbar(values.mean(), place, xerr=half_width(values), fmt="D", markersize=4, capsize=2.5, color=colour)
            better = "right" if measure.endswith("accuracy") else "left"
            axes.set_title(f"{title}\n({better} is better)", fontsize=8, loc="left")
            axes.set_yticks(range(len(OBJECTIVES)), [objective.title for objective in OBJECTIVES.values()])
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.tick_params(axis="y", length=0)
            axes.grid(axis="x", linewidth=0.4)
        panels[0, 0].invert_yaxis()
        figure.suptitle(
            f"What models of each objective do on held-out text: {seeds} seeds (dots), their means with intervals of 95 %",
            x=0.01, ha="left", fontsize=10,
        )  # fmt: skip
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    plot(whole_seeds(read_results(pathlib.Path(sys.argv[1]))), pathlib.Path(sys.argv[2]))
