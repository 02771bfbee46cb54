"""`ul2 show` of texts and images: layouts element by element, as text in the terminal or as JSON."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ul2_tasks.image_rows.looking.measure import Looked, look_at, schema_name
from ul2_tasks.image_rows.recipe import Recipe, Source
from ul2_tasks.image_rows.samples import Sample, size_of_content
from ul2_tasks.image_rows.sizes import Grid
from ul2_tasks.images import elements
from ul2_tasks.images.elements import Image, letters
from ul2_tasks.images.pixels import size_of
from ul2_tasks.looking.printing import shown_problems, visible

_KNOWN_COLOURS = {"text": "#af5f00", "vit": "#0087af", "clean": "#008700", "noised": "#d700af"}
COLOURS = collections.defaultdict(lambda: "#875fd7", _KNOWN_COLOURS)  # the others are of your own kinds
SEEN = {"vit": "ViT", "clean": "clean latents", "noised": "noised latents"}
_DROPPED = "dim strike"
SPARE = 30  # records that are read beside those that are shown, as some may be wrong


def show_images(recipe: Recipe, count: int = 2, console: Console | None = None) -> None:
    """Prints the layouts of records of each source, element by element.

    A letter stands for each element: T text, V image as a ViT sees it, C as clean latents, N noised. What is dropped is dim and
    struck through, and said.
    """
    console = console or Console()
    for found in look_at(recipe, count + SPARE):
        _check(found)
        for name, sample in found.samples[:count]:
            console.print(Text.assemble((schema_name(found.source), "bold"), f": {visible(name)}"))
            print_sample(found.source, sample, console)
        for line in shown_problems(found.problems.counts, found.problems.first):
            console.print(Text(f"wrong, of {found.records:,} records: {line}", "bold yellow"))


def print_sample(source: Source, sample: Sample, console: Console) -> None:
    """Prints a layout, element by element, and an empty line."""
    console.print(shown_layout(sample).append(shown_counts(sample.counts._asdict())))
    console.print(_table(source, sample))
    console.print()


def draw_plain(recipe: Recipe, count: int) -> Iterator[dict[str, Any]]:
    """The same layouts as JSON has them: "source" (the name of the layout), "record", and what `as_plain` has."""
    for found in look_at(recipe, count + SPARE):
        _check(found)
        for name, sample in found.samples[:count]:
            yield {"source": schema_name(found.source), "record": name, **as_plain(found.source, sample)}


def as_plain(source: Source, sample: Sample) -> dict[str, Any]:
    """A sample as JSON has it: "layout" (letters), "counts" ("tokens", "vit", "vae") and "elements".

    Each of these has "kind", "droppable" and "dropped"; a text "text", "ids" (how many) and "learned", an image "width" and
    "height" of the image, "resized" (width and height), "patches" (rows and columns), and "timestep" where it is noised.
    """
    return {
        "layout": letters(sample.layout),
        "counts": sample.counts._asdict(),
        "elements": list(_elements(source, sample)),
    }


def _elements(source: Source, sample: Sample) -> Iterator[dict[str, Any]]:
    for element, kept, content, timestep in zip(*sample):
        plain = {"kind": element.kind, "droppable": element.droppable, "dropped": not kept}
        if isinstance(element, Image) and isinstance(content, Grid):
            width, height = size_of(element.image)
            patch_size, (rows, columns) = source.sizes.of(element).patch_size, content
            plain |= {
                "width": width,
                "height": height,
                "resized": [columns * patch_size, rows * patch_size],
                "patches": [rows, columns],
            }
            yield plain | ({"timestep": timestep} if element.kind == "noised" else {})
        elif isinstance(element, elements.Text):
            yield plain | {"text": element.text, "ids": size_of_content(content), "learned": element.learned}
        else:
            yield plain | {"features": content}


def _check(found: Looked) -> None:
    if first := not found.samples and next(iter(found.problems.first.values()), ""):
        raise ValueError(f"none of {found.records} records of {schema_name(found.source)} makes a sample: {first}")


def shown_layout(sample: Sample) -> Text:
    """A letter for each element."""
    parts: list[Any] = []
    for element, kept in zip(sample.layout, sample.kept):
        parts += [(elements.letter(element), f"bold {COLOURS[element.kind]}" if kept else _DROPPED), " "]
    return Text.assemble("  ", *parts)


def shown_counts(counts: Mapping[str, int]) -> str:
    """What is taken of each budget, in words."""
    others = "".join(f", {count:,} of {name}" for name, count in list(counts.items())[3:])
    return f" {counts['tokens']:,} tokens, {counts['vit']:,} ViT patches, {counts['vae']:,} of latents{others}"


def _table(source: Source, sample: Sample) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for element, plain in zip(sample.layout, _elements(source, sample)):
        style = _DROPPED if plain["dropped"] else COLOURS[plain["kind"]]
        tokens, said = _said(plain)
        notes = "".join(f", {note}" for note in ("learned", "dropped") if plain.get(note))
        described = Text.assemble((said, _DROPPED if plain["dropped"] else ""), (notes, "dim"))
        table.add_row(Text(f"  {elements.letter(element)}", style), Text(f"{tokens + 2:,} tokens", "dim"), described)
    return table


def _said(plain: dict[str, Any]) -> tuple[int, str]:
    """The ids or patches of an element, and what it is."""
    if plain["kind"] == "text":
        return plain["ids"], visible(plain["text"])
    if "features" in plain:
        return plain["features"], f"{plain['features']:,} features of {plain['kind']}"
    (rows, columns), (width, height) = plain["patches"], plain["resized"]
    size = f"{plain['width']} x {plain['height']} pixels as {width} x {height}, {columns} x {rows} patches"
    timestep = f", timestep {plain['timestep']:.2f}" if "timestep" in plain else ""
    return rows * columns, f"{SEEN[plain['kind']]}: {size}{timestep}"
