"""`ul2 report`: one self-contained HTML page of examples, with each span in the colour of its sentinel, plots, and statistics."""

from __future__ import annotations

import io
import os
import pathlib
from collections.abc import Iterable

from rich.console import Console

from ul2_tasks.inspect.page import check_path, packages, write_page
from ul2_tasks.inspect.samples import Sample
from ul2_tasks.inspect.texts.measurements import Statistics
from ul2_tasks.inspect.texts.table import print_statistics

_COLUMNS = 120


def write_report(statistics: Statistics, samples: Iterable[Sample], path: str | os.PathLike) -> pathlib.Path:
    """Writes the page and returns its path. The page opens from a file, without a network, in light and dark, and on a phone.

    `samples` are examples, of which there may be none.
    """
    check_path(path)
    packages()
    from ul2_tasks.inspect.texts import report_plots

    console = Console(record=True, width=_COLUMNS, file=io.StringIO())
    print_statistics(statistics, console)
    examples: dict[str, list[Sample]] = {}
    for sample in samples:
        examples.setdefault(sample.task, []).append(sample)
    printed = console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")
    return write_page(path, "report.html", statistics, examples=examples, plots=report_plots.draw(statistics), printed=printed)
