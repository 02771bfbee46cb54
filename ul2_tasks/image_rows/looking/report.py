"""`ul2 report` of texts and images: one self-contained HTML page of layouts with thumbnails, masks, and how rows are filled."""

from __future__ import annotations

import itertools
import os
import pathlib
from typing import Any

from ul2_tasks.image_rows.looking.drawing import MODE_COLOURS, mask, strip
from ul2_tasks.image_rows.looking.measure import (
    PERCENTS,
    ImageStatistics,
    first_rows,
    look_at,
    measure_images,
    schema_name,
)
from ul2_tasks.image_rows.looking.show import COLOURS, SEEN, SPARE, as_plain
from ul2_tasks.image_rows.looking.table import PARTS, sentences_on_rows, shown_elements, shown_layouts, shown_too_long
from ul2_tasks.image_rows.recipe import Recipe, Source
from ul2_tasks.image_rows.row_arrays import Row, lay_out
from ul2_tasks.image_rows.samples import Sample, taken
from ul2_tasks.image_rows.special_tokens import SpecialTokenConfig
from ul2_tasks.images.elements import Image, Text, letter
from ul2_tasks.looking.page import check_path, thumbnail, write_page
from ul2_tasks.looking.printing import shown_problems, visible

ROWS = 8  # that are drawn


def write_image_report(
    recipe: Recipe, path: str | os.PathLike, *, records: int = 1000, count: int = 4
) -> tuple[ImageStatistics, pathlib.Path]:
    """Measures `records` of each source, and writes a page that shows `count`. It has no script, and loads nothing."""
    check_path(path)
    statistics = measure_images(recipe, records)
    samples = [
        _plain_sample(found.source, name, sample, recipe.special_tokens)
        for found in look_at(recipe, count + SPARE)
        for name, sample in found.samples[:count]
    ]
    rows = [_plain_row(recipe, [sample for _, sample in row]) for row in itertools.islice(first_rows(recipe, records), ROWS)]
    written = write_page(
        path,
        "image_report.html",
        statistics,
        shown_layouts=shown_layouts,
        shown_elements=shown_elements,
        shown_problems=shown_problems,
        shown_too_long=shown_too_long,
        parts=PARTS,
        percents=PERCENTS,
        on_rows=list(sentences_on_rows(statistics)),
        samples=samples,
        rows=rows,
        seen=SEEN,
        colours=COLOURS,
        mode_colours=MODE_COLOURS,
    )
    return statistics, written


def _plain_sample(source: Source, name: str, sample: Sample, special_tokens: SpecialTokenConfig) -> dict[str, Any]:
    plain = as_plain(source, sample)
    for element, shown in zip(sample.layout, plain["elements"]):
        shown["letter"] = letter(element)
        if isinstance(element, Image):
            shown["thumbnail"] = thumbnail(element.image, *shown["resized"])
        elif isinstance(element, Text):
            shown["text"] = visible(element.text)
    return {"source": schema_name(source), "name": visible(name), **plain, **_drawings(lay_out([sample], special_tokens))}


def _plain_row(recipe: Recipe, samples: list[Sample]) -> dict[str, Any]:
    used = [sum(parts) for parts in zip(*(taken(sample.counts, recipe.budgets) for sample in samples))]
    fill = {name: count / budget for name, count, budget in zip(recipe.budgets._asdict(), used, recipe.budgets) if budget}
    return {"samples": len(samples), "fill": fill, **_drawings(lay_out(samples, recipe.special_tokens))}


def _drawings(row: Row) -> dict[str, str]:
    return {"strip": strip(row), "mask": mask(row)} if len(row.split_lens) else {"strip": "", "mask": ""}
