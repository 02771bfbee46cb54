"""`ul2 report` of interleaved image-text data: one HTML page of the measurements, the checks, and examples with their images."""

from __future__ import annotations

import collections
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ul2_tasks.example_features import TOKEN_FEATURES
from ul2_tasks.images.pixels import size_of
from ul2_tasks.looking.images.drawing import length_line
from ul2_tasks.looking.images.measure import (
    PERCENTS,
    ImageTasksStatistics,
    Looked,
    look_at_corpora,
    measure_looked,
)
from ul2_tasks.looking.images.show import Shown, draw_looked
from ul2_tasks.looking.images.table import shown_records, shown_unusable
from ul2_tasks.looking.page import check_path, thumbnail, write_page
from ul2_tasks.looking.printing import shown_problems, visible
from ul2_tasks.looking.readable import Stretch
from ul2_tasks.looking.samples import BORDER
from ul2_tasks.tasks.image_text import image_text_tasks

_COLOURS = 6  # that spans take in turn


def write_image_text_report(
    name: str, sequence_length: Mapping[str, int], path: str | os.PathLike, *, records: int, count: int, split: str, seed: int
) -> tuple[ImageTasksStatistics, pathlib.Path]:
    """Measures the first `records` of each corpus, and writes a page with `count` examples of each task.

    All texts are escaped; the page has no script, and loads nothing.
    """
    check_path(path)
    tasks = image_text_tasks(name)
    looked = look_at_corpora(tasks, split, records)
    statistics = measure_looked(name, looked, sequence_length, split, seed)
    with_examples = [task for task, measured in zip(tasks, statistics.tasks) if measured.examples]
    drawn = draw_looked(name, looked, with_examples, sequence_length, count=count, seed=seed)
    written = write_page(
        path,
        "image_text_report.html",
        statistics,
        shown_records=shown_records,
        shown_problems=shown_problems,
        shown_unusable=shown_unusable,
        percents=PERCENTS,
        features=TOKEN_FEATURES,
        length_line=length_line,
        images={corpus: _images_in(found) for corpus, found in looked.items()},
        examples=list(map(_plain, drawn)),
        border=BORDER,
    )
    return statistics, written


def _images_in(looked: Looked) -> list[tuple[int, int]]:
    """How many records have 0, 1, 2 .. images: pairs of a number of images, and of records."""
    return sorted(collections.Counter(len(found.pieces) // 2 for _, found in looked.right).items())


def _plain(shown: Shown) -> dict[str, Any]:
    """What the page shows of an example."""
    images = iter(shown.images)
    return {
        "task": shown.task.name,
        "number": shown.sample.number + 1,
        "counts": shown.sample.counts,
        "record": visible(shown.record),
        **{feature: list(_parts(getattr(shown.sample, feature), images)) for feature in TOKEN_FEATURES},
    }


def _parts(of_feature: Sequence[Stretch], images: Iterator[object]) -> Iterable[dict[str, Any]]:
    """Stretches, each with its text, its colour and, of an image, its thumbnail; `images` are those that are left."""
    for stretch in of_feature:
        image = next(images, None) if stretch.kind == "image" else None
        yield {
            "kind": stretch.kind,
            "text": visible(stretch.text),
            "colour": None if stretch.span is None else stretch.span % _COLOURS,
            "thumbnail": "" if image is None else thumbnail(image, *size_of(image)),
        }
