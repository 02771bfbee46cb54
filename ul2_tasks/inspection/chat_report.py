"""`ul2 report` of conversations: one self-contained HTML page of the measurements, the laws, and some examples in colours."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from ul2_tasks.files.atomic import write_atomically
from ul2_tasks.inspection.chat_show import label_of, parts_of, runs_of, text_of
from ul2_tasks.inspection.chat_table import COLUMNS, span_name
from ul2_tasks.inspection.report import check_path, packages, verdict
from ul2_tasks.inspection.report_tables import as_shown
from ul2_tasks.inspection.show import visible
from ul2_tasks.statistics.chat_drawing import ChatExample
from ul2_tasks.statistics.chat_measure import PERCENTS, ChatStatistics
from ul2_tasks.tasks.chat import ChatTask

TEMPLATE = pathlib.Path(__file__).parents[1] / "data" / "chat_report.html"


def write_chat_report(
    statistics: ChatStatistics, examples: Iterable[tuple[ChatTask, ChatExample]], path: str | os.PathLike
) -> pathlib.Path:
    """Writes the page and returns its path. All texts are escaped; the page has no script, and loads nothing.

    Args:
        statistics: of `measure_chat`.
        examples: of `chat_show.draw_chat`.
        path: of the HTML file, which is overwritten.

    Returns:
        The path.

    Raises:
        ImportError: see `report.packages`.
        ValueError: see `report.check_path`.

    >>> import tempfile
    >>> from ul2_tasks import register_chat
    >>> from ul2_tasks.statistics.chat_measure import measure_chat
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_chat_report(measure_chat(register_chat("docs")), [], f"{folder}/page.html").read_text()
    >>> "All 8 laws hold." in page
    True
    """
    check_path(path)
    jinja2, _, _ = packages()
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.globals.update(as_shown=as_shown, span_name=span_name)
    path = pathlib.Path(path)
    page = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        statistics=statistics,
        columns=COLUMNS,
        percents=PERCENTS,
        verdict=verdict([{"law": law.law, "holds": law.holds} for law in statistics.laws]),
        examples=[_plain(task, example) for task, example in examples],
    )
    write_atomically(path, page)
    return path


def _plain(task: ChatTask, example: ChatExample) -> dict[str, Any]:
    """What the page shows of an example."""
    vocabulary = task.corpus.renderer.vocabulary
    parts = [
        {
            "feature": part.feature,
            "label": label_of(example, part),
            "tokens": part.end - part.start,
            "learned": int(np.count_nonzero(example.loss_mask[part.start : part.end])),
            "runs": [(kind, min(span, 4), visible(text_of(vocabulary, ids))) for kind, span, ids in runs_of(example, part)],
        }
        for part in parts_of(example)
    ]
    return {"task": task.name, "conversation": example.conversation, "tokens": len(example.ids), "parts": parts}
