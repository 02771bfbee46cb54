"""`ul2 lengths` of conversations: how many examples the lengths leave out, and how full packed rows are."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ul2_tasks.chat.index import index_conversations
from ul2_tasks.example_features import token_features
from ul2_tasks.inspect.conversations.drawing import budgets, that_drops
from ul2_tasks.inspect.conversations.records import first_conversations
from ul2_tasks.inspect.tasks import ChatTask, chat_tasks
from ul2_tasks.random_access.corpora import order_corpus
from ul2_tasks.random_access.records import RecordMember, Records
from ul2_tasks.store.columns import Columns

if TYPE_CHECKING:
    from ul2_tasks.mixtures.description import Description
    from ul2_tasks.mixtures.mix import Mix

CONVERSATIONS = 4000  # the first ones of a source, which are measured


@dataclasses.dataclass(frozen=True)
class ChatWay:
    """What lengths make of conversations.

    Attributes:
        name: "now", "half" or "double".
        sequence_length: the lengths in tokens; None for any number.
        examples: how many there are.
        left_out: how many are left out, by cause; or are "shortened", which are among the examples.
        tokens: of all examples, by feature.
        rows: how many packed rows an epoch has; None where a length is None, or there is no example.
        fill: the share of each length that holds tokens in packed rows; empty where there are none.
    """

    name: str
    sequence_length: Mapping[str, int | None]
    examples: int
    left_out: Mapping[str, int]
    tokens: Mapping[str, int]
    rows: int | None
    fill: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class ChatTaskLengths:
    """What lengths make of the conversations of a task, of which so many were read; `is_all` says whether there are no others."""

    task: str
    source: str
    conversations: int
    is_all: bool
    ways: Sequence[ChatWay]


@dataclasses.dataclass(frozen=True)
class ChatLengths:
    """What lengths make of the tasks of a mixture. `problems` are sentences."""

    name: str
    sequence_length: Mapping[str, int | None]
    tasks: Sequence[ChatTaskLengths]
    problems: Sequence[str]


def look_at_chats(chats: Description | Mix, sequence_length: Mapping[str, int | None], split: str = "train") -> ChatLengths:
    """Measures what lengths make of the first 4,000 conversations of each chat task."""
    tasks, problems = [], []
    for task in chat_tasks(chats, sequence_length):
        read, lengths = first_conversations(task.corpus, split, CONVERSATIONS), budgets(task, sequence_length)
        tried = {"now": lengths}
        if all(lengths.values()):
            tried |= {"half": _times(lengths, 0.5), "double": _times(lengths, 2)}
        ways = [_way(way, task, read.reader, each) for way, each in tried.items()]
        source = str(task.corpus.source)
        tasks.append(ChatTaskLengths(task.name, source, read.reader.count, read.is_all, ways))
        if task.supervision.truncation == "raise" and (too_long := ways[0].left_out.get("too long", 0)):
            problems.append(
                f"{task.name}: {too_long:,} of {too_long + ways[0].examples:,} examples are longer than the lengths, which raises"
                " an error. Raise --lengths, or pass truncation='drop' or 'drop_oldest_turns'."
            )
    return ChatLengths(chats.registered_name(sequence_length), dict(sequence_length), tasks, problems)


def _times(lengths: Mapping[str, int | None], factor: float) -> dict[str, int | None]:
    return {key: max(1, int((length or 1) * factor)) for key, length in lengths.items()}


def _way(name: str, task: ChatTask, reader: Columns, lengths: Mapping[str, int | None]) -> ChatWay:
    index = index_conversations(reader, that_drops(task).objective, lengths)
    left_out = {**index.left_out, **({"shortened": index.shortened} if index.shortened else {})}
    keys, rows = token_features(task.objective.features), None
    tokens = dict(zip(keys, index.sizes(np.arange(index.count)).sum(axis=0).tolist()))
    if index.count and all(lengths.values()):
        member = RecordMember(task.name, task.corpus, 1.0, task.objective.features, task.corpus.vocabulary, lambda _: index, {})
        packed = order_corpus([member], Records((member,), index), seed=0, shuffle=True).packed(lengths)
        rows = packed.first_of(packed.rounds)
    fill = {key: tokens[key] / (rows * (lengths[key] or 1)) for key in keys} if rows else {}
    return ChatWay(name, dict(lengths), index.count, left_out, tokens, rows, fill)


def print_chat_lengths(lengths: ChatLengths, console: Console) -> None:
    """Prints a table for each task, with a column for each of the lengths, and the problems."""
    for task in lengths.tasks:
        read = f"{'all' if task.is_all else 'the first'} {task.conversations:,} conversations of {task.source}"
        console.print(Text.assemble((task.task, "bold"), f": {read}"))
        console.print(_table(task.ways), highlight=False)
    if any(way.rows is None for task in lengths.tasks for way in task.ways[:1]):
        console.print("Pass --lengths to see how full packed sequences are.", highlight=False)
    for problem in lengths.problems:
        console.print(Text(problem, "bold red"), soft_wrap=True)


def _table(ways: Sequence[ChatWay]) -> Table:
    table = Table()
    table.add_column("", no_wrap=True)
    for way in ways:
        table.add_column(way.name, justify="right")
    budgets_of = (["any" if length is None else str(length) for length in way.sequence_length.values()] for way in ways)
    table.add_row("--lengths", *map(",".join, budgets_of))
    table.add_row("examples", *(f"{way.examples:,}" for way in ways))
    for cause in dict.fromkeys(cause for way in ways for cause in way.left_out):
        table.add_row(cause, *(f"{way.left_out.get(cause, 0):,}" for way in ways))
    for key in ways[0].tokens:
        table.add_row(f"{key} per example", *(f"{way.tokens[key] / max(1, way.examples):,.1f}" for way in ways))
    if any(way.rows for way in ways):
        table.add_section()
        table.add_row("packed sequences", *(f"{way.rows or 0:,}" for way in ways))
        table.add_row("examples in each", *(f"{way.examples / way.rows:,.2f}" if way.rows else "–" for way in ways))
        for key in ways[0].tokens:
            filled = (f"{way.fill[key]:.1%}" if way.fill else "–" for way in ways)
            table.add_row("packing efficiency" if key == "tokens" else f"packing efficiency, {key}", *filled)
    return table
