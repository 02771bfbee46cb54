"""`ul2 stats` of conversations: the measurements as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ul2_tasks.inspect.chat_samples import group_name
from ul2_tasks.inspect.conversations.measure import PERCENTS, ChatCorpusStatistics, ChatStatistics, ChatTaskStatistics
from ul2_tasks.inspect.printing import checks_sentence, checks_table, visible

_CAUSES_SHOWN = 12
COLUMNS = ("messages", "tokens", "header", "content", "stop", "trained")


def print_chat(statistics: ChatStatistics, console: Console) -> None:
    """Prints the statistics as tables."""
    lengths = ", ".join(f"{key} {length:,}" for key, length in statistics.sequence_length.items() if length is not None)
    read = "the cache" if statistics.use_cached else "the source"
    head = f": split {statistics.split}, from {read}, tokens at most: {lengths or 'any number'}; ul2_tasks {statistics.version}"
    console.print(Text.assemble((statistics.name, "bold"), head))
    for corpus in statistics.corpora:
        for line in _corpus(corpus):
            console.print(line)
    for task in statistics.tasks:
        console.print()
        console.print(_kinds(task))
        for line in _sentences(task):
            console.print(line)
    console.print()
    console.print(_lengths(statistics))
    console.print()
    console.print(checks_table(statistics.checks))
    console.print(checks_sentence(statistics.checks), style="bold")


def _corpus(corpus: ChatCorpusStatistics) -> Iterator[Text]:
    number = f"{corpus.conversations:,} conversations" if corpus.is_all else f"the first {corpus.conversations:,} conversations"
    yield Text(f"corpus    {corpus.corpus}: {number} of {corpus.source}")
    yield Text(f"renderer  {corpus.renderer}", no_wrap=True, overflow="ellipsis")
    for cause, records in list(corpus.rejected.items())[:_CAUSES_SHOWN]:
        yield Text(f"rejected  {records:,}: {visible(cause)}", "bold yellow")
    if (more := len(corpus.rejected) - _CAUSES_SHOWN) > 0:
        yield Text(f"rejected  for {more} other causes: {sum(list(corpus.rejected.values())[_CAUSES_SHOWN:]):,}", "bold yellow")


def _kinds(task: ChatTaskStatistics) -> Table:
    supervision = ", ".join(f"{key} {task.supervision[key]}" for key in ("train_on", "turns", "truncation"))
    title = f"{task.task}: {task.examples:,} examples of {task.conversations:,} conversations; {supervision}"
    # Nothing but spaces between the columns, of which the first gives way, so that it fits a terminal of 80 columns.
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, padding=0)
    table.add_column("message", overflow="fold")
    for column in (*COLUMNS, "of\ntrained", "loss\ngroup"):
        table.add_column(column, justify="right", no_wrap=True)
    trained = sum(kind.trained for kind in task.kinds)
    for kind in task.kinds:
        group = task.supervision["loss_groups"].get(kind.kind, 0)
        counts = (f"{getattr(kind, column):,}" for column in COLUMNS)
        table.add_row(kind.kind, *counts, _part(kind.trained, trained), group_name(group) if kind.trained else "–")
    totals = [sum(getattr(kind, column) for kind in task.kinds) for column in COLUMNS]
    table.add_section()
    table.add_row("all", *(f"{total:,}" for total in totals), _part(trained, trained), "")
    return table


def _sentences(task: ChatTaskStatistics) -> Iterator[Text]:
    groups = (f"{group_name(int(group))} {tokens:,} ({_part(tokens, task.tokens)})" for group, tokens in task.loss_groups.items())
    yield Text(f"loss groups: {', '.join(groups)}; of {task.tokens:,} tokens")
    for cause, number in task.left_out.items():
        what = "examples are" if cause == "shortened" else "examples are left out:"
        yield Text(f"{number:,} {what} {cause}", "bold yellow")


def _lengths(statistics: ChatStatistics) -> Table:
    table = Table(title="Lengths in tokens", title_justify="left")
    table.add_column("task")
    for column in ("mean", "min", *(f"{percent} %" for percent in PERCENTS), "max"):
        table.add_column(column, justify="right")
    for task in statistics.tasks:
        for feature, summary in task.lengths.items():
            if summary:
                numbers = (summary.mean, summary.min, *summary.quantiles.values(), summary.max)
                table.add_row(f"{task.task} {feature}", *(f"{number:,.0f}" for number in numbers))
    return table


def _part(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"
