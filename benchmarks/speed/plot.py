"""The figure of this benchmark: `python benchmarks/speed/plot.py speed.json speed.png` draws it again from the results."""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

# Colours of Okabe and Ito, which people who see few colours can tell apart.
SIDES = {
    "ours": ("ul2_tasks", "#0072B2"),
    "ours_rows": ("ul2_tasks, row by row", "#3399CC"),
    "ours_seqio": ("ul2_tasks, SeqIO's converter", "#56B4E9"),
    "t5": ("t5 recipe", "#D55E00"),
    "numpy": ("NumPy, by example", "#E69F00"),
    "tokenizing": ("tokenizing alone", "#CC79A7"),
    "floor": ("SeqIO doing nothing", "#999999"),
    "memcpy": ("memcpy", "#CCCCCC"),
}
TITLES = {
    "denoiser": "five denoisers,\ntokens in memory",
    "task_r1": "task R1,\ncached",
    "task_s": "task S,\ncached",
    "mixture": "mixture,\ncached",
    "unpacked": "model features,\nunpacked",
    "packed": "model features,\npacked",
    "text": "mixture,\nfrom text",
}
GAP = 0.8  # between cases, in bars


def plot(result: Mapping[str, Any], path: pathlib.Path) -> None:
    settings = result["settings"]
    rows = [row for row in result["rows"] if row["variant"] in ("", "together")]
    positions, centers = layout(rows)
    height = 1.6 + 0.24 * max(positions.values(), default=1)
    figure, panels = plt.subplots(
        1, len(settings["lengths"]), figsize=(2 + 4.2 * len(settings["lengths"]), height), sharey=True, sharex=True, squeeze=False
    )
    for axes, length in zip(panels[0], settings["lengths"]):
        for row in (row for row in rows if row["length"] == length):
            place, cost = positions[row["case"], row["side"]], row["ns_per_token"]
            axes.barh(place, cost, height=0.9, color=SIDES[row["side"]][1])
            axes.annotate(label(row), (cost, place), (3, 0), textcoords="offset points", va="center", fontsize=7.5)
        axes.set_xscale("log")
        axes.set_title(f"length {length}", fontsize=10, loc="left")
        axes.set_yticks(list(centers.values()), [TITLES[case] for case in centers], fontsize=9)
        axes.tick_params(axis="y", length=0)
        axes.tick_params(axis="x", labelsize=8)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.set_xlabel("ns a text token (log scale)", fontsize=9)
    axes = panels[0][0]
    axes.invert_yaxis()
    axes.set_xlim(axes.get_xlim()[0], axes.get_xlim()[1] * 4)  # room for the labels
    present = [side for side in SIDES if any(row["side"] == side for row in rows)]
    columns = len(present) if len(settings["lengths"]) > 1 else 3
    figure.suptitle("CPU time of a text token (in brackets: how many times less than t5's recipe)", x=0.01, ha="left", fontsize=12)
    figure.legend(
        [plt.Rectangle((0, 0), 1, 1, color=SIDES[side][1]) for side in present],
        [SIDES[side][0] for side in present],
        loc="upper left",
        bbox_to_anchor=(0.005, 1 - 0.35 / height),
        ncols=columns,
        fontsize=9,
        frameon=False,
    )
    figure.tight_layout(rect=(0, 0, 1, 1 - (0.35 + 0.22 * -(-len(present) // columns)) / height))
    figure.savefig(path, dpi=150)


def layout(rows: list[Mapping[str, Any]]) -> tuple[dict[tuple[str, str], float], dict[str, float]]:
    """Where each bar stands, by case and side; and the middle of each case."""
    positions, centers, place = {}, {}, 0.0
    for case in dict.fromkeys(row["case"] for row in rows):
        sides = [side for side in SIDES if any((row["case"], row["side"]) == (case, side) for row in rows)]
        positions |= {(case, side): place + index for index, side in enumerate(sides)}
        centers[case] = place + (len(sides) - 1) / 2
        place += len(sides) + GAP
    return positions, centers


def label(row: Mapping[str, Any]) -> str:
    cost, ratio = row["ns_per_token"], row["t5_ratio"]
    figure = f"{cost:.2g}" if cost < 10 else f"{cost:,.0f}"
    return figure if row["side"] in ("t5", "memcpy", "tokenizing") else f"{figure} ({ratio:.{0 if ratio > 9.95 else 1}f})"


if __name__ == "__main__":
    plot(json.loads(pathlib.Path(sys.argv[1]).read_text()), pathlib.Path(sys.argv[2]))
