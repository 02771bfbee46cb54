"""The report's plots: figures of one narrow size, as inline SVG whose colours and letters are the page's.

matplotlib writes colours as numbers. So each colour of `PLACEHOLDERS` is drawn as a number of its own, and these become
the page's CSS variables, which change with its theme.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

FEATURES = ("inputs", "targets")
PLACEHOLDERS = {
    "ink": "#fe01a0",
    "muted": "#fe01a1",
    "rule": "#fe01a2",
    "measured": "#fe01a3",
    "theory": "#fe01a4",
    "examples": "#fe01a5",
    "inputs": "#fe01a6",
    "targets": "#fe01a7",
}
INK, MUTED, RULE, MEASURED, THEORY, *_ = PLACEHOLDERS.values()
NOTHING = "–"
WIDTH = 3.6  # inches: 8 pt letters are of the page's size where the figure is as wide as a phone
STYLE = {
    "axes.edgecolor": MUTED,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    **{f"axes.spines.{side}": False for side in ("right", "top")},
    "font.size": 8,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.3,
    "svg.fonttype": "none",
    "text.color": INK,
    **{f"{axis}tick.{key}": value for axis in "xy" for key, value in (("color", MUTED), ("major.size", 0))},
}
SHOWN = 0.995  # of a distribution of span lengths; the rest is a long, empty tail


@dataclasses.dataclass(frozen=True)
class Plot:
    """A figure as SVG text, with what is to be seen in it; `name` is its own on the page. `svg` is empty where words say all."""

    name: str
    title: str
    caption: str
    svg: str = ""


def draw(statistics: Mapping[str, Any]) -> dict[str, list[Plot]]:
    """All plots of the page, by section: "shares", "spans", "masked", "lengths", "fill"; where there is nothing to draw, none.

    Args:
        statistics: the JSON of `statistics.Statistics`.
    """
    tasks = statistics["tasks"]
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever this machine's matplotlibrc says
        matplotlib.rcParams.update(STYLE)
        return {
            "shares": [_plot("shares", "Shares", _SHARES, shares(tasks))],
            "spans": [_span_plot(number, task) for number, task in enumerate(tasks)],
            "masked": [
                _plot(
                    f"masked-{number}",
                    task["task"],
                    _masked_caption(task),
                    masked(task["masked"], task["corruption_rate"]["wanted"]),
                )
                for number, task in enumerate(tasks)
                if task["masked"]
            ],
            "lengths": [
                _plot(f"lengths-{feature}", feature.capitalize(), caption, lengths(statistics, feature))
                for feature, caption in _LENGTHS.items()
                if statistics["lengths"][feature]
            ],
            "fill": [_plot("fill", "Fill", _FILL, fill(fills)) for fills in [statistics["fill"]] if fills["packed"]["inputs"]],
        }


_SHARES = "of examples, of input tokens and of target tokens. Thin lines: where the share of examples may be by chance."
_FILL = "is the part of the budget that holds tokens and not padding. The bound is that of examples that can be divided at will."
_LENGTHS = {
    "inputs": "are what the encoder reads.",
    "targets": "are what the decoder is asked for.",
    "chunk": "is the text that both are made of, in tokens.",
}


def _span_plot(number: int, task: Mapping[str, Any]) -> Plot:
    name, spans, distribution = f"spans-{number}", task["spans"], task["spans"]["lengths"]
    if len(distribution["values"]) == 1:
        of_one_length = f"has one span a chunk, always of {distribution['values'][0]:,} tokens: there is nothing to plot."
        return Plot(name, task["task"], of_one_length)
    measured, wanted = (
        NOTHING if mean is None else f"{mean:.2f}" for mean in map(spans["mean_length"].get, ("measured", "wanted"))
    )
    p_value = "" if spans["p_value"] is None else f"; p\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{spans['p_value']:.2g}"
    return _plot(name, task["task"], f"mean {measured} tokens, in theory {wanted}{p_value}.", span_lengths(distribution))


def _masked_caption(task: Mapping[str, Any]) -> str:
    least, most = (f"{100 * part:.1f}" for part in (min(task["masked"]), max(task["masked"])))
    return f"is noise in {least}\N{NO-BREAK SPACE}% to {most}\N{NO-BREAK SPACE}% of the chunks, depending on the place."


def shares(tasks: Sequence[Mapping[str, Any]]) -> Figure:
    """Three bars a task: its shares of examples, input tokens and target tokens; the first with the bounds of chance."""
    figure, axes = _figure(0.6 + 0.5 * len(tasks))
    for number, (kind, label) in enumerate({"examples": "examples", "inputs": "input tokens", "targets": "target tokens"}.items()):
        places = [row + 0.26 * (number - 1) for row in range(len(tasks))]
        parts = [100 * (task["share"][kind] or 0) for task in tasks]
        low, high = ([100 * task["share"][end] for task in tasks] if number == 0 else parts for end in ("low", "high"))
        axes.barh(places, parts, height=0.23, color=PLACEHOLDERS[kind], label=label)
        if number == 0:
            axes.hlines(places, low, high, colors=INK, lw=0.8)
        _write_beside(axes, places, parts, [max(ends) for ends in zip(parts, high)])
    _rows(axes, [task["task"] for task in tasks])
    axes.margins(x=0.12)
    axes.set_xlabel("% of the mixture")
    _legend(figure, axes)
    return figure


def span_lengths(distribution: Mapping[str, Any]) -> Figure:
    """Bars: how often a noise span has each length, if that was measured; dots: theory."""
    figure, axes = _figure(1.9)
    values, width = distribution["values"], distribution.get("width") or 1
    if distribution["measured"]:
        edges = [edge - 0.5 for edge in (*values, values[-1] + width)]
        axes.stairs([100 * part for part in distribution["measured"]], edges, fill=True, color=MEASURED, alpha=0.5)
    middles = [value + (width - 1) / 2 for value in values]
    axes.plot(middles, [100 * part for part in distribution["theory"]], "o", ms=2.4, color=THEORY)
    axes.set_xlim(values[0] - 1, _end(distribution) + width)
    axes.set_ylim(0, None)
    axes.grid(axis="x", visible=False)
    axes.locator_params(axis="x", integer=True, nbins=7)
    axes.locator_params(axis="y", nbins=4)
    axes.set_xlabel("tokens of a span" if width == 1 else f"tokens of a span, {width} lengths a bar")
    axes.set_ylabel("% of spans")
    return figure


def _end(distribution: Mapping[str, Any]) -> int:
    """The length until which most of the distribution is, measured and in theory."""
    values = distribution["values"]
    ends = [
        next((value for value, total in zip(values, itertools.accumulate(parts)) if total >= SHOWN), values[-1])
        for parts in (distribution["theory"], distribution["measured"])
        if parts
    ]
    return max(ends)


def masked(parts: Sequence[float], wanted: float) -> Figure:
    """Steps: the part of chunks in which a place is noise; a dashed line at the corruption rate."""
    figure, axes = _figure(1.7)
    edges = [100 * number / len(parts) for number in range(len(parts) + 1)]
    axes.stairs([100 * part for part in parts], edges, fill=True, color=MEASURED, alpha=0.4)
    axes.axhline(100 * wanted, color=THEORY, ls=(0, (4, 2)), lw=1)
    axes.set_xlim(0, 100)
    axes.set_ylim(0, min(104, 104 * max(*parts, wanted, 0.01) * 1.25))
    axes.grid(axis="x", visible=False)
    axes.locator_params(axis="y", nbins=4)
    axes.set_xlabel("place in the chunk, %")
    axes.set_ylabel("% noise")
    return figure


def lengths(statistics: Mapping[str, Any], feature: str) -> Figure:
    """A row a task: quantiles of the tokens of its examples; a dashed line at the budget, which chunks have not."""
    tasks, budget = statistics["tasks"], statistics["sequence_length"].get(feature, 1)
    colour = PLACEHOLDERS.get(feature, PLACEHOLDERS["examples"])
    figure, axes = _figure(0.6 + 0.3 * len(tasks))
    summaries = [task["lengths"][feature] for task in tasks]
    for row, quantiles in enumerate(summary and summary["quantiles"] for summary in summaries):
        if quantiles:
            axes.plot([quantiles["5"], quantiles["95"]], [row, row], color=colour, lw=1, solid_capstyle="butt")
            axes.plot([quantiles["25"], quantiles["75"]], [row, row], color=colour, lw=6, alpha=0.45, solid_capstyle="butt")
            axes.plot(quantiles["50"], row, "o", ms=4.5, color=colour)
    if feature in FEATURES:
        axes.axvline(budget, color=THEORY, ls=(0, (4, 2)), lw=1, zorder=1)
    axes.set_xlim(0, 1.06 * max(budget, *(summary["quantiles"]["95"] for summary in summaries if summary)))
    axes.locator_params(axis="x", integer=True, nbins=6)
    _rows(axes, [task["task"] for task in tasks])
    axes.set_xlabel("tokens of a chunk" if feature == "chunk" else f"tokens of {feature}")
    return figure


def fill(parts: Mapping[str, Mapping[str, float]]) -> Figure:
    """Two bars for each way to fill rows: inputs and targets."""
    figure, axes = _figure(0.6 + 0.48 * len(parts))
    for number, feature in enumerate(FEATURES):
        places = [row + 0.34 * (number - 0.5) for row in range(len(parts))]
        filled = [100 * part[feature] for part in parts.values()]
        axes.barh(places, filled, height=0.3, color=PLACEHOLDERS[feature], label=feature)
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
    figure.patch.set_visible(False)
    axes.patch.set_visible(False)
    return figure, axes


def _write_beside(axes: Axes, places: Sequence[float], parts: Sequence[float], ends: Sequence[float]) -> None:
    style = {"textcoords": "offset points", "va": "center_baseline", "fontsize": 7, "color": MUTED}
    for place, part, end in zip(places, parts, ends):
        axes.annotate(f"{part:.1f}", (end, place), (3, 0), **style)


def _rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [_short(name) for name in names])
    axes.tick_params(axis="y", labelcolor=INK)
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)


def _short(name: str) -> str:
    """A name that leaves room for the bars; the tables have all of it."""
    return name if len(name) <= 16 else f"{name[:7]}…{name[-7:]}"


def _legend(figure: Figure, axes: Axes) -> None:
    columns = {"ncols": 3, "handlelength": 1, "columnspacing": 1.2}
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", frameon=False, **columns)


def _plot(name: str, title: str, caption: str, figure: Figure) -> Plot:
    """The figure as SVG that can stand in a page beside others: no ids but those it refers to, and none of these theirs."""
    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    left, top, width, height = re.search(r'viewBox="([^"]*)"', svg).group(1).split()
    svg = svg[svg.index(">", svg.index("<svg")) + 1 :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"'DejaVu Sans'[^;\"]*", "var(--sans)", svg.replace("xlink:href", "href"))
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda match: f' id="{name}-{match[1]}"' if match[1] in used else "", svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{name}-", svg)
    for variable, placeholder in PLACEHOLDERS.items():
        svg = svg.replace(placeholder, f"var(--{variable})")
    svg = re.sub(r">\s+<", "><", svg)
    # The caption beside it says the same as the label, so that a screen reader does not read letter by letter.
    head = f'<svg role="img" aria-labelledby="{name}-caption" viewBox="{left} {top} {width} {height}">'
    return Plot(name, title, caption, head + svg.strip())
