"""`ul2 stats` of texts and images: the measurements of rows, as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ul2_tasks.image_rows.inspect.measure import PERCENTS, ImageSourceStatistics, ImageStatistics
from ul2_tasks.inspect.printing import APART, percent, plain_table, shown_problems

_PARTS = {"tokens": "tokens", "vit": "ViT patches", "vae": "patches of latents"}
_KINDS = {"text": "texts", "vit": "images for the ViT", "clean": "clean latents", "noised": "noised latents"}
_LAYOUTS_SHOWN = 8


def part(name: str) -> str:
    """A budget in words; one of your own kinds is its own word."""
    return _PARTS.get(name, name)


def print_images(statistics: ImageStatistics, console: Console) -> None:
    """Prints the statistics as tables."""
    budgets = ", ".join(f"{budget:,} {part(name)}" for name, budget in statistics.budgets.items())
    console.print(Text(f"rows of at most {budgets}; seed {statistics.seed}; ul2_tasks {statistics.version}"))
    console.print(Text("layouts: T text, V image for the ViT, C clean latents, N noised latents", "dim"))
    for source in statistics.sources:
        console.print()
        console.print(Text.assemble((source.schema, "bold"), f": {source.looked_at:,} of {source.records:,} records"))
        for line in _sentences(source):
            console.print(line)
        console.print(_counts(source))
    console.print()
    for sentence in sentences_on_rows(statistics):
        console.print(Text(sentence))


def shown_layouts(source: ImageSourceStatistics) -> str:
    """The layouts that most samples have, in words."""
    layouts = [f"{number:,} {layout if len(layout) < 32 else layout[:29] + '..'}" for layout, number in source.layouts.items()]
    said = layouts[:_LAYOUTS_SHOWN]
    if others := sum(list(source.layouts.values())[_LAYOUTS_SHOWN:]):
        said.append(f"{others:,} of {len(layouts) - _LAYOUTS_SHOWN} other layouts")
    if source.empty:
        said.append(f"{source.empty:,} of which every element was dropped")
    return ", ".join(said)


def shown_elements(source: ImageSourceStatistics) -> str:
    """How many elements of each kind there are, and how many of them are dropped, in words."""
    said = []
    for kind, found in source.elements.items():
        dropped = f" ({percent(found['dropped'] / found['all'], unit=APART)} dropped)" if found["dropped"] else ""
        said.append(f"{found['all']:,} {_KINDS.get(kind, kind)}{dropped}")
    return ", ".join(said)


def shown_too_long(source: ImageSourceStatistics) -> str:
    """How many samples take too much of what, in words; empty if none does."""
    of_each = ", ".join(f"{source.too_long[name]:,} of {part(name)}" for name in source.counts if source.too_long[name])
    return f"{source.too_long['any']:,} samples do not fit into a row: {of_each}" if of_each else ""


def sentences_on_rows(statistics: ImageStatistics) -> Iterator[str]:
    """What is said of the rows."""
    if not statistics.rows:
        yield "no rows, since no record makes a sample that fits; `ul2 doctor` says why"
        return
    fill = ", ".join(f"{percent(fill, unit=APART)} of {part(name)}" for name, fill in statistics.fill.items() if fill is not None)
    yield f"{statistics.rows:,} rows of {statistics.samples:,} samples" + (f"; they fill {fill}" if fill else "")
    lacking = {"vit": "no image for the ViT", "vae": "no latents", "text": "no text that is learned"}
    if any(statistics.lacking.values()):
        yield "of these, " + ", ".join(f"{number:,} have {lacking[name]}" for name, number in statistics.lacking.items() if number)
    yield f"about {statistics.rows_of_epoch:,} rows an epoch" + (
        "" if len(statistics.sources) == 1 else " of the source that takes longest"
    )


def _sentences(source: ImageSourceStatistics) -> Iterator[Text]:
    yield Text(f"layouts   {shown_layouts(source)}")
    yield Text(f"elements  {shown_elements(source)}")
    if too_long := shown_too_long(source):
        yield Text(f"too long  {too_long}", "bold yellow")
    for line in shown_problems(source.problems, source.first):
        yield Text(f"wrong     {line}", "bold yellow")


def _counts(source: ImageSourceStatistics) -> Table:
    table = plain_table("of a sample", ("mean", "min", *(f"{percent} %" for percent in PERCENTS), "max"))
    for name, summary in source.counts.items():
        if summary and summary.max:
            numbers = (summary.mean, summary.min, *summary.quantiles.values(), summary.max)
            table.add_row(part(name), *(f"{number:,.0f}" for number in numbers))
    return table
