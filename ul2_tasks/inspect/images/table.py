"""`ul2 stats` of tasks of `register_image_text`: the measurements as tables for the terminal."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ul2_tasks.inspect.images.measure import ImageCorpusStatistics, ImageTasksStatistics, ImageTaskStatistics
from ul2_tasks.inspect.printing import as_shown, plain_table, shown_problems, visible
from ul2_tasks.inspect.statistics import Summary


def print_image_tasks(statistics: ImageTasksStatistics, console: Console) -> None:
    """Prints the statistics as tables."""
    budgets = ", ".join(f"{key} of at most {length:,} tokens" for key, length in statistics.sequence_length.items())
    head = f": split {statistics.split}, {budgets}; seed {statistics.seed}; ul2_tasks {statistics.version}"
    console.print(Text.assemble((statistics.mixture, "bold"), head))
    for corpus in statistics.corpora:
        console.print(Text(f"{corpus.corpus}: {shown_records(corpus)}, each read once by every denoiser"))
        for line in shown_problems(corpus.problems, corpus.first):
            console.print(Text(f"wrong     {line}", "bold yellow"))
    console.print()
    for table in _tasks(statistics):
        console.print(table)
    for task in statistics.tasks:
        for line in shown_unusable(task):
            console.print(Text(f"{task.task}: {line}", "bold yellow"))


def shown_records(corpus: ImageCorpusStatistics) -> str:
    """How many records were read, in words."""
    return f"{'all' if corpus.is_all else 'the first'} {corpus.records:,} records"


def shown_unusable(task: ImageTaskStatistics) -> Iterator[str]:
    """How many records make no example for each cause, in words."""
    for cause, number in task.unusable.items():
        yield f"{number:,} records make no example, because {cause}; the first: {visible(task.first[cause])}"


def _tasks(statistics: ImageTasksStatistics) -> tuple[Table, Table]:
    """What the tasks have, and how long it is: two tables, because one is wider than most terminals."""
    counts = plain_table("task", ("share", "examples", "images", "text tokens", "image tokens", "noise", "spans"))
    lengths = plain_table("task", ("inputs", "filled", "targets", "filled"))
    for task in statistics.tasks:
        numbers = (task.examples, task.images, *task.tokens.values(), task.spans)
        counts.add_row(task.task, as_shown(task.rate, "percent"), *(f"{number:,}" for number in numbers))
        parts = ((_range(task.lengths[key]), "" if part is None else as_shown(part, "percent")) for key, part in task.fill.items())
        lengths.add_row(task.task, *itertools.chain(*parts))
    return counts, lengths


def _range(found: Summary | None) -> str:
    return "" if found is None else f"{found.min:,} to {found.max:,}"
