"""`ul2 report`: one page, with nothing outside it, of what a mixture is, what was measured of it, and examples to step through."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

TEMPLATE = pathlib.Path(__file__).parent / "data" / "report.html"
NOTHING = "–"
NO_BREAK = "\N{NO-BREAK SPACE}"


def write_report(statistics: Any, samples: Iterable[Any], path: str | os.PathLike) -> pathlib.Path:
    """Writes the page and returns its path.

    It opens from a file, without a network, in light and dark, and on a phone. Its numbers are those of `statistics`, its
    examples those of `samples`; both stand in it as JSON, too, as `<script type="application/json">` elements with the ids
    "statistics" and "samples".

    Args:
        statistics: `statistics.Statistics`, or its `asdict`.
        samples: `samples.Sample`s, or their `asdict`s: the examples, in the order in which they are shown. There may be none.
        path: the HTML file; it is overwritten.

    Raises:
        ImportError: see `packages`.
        ValueError: see `check_path`; a number is NaN or infinite, which JSON has not.
    """
    check_path(path)
    statistics, samples = _plain(statistics), [_plain(sample) for sample in samples]
    path = pathlib.Path(path)
    path.write_text(_render(statistics, samples), encoding="utf-8")
    return path


def check_path(path: str | os.PathLike) -> None:
    """Raises a ValueError unless a page can have this path; a command calls this before it measures for minutes."""
    path = pathlib.Path(path)
    if path.is_dir():
        raise ValueError(f"the page's file is {str(path)!r}, which is a folder; name a file in it, such as {path / 'report.html'}")
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {str(path.parent)!r} for the page {path.name!r}; make it, or name another")


def packages() -> tuple[ModuleType, ModuleType, ModuleType]:
    """jinja2, markupsafe and `report_plots`; a command calls this before it measures for minutes.

    Raises:
        ImportError: jinja2 or matplotlib is missing; the message says what to install.
    """
    try:
        import jinja2
        import markupsafe

        from ul2_tasks import report_plots
    except ImportError as error:
        raise ImportError(
            f"a report needs the packages jinja2 and matplotlib ({error}); pip install 'ul2_tasks[report]'"
        ) from error
    return jinja2, markupsafe, report_plots


def as_shown(value: float | None, kind: str) -> str:
    """A number as the page's tables have it.

    Args:
        value: the number; None where there was nothing to measure.
        kind: "count", "decimal", "percent", "rate" (more digits than that), "p" (a probability, maybe a tiny one) or "plain".

    >>> as_shown(4000, "count"), as_shown(3.2, "decimal"), as_shown(0.5, "plain"), as_shown(None, "count")
    ('4,000', '3.20', '0.5', '–')
    >>> as_shown(0.1258, "percent").split(), as_shown(0.1258, "rate").split(), as_shown(0.00004, "p")
    (['12.6', '%'], ['12.58', '%'], '4e-05')
    """
    if value is None:
        return NOTHING
    if kind in ("percent", "rate"):
        return f"{100 * value:.{1 if kind == 'percent' else 2}f}{NO_BREAK}%"
    if kind == "p":
        return f"{value:.3f}" if value >= 0.001 else f"{value:.1g}"
    return format(value, {"count": ",d" if isinstance(value, int) else ",.10g", "decimal": ",.2f", "plain": ",.10g"}[kind])


def look_up(statistics: Mapping[str, Any], path: str) -> Any:
    """What stands in nested JSON at a path such as "tasks.0.share.low"; None if something on the way is null.

    >>> look_up({"tasks": [{"share": {"low": 0.1}}, {"share": None}]}, "tasks.0.share.low")
    0.1
    """
    found: Any = statistics
    for key in path.split("."):
        if found is None:
            return None
        found = found[int(key)] if isinstance(found, Sequence) else found[key]
    return found


def verdict(laws: Sequence[Mapping[str, Any]]) -> str:
    """One sentence: all laws hold, or which are broken.

    >>> verdict([{"law": "nothing is truncated", "holds": True}, {"law": "ids are known", "holds": False}])
    '1 of 2 laws is broken: ids are known.'
    """
    broken = [law["law"] for law in laws if not law["holds"]]
    if broken:
        return f"{len(broken)} of {len(laws)} laws {'is' if len(broken) == 1 else 'are'} broken: {'; '.join(broken)}."
    return f"All {len(laws)} laws hold." if laws else "No law was tested."


def _plain(value: Any) -> Any:
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value


def _render(statistics: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]) -> str:
    jinja2, markupsafe, report_plots = packages()

    def number(path: str, kind: str, tag: str = "td") -> markupsafe.Markup:
        """The number at a path, in an element that says from where it is."""
        element = markupsafe.Markup('<{0} class="number" data-path="{1}" data-kind="{2}">{3}</{0}>')
        return element.format(tag, path, kind, as_shown(look_up(statistics, path), kind))

    def as_json(value: Any) -> markupsafe.Markup:
        """JSON that no text in it can end: of what HTML reads in a script element, "<" is the beginning."""
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return markupsafe.Markup(text.replace("<", "\\u003c"))

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.globals.update(number=number, as_json=as_json)
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        statistics=statistics,
        samples=samples,
        plots=report_plots.draw(statistics),
        verdict=verdict(statistics["laws"]),
        broken=[law for law in statistics["laws"] if not law["holds"]],
    )
