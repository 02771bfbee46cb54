"""The report's plots: narrow figures, each as two SVG images, in the colours of the light and of the dark theme."""

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
from ul2_tasks.looking.texts.measurements import OtherTask, Statistics, TaskStatistics

_COLOURS = {  # in light and in dark
    "ink": ("#1c1e21", "#e6e4df"),
    "muted": ("#5d636d", "#a3a8b0"),
    "rule": ("#e2e0db", "#2e3238"),
    "theory": ("#1c1e21", "#f1efe9"),
    "examples": ("#98948b", "#7f8288"),
    "inputs": ("#2f62c4", "#6f9cf0"),
    "targets": ("#c7681b", "#e09450"),
}
COLOURS = {
    theme: {name: of_themes[number] for name, of_themes in _COLOURS.items()} for number, theme in enumerate(("light", "dark"))
}
Colours = Mapping[str, str]
WIDTH = 3.6  # inches: where the figure is as wide as a phone, letters of 8 pt have the size of the page's text


@dataclasses.dataclass(frozen=True)
class Plot:
    """A figure and its caption. `images` are data URLs by theme."""

    title: str
    caption: str
    images: Mapping[str, str]


def draw(statistics: Statistics) -> list[Plot]:
    """All plots of the page: shares, lengths and the fill of rows."""
    plots = [_plot("Shares", _SHARES, shares, [*statistics.tasks, *statistics.others])]
    for feature, caption in _LENGTHS.items():
        if statistics.lengths[feature]:
            plots.append(_plot(feature.capitalize(), caption, lengths, statistics, feature))
    if statistics.fill["packed"]["inputs"]:
        plots.append(_plot("Fill", _FILL, fill, statistics.fill))
    return plots


_SHARES = "of examples, of input tokens and of target tokens. Thin lines: where the share of examples may be by chance."
_FILL = "is the part of the budget that holds tokens and not padding. The bound is that of examples that can be divided at will."
_LENGTHS = {
    "inputs": "are what the encoder reads.",
    "targets": "are what the decoder is asked for.",
    "chunk": "is the text that both are made of, in tokens.",
}


def shares(tasks: Sequence[TaskStatistics | OtherTask], colours: Colours = COLOURS["light"]) -> Figure:
    """Three bars for each task: its shares of examples, with the bounds of chance, of input tokens and of target tokens."""
    figure, axes = _figure(0.6 + 0.5 * len(tasks))
    for number, (kind, label) in enumerate({"examples": "examples", "inputs": "input tokens", "targets": "target tokens"}.items()):
        places = [row + 0.26 * (number - 1) for row in range(len(tasks))]
        parts = [100 * (task.share[kind] or 0) for task in tasks]
        low, high = ([100 * task.share[end] for task in tasks] if number == 0 else parts for end in ("low", "high"))
        axes.barh(places, parts, height=0.23, color=colours[kind], label=label)
        if number == 0:
            axes.hlines(places, low, high, colors=colours["ink"], lw=0.8)
        _write_beside(axes, places, parts, [max(ends) for ends in zip(parts, high)])
    _rows(axes, [task.task for task in tasks])
    axes.margins(x=0.12)
    axes.set_xlabel("% of the mixture")
    _legend(figure, axes)
    return figure


def lengths(statistics: Statistics, feature: str, colours: Colours = COLOURS["light"]) -> Figure:
    """A row for each task, with quantiles of the tokens of its examples. A dashed line is at the budget; chunks have none."""
    budget = statistics.sequence_length.get(feature, 1)
    tasks = [*statistics.tasks, *(statistics.others if feature in TOKEN_FEATURES else [])]
    colour = colours.get(feature, colours["examples"])
    figure, axes = _figure(0.6 + 0.3 * len(tasks))
    summaries = [task.lengths[feature] for task in tasks]
    for row, quantiles in enumerate(summary and summary.quantiles for summary in summaries):
        if quantiles:
            axes.plot([quantiles["5"], quantiles["95"]], [row, row], color=colour, lw=1, solid_capstyle="butt")
            axes.plot([quantiles["25"], quantiles["75"]], [row, row], color=colour, lw=6, alpha=0.45, solid_capstyle="butt")
            axes.plot(quantiles["50"], row, "o", ms=4.5, color=colour)
    if feature in TOKEN_FEATURES:
        axes.axvline(budget, color=colours["theory"], ls=(0, (4, 2)), lw=1, zorder=1)
    axes.set_xlim(0, 1.06 * max(budget, *(summary.quantiles["95"] for summary in summaries if summary)))
    axes.locator_params(axis="x", integer=True, nbins=6)
    _rows(axes, [task.task for task in tasks])
    axes.set_xlabel("tokens of a chunk" if feature == "chunk" else f"tokens of {feature}")
    return figure


def fill(parts: Mapping[str, Mapping[str, float]], colours: Colours = COLOURS["light"]) -> Figure:
    """Two bars for each way to fill rows, for inputs and for targets."""
    figure, axes = _figure(0.6 + 0.48 * len(parts))
    for number, feature in enumerate(TOKEN_FEATURES):
        places = [row + 0.34 * (number - 0.5) for row in range(len(parts))]
        filled = [100 * part[feature] for part in parts.values()]
        axes.barh(places, filled, height=0.3, color=colours[feature], label=feature)
        _write_beside(axes, places, filled, filled)
    axes.set_xlim(0, 112)
    axes.set_xticks(range(0, 101, 25))
    _rows(axes, list(parts))
    axes.set_xlabel("% of the budget")
    _legend(figure, axes)
    return figure


def _figure(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots()
    return figure, axes


def _write_beside(axes: Axes, places: Sequence[float], parts: Sequence[float], ends: Sequence[float]) -> None:
    style = {"textcoords": "offset points", "va": "center_baseline", "fontsize": 7, "color": matplotlib.rcParams["xtick.color"]}
    for place, part, end in zip(places, parts, ends):
        axes.annotate(f"{part:.1f}", (end, place), (3, 0), **style)


def _rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [_short(name) for name in names])
    axes.tick_params(axis="y", labelcolor=matplotlib.rcParams["text.color"])
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)


def _short(name: str) -> str:
    """A name shortened to leave room for the bars; the tables have the whole name."""
    return name if len(name) <= 16 else f"{name[:7]}…{name[-7:]}"


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", frameon=False, ncols=3, handlelength=1, columnspacing=1.2)


def _plot(title: str, caption: str, figure: Callable[..., Figure], *data: Any) -> Plot:
    """The figure in each theme. As an image it shares neither ids nor styles with the page around it."""
    images = {}
    for theme, colours in COLOURS.items():
        with matplotlib.style.context(_style(colours), after_reset=True):  # so that a user's matplotlibrc changes nothing
            svg = io.BytesIO()
            figure(*data, colours=colours).savefig(svg, format="svg", transparent=True, metadata={"Date": None})
        images[theme] = f"data:image/svg+xml;base64,{base64.b64encode(svg.getvalue()).decode()}"
    return Plot(title, caption, images)


def _style(colours: Colours) -> dict[str, Any]:
    return {
        "axes.edgecolor": colours["muted"],
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.labelcolor": colours["muted"],
        "axes.labelsize": 8,
        "axes.linewidth": 0.6,
        **{f"axes.spines.{side}": False for side in ("right", "top")},
        "font.size": 8,
        "grid.color": colours["rule"],
        "grid.linewidth": 0.6,
        "lines.linewidth": 1.3,
        "svg.fonttype": "none",  # text stays text, in a font of the reader's system
        "svg.hashsalt": "",  # so that the same figure always makes the same image
        "text.color": colours["ink"],
        **{f"{axis}tick.{key}": value for axis in "xy" for key, value in (("color", colours["muted"]), ("major.size", 0))},
    }
