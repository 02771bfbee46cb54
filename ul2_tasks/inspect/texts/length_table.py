"""`ul2 lengths`: what each denoiser makes of the budgets, and which lengths and chunks would waste less."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ul2_tasks.denoisers.denoisers import Denoiser
from ul2_tasks.denoisers.lengths import Chunk, chunk_length, sentinels_needed
from ul2_tasks.example_features import TOKEN_FEATURES
from ul2_tasks.inspect.tasks import other_tasks, text_tasks
from ul2_tasks.mixtures.advice import best_chunk_tokens, best_lengths, lone_span, packed_fill

if TYPE_CHECKING:
    from ul2_tasks.mixtures.description import Description
    from ul2_tasks.mixtures.mix import Mix


@dataclasses.dataclass(frozen=True)
class TaskLengths:
    """What a task's denoiser makes of the budgets: its full chunk, and how many sentinels it needs and the vocabulary has."""

    task: str
    denoiser: str
    chunk: Chunk
    sentinels_needed: int
    sentinels: int


@dataclasses.dataclass(frozen=True)
class Remark:
    """What a user should know about the lengths of a task. `remedy` is empty where `what` says what to do."""

    task: str
    what: str
    remedy: str = ""


@dataclasses.dataclass(frozen=True)
class Way:
    """Lengths of the same sum, chunk_tokens, and the share of each budget that then holds tokens when rows are packed."""

    name: str
    sequence_length: Mapping[str, int]
    chunk_tokens: Mapping[str, int]
    fill: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Lengths:
    """What the tasks of a mixture make of the budgets.

    Attributes:
        mixture: the name of the mixture.
        sequence_length: {"inputs": int, "targets": int}, the budgets in tokens.
        tasks: the tasks that fit.
        problems: the tasks that do not.
        notes: the span denoisers that have one span in a full chunk.
        ways: ways to fill packed rows, beginning with the one that was asked for; none if there are several corpora, or if a
            task does not fit.
        corpora: the mixtures of one corpus each that the mixture is made of.
        left_out: the tasks that are not of text.
    """

    mixture: str
    sequence_length: Mapping[str, int]
    tasks: Sequence[TaskLengths]
    problems: Sequence[Remark]
    notes: Sequence[Remark]
    ways: Sequence[Way]
    corpora: Sequence[str]
    left_out: Sequence[str]


def look_at(mixture: Description | Mix, sequence_length: Mapping[str, int]) -> Lengths:
    """Finds out what the tasks of a mixture make of the budgets. Takes seconds, most for the advice."""
    tasks, problems, notes = [], [], []
    of_ours = text_tasks(mixture)
    for task in of_ours:
        try:
            solution = task.solve(sequence_length)
        except ValueError as error:
            problems.append(Remark(task.name, str(error)))
            continue
        needed, present = sentinels_needed(task.denoiser, solution.full.length), len(solution.special.sentinels)
        tasks.append(TaskLengths(task.name, task.denoiser.name, solution.full, needed, present))
        if lone := lone_span(task.denoiser, solution.full, sequence_length):
            notes.append(Remark(task.name, *lone))
    corpora = list(dict.fromkeys(f"{task.name.removesuffix(task.denoiser.name)}mix" for task in of_ours))
    denoisers = [task.denoiser for task in of_ours] if len(mixture.leaves) == 1 else []
    return Lengths(
        mixture=mixture.registered_name(sequence_length),
        sequence_length=dict(sequence_length),
        tasks=tasks,
        problems=problems,
        notes=notes,
        ways=_ways(denoisers, tasks, sequence_length) if denoisers and not problems else [],
        corpora=corpora,
        left_out=other_tasks(mixture),
    )


def print_lengths(lengths: Lengths, console: Console) -> None:
    """Prints a table of the denoisers of the mixture, what a user should know about them, and advice."""
    if lengths.tasks:
        console.print(_table(lengths), highlight=False)
    for problem in lengths.problems:
        console.print(f"[bold red]{problem.task} does not fit:[/] {escape(problem.what)}", highlight=False, soft_wrap=True)
    for note in lengths.notes:
        text = escape(f"{note.what}; {note.remedy}")
        console.print(f"[yellow]{note.task}:[/] {text}", highlight=False, soft_wrap=True)
    if lengths.left_out:
        names = escape(", ".join(lengths.left_out))
        console.print(f"left out, because they are not text: {names}", highlight=False, soft_wrap=True)
    if lengths.ways:
        _print_advice(lengths.ways, console)
    elif not lengths.problems:
        console.print(
            f"recommendations need one corpus at a time: run ul2 lengths with {', '.join(lengths.corpora)}",
            highlight=False,
            soft_wrap=True,
        )


def _ways(denoisers: Sequence[Denoiser], tasks: Sequence[TaskLengths], sequence_length: Mapping[str, int]) -> list[Way]:
    present = {task.denoiser: task.chunk.length for task in tasks}
    ways = [
        ("now", sequence_length, present),
        ("recommended chunks", sequence_length, best_chunk_tokens(denoisers, sequence_length)),
    ]
    if (balanced := best_lengths(denoisers, sequence_length)) != dict(sequence_length):
        full = {denoiser.name: chunk_length(denoiser, balanced).length for denoiser in denoisers}
        ways += [("recommended lengths", balanced, full), ("both", balanced, best_chunk_tokens(denoisers, balanced))]
    return [
        Way(name, dict(lengths), {denoiser.name: chunks[denoiser.name] for denoiser in denoisers}, fill)
        for name, lengths, chunks in ways
        for fill in [packed_fill(denoisers, lengths, chunks)]
    ]


def _table(lengths: Lengths) -> Table:
    """A row for each task."""
    budgets = lengths.sequence_length
    title = f"sequence length {budgets['inputs']:,} inputs, {budgets['targets']:,} targets"
    columns = ["tokens", "masked", "spans", "inputs", "targets", "sentinels"]
    table = _columns(f"{lengths.mixture}: {title}", "full-length chunk", columns)
    for task in lengths.tasks:
        counts = [f"{getattr(task.chunk, name):,}" for name in ("length", "noise", "spans")]
        filled = [f"{size:,} ({size / budgets[name]:.0%})" for name in budgets for size in [getattr(task.chunk, name)]]
        table.add_row(task.task, *counts, *filled, f"{task.sentinels_needed:,} of {task.sentinels:,}")
    return table


def _print_advice(ways: Sequence[Way], console: Console) -> None:
    """Prints a column for each way, and lines to paste: the advised chunks, and both advices where rows are fuller."""
    table = _columns("Packing efficiency: what fraction of packed sequences are tokens", "", [way.name for way in ways])
    table.add_row("--lengths", *(_of_lengths(way) for way in ways))
    for feature in TOKEN_FEATURES:
        table.add_row(feature, *(f"{way.fill[feature]:.1%}" for way in ways))
    for name in ways[0].chunk_tokens:
        table.add_row(f"chunk_tokens {name}", *(f"{way.chunk_tokens[name]}" for way in ways))
    console.print(table, highlight=False)
    chunks, *both = ways[1::2]
    for way in (chunks, *(way for way in both if min(way.fill.values()) > min(chunks.fill.values()))):
        by_name = ",".join(f"{name}={tokens}" for name, tokens in way.chunk_tokens.items())
        for line in (
            f"{way.name}: paste one of these",
            f"  --lengths {_of_lengths(way)} --chunk_tokens {by_name}",
            f"  register(.., chunk_tokens={dict(way.chunk_tokens)})",
        ):
            console.print(line, highlight=False, soft_wrap=True, markup=False)


def _of_lengths(way: Way) -> str:
    return "{inputs},{targets}".format_map(way.sequence_length)


def _columns(title: str, first: str, names: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first, no_wrap=True)
    for name in names:
        table.add_column(name, justify="right")
    return table
