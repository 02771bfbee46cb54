"""Writes what `benchmarks/peers --output docs/peers.json` found into the pages, and draws bars.svg: `python docs/draw_peers.py`.

A table stands in a page after `<!-- peers: NAME -->` and an empty line; see `TABLES`.
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


def found() -> dict[str, Any]:
    return json.loads((HERE / "peers.json").read_text())


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
        if "cpu_ns" in row and row["side"] != COPY:
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


TABLES: dict[str, Callable[[dict[str, Any]], str]] = {"costs": costs, "more": more, "tries": tries, "summary": summary}


def page(text: str, result: dict[str, Any]) -> str:
    """A page with its tables renewed."""
    for name, make in TABLES.items():
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
    page = f'<rect class="page" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">'
    return "\n".join([opening, f"<style>{STYLE}</style>", page, *body, "</svg>\n"])


def main() -> None:
    result = found()
    FIGURE.write_text(draw(result))
    for path in (HERE.parent / "README.md", *HERE.rglob("*.md")):
        path.write_text(page(path.read_text(), result))


if __name__ == "__main__":
    main()
