"""`ul2 stats` of texts and pictures: the measurements of rows, and of registered tasks, as tables for the terminal, and as JSON."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ul2_tasks.inspection.report_tables import as_shown
from ul2_tasks.inspection.show import visible
from ul2_tasks.statistics.measurements import Law, Summary
from ul2_tasks.statistics.picture_measure import PERCENTS, PictureSourceStatistics, PictureStatistics
from ul2_tasks.statistics.picture_tasks import PictureCorpusStatistics, PictureTasksStatistics, PictureTaskStatistics

PARTS = {"tokens": "tokens", "vit": "ViT patches", "vae": "patches of latents"}
KINDS = {"text": "texts", "vit": "pictures for the ViT", "clean": "clean latents", "noised": "noised latents"}
_PLANS_SHOWN = 8
_PROBLEMS_SHOWN = 8


def print_pictures(statistics: PictureStatistics, console: Console) -> None:
    """Prints the statistics as tables.

    Args:
        statistics: of `measure_pictures`.
        console: where to.
    """
    budgets = ", ".join(f"{budget:,} {PARTS[name]}" for name, budget in statistics.budgets.items())
    console.print(Text(f"rows of at most {budgets}; seed {statistics.seed}; ul2_tasks {statistics.version}"))
    for source in statistics.sources:
        console.print()
        console.print(Text.assemble((source.plan, "bold"), f": {source.looked_at:,} of {source.records:,} records"))
        for line in _sentences(source):
            console.print(line)
        console.print(_counts(source))
    console.print()
    for sentence in sentences_on_rows(statistics):
        console.print(Text(sentence))
    _print_laws(statistics.laws, console)


def print_picture_tasks(statistics: PictureTasksStatistics, console: Console) -> None:
    """Prints the statistics of tasks of `register_pictures` as tables.

    Args:
        statistics: of `measure_picture_tasks`.
        console: where to.
    """
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
        for line in shown_unfit(task):
            console.print(Text(f"{task.task}: {line}", "bold yellow"))
    _print_laws(statistics.laws, console)


def as_json(statistics: PictureStatistics | PictureTasksStatistics) -> str:
    """The statistics as a text of JSON."""
    return json.dumps(dataclasses.asdict(statistics), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def shown_plans(source: PictureSourceStatistics) -> str:
    """The plans that most samples have, in words."""
    plans = [f"{number:,} {plan if len(plan) < 32 else plan[:29] + '..'}" for plan, number in source.plans.items()]
    others = sum(list(source.plans.values())[_PLANS_SHOWN:])
    return ", ".join([*plans[:_PLANS_SHOWN], *([f"{others:,} of {len(plans) - _PLANS_SHOWN} other plans"] if others else [])])


def shown_elements(source: PictureSourceStatistics) -> str:
    """How many elements of each kind there are, and how many of them are dropped, in words."""
    said = []
    for kind, found in source.elements.items():
        dropped = f" ({as_shown(found['dropped'] / found['all'], 'percent')} dropped)" if found["dropped"] else ""
        said.append(f"{found['all']:,} {KINDS[kind]}{dropped}")
    return ", ".join(said)


def shown_too_long(source: PictureSourceStatistics) -> str:
    """How many samples take too much of what, in words; empty if none does."""
    of_each = ", ".join(f"{source.too_long[name]:,} of {PARTS[name]}" for name in PARTS if source.too_long[name])
    return f"{source.too_long['any']:,} samples do not fit into a row: {of_each}" if of_each else ""


def shown_problems(problems: Mapping[str, int], first: Mapping[str, str]) -> Iterator[str]:
    """The most frequent problems, each with how many there are and the first of them; and how many there are of others."""
    kinds = sorted(problems, key=lambda kind: -problems[kind])
    for kind in kinds[:_PROBLEMS_SHOWN]:
        yield f"{problems[kind]:,} ({kind.split(':')[0]}), the first: {visible(first[kind])}"
    if others := sum(problems[kind] for kind in kinds[_PROBLEMS_SHOWN:]):
        yield f"{others:,} for {len(kinds) - _PROBLEMS_SHOWN:,} other reasons"


def shown_records(corpus: PictureCorpusStatistics) -> str:
    """How many records were read, in words."""
    return f"{'all' if corpus.is_all else 'the first'} {corpus.records:,} records"


def shown_unfit(task: PictureTaskStatistics) -> Iterator[str]:
    """How many records, or chunks of them, make no example for each cause, in words."""
    what = "records, or chunks of them," if task.joins_records else "records"
    for cause, number in task.unfit.items():
        yield f"{number:,} {what} make no example, because {cause}; the first: {visible(task.first[cause])}"


def sentences_on_rows(statistics: PictureStatistics) -> Iterator[str]:
    """What is said of the rows."""
    if not statistics.rows:
        yield "no rows, since no record makes a sample that fits; `ul2 doctor` says why"
        return
    fill = ", ".join(f"{as_shown(part, 'percent')} of {PARTS[name]}" for name, part in statistics.fill.items() if part is not None)
    yield f"{statistics.rows:,} rows of {statistics.samples:,} samples" + (f"; they fill {fill}" if fill else "")
    lacking = {"vit": "no picture for the ViT", "vae": "no latents", "text": "no text that is learned"}
    if any(statistics.lacking.values()):
        yield "of these, " + ", ".join(f"{number:,} have {lacking[name]}" for name, number in statistics.lacking.items() if number)
    yield f"about {statistics.rows_of_epoch:,} rows an epoch" + (
        "" if len(statistics.sources) == 1 else " of the source that takes longest"
    )


def _sentences(source: PictureSourceStatistics) -> Iterator[Text]:
    yield Text(f"plans     {shown_plans(source)}")
    yield Text(f"elements  {shown_elements(source)}")
    if too_long := shown_too_long(source):
        yield Text(f"too long  {too_long}", "bold yellow")
    for line in shown_problems(source.problems, source.first):
        yield Text(f"wrong     {line}", "bold yellow")


def _tasks(statistics: PictureTasksStatistics) -> tuple[Table, Table]:
    """What the tasks have, and how long it is: two tables, because one is wider than most terminals."""
    counts = _table("task", ("share", "examples", "pictures", "text tokens", "picture tokens", "noise", "spans"))
    lengths = _table("task", ("inputs", "filled", "targets", "filled"))
    for task in statistics.tasks:
        numbers = (task.examples, task.pictures, *task.tokens.values(), task.spans)
        counts.add_row(task.task, as_shown(task.rate, "percent"), *(f"{number:,}" for number in numbers))
        parts = ((_range(task.lengths[key]), "" if part is None else as_shown(part, "percent")) for key, part in task.fill.items())
        lengths.add_row(task.task, *itertools.chain(*parts))
    return counts, lengths


def _table(first: str, columns: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))  # no lines between columns: it fits a terminal of 80 columns
    table.add_column(first, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", overflow="fold")
    return table


def _range(found: Summary | None) -> str:
    return "" if found is None else f"{found.min:,} to {found.max:,}"


def _print_laws(laws: Sequence[Law], console: Console) -> None:
    for law in laws:
        verdict = ("ok", "green") if law.holds else ("BROKEN", "bold red")
        console.print(Text.assemble(verdict, f"  {law.law}: {law.found}"))


def _counts(source: PictureSourceStatistics) -> Table:
    table = _table("of a sample", ("mean", "min", *(f"{percent} %" for percent in PERCENTS), "max"))
    for name, summary in source.counts.items():
        if summary and summary.max:
            numbers = (summary.mean, summary.min, *summary.quantiles.values(), summary.max)
            table.add_row(PARTS[name], *(f"{number:,.0f}" for number in numbers))
    return table
