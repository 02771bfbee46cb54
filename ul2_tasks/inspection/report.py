"""`ul2 report`: one self-contained HTML page of what a mixture is, what was measured of it, and examples to step through."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ul2_tasks.files.atomic import write_atomically
from ul2_tasks.inspection.report_tables import Cell, Column, look_up, number, tables

if TYPE_CHECKING:
    from markupsafe import Markup

TEMPLATE = pathlib.Path(__file__).parents[1] / "data" / "report.html"


@dataclasses.dataclass(frozen=True)
class FillAdvice:
    """The chunk lengths that fill the packed rows of a corpus's denoisers best.

    Attributes:
        corpus: the name of the corpus's task.
        chunk_tokens: the chunk length for each denoiser, by its name.
        now, then: {"inputs": .., "targets": ..}, the part of packed rows that holds tokens, now and with these chunk lengths.
    """

    corpus: str
    chunk_tokens: Mapping[str, int]
    now: Mapping[str, float]
    then: Mapping[str, float]

    @property
    def gain(self) -> float:
        """How much fuller the emptier of inputs and targets becomes."""
        return min(self.then.values()) - min(self.now.values())

    @property
    def option(self) -> str:
        """The advice as an option of the `ul2` command."""
        return "--chunk_tokens " + ",".join(f"{name}={tokens}" for name, tokens in self.chunk_tokens.items())

    @property
    def argument(self) -> str:
        """The advice as an argument of `register`."""
        return f"chunk_tokens={dict(self.chunk_tokens)}"


def advise(mixture: str, sequence_length: Mapping[str, int]) -> list[FillAdvice]:
    """The advice on chunk lengths for each corpus of a registered mixture. It takes some ten seconds.

    Raises:
        ValueError: see `providers.denoising_tasks` and `advice.best_chunk_tokens`.
    """
    from ul2_tasks.tasks.advice import best_chunk_tokens, packed_fill
    from ul2_tasks.tasks.providers import denoising_tasks

    best = functools.cache(lambda denoisers: best_chunk_tokens(denoisers, sequence_length))  # corpora often share denoisers
    by_corpus: dict[str, list] = {}
    for task in denoising_tasks(mixture):
        by_corpus.setdefault(task.source.corpus.name, []).append(task)
    found = []
    for corpus, tasks in by_corpus.items():
        denoisers = tuple(task.denoiser for task in tasks)
        present = {task.denoiser.name: task.full_chunk(sequence_length).length for task in tasks}
        fills = (packed_fill(denoisers, sequence_length, chunk_tokens) for chunk_tokens in (present, best(denoisers)))
        found.append(FillAdvice(corpus, best(denoisers), *fills))
    return found


def write_report(
    statistics: Any, samples: Iterable[Any], path: str | os.PathLike, advice: Sequence[FillAdvice] = ()
) -> pathlib.Path:
    """Writes the page and returns its path.

    The page opens from a file, without a network, in light and dark, and on a phone. It shows the numbers of `statistics` and the
    examples of `samples`. It also holds both as JSON, in `<script type="application/json">` elements with the ids "statistics"
    and "samples".

    Args:
        statistics: `measurements.Statistics`, or its `asdict`.
        samples: `samples.Sample`s, or their `asdict`s, in the order in which they are shown. There may be none.
        path: of the HTML file, which is overwritten.
        advice: of `advise`; the page says it beside the fill of rows.

    Raises:
        ImportError: see `packages`.
        ValueError: see `check_path`; or a number is NaN or infinite, which JSON does not have.
    """
    check_path(path)
    statistics, samples = _plain(statistics), [_plain(sample) for sample in samples]
    write_atomically(path, _render(statistics, samples, advice))
    return pathlib.Path(path)


def check_path(path: str | os.PathLike) -> None:
    """Raises a ValueError if a page cannot be written to this path. A command calls this before it measures for minutes."""
    path = pathlib.Path(path)
    if path.is_dir():
        raise ValueError(f"the page's file is {str(path)!r}, which is a folder; name a file in it, such as {path / 'report.html'}")
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {str(path.parent)!r} for the page {path.name!r}; make it, or name another")


def packages() -> tuple[ModuleType, ModuleType, ModuleType]:
    """jinja2, markupsafe and `report_plots`. A command calls this before it measures for minutes.

    Raises:
        ImportError: jinja2 or matplotlib is missing; the message says what to install.
    """
    try:
        import jinja2
        import markupsafe

        from ul2_tasks.inspection import report_plots
    except ImportError as error:
        raise ImportError(
            f"a report needs the packages jinja2 and matplotlib ({error}); pip install 'ul2_tasks[report]'"
        ) from error
    return jinja2, markupsafe, report_plots


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
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value


def _render(statistics: Mapping[str, Any], samples: Sequence[Mapping[str, Any]], advice: Sequence[FillAdvice]) -> str:
    jinja2, markupsafe, report_plots = packages()

    def element(cell: Cell, tag: str = "td") -> Markup:
        """The cell as an HTML element. A number has its path in the JSON as an attribute."""
        attributes = markupsafe.Markup("")
        if cell.path:
            attributes = markupsafe.Markup(' class="number" data-path="{}" data-kind="{}"').format(cell.path, cell.kind)
        elif cell.kind == "word":
            attributes = markupsafe.Markup(' class="number"')
        elif cell.span > 1:
            attributes = markupsafe.Markup(' colspan="{}"').format(cell.span)
        shown = markupsafe.Markup('<span class="badge">{}</span>').format(cell.shown) if cell.kind == "mode" else cell.shown
        return markupsafe.Markup("<{0}{1}>{2}</{0}>").format(tag, attributes, shown)

    def at(path: str, kind: str, tag: str = "b") -> Markup:
        return element(number(look_up(statistics, path), path, kind), tag)

    def grouped(columns: Sequence[Column]) -> list[tuple[str, list[Column]]]:
        return [(group, list(members)) for group, members in itertools.groupby(columns, key=lambda column: column.group)]

    def as_json(value: Any) -> Markup:
        """JSON for a script element. "<" is escaped, so that no text in it can end the element."""
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return markupsafe.Markup(text.replace("<", "\\u003c"))

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.globals.update(element=element, at=at, as_json=as_json, grouped=grouped)
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        statistics=statistics,
        samples=samples,
        advice=advice,
        tables=tables(statistics),
        plots=report_plots.draw(statistics),
        colours=report_plots.COLOURS,
        verdict=verdict(statistics["laws"]),
        broken=[law for law in statistics["laws"] if not law["holds"]],
    )
