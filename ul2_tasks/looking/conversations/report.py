"""`ul2 report` of conversations: one self-contained HTML page of the measurements, the checks, and some examples in colours."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from ul2_tasks.looking.chat_samples import ChatExample, group_name, label_of, parts_of, runs_of, text_of
from ul2_tasks.looking.conversations.measure import PERCENTS, ChatStatistics
from ul2_tasks.looking.conversations.table import COLUMNS
from ul2_tasks.looking.page import write_page
from ul2_tasks.looking.printing import visible
from ul2_tasks.tasks.chat import ChatTask


def write_chat_report(
    statistics: ChatStatistics, examples: Iterable[tuple[ChatTask, ChatExample]], path: str | os.PathLike
) -> pathlib.Path:
    """Writes the page and returns its path. All text is escaped; the page has no script, and loads nothing."""
    shown = (_plain(task, example) for task, example in examples)
    return write_page(
        path, "chat_report.html", statistics, group_name=group_name, columns=COLUMNS, percents=PERCENTS, examples=list(shown)
    )


def _plain(task: ChatTask, example: ChatExample) -> dict[str, Any]:
    """What the page shows of an example."""
    vocabulary = task.corpus.renderer.vocabulary
    parts = [
        {
            "feature": part.feature,
            "label": label_of(example, part),
            "tokens": part.end - part.start,
            "trained": int(np.count_nonzero(example.loss_mask[part.start : part.end])),
            "runs": [(kind, min(group, 4), visible(text_of(vocabulary, ids))) for kind, group, ids in runs_of(example, part)],
        }
        for part in parts_of(example)
    ]
    about = {"task": task.name, "conversation": example.conversation, "where": example.where}
    return {**about, "tokens": len(example.ids), "parts": parts}
