"""`ul2 report`: one HTML file of examples, with each span in the colour of its sentinel, plots and statistics, of any kind of data.

It opens from a file, without a network, in light and dark, on a phone, and on paper. `write_page` is of other pages, too.
"""

from __future__ import annotations

import collections
import io
import os
import pathlib
import string
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from rich.console import Console

from ul2_tasks.files.atomic import write_atomically
from ul2_tasks.inspect.measure import Statistics, print_statistics
from ul2_tasks.inspect.printing import visible
from ul2_tasks.inspect.readable import Stretch
from ul2_tasks.inspect.show import in_words
from ul2_tasks.inspect.statistics import Check, Summary
from ul2_tasks.inspect.view import View

_TEMPLATE = pathlib.Path(__file__).parents[1] / "data" / "report.html"
_COLUMNS = 100  # of what is printed of the statistics
_COLOURS = 8
_TOLD = {  # of examples of denoisers, and of conversations
    False: "Unmasked text is plain, and each masked span has the colour of its sentinel. Hover or tap a span to see its twin. A"
    " double line is a document boundary.",
    True: "Of conversations, text that is not trained on is grey, and each loss group has its colour.",
}
_MADE_BY = (
    "Made by ul2_tasks {}. <code>ul2 stats --json</code> and <code>ul2 show --json</code> print the numbers and the examples for"
    " programs."
)


def check_path(path: str | os.PathLike) -> None:
    """Raises a ValueError if a page cannot be written to this path. A command calls this before it measures for minutes."""
    path = pathlib.Path(path)
    if path.is_dir():
        raise ValueError(
            f"the page's path must be of a file, got the folder {str(path)!r}. Name a file in it, such as {path / 'report.html'}."
        )
    if not path.parent.is_dir():
        raise ValueError(
            f"the page {path.name!r} must be in a folder that exists, got {str(path.parent)!r}. Make it, or name another."
        )


def write_page(path: str | os.PathLike, title: str, body: Iterable[str]) -> pathlib.Path:
    """Writes a page, and returns its path. The parts of the body are HTML."""
    check_path(path)
    page = string.Template(_TEMPLATE.read_text(encoding="utf-8"))
    write_atomically(path, page.substitute(title=escape(title), body="\n".join(body)))
    return pathlib.Path(path)


def printed(show: Callable[..., None], *shown: Any) -> str:
    """What a function prints of something to a console, as HTML, in a box that scrolls."""
    console = Console(record=True, width=_COLUMNS, file=io.StringIO())
    show(*shown, console)
    text = console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")
    return f'<div class="wide">{text}</div>'


def verdict(checks: Sequence[Check]) -> str:
    """One sentence, as HTML: all checks pass, or which fail.

    >>> verdict([Check("no truncation", True, ""), Check("known ids", False, "")])
    '<p class="bad">1 of 2 checks fails: known ids.</p>'
    """
    broken = [check.name for check in checks if not check.passed]
    if broken:
        fails = "fails" if len(broken) == 1 else "fail"
        return f'<p class="bad">{len(broken)} of {len(checks)} checks {fails}: {escape("; ".join(broken))}.</p>'
    return f'<p class="ok">All {len(checks)} checks pass.</p>' if checks else "<p>Nothing was checked.</p>"


def write_report(statistics: Statistics, views: Iterable[View], path: str | os.PathLike) -> pathlib.Path:
    """Writes the page, and returns its path. `views` are examples, of which there may be none."""
    body = [
        f"<h1>{escape(statistics.mixture)}</h1>",
        verdict(statistics.checks),
        "<h2>Examples</h2>",
        *_examples(views),
        "<h2>Statistics</h2>",
        '<div class="figures">',
        *_plots(statistics),
        "</div>",
        printed(print_statistics, statistics),
        f'<p class="muted">{_MADE_BY.format(escape(statistics.version))}</p>',
    ]
    return write_page(path, f"{statistics.mixture}: UL2 data report", body)


def _examples(views: Iterable[View]) -> Iterator[str]:
    by_task: dict[str, list[View]] = {}
    for view in views:
        by_task.setdefault(view.task, []).append(view)
    if not by_task:
        yield "<p>No examples were drawn.</p>"
        return
    kinds = {_is_chat(of_task[0]) for of_task in by_task.values()}
    yield f'<p class="muted">{" ".join(_TOLD[is_chat] for is_chat in sorted(kinds))}</p>'
    for number, (task, own) in enumerate(by_task.items()):
        yield f"<details{'' if number else ' open'}><summary>{escape(task)}</summary>"
        yield from map(_example, own)
        yield "</details>"


def _is_chat(view: View) -> bool:
    return "messages" in view.numbers


def _example(view: View) -> str:
    sides = "".join(
        f"<div><h3>{escape(key)}, {view.numbers[key]:,} tokens</h3>"
        f'<div class="pane" dir="{_direction(stretches)}">{"".join(map(_segment, stretches))}</div></div>'
        for key, stretches in view.features.items()
    )
    head = f'<p class="muted">{escape(in_words(view.numbers))}<br><small>{escape(visible(view.place))}</small></p>'
    return f'<article class="example{" chat" * _is_chat(view)}">{head}<div class="sides">{sides}</div></article>'


def _direction(stretches: Sequence[Stretch]) -> str:
    """The direction of most letters: a chunk may begin with a name in another script."""
    of = collections.Counter(unicodedata.bidirectional(letter) for each in stretches if each.kind == "text" for letter in each.text)
    return "rtl" if of["R"] + of["AL"] > of["L"] else "ltr"


def _segment(stretch: Stretch) -> str:
    kind, group = stretch.kind, stretch.group
    colour, data = ("", "") if group is None else (f" c{group % _COLOURS}", f' data-group="{group}"')
    direction = "" if kind == "text" else ' dir="ltr"'
    title = ' title="another document begins"' if kind == "border" else ""
    return f'<span class="segment {escape(kind)}{colour}"{data}{direction}{title}>{escape(stretch.text)}</span>'


def _plots(statistics: Statistics) -> Iterator[str]:
    """Figures of bars, which are boxes of the page: shares of the tasks, and their lengths."""
    keys = list(statistics.sequence_length)
    if len(statistics.tasks) > 1:
        rows = {
            task.task: [
                _bar("", task.share["examples"]) + _mark("ink thin", task.share["low"], task.share["high"]),
                *(_bar(key, task.share.get(key, 0.0)) for key in keys),
            ]
            for task in statistics.tasks
        }
        legend = _key("examples", "") + "".join(_key(key, key) for key in keys)
        yield _figure("Shares", f"of the tokens, and of the examples; thin lines: where these may be by chance. {legend}", rows)
    for key in [*keys, "chunk"]:
        found = {task.task: task.numbers.get(key) for task in statistics.tasks}
        if any(found.values()):
            budget, widest = statistics.sequence_length.get(key), max(each.max for each in found.values() if each)
            most = max(budget or 0, widest)
            rows = {task: [_spread(key, each, most, budget)] for task, each in found.items()}
            told = f"up to {most:,} tokens. Bars end at the median, and lines have 90 % of the examples."
            title = "Length" if key == "tokens" else key.capitalize()
            yield _figure(title, f"{told} The mark at the right is the limit." if budget else told, rows)


def _figure(title: str, caption: str, rows: Mapping[str, Sequence[str]]) -> str:
    """A plot; `rows` are its lanes by the name of each row, which have marks."""
    lanes = "".join(
        f'<div class="row"><span>{escape(name)}</span><div class="track">'
        + "".join(f'<div class="lane">{marks}</div>' for marks in own)
        + "</div></div>"
        for name, own in rows.items()
    )
    return f"<figure><figcaption><b>{escape(title)}</b> {caption}</figcaption>{lanes}</figure>"


def _key(label: str, colour: str) -> str:
    return f'<span class="mark key {colour}"></span>{escape(label)}'


def _bar(colour: str, part: float) -> str:
    return _mark(colour, 0, part)


def _spread(colour: str, found: Summary | None, full: int, budget: int | None) -> str:
    if found is None:
        return ""
    at = {percent: value / full for percent, value in found.quantiles.items()}
    budget_mark = _mark("ink", budget / full, budget / full) if budget else ""
    return _mark(f"{colour} pale", 0, at["50"]) + _mark(f"{colour} thin", at["5"], at["95"]) + budget_mark


def _mark(colour: str, start: float, stop: float) -> str:
    """A box from one part of the width to another."""
    left, width = min(100 * start, 99.5), max(0.0, 100 * (min(stop, 1.0) - start))
    return f'<i class="mark {colour}" style="left:{left:.2f}%;width:{width:.2f}%"></i>'
