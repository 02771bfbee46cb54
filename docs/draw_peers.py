"""Writes what benchmarks found into the pages, and draws bars.svg and result.svg: `python docs/draw_peers.py`.

They are `benchmarks/peers`, `caching.py` and `result.py`, whose `--output` is peers.json, caching.json and result.json in this
folder. A table stands in a page after `<!-- peers: NAME -->` and an empty line; see `TABLES`.
"""

from __future__ import annotations

import json
import math
import pathlib
import re
from collections.abc import Callable, Iterable
from typing import Any

HERE = pathlib.Path(__file__).parent
FIGURE = HERE / "bars.svg"
CASES = {"span": "span corruption", "ul2": "UL2", "packed": "UL2, packed"}
OURS, COPY = "ul2_tasks", "copy of memory"
LEFT, LONGEST, LINE = 210, 420, 28  # where bars begin, the longest one, and a bar with its gap, in pixels
STYLE = """\
text { font: 14px system-ui, sans-serif; fill: #1f2328 } .page { fill: #ffffff; stroke: #d0d7de } .bold { font-weight: bold }
.line { stroke: #d0d7de }
@media (prefers-color-scheme: dark) { text { fill: #f0f6fc } .page { fill: #0d1117; stroke: #3d444d } }"""


def found(name: str) -> dict[str, Any]:
    return json.loads((HERE / f"{name}.json").read_text())


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(columns)
    return "\n".join(f"|{'|'.join(row)}|" for row in (head, ["---"] * len(head), *rows))


def nanoseconds(cost: float) -> str:
    return f"{cost:,.{1 if cost < 10 else 0}f}"


def _bold(side: str, cell: str) -> str:
    return f"**{cell}**" if cell and side.startswith(OURS) else cell


def costs(result: dict[str, Any]) -> str:
    """CPU nanoseconds of a token, by case and length."""
    jobs = list(dict.fromkeys((row["case"], row["length"]) for row in result["rows"]))
    of: dict[str, dict[tuple[str, int], str]] = {}
    for row in result["rows"]:
        if "cpu_ns" in row:
            of.setdefault(row["side"], {})[row["case"], row["length"]] = nanoseconds(row["cpu_ns"])
    rows = ([side, *(_bold(side, costs.get(job, "")) for job in jobs)] for side, costs in of.items())
    return table(["CPU ns/token", *(f"{CASES[case]}, {length}" for case, length in jobs)], rows)


def more(result: dict[str, Any]) -> str:
    """What else was measured, of span corruption at the first length; of the denoisers of UL2 where a side has no other."""
    first: dict[str, dict[str, Any]] = {}
    for row in result["rows"]:
        if "cpu_ns" in row and row["side"] != COPY and "2 " not in row["side"]:
            first.setdefault(row["side"], row)
    rows = []
    for side, row in first.items():
        fill = f"{row['fill_inputs'] * 100:.1f} / {row['fill_targets'] * 100:.1f}"
        rows.append([side, f"{row['tokens_per_s'] / 1e6:.1f}", f"{row['memory_mb']:,.0f}", f"{row['first_batch_s']:.1f}", fill])
    return table([f"length {next(iter(first.values()))['length']}", "M tokens/s", "MB", "first batch, s", "fill, %"], rows)


TRIED = {
    "lost": "text lost in an epoch",
    "hosts": "same rows on two hosts",
    "resume": "exact after SIGKILL",
    "mixing": "examples from a 7:3 mixture, at worst",
}


def told(what: str, value: Any) -> str:
    """What a try found, in words."""
    if isinstance(value, str):
        return "no way" if value.startswith("no way") else "fails"
    if what == "lost":
        return f"{value * 100:.1f} %" if value > 5e-4 else f"none; {-value * 100:.1f} % twice" if value < -5e-4 else "none"
    return f"{value:.0f}" if what == "mixing" else "yes" if value else "no"


def tries(result: dict[str, Any]) -> str:
    """What holds of each side, as it was tried."""
    sides = {side: of for side, of in result["tries"].items() if "2 " not in side}
    return table(["tried", *TRIED.values()], ([side, *(told(what, of[what]) for what in TRIED)] for side, of in sides.items()))


SUMMARY = {  # the sides of README's table, and their names there
    "ul2_tasks, PyTorch": "ul2_tasks",
    "t5 0.9.4, SeqIO": "t5, SeqIO",
    "T5 collator": "a T5 collator",
    "grain": "grain",
    "Streaming + collator": "Streaming",
    "litData + collator": "litData",
    "Megatron-LM, T5 dataset": "Megatron-LM",
}


def summary(result: dict[str, Any]) -> str:
    """Of some sides, a column each: what a token of the first case and length costs, and some of what was tried."""
    first = result["rows"][0]
    place = first["case"], first["length"]
    of = {row["side"]: row["cpu_ns"] for row in result["rows"] if (row["case"], row["length"]) == place}
    costs = [_bold(side, f"{nanoseconds(of[side])} ns") for side in SUMMARY]
    rows = [[TRIED[what], *(told(what, result["tries"][side][what]) for side in SUMMARY)] for what in ("hosts", "resume")]
    return table([f"{CASES[place[0]]}, {place[1]}", *SUMMARY.values()], [["CPU time per text token", *costs], *rows])


WRITTEN = {  # the jobs of the table of caches, and their names there
    "bare tokenizer": "bare tokenizer",
    "ul2 cache": "`ul2 cache`",
    "streaming": "Streaming, `MDSWriter`",
    "datasets": "`datasets.map`, `save_to_disk`",
    "litdata": "litData, `optimize`",
    "megatron": "Megatron-LM's loop",
    "datatrove": "datatrove",
    "seqio_cache_tasks": "`seqio_cache_tasks`",
}


def caches(_: dict[str, Any]) -> str:
    """What it costs to write one, beside the tokenizer alone."""
    result = found("caching")
    bare, rows = result["jobs"]["bare tokenizer"]["work"], []
    for job, name in WRITTEN.items():
        of = result["jobs"][job]
        numbers = [f"{of['work']:.1f} ({of['work'] / bare:.2f})", f"{of['startup']:.1f}", f"{of['bytes'] / 1e6:.1f}"]
        rows.append([name, *(_bold(OURS if job == "ul2 cache" else "", cell) for cell in numbers)])
    return table([f"{result['megabytes']:.0f} MB of text", "work, CPU s (ratio)", "start-up, CPU s", "MB written"], rows)


TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "costs": costs,
    "more": more,
    "tries": tries,
    "summary": summary,
    "caches": caches,
}


def page(text: str, result: dict[str, Any]) -> str:
    """A page with its tables renewed."""
    for name, make in TABLES.items():
        if f"<!-- peers: {name} -->" in text:
            text = re.sub(rf"(<!-- peers: {name} -->\n\n)(\|.*\n)*", rf"\1{make(result)}\n", text)
    return text


def draw(result: dict[str, Any]) -> str:
    """Bars of span corruption at the first length, without workers."""
    length = result["rows"][0]["length"]
    of = {
        row["side"]: row["cpu_ns"]
        for row in result["rows"]
        if (row["case"], row["length"]) == ("span", length) and "cpu_ns" in row and not re.search("workers|processes", row["side"])
    }
    bars = sorted(of.items(), key=lambda pair: pair[1])
    width, height = LEFT + LONGEST + 90, 78 + LINE * len(bars)
    body = [f'<text class="bold" x="16" y="28">CPU time per text token: span corruption, {length} tokens, batches of 128</text>']
    most = math.ceil(math.log10(bars[-1][1]))  # a bar has the length of the logarithm
    for power in range(most + 1):
        x = LEFT + LONGEST * power / most
        body.append(f'<path class="line" d="M {x:.1f} 40 V {height - 32}"/>')
        body.append(f'<text x="{x:.1f}" y="{height - 14}" text-anchor="middle">{10**power:,} ns</text>')
    for y, (side, cost) in zip(range(44, height - 40, LINE), bars):
        colour = "#0072b2" if side.startswith(OURS) else "#8c959f" if side == COPY else "#d55e00"
        bar = max(1.0, LONGEST * math.log10(max(1.0, cost)) / most)
        body += [
            f'<text x="{LEFT - 10}" y="{y + 15}" text-anchor="end">{side}</text>',
            f'<rect x="{LEFT}" y="{y}" width="{bar:.1f}" height="20" fill="{colour}"/>',
            f'<text class="bold" x="{LEFT + bar + 6:.1f}" y="{y + 15}">{nanoseconds(cost)} ns</text>',
        ]
    return framed(width, height, body)


TRAINED = {"t5": ("t5 0.9.4, SeqIO", "#d55e00"), "joined": ("ul2_tasks", "#56b4e9"), "packed": ("ul2_tasks, packed", "#0072b2")}
PANEL, TALL, AROUND = 380, 250, 56  # the width and height of a panel, and what is beside it


def curves(runs: list[dict[str, Any]]) -> str:
    """Held-out loss of each run, by tokens and by seconds."""
    points = [point for run in runs for point in run["curve"]]
    low = math.floor(10 * min(point["loss"] for point in points)) / 10
    high = low + 4 * math.ceil(10 / 4 * (max(point["loss"] for point in points) - low)) / 10
    panels: list[tuple[str, Callable[[dict[str, float]], float], str]] = [
        ("million tokens of text", lambda point: point["text"] / 1e6, ".1f"),
        ("seconds of CPU, model and data", lambda point: point["model"] + point["data"], ".0f"),
    ]
    body = ['<text class="bold" x="16" y="28">Held-out loss of one small T5, trained on the same documents</text>']
    for number, (title, of, form) in enumerate(panels):
        left, most = AROUND + number * (PANEL + AROUND), max(map(of, points))
        unit = 2 * 10 ** math.floor(math.log10(most))
        most = unit * math.ceil(most / unit - 0.01)  # whole numbers at its quarters, or halves
        for part in range(5):
            y, x = 50 + TALL * part / 4, left + PANEL * part / 4
            body.append(f'<path class="line" d="M {left} {y:.1f} H {left + PANEL}"/>')
            body.append(f'<text x="{left - 8}" y="{y + 5:.1f}" text-anchor="end">{high + (low - high) * part / 4:.1f}</text>')
            body.append(f'<text x="{x:.1f}" y="{70 + TALL}" text-anchor="middle">{most * part / 4:{form}}</text>')
        body.append(f'<text x="{left + PANEL / 2}" y="{92 + TALL}" text-anchor="middle">{title}</text>')
        for run in runs:
            places = [
                (left + PANEL * of(point) / most, 50 + TALL * (high - point["loss"]) / (high - low)) for point in run["curve"]
            ]
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            body.append(f'<polyline fill="none" stroke="{TRAINED[run["side"]][1]}" stroke-width="2" points="{line}"/>')
    for number, (name, colour) in enumerate(TRAINED.values()):
        x, y = AROUND + PANEL - 160, 74 + 22 * number
        body.append(f'<path d="M {x} {y - 5} h 22" stroke="{colour}" stroke-width="3"/><text x="{x + 30}" y="{y}">{name}</text>')
    return framed(AROUND * 3 + 2 * PANEL - 30, 108 + TALL, body)


def framed(width: int, height: int, body: list[str]) -> str:
    page = f'<rect class="page" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">'
    return "\n".join([opening, f"<style>{STYLE}</style>", page, *body, "</svg>\n"])


def main() -> None:
    result = found("peers")
    FIGURE.write_text(draw(result))
    (HERE / "result.svg").write_text(curves(found("result")["runs"]))
    for path in (HERE.parent / "README.md", *HERE.rglob("*.md")):
        path.write_text(page(path.read_text(), result))


if __name__ == "__main__":
    main()
