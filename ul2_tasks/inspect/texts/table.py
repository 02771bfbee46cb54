"""`ul2 stats`: the measurements of `statistics`, as tables for the terminal and as files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from ul2_tasks.example_features import TOKEN_FEATURES
from ul2_tasks.inspect.printing import NOTHING, checks_sentence, checks_table, kinds_lost
from ul2_tasks.inspect.statistics import Summary
from ul2_tasks.inspect.texts.measurements import Corpus, OtherTask, Statistics, TaskStatistics


def print_statistics(statistics: Statistics, console: Console) -> None:
    """Prints the statistics as tables, which fit terminals of 80 and of 100 columns."""
    tables = _rates(statistics), _objective(statistics), _lengths(statistics), _fill(statistics)
    for table in (_heading(statistics), *(table for table in tables if table.row_count), checks_table(statistics.checks)):
        console.print(table)
        if table is tables[0]:
            console.print(Text(statistics.share_sentence, style="bold"))
        console.print()
    console.print(checks_sentence(statistics.checks), style="bold")


def _heading(statistics: Statistics) -> Group:
    budgets = ", ".join(f"{key} {tokens:,}" for key, tokens in statistics.sequence_length.items())
    return Group(
        Text.assemble((statistics.mixture, "bold"), f": {statistics.examples:,} examples, tokens at most: {budgets}"),
        Text(f"split {statistics.split}, seed {statistics.seed}, ul2_tasks {statistics.version}"),
        *(line for corpus in statistics.corpora for line in _corpus(corpus, statistics)),
        *(Text(f"note        {note}", style="bold yellow") for note in statistics.notes),
    )


def _corpus(corpus: Corpus, statistics: Statistics) -> Iterator[Text]:
    tokens = corpus.tokens
    looked_at = f"{'all ' if corpus.is_all else ''}{corpus.documents:,} looked at"
    documents = f"{looked_at}, of {tokens.min:,}..{tokens.max:,} tokens, {tokens.mean:,.1f} on average"
    in_chunks = [task.documents_per_chunk for task in statistics.tasks if task.corpus == corpus.corpus and task.documents_per_chunk]
    if in_chunks:
        documents += f"; a full-length chunk joins {_number(min(in_chunks))} to {_number(max(in_chunks))} of them"
    text = (
        f"{_number(corpus.characters_a_token)} characters per token, {_percent(corpus.unknown)} unknown tokens,"
        f" {_percent(corpus.come_back)} of the documents decode to the original text"
    )
    yield Text(f"corpus      {corpus.corpus}: {corpus.source}")
    yield Text(f"documents   {documents}")
    yield Text(f"vocabulary  {corpus.vocabulary}", no_wrap=True, overflow="ellipsis")
    yield Text(f"text        {text}")
    if corpus.lost:
        yield Text(f"round trip  decoding does not restore {kinds_lost(corpus.lost)}")


def _rates(statistics: Statistics) -> Table:
    title = "Mixture: examples follow the weights, tokens follow the lengths"
    table = _table(title, "task", "weight", "expected\n(bounds)", "of\nexamples", "of input\ntokens", "of target\ntokens")
    tasks: list[TaskStatistics | OtherTask] = [*statistics.tasks, *statistics.others]
    for task in tasks:
        share = task.share
        expected = f"{share['expected']:.1%} ({100 * share['low']:.1f}..{100 * share['high']:.1f})"
        measured = (_percent(share[key]) for key in ("examples", *TOKEN_FEATURES))
        weight = f"{task.denoiser['weight']:g}" if isinstance(task, TaskStatistics) else NOTHING
        table.add_row(task.task, weight, expected, *measured)
    return table


def _objective(statistics: Statistics) -> Table:
    table = _table("Objective: measured / expected", "task", "mode", "chunk", "corrupted", "spans", "mean span")
    for task in statistics.tasks:
        rate, spans = task.corruption_rate, task.spans
        mean = spans["mean_length"]
        table.add_row(
            task.task,
            task.denoiser["mode"] or NOTHING,
            f"{task.full_chunk['length']:,}",
            f"{_percent(rate['measured'])} / {rate['expected']:.1%}",
            f"{_number(spans['measured'])} / {spans['expected']:,}",
            f"{_number(mean['measured'])} / {_number(mean['expected'])}",
        )
    return table


def _lengths(statistics: Statistics) -> Table:
    title = "Lengths in tokens: mean±sd, min..max, p25..p75; used: fraction of the sequence length"
    table = _table(title, "task", "inputs", "used", "targets", "used", "chunk", "inputs\n/ chunk")
    for other in statistics.others:
        inputs, targets = map(_spread, other.lengths.values())
        table.add_row(other.task, inputs, NOTHING, targets, NOTHING, NOTHING, NOTHING)
    for task in statistics.tasks:
        table.add_row(task.task, *_row(task, task.fill), end_section=task is statistics.tasks[-1])
    table.add_row("all", *_row(statistics, statistics.fill["unpacked"]))
    return table


def _row(measured: TaskStatistics | Statistics, fill: Mapping[str, float | None]) -> list[str]:
    lengths = {key: _spread(summary) for key, summary in measured.lengths.items()}
    features = [text for key in TOKEN_FEATURES for text in (lengths[key], _percent(fill[key]))]
    return [*features, lengths["chunk"], _percent(measured.compression)]


def _fill(statistics: Statistics) -> Table:
    table = _table("Packing efficiency", "", "inputs", "targets", "padding of inputs", "of targets")
    for kind, name in {"unpacked": "unpacked", "packed": "packed", "bound": "upper bound"}.items():
        fill = statistics.fill[kind]
        padding = (None if part is None else 1 - part for part in fill.values())
        table.add_row(name, *map(_percent, (*fill.values(), *padding)))
    return table


def _table(title: str, first: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left")
    table.add_column(first, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _spread(summary: Summary | None) -> str:
    """A summary of lengths in three lines; one number if all lengths are the same."""
    if summary is None:
        return NOTHING
    if summary.min == summary.max:
        return f"{summary.min:,}"
    middle = f"{summary.quantiles['25']:,.0f}..{summary.quantiles['75']:,.0f}"
    return f"{summary.mean:,.1f}±{summary.sd:,.1f}\n{summary.min:,}..{summary.max:,}\n{middle}"


def _percent(part: float | None) -> str:
    return NOTHING if part is None else f"{part:.1%}"


def _number(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value == round(value) else f"{value:,.2f}" if value < 10 else f"{value:,.1f}"
