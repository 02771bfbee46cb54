"""`ul2 show --record`: a record by its name, as it is laid out, and the packed row that it is in."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.text import Text

from ul2_tasks.image_rows.looking.measure import schema_name
from ul2_tasks.image_rows.looking.show import as_plain, print_sample, shown_counts, shown_layout
from ul2_tasks.image_rows.problems import Problems, RecordError, Step
from ul2_tasks.image_rows.recipe import Recipe, Source
from ul2_tasks.image_rows.rows import RowMaker
from ul2_tasks.image_rows.samples import Counts, Sample, taken
from ul2_tasks.looking.printing import visible


class FoundRecord(NamedTuple):
    """A record of a source, and where training reads it in an epoch.

    `samples` are those of its row, the row of the number `row` of the pool `pool` of an iteration, see `Recipe.pools`, and `sample`
    is its own. It has no row where `problem` says what is wrong with it, or where all of it is dropped.
    """

    source: Source
    name: str
    sample: Sample | None
    iteration: int
    pool: int
    row: int | None
    samples: list[tuple[str, Sample]]
    problem: str


class _OfRecord(Problems):
    """The problem of one record of a source; others are passed over."""

    def __init__(self, source: int, record: str):
        super().__init__()
        self.source, self.record, self.problem = source, record, ""

    def skip(self, problem: RecordError, step: Step, source: int, most: int) -> None:
        if (source, problem.record) == (self.source, self.record):
            self.problem = str(problem)

    def right(self, step: Step, source: int) -> None:
        """There is nothing to count."""


def find_record(recipe: Recipe, name: str) -> Iterator[FoundRecord]:
    """A record in each source that has it, and the row that it is in. No image is decoded.

    `name` is as in errors and in `samples` of a row, "a.jsonl, line 7" for example. ", epoch 3" behind it names another epoch than
    the first. A ValueError says that there is no such record.
    """
    asked = re.search(r", epoch (\d+)$", name)
    record, epoch = (name[: asked.start()], int(asked[1])) if asked else (name, 0)
    places = [(number, source.records.find(record)) for number, source in enumerate(recipe.sources)]
    for number, place in places:
        if place is not None:
            yield _found(recipe, number, epoch, place)
    if not any(place for _, place in places):
        records = recipe.sources[0].records
        first, _ = next(records.read(records.pieces[0], 0))
        raise ValueError(f"record must be the name of a record of the sources, such as {first!r}, got {name!r}.")


def show_record(recipe: Recipe, name: str, console: Console | None = None) -> None:
    """Prints a record element by element, and the samples with which it shares a row."""
    console = console or Console()
    for found in find_record(recipe, name):
        console.print(Text.assemble((schema_name(found.source), "bold"), f": {visible(found.name)}"))
        if found.sample is None:
            console.print(Text(f"in no row: {found.problem or 'all of it is dropped'}", "bold yellow"))
            continue
        print_sample(found.source, found.sample, console)
        iteration = f" after set_epoch({found.iteration})" if found.iteration else ""
        console.print(Text(f"row {found.row} of pool {found.pool}{iteration}:{shown_counts(_counts(found, recipe.budgets))}"))
        for other, sample in found.samples:
            console.print(shown_layout(sample).append(f" {visible(other)}", "bold" if sample is found.sample else "dim"))


def draw_record(recipe: Recipe, name: str) -> Iterator[dict[str, Any]]:
    """The same as JSON has it: "source", "record", "set_epoch", "pool", "row", "problem", "samples" and "row_counts".

    The row is None where it is in none, and its pool is one of the iteration after `set_epoch` with this number. The samples are
    the names of all in the row, and the counts what they take of each budget together. Of a record in a row there is also what
    `as_plain` has.
    """
    for found in find_record(recipe, name):
        yield {
            "source": schema_name(found.source),
            "record": found.name,
            "set_epoch": found.iteration,
            "pool": found.pool,
            "row": found.row,
            "samples": [other for other, _ in found.samples],
            "row_counts": _counts(found, recipe.budgets),
            "problem": found.problem,
            **({} if found.sample is None else as_plain(found.source, found.sample)),
        }


def _found(recipe: Recipe, number: int, epoch: int, place: tuple[int, int]) -> FoundRecord:
    source = recipe.sources[number]
    record, _ = next(source.records.read(source.records.pieces[place[0]], place[1]))
    name, noted = f"{record}, epoch {epoch}", _OfRecord(number, record)
    skipping = dataclasses.replace(recipe, on_error="skip")
    makers = ((iteration, RowMaker(skipping, iteration=iteration)) for iteration in itertools.count())
    pools = ((iteration, maker, maker.pool_of(number, epoch, *place)) for iteration, maker in makers)
    iteration, maker, pool = next((iteration, maker, pool) for iteration, maker, pool in pools if pool is not None)
    maker.problems = noted
    for row, samples in enumerate(maker.packed(pool)):
        for other, sample in samples:
            if other == name and maker.source_of(sample) == number:
                return FoundRecord(source, name, sample, iteration, pool, row, samples, "")
    return FoundRecord(source, name, None, iteration, pool, None, [], noted.problem)


def _counts(found: FoundRecord, budgets: Counts) -> dict[str, int]:
    counts = [taken(sample.counts, budgets) for _, sample in found.samples]
    return dict(zip(budgets._asdict(), np.sum(counts, axis=0).tolist())) if counts else {}
