"""What the command `ul2` does with image rows. It imports nothing else of them."""

from __future__ import annotations

import io
import pathlib
from typing import Any

from rich.console import Console

from ul2_tasks.files.atomic import write_atomically
from ul2_tasks.image_rows.inspect.doctor import examine_recipe
from ul2_tasks.image_rows.inspect.measure import ImageStatistics, measure_images, recipe_to_look_at
from ul2_tasks.image_rows.inspect.show import draw_record, draw_records, draw_rows, show_record, show_records, show_rows
from ul2_tasks.image_rows.inspect.show import find_rows as find_rows
from ul2_tasks.image_rows.inspect.table import print_images as print_images
from ul2_tasks.image_rows.recipe import Recipe, Source, example_sources
from ul2_tasks.inspect.doctor import Finding, each_once, examine_image_packages, examine_installation
from ul2_tasks.inspect.printing import print_json_lines


def recipe_of(found: Any) -> Recipe | None:
    """The recipe of an `ImageTextDataset`, of a `Source`, of a list of them, or of "images", the built-in records; else None."""
    recipe = getattr(found, "recipe", found)
    if isinstance(recipe, Recipe):
        return recipe
    sources = example_sources() if isinstance(found, str) else [found] if isinstance(found, Source) else found
    are_sources = isinstance(sources, list | tuple) and sources and all(isinstance(each, Source) for each in sources)
    return recipe_to_look_at(sources) if are_sources else None


def show(recipe: Recipe, as_json: bool, *, count: int, record: str | None, step: int | None, host: Any, batch_size: int | None):
    """`ul2 show`."""
    ways: tuple[Any, Any, list[Any]] = (draw_records, show_records, [count])
    if step is not None:
        ways = (draw_rows, show_rows, [step, batch_size, host, count])
    elif record is not None:
        ways = (draw_record, show_record, [record])
    draw, print_drawn, asked = ways
    if as_json:
        print_json_lines(draw(recipe, *asked))
    else:
        print_drawn(recipe, *asked, Console())


def report(recipe: Recipe, output: str, records: int, count: int) -> tuple[ImageStatistics, pathlib.Path]:
    """`ul2 report`: a page of what `ul2 stats` and `ul2 show` print."""
    console, statistics = Console(record=True, width=132, file=io.StringIO()), measure_images(recipe, records)
    print_images(statistics, console)
    console.print()
    show_records(recipe, count, console)
    write_atomically(output, console.export_html())
    return statistics, pathlib.Path(output)


def examine(recipe: Recipe) -> list[Finding]:
    """`ul2 doctor`: the findings."""
    return each_once([*examine_installation(), *examine_image_packages(), *examine_recipe(recipe)])
