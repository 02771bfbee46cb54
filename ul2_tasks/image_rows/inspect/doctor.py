"""`ul2 doctor` of image rows: looks for problems before a run, and says how to fix each."""

from __future__ import annotations

from collections.abc import Iterator

from ul2_tasks.image_rows.inspect.measure import look_at, measure_images, schema_name
from ul2_tasks.image_rows.inspect.table import part, sentences_on_rows, shown_elements, shown_layouts, shown_too_long
from ul2_tasks.image_rows.recipe import Recipe
from ul2_tasks.images.elements import Image
from ul2_tasks.images.pixels import pixels
from ul2_tasks.inspect.doctor import Finding
from ul2_tasks.inspect.printing import shown_problems

LOOKED_AT = 1000  # records of each source
DECODED = 100  # records of which the images are decoded
_FULL = 0.9  # of the fullest budget
_SKIP = "fix them, or pass on_error='skip', which leaves them out and counts them"


def examine_recipe(recipe: Recipe) -> Iterator[Finding]:
    """Looks at records of each source, some of their images, and the rows."""
    statistics = measure_images(recipe, LOOKED_AT)
    for source, found in zip(statistics.sources, look_at(recipe, DECODED)):
        concerns = (schema_name(found.source),)
        for line in shown_problems(source.problems, source.first):
            yield Finding("problem", "records", f"wrong, of {source.looked_at:,} records: {line}", _SKIP, concerns)
        if source.layouts:
            looked_at = f"{source.looked_at:,} of {source.records:,} records: {shown_layouts(source)}"
            yield Finding("ok", "records", f"{looked_at}; {shown_elements(source)}", concerns=concerns)
        else:
            what = f"none of {source.looked_at:,} records is right"
            yield Finding("problem", "records", what, "see whether the schema is theirs", concerns)
        most = {name: summary.max for name, summary in source.counts.items() if summary}
        if too_long := shown_too_long(source):
            needed = ", ".join(f"{most[name]:,} {part(name)}" for name in source.counts if source.too_long[name])
            remedy = f"{needed} hold them all; or shrink=True, which makes their images smaller; or on_error='skip'"
            yield Finding("problem", "lengths", f"of {sum(source.layouts.values()):,}, {too_long}", remedy, concerns)
        damaged = [f"{each.name}: {said}" for each in found.samples for said in _damages(each.sample.layout)]
        if damaged:
            what = f"{len(damaged):,} images of {len(found.samples):,} records cannot be decoded; the first: {damaged[0]}"
            yield Finding("problem", "images", what, _SKIP, concerns)
        else:
            yield Finding("ok", "images", f"all images of {len(found.samples):,} records were decoded", concerns=concerns)
    if statistics.rows:
        is_full = max(fill for fill in statistics.fill.values() if fill is not None) >= _FULL
        remedy = "" if is_full else "budgets that are a multiple of what most samples take, or a larger pool, fill them better"
        yield Finding("ok" if is_full else "note", "rows", "; ".join(sentences_on_rows(statistics)), remedy)
    without = tuple(kind for kind in ("vit", "vae") if 0 < statistics.lacking[kind] < statistics.rows)
    if without:
        what = " and ".join(f"{statistics.lacking[kind]:,} of {statistics.rows:,} rows lack {part(kind)}" for kind in without)
        yield Finding(
            "note", "rows", what, f"required_modalities={without} gives each row a dummy, so that ranks run the same modules"
        )


def _damages(layout: tuple) -> Iterator[str]:
    """What is said of images that are cut off or damaged, each of which is decoded once."""
    for image in {id(one.image): one.image for one in layout if isinstance(one, Image)}.values():
        try:
            pixels(image)
        except ValueError as error:
            yield str(error)
