"""`ul2 report`: one self-contained HTML page of what a mixture is, what was measured of it, and examples to step through."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ul2_tasks.looking.page import check_path, packages, write_page
from ul2_tasks.looking.texts.report_tables import Cell, Column, look_up, number, tables

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclasses.dataclass(frozen=True)
class FillAdvice:
    """The chunk lengths that fill the packed rows of a corpus's denoisers best.

    Attributes:
        corpus: the name of the corpus's task; of a mixture that shares another one's corpus, its own name.
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
    """The advice on chunk lengths for each corpus of a registered mixture. It takes some ten seconds."""
    from ul2_tasks.mixtures.advice import best_chunk_tokens, packed_fill
    from ul2_tasks.mixtures.mixture import registered_as
    from ul2_tasks.tasks.providers import denoising_tasks

    best = functools.cache(lambda denoisers: best_chunk_tokens(denoisers, sequence_length))  # corpora often share denoisers
    by_corpus: dict[str, list] = {}
    for task in denoising_tasks(mixture):
        is_shared = task.source.corpus.name != f"{registered_as(task)}_corpus"
        by_corpus.setdefault(f"{registered_as(task)}_mix" if is_shared else task.source.corpus.name, []).append(task)
    found = []
    for corpus, tasks in by_corpus.items():
        denoisers = tuple(task.denoiser for task in tasks)
        present = {task.denoiser.name: task.full_chunk(sequence_length).length for task in tasks}
        fills = (packed_fill(denoisers, sequence_length, chunk_tokens) for chunk_tokens in (present, best(denoisers)))
        found.append(FillAdvice(corpus, best(denoisers), *fills))
    return found


def write_report(
    statistics: Any,
    samples: Iterable[Any],
    path: str | os.PathLike,
    advice: Sequence[FillAdvice] = (),
    places: Sequence[str] = (),
) -> pathlib.Path:
    """Writes the page and returns its path.

    The page opens from a file, without a network, in light and dark, and on a phone. It shows the numbers of `statistics` and the
    examples of `samples`, of which there may be none: dataclasses, or their `asdict`s. It also holds both as JSON, in
    `<script type="application/json">` elements with the ids "statistics" and "samples". `advice` stands beside the fill of rows.
    `places` say where the samples are from, each its own, "" where it is not known.
    """
    check_path(path)
    statistics, samples = _plain(statistics), list(map(_plain, samples))
    samples = [{**sample, **({"place": place} if place else {})} for sample, place in zip(samples, places)] if places else samples
    _, markupsafe = packages()
    from ul2_tasks.looking.texts import report_plots

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

    return write_page(
        path,
        "report.html",
        statistics,
        samples=samples,
        advice=advice,
        element=element,
        at=at,
        as_json=as_json,
        grouped=grouped,
        tables=tables(statistics),
        plots=report_plots.draw(statistics),
        colours=report_plots.COLOURS,
        broken=[check for check in statistics["checks"] if not check["passed"]],
    )


def _plain(value: Any) -> Any:
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
