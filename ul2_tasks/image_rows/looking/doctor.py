"""`ul2 doctor` of texts and images: looks for problems before a run, and says how to fix each."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from ul2_tasks.image_rows.looking.measure import (
    ImageSourceStatistics,
    ImageStatistics,
    Looked,
    look_at,
    measure_images,
    schema_name,
)
from ul2_tasks.image_rows.looking.table import PARTS, sentences_on_rows, shown_elements, shown_layouts, shown_too_long
from ul2_tasks.image_rows.recipe import Recipe
from ul2_tasks.image_rows.special_tokens import SpecialTokenConfig
from ul2_tasks.images.elements import Image
from ul2_tasks.images.pixels import pixels
from ul2_tasks.looking.findings import About, Finding
from ul2_tasks.looking.printing import shown_problems

LOOKED_AT = 1000  # records of each source
DECODED = 100  # records of which the images are decoded
_FULL = 0.9  # of the fullest budget


def examine_recipe(recipe: Recipe, special_tokens: SpecialTokenConfig | None = None, records: int = LOOKED_AT) -> Iterator[Finding]:
    """Looks at the model's tables, records of each source, some of their images, and the rows."""
    statistics = measure_images(recipe, records)
    yield from _examine_tables(recipe, special_tokens or recipe.special_tokens)
    for source, found in zip(statistics.sources, look_at(recipe, min(records, DECODED))):
        about = functools.partial(Finding, concerns=(schema_name(found.source),))
        yield from _examine_records(source, about)
        yield from _examine_lengths(source, about)
        yield from _examine_images(found, about)
    yield from _examine_rows(statistics)


def _examine_tables(recipe: Recipe, special_tokens: SpecialTokenConfig) -> Iterator[Finding]:
    for source in recipe.sources:
        about = functools.partial(Finding, about="tables", concerns=(schema_name(source),))
        try:
            special_tokens.check(source.sizes)
        except ValueError as error:
            yield about("problem", what=str(error), remedy="take a larger table, or smaller sizes")
        else:
            vit, vae = source.sizes.vit.patches_per_side, source.sizes.vae.patches_per_side
            tables = f"{special_tokens.vit_patches_per_side} and {special_tokens.vae_patches_per_side}"
            sides = f"up to {vit} patches on a side for the ViT, and {vae} of latents"
            yield about("ok", what=f"images have {sides}; the tables have {tables}")


def _examine_records(source: ImageSourceStatistics, about: About) -> Iterator[Finding]:
    for line in shown_problems(source.problems, source.first):
        what = f"wrong, of {source.looked_at:,} records: {line}"
        yield about("problem", "records", what, "fix them, or pass on_error='skip', which leaves them out and counts them")
    if source.layouts:
        yield about("ok", "records", f"{source.looked_at:,} of {source.records:,} records: {shown_layouts(source)}")
        yield about("ok", "records", shown_elements(source))
    else:
        yield about("problem", "records", f"none of {source.looked_at:,} records is right", "see whether the schema is theirs")


def _examine_lengths(source: ImageSourceStatistics, about: About) -> Iterator[Finding]:
    most = {name: summary.max for name, summary in source.counts.items() if summary and summary.max}
    if too_long := shown_too_long(source):
        needed = ", ".join(f"{most[name]:,} {PARTS[name]}" for name in source.counts if source.too_long[name])
        remedy = f"{needed} hold them all; or shrink=True, which makes their images smaller; or on_error='skip'"
        yield about("problem", "lengths", f"of {sum(source.layouts.values()):,}, {too_long}", remedy)
    elif most:
        largest = ", ".join(f"{number:,} {PARTS[name]}" for name, number in most.items())
        yield about("ok", "lengths", f"all samples fit into a row; the most that one takes: {largest}")


def _examine_images(found: Looked, about: About) -> Iterator[Finding]:
    """Decodes images, which tells those that are cut off or damaged."""
    decoded, damaged = 0, []
    for each in found.samples:
        images = {id(one.image): one.image for one in each.sample.layout if isinstance(one, Image)}
        decoded += len(images)
        for image in images.values():
            try:
                pixels(image)
            except ValueError as error:
                damaged.append(f"{each.name}: {error}")
    if damaged:
        what = f"{len(damaged):,} of {decoded:,} images cannot be decoded; the first: {damaged[0]}"
        yield about("problem", "images", what, "fix them, or pass on_error='skip', which leaves their samples out and counts them")
    elif decoded:
        all_records = len(found.source.records)
        others = f", of {all_records:,}: what is wrong with the others a run finds" if len(found.samples) < all_records else ""
        yield about("ok", "images", f"{decoded:,} images of {len(found.samples):,} records were decoded{others}")


def _examine_rows(statistics: ImageStatistics) -> Iterator[Finding]:
    if not statistics.rows:
        return
    fullest = max(part for part in statistics.fill.values() if part is not None)
    kind = "ok" if fullest >= _FULL else "note"
    remedy = "" if kind == "ok" else "budgets that are a multiple of what most samples take, or a larger pool, fill them better"
    yield Finding(kind, "rows", "; ".join(sentences_on_rows(statistics)), remedy)
    without = [kind for kind in ("vit", "vae") if 0 < statistics.lacking[kind] < statistics.rows]
    if without:
        remedy = (
            f"required_modalities={tuple(without)} gives each row a dummy, if ranks of a sharded model are to run the same modules"
        )
        what = " and ".join(f"{statistics.lacking[kind]:,} without {PARTS[kind]}" for kind in without)
        yield Finding("note", "rows", f"of {statistics.rows:,} rows there are {what}", remedy)
