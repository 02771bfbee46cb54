"""The report's plots: narrow figures as SVG images, in colours that are read on a light and on a dark page."""

from __future__ import annotations

import base64
import dataclasses
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ul2_tasks.example_features import TOKEN_FEATURES
from ul2_tasks.inspect.texts.measurements import OtherTask, Statistics, TaskStatistics

_INK, _RULE = "#808690", "#80869055"
_COLOURS = {"examples": "#98948b", "inputs": "#4f7fdc", "targets": "#d07a2c"}
WIDTH = 3.6  # inches: where the figure is as wide as a phone, letters of 8 pt have the size of the page's text
_STYLE: dict[str, Any] = {
    "axes.edgecolor": _INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.labelcolor": _INK,
    "axes.linewidth": 0.6,
    **{f"axes.spines.{side}": False for side in ("left", "right", "top")},
    "font.size": 8,
    "grid.color": _RULE,
    "grid.linewidth": 0.6,
    "svg.fonttype": "none",  # text stays text, in a font of the reader's system
    "svg.hashsalt": "",  # so that the same figure always makes the same image
    "text.color": _INK,
    **{f"{axis}tick.{key}": value for axis in "xy" for key, value in (("color", _INK), ("major.size", 0))},
}


@dataclasses.dataclass(frozen=True)
class Plot:
    """A figure as a data URL, and its caption."""

    title: str
    caption: str
    image: str


def draw(statistics: Statistics) -> list[Plot]:
    """All plots of the page: shares, lengths and the fill of rows."""
    caption = "of examples, of input tokens and of target tokens. Thin lines: where the share of examples may be by chance."
    plots = [_plot("Shares", caption, _shares, [*statistics.tasks, *statistics.others])]
    for feature, caption in {
        "inputs": "are what the encoder reads.",
        "targets": "are what the decoder is asked for.",
        "chunk": "is the text that both are made of, in tokens.",
    }.items():
        if statistics.lengths[feature]:
            plots.append(_plot(feature.capitalize(), caption, _lengths, statistics, feature))
    if statistics.fill["packed"]["inputs"]:
        caption = "is the part of the budget that holds tokens. The bound is that of examples that can be divided at will."
        plots.append(_plot("Fill", caption, _fill, statistics.fill))
    return plots


def _shares(tasks: Sequence[TaskStatistics | OtherTask]) -> Figure:
    """Three bars for each task: its shares of examples, with the bounds of chance, of input tokens and of target tokens."""
    figure, axes = _figure(0.6 + 0.5 * len(tasks))
    for number, (kind, label) in enumerate({"examples": "examples", "inputs": "input tokens", "targets": "target tokens"}.items()):
        places = [row + 0.26 * (number - 1) for row in range(len(tasks))]
        axes.barh(places, [100 * (task.share[kind] or 0) for task in tasks], height=0.23, color=_COLOURS[kind], label=label)
        if number == 0:
            low, high = ([100 * task.share[end] for task in tasks] for end in ("low", "high"))
            axes.hlines(places, low, high, colors=_INK, lw=0.8)
    _rows(axes, [task.task for task in tasks])
    axes.set_xlabel("% of the mixture")
    _legend(figure, axes)
    return figure


def _lengths(statistics: Statistics, feature: str) -> Figure:
    """A row for each task, with quantiles of the tokens of its examples. A dashed line is at the budget; chunks have none."""
    tasks: list[TaskStatistics | OtherTask] = [*statistics.tasks, *(statistics.others if feature in TOKEN_FEATURES else [])]
    colour = _COLOURS.get(feature, _COLOURS["examples"])
    figure, axes = _figure(0.6 + 0.3 * len(tasks))
    for row, summary in enumerate(task.lengths[feature] for task in tasks):
        if summary:
            quantiles = summary.quantiles
            axes.plot([quantiles["5"], quantiles["95"]], [row, row], color=colour, lw=1, solid_capstyle="butt")
            axes.plot([quantiles["25"], quantiles["75"]], [row, row], color=colour, lw=6, alpha=0.45, solid_capstyle="butt")
            axes.plot(quantiles["50"], row, "o", ms=4.5, color=colour)
    if feature in TOKEN_FEATURES:
        axes.axvline(statistics.sequence_length[feature], color=_INK, ls=(0, (4, 2)), lw=1, zorder=1)
    axes.set_xlim(left=0)
    axes.locator_params(axis="x", integer=True, nbins=6)
    _rows(axes, [task.task for task in tasks])
    axes.set_xlabel("tokens of a chunk" if feature == "chunk" else f"tokens of {feature}")
    return figure


def _fill(parts: Mapping[str, Mapping[str, float]]) -> Figure:
    """Two bars for each way to fill rows, for inputs and for targets."""
    figure, axes = _figure(0.6 + 0.48 * len(parts))
    for number, feature in enumerate(TOKEN_FEATURES):
        places = [row + 0.34 * (number - 0.5) for row in range(len(parts))]
        filled = [100 * part[feature] for part in parts.values()]
        axes.barh(places, filled, height=0.3, color=_COLOURS[feature], label=feature)
    _rows(axes, list(parts))
    axes.set_xlabel("% of the budget")
    _legend(figure, axes)
    return figure


def _figure(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots()


def _rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [name if len(name) <= 16 else f"{name[:7]}…{name[-7:]}" for name in names])
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.grid(axis="y", visible=False)


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", frameon=False, ncols=3, handlelength=1, columnspacing=1.2)


def _plot(title: str, caption: str, figure: Callable[..., Figure], *data: Any) -> Plot:
    """The figure. As an image it shares neither ids nor styles with the page around it."""
    with matplotlib.style.context(_STYLE, after_reset=True):  # so that a user's matplotlibrc changes nothing
        svg = io.BytesIO()
        figure(*data).savefig(svg, format="svg", transparent=True, metadata={"Date": None})
    return Plot(title, caption, f"data:image/svg+xml;base64,{base64.b64encode(svg.getvalue()).decode()}")
