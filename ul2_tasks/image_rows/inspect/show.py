"""`ul2 show` and `ul2 find` of image rows: records as they are laid out, the rows of a step, and the row of a record.

Rows are numbered over all epochs, in the order of their indices. Step n of batch size B has the rows n B to (n + 1) B - 1. What is
drawn is plain, as JSON has it; what is printed is made of it.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ul2_tasks.image_rows.index import EPOCH, ImageRows
from ul2_tasks.image_rows.inspect.measure import look_at, schema_name
from ul2_tasks.image_rows.problems import Noted
from ul2_tasks.image_rows.recipe import Recipe, Source
from ul2_tasks.image_rows.rows import Placed, RowMaker
from ul2_tasks.image_rows.samples import Sample, size_of_content, taken
from ul2_tasks.image_rows.sizes import Grid
from ul2_tasks.images import elements
from ul2_tasks.images.elements import Image, letters
from ul2_tasks.images.pixels import size_of
from ul2_tasks.inspect.printing import shown_problems, visible
from ul2_tasks.inspect.run import numbers_of_step

_KNOWN_COLOURS = {"text": "#af5f00", "vit": "#0087af", "clean": "#008700", "noised": "#d700af"}
_COLOURS = collections.defaultdict(lambda: "#875fd7", _KNOWN_COLOURS)  # the others are of your own kinds
_SEEN = {"vit": "ViT", "clean": "clean latents", "noised": "noised latents"}
_DROPPED = "dim strike"
_SPARE = 30  # records that are read beside those that are shown, as some may be wrong


def draw_records(recipe: Recipe, count: int) -> Iterator[dict[str, Any]]:
    """Records of each source: "source" (the name of its layout), "record", and what `_plain` has."""
    for found in look_at(recipe, count + _SPARE):
        if first := not found.samples and next(iter(found.problems.first.values()), ""):
            raise ValueError(f"none of {found.records} records of {schema_name(found.source)} makes a sample: {first}")
        for each in found.samples[:count]:
            yield _plain(found.source, each.sample, record=each.name)


def show_records(recipe: Recipe, count: int, console: Console) -> None:
    """Prints the layouts of records of each source, element by element, and what is wrong with others.

    A letter stands for each element: T text, V image as a ViT sees it, C as clean latents, N noised. What is dropped is dim and
    struck through, and said.
    """
    for line in draw_records(recipe, count):
        _print_record(line, console)
    for found in look_at(recipe, count + _SPARE):
        for said in shown_problems(found.problems.counts, found.problems.first):
            console.print(Text(f"wrong, of {found.records:,} records of {schema_name(found.source)}: {said}", "bold yellow"))


def draw_record(recipe: Recipe, name: str) -> Iterator[dict[str, Any]]:
    """A record in each source that has it, and the row that it is in, in the first epoch that has it. No image is decoded.

    `name` is as in errors and in `samples` of a row. ", epoch 3" behind it names another epoch of its source than the first. Gives
    "source", "record", "set_epoch", "pool" and "row", None where it is in none, "problem", "samples", the names of all in the row,
    "row_counts", what these take of each budget together, and of a record in a row what `_plain` has.
    """
    asked = EPOCH.search(name)
    of_source, skipping = int(asked[1]) if asked else 0, dataclasses.replace(recipe, on_error="skip")
    for number, place in recipe.places_of(name[: asked.start()] if asked else name):
        source, rows = recipe.sources[number], ImageRows(skipping)
        while (pool := rows.pool_of(number, of_source, place)) is None:
            rows = rows.epoch(rows.number + 1)
        record, _ = next(source.records.read(source.records.pieces[place[0]], place[1]))
        packed = RowMaker(skipping, iteration=rows.iteration).packed(pool, noted := Noted())
        own, found = (number, record, of_source), [(row, each) for row, samples in enumerate(packed) for each in samples]
        is_own = (each for each in found if (each[1].source, each[1].record, each[1].epoch) == own)
        row, placed = next(is_own, (None, None))
        samples = [] if row is None else packed[row]
        yield {
            "source": schema_name(source),
            "record": f"{record}, epoch {of_source}",
            "set_epoch": rows.number,
            "pool": pool,
            "row": row,
            "problem": next((str(error) for error, _, of in noted.found if error and (of, error.record) == own[:2]), ""),
            "samples": [each.name for each in samples],
            "row_counts": _counts(recipe, samples),
            **({} if placed is None else _plain(source, placed.sample, record=placed.name)),
        }


def show_record(recipe: Recipe, name: str, console: Console) -> None:
    """Prints a record element by element, and the samples with which it shares a row."""
    for line in draw_record(recipe, name):
        if line["row"] is None:
            console.print(Text.assemble((line["source"], "bold"), f": {visible(line['record'])}"))
            console.print(Text(f"in no row: {line['problem'] or 'all of it is dropped'}", "bold yellow"))
            continue
        _print_record(line, console)
        iteration = f" after set_epoch({line['set_epoch']})" if line["set_epoch"] else ""
        console.print(Text(f"row {line['row']} of pool {line['pool']}{iteration}:{_shown_counts(line['row_counts'])}"))
        for other in line["samples"]:
            console.print(Text(f"  {visible(other)}", "bold" if other == line["record"] else "dim"))


def draw_rows(
    recipe: Recipe, step: int, batch_size: int | None, host: tuple[int, int] | None, count: int
) -> Iterator[dict[str, Any]]:
    """The first `count` rows of the batch of a step, or of the part of it that a host reads.

    Gives "step", "number", "epoch", "index", "row_counts" and "samples". Of each sample there is its location, "source" (the name
    of its layout), "file", "record" and "epoch", and what `_plain` has.
    """
    rows, first = ImageRows(recipe), 0
    for number in numbers_of_step(step, batch_size, host or (0, 1))[:count]:
        while number >= first + len(rows):
            first, rows = first + len(rows), rows.epoch(rows.number + 1)
        samples = rows.locate(number - first)
        yield {
            "step": step,
            "number": number,
            "epoch": rows.number,
            "index": number - first,
            "row_counts": _counts(recipe, samples),
            "samples": [
                _plain(recipe.sources[each.source], each.sample, file=each.file, record=each.record, epoch=each.epoch)
                for each in samples
            ],
        }


def show_rows(
    recipe: Recipe, step: int, batch_size: int | None, host: tuple[int, int] | None, count: int, console: Console
) -> None:
    """Prints them."""
    numbers, whole = numbers_of_step(step, batch_size, host or (0, 1)), numbers_of_step(step, batch_size)
    of_host = f"; host {host[0]} of {host[1]} has those whose number mod {host[1]} is {host[0]}" if host else ""
    console.print(Text(f"step {step}, batch of {len(whole):,}: rows {whole[0]} to {whole[-1]}{of_host}"))
    for row in draw_rows(recipe, step, batch_size, host, count):
        said = f", index {row['index']} of epoch {row['epoch']}:{_shown_counts(row['row_counts'])}"
        console.print(Text.assemble((f"row {row['number']}", "bold"), said))
        for sample in row["samples"]:
            console.print(_shown_layout(sample).append(f" {visible(sample['record'])}, epoch {sample['epoch']}", "dim"))
    if len(numbers) > count:
        console.print(Text(f"and {len(numbers) - count:,} more rows. Pass --count {len(numbers)} to show all.", "dim"))


def find_rows(recipe: Recipe, record: str, epochs: int, batch_size: int | None) -> None:
    """Prints which rows of the first `epochs` have a record, and the steps that read them."""
    console, found, first, rows = Console(), [], 0, ImageRows(recipe)
    for epoch in range(epochs):
        rows = rows.epoch(epoch)
        for index in rows.find(record):
            step = f", step {(first + index) // batch_size}" if batch_size else ""
            found.append(f"row {first + index}, index {index} of epoch {epoch}{step}")
        first += len(rows)
    console.print(Text(f"{first:,} rows in {epochs} epoch{'s' if epochs > 1 else ''}; {visible(record)} is in {len(found):,}"))
    console.print(Text("\n".join(found) or "It was skipped, or all of it is dropped: `ul2 show --source` says which."))


def _counts(recipe: Recipe, samples: Sequence[Placed]) -> dict[str, int]:
    """What the samples of a row take of each budget together."""
    counts = [taken(each.sample.counts, recipe.budgets) for each in samples]
    return dict(zip(recipe.budgets, np.sum(counts, axis=0).tolist())) if counts else {}


def _plain(source: Source, sample: Sample, **where: object) -> dict[str, Any]:
    """A sample: "source" (the name of its layout), where it is, "layout" (letters), "counts" (by budget) and "elements".

    Each of these has "kind", "droppable" and "dropped"; a text "text", "ids" (how many) and "learned", an image "width" and
    "height" of the image, "resized" (width and height), "patches" (rows and columns), and "timestep" where it is noised.
    """
    found = []
    for element, kept, content, timestep in zip(*sample):
        plain: dict[str, Any] = {"kind": element.kind, "droppable": element.droppable, "dropped": not kept}
        if isinstance(element, Image) and isinstance(content, Grid):
            width, height = size_of(element.image)
            side, (rows, columns) = source.sizes.of(element).patch_size, content
            plain |= {"width": width, "height": height, "resized": [columns * side, rows * side], "patches": [rows, columns]}
            plain |= {"timestep": timestep} if element.kind == "noised" else {}
        elif isinstance(element, elements.Text):
            plain |= {"text": element.text, "ids": size_of_content(content), "learned": element.learned}
        else:
            plain["features"] = content
        found.append(plain)
    counted = {"layout": letters(sample.layout), "counts": sample.counts, "elements": found}
    return {"source": schema_name(source), **where, **counted}


def _print_record(line: Mapping[str, Any], console: Console) -> None:
    """Prints a record, element by element, and an empty line."""
    console.print(Text.assemble((line["source"], "bold"), f": {visible(line['record'])}"))
    console.print(_shown_layout(line).append(_shown_counts(line["counts"])))
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for letter, plain in zip(line["layout"].split(), line["elements"]):
        style = _DROPPED if plain["dropped"] else _COLOURS[plain["kind"]]
        tokens, said = _said(plain)
        notes = "".join(f", {note}" for note in ("learned", "dropped") if plain.get(note))
        described = Text.assemble((said, _DROPPED if plain["dropped"] else ""), (notes, "dim"))
        table.add_row(Text(f"  {letter}", style), Text(f"{tokens + 2:,} tokens", "dim"), described)
    console.print(table)
    console.print()


def _said(plain: Mapping[str, Any]) -> tuple[int, str]:
    """The ids or patches of an element, and what it is."""
    if plain["kind"] == "text":
        return plain["ids"], visible(plain["text"])
    if "features" in plain:
        return plain["features"], f"{plain['features']:,} features of {plain['kind']}"
    (rows, columns), (width, height) = plain["patches"], plain["resized"]
    size = f"{plain['width']} x {plain['height']} pixels as {width} x {height}, {columns} x {rows} patches"
    timestep = f", timestep {plain['timestep']:.2f}" if "timestep" in plain else ""
    return rows * columns, f"{_SEEN[plain['kind']]}: {size}{timestep}"


def _shown_layout(plain: Mapping[str, Any]) -> Text:
    """A letter for each element."""
    parts: list[Any] = []
    for letter, element in zip(plain["layout"].split(), plain["elements"]):
        parts += [(letter, _DROPPED if element["dropped"] else f"bold {_COLOURS[element['kind']]}"), " "]
    return Text.assemble("  ", *parts)


def _shown_counts(counts: Mapping[str, int]) -> str:
    """What is taken of each budget, in words."""
    others = "".join(f", {count:,} of {name}" for name, count in list(counts.items())[3:])
    return f" {counts['tokens']:,} tokens, {counts['vit']:,} ViT patches, {counts['vae']:,} of latents{others}"
