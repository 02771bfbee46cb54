"""`ul2 show --step` and `ul2 find` of image rows: what a run reads at a step, and when it reads a record, by the index of rows.

Rows are numbered over all epochs, in the order of their indices. Step n of batch size B has the rows n B to (n + 1) B - 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ul2_tasks.image_rows.index import ImageRows, samples_of
from ul2_tasks.image_rows.looking.measure import schema_name
from ul2_tasks.image_rows.looking.show import as_plain, shown_counts, shown_layout
from ul2_tasks.image_rows.recipe import Recipe
from ul2_tasks.image_rows.samples import taken
from ul2_tasks.looking.printing import visible


def show_rows_of_step(
    recipe: Recipe, step: int, batch_size: int | None, host: tuple[int, int] | None, count: int, console: Console | None = None
) -> None:
    """Prints the first `count` rows of the batch of a step, or of the part of it that a host reads: the samples of each."""
    console = console or Console()
    numbers = _numbers(step, batch_size, host)
    of_host = f"; host {host[0]} of {host[1]} has those whose number mod {host[1]} is {host[0]}" if host else ""
    for place, (number, rows, index) in enumerate(_rows_at(recipe, numbers[:count])):
        if not place:
            whole = _numbers(step, batch_size, None)
            begins = f"step {step}, batch of {len(whole):,}: rows {whole[0]} to {whole[-1]}"
            console.print(Text(f"{begins} ({len(rows):,} rows in epoch {rows.number}){of_host}"))
        samples = samples_of(rows, index)
        console.print(Text.assemble((f"row {number}", "bold"), f", index {index} of epoch {rows.number}:{_taken(recipe, samples)}"))
        for location, sample in samples:
            console.print(shown_layout(sample).append(f" {visible(location.record)}, epoch {location.epoch}", "dim"))
    if len(numbers) > count:
        console.print(Text(f"and {len(numbers) - count:,} more rows. Pass --count {len(numbers)} to show all.", "dim"))


def draw_rows_of_step(
    recipe: Recipe, step: int, batch_size: int | None, host: tuple[int, int] | None, count: int
) -> Iterator[dict[str, Any]]:
    """The same rows as JSON has them: "step", "number", "epoch", "index", "row_counts" and "samples".

    Of each sample there is its location, "source" (the name of its layout), "file", "record" and "epoch", and what `as_plain` has.
    """
    for number, rows, index in _rows_at(recipe, _numbers(step, batch_size, host)[:count]):
        samples = samples_of(rows, index)
        yield {
            "step": step,
            "number": number,
            "epoch": rows.number,
            "index": index,
            "row_counts": _counts(recipe, samples),
            "samples": [
                {
                    "source": schema_name(source),
                    "file": location.file,
                    "record": location.record,
                    "epoch": location.epoch,
                    **as_plain(source, sample),
                }
                for location, sample in samples
                for source in [recipe.sources[location.source]]
            ],
        }


def find_rows(recipe: Recipe, record: str, epochs: int, batch_size: int | None, console: Console | None = None) -> None:
    """Prints which rows of the first `epochs` have a record, and the steps that read them."""
    console = console or Console()
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for title in ("epoch", "row", "index", *(["step"] if batch_size else [])):
        table.add_column(title, justify="right")
    table.add_column("epoch of its source", justify="right")
    first, rows = 0, ImageRows(recipe)
    for epoch in range(epochs):
        rows = rows.epoch(epoch)
        length = _counted(rows)
        for index in rows.find(record):
            number = first + index
            steps = [number // batch_size] if batch_size else []
            of_source = (
                where.epoch for where in rows.locate(index) if record in (where.record, f"{where.record}, epoch {where.epoch}")
            )
            table.add_row(*map(str, (epoch, number, index, *steps)), ", ".join(map(str, of_source)))
        first += length
    console.print(Text(f"{first:,} rows in {epochs} epoch{'s' if epochs > 1 else ''}; {visible(record)} is in {table.row_count:,}"))
    if table.row_count:
        console.print(table)
    else:
        console.print(Text("It was skipped, or all of it is dropped: `ul2 show --record` says which.", "bold yellow"))


def _numbers(step: int, batch_size: int | None, host: tuple[int, int] | None) -> range:
    """The numbers of the rows of a step, over all epochs."""
    if batch_size is None:
        raise ValueError("a step needs a batch size, and there is none. Pass --batch_size.")
    index, hosts = host or (0, 1)
    if batch_size % hosts:
        raise ValueError(f"the number of hosts must divide the batch of {batch_size}, got {hosts}.")
    return range(step * batch_size + index, (step + 1) * batch_size, hosts)


def _rows_at(recipe: Recipe, numbers: range) -> Iterator[tuple[int, ImageRows, int]]:
    """The rows of ascending numbers: each with its epoch and its index there."""
    rows, first = ImageRows(recipe), 0
    length = _counted(rows)
    for number in numbers:
        while number >= first + length:
            first, rows = first + length, rows.epoch(rows.number + 1)
            length = _counted(rows)
        yield number, rows, number - first


def _counted(rows: ImageRows) -> int:
    """How many rows an epoch has. If stderr is a terminal, a bar there shows how many pools are counted."""
    console = Console(stderr=True)
    columns = (TextColumn("counting rows, pools of records"), BarColumn(), TextColumn("{task.completed} of {task.total}"))
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None)
        return rows.count(lambda done, pools: progress.update(task, completed=done, total=pools))


def _taken(recipe: Recipe, samples: list) -> str:
    return shown_counts(_counts(recipe, samples))


def _counts(recipe: Recipe, samples: list) -> dict[str, int]:
    """What the samples of a row take of each budget together."""
    counts = [taken(sample.counts, recipe.budgets) for _, sample in samples]
    return dict(zip(recipe.budgets._asdict(), np.sum(counts, axis=0).tolist()))
