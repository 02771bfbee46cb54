"""The first conversations of a corpus, rendered from its records, with their messages; and the records that are rejected."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ul2_tasks.chat.by_name import render_all
from ul2_tasks.chat.messages import Message
from ul2_tasks.chat.reading import conversations_in_memory
from ul2_tasks.chat.segments import Segment, as_arrays
from ul2_tasks.corpus.check_texts import check_texts
from ul2_tasks.corpus.conversations import conversation_of
from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.inspect.statistics import Tally
from ul2_tasks.sources.records import Record
from ul2_tasks.store.columns import Columns


class Rendered(NamedTuple):
    """A record as it is rendered; one with a problem has no messages and no segments.

    Attributes:
        where: the location of the record, as far as it is known.
        id: of the record; empty where the corpus has none.
        problem: why it is rejected, with its location; empty where it is not.
        unread: the names of the fields of the record that nothing reads.
    """

    where: str
    id: bytes
    messages: Sequence[Message]
    segments: list[Segment]
    problem: str
    unread: tuple[str, ...] = ()


class FirstConversations(NamedTuple):
    """The first conversations of a split.

    Attributes:
        reader: of them; their numbers are those of `conversations`.
        rejected: the records before them that are rejected, by cause.
        is_all: whether the split has no others.
    """

    reader: Columns
    conversations: list[Rendered]
    rejected: Tally
    is_all: bool


def first_conversations(corpus: Corpus, split: str, most: int) -> FirstConversations:
    """Renders the first conversations of a split, at most `most`.

    Raises a ValueError where there is no conversation, or a record cannot be rendered and the corpus is to raise it.
    """
    found: list[Rendered] = []
    rejected, is_all = Tally(), True
    for record in records(corpus, split):
        if len(found) == most:
            is_all = False
            break
        rendered = render(corpus, record)
        if rendered.problem:
            check_texts(str(corpus.source), corpus.configuration.on_error, [b""], [rendered.problem.encode()])
            rejected.add(cause(rendered.problem), rendered.problem)
        else:
            found.append(rendered)
    if not found:
        raise ValueError(
            f"{corpus.name!r} must have a conversation in split {split!r}, got none. Check the source, or how it is split."
        )
    return FirstConversations(in_memory(corpus, found), found, rejected, is_all)


def in_memory(corpus: Corpus, conversations: Sequence[Rendered]) -> Columns:
    """What reads rendered conversations."""
    arrays = as_arrays([rendered.segments for rendered in conversations], corpus.encoder.renderer.eod)
    return conversations_in_memory(arrays, [rendered.where for rendered in conversations])


def records(corpus: Corpus, split: str, most: int | None = None) -> Iterator[Record]:
    """Yields the records of a split, in the order of the corpus.

    `most` is how many records are read at most, those of a split that is read with this one included; None for all.
    """
    if split not in corpus.splits:
        raise ValueError(f"split of {corpus.name!r} must be one of {sorted(corpus.splits)}, got {split!r}.")
    found = (item for shard in corpus.source.shards(split) for item in corpus.source.read_group(shard))
    yield from (record for name, record in itertools.islice(found, most) if name == split)


def render(corpus: Corpus, record: Record) -> Rendered:
    """The record as it is rendered."""
    where, problem = str(record.where), record.problem
    if not problem:
        try:
            conversation = conversation_of(record)
            [segments] = render_all(corpus.encoder.renderer, [conversation])
            if isinstance(segments, ValueError):
                raise segments
            return Rendered(where, record.id, conversation.messages, segments, "", conversation.unread)
        except ValueError as error:
            problem = f"{where or 'a conversation'}: {error}"
    return Rendered(where, record.id, [], [], problem)


def cause(problem: str) -> str:
    """A problem without its location, its numbers, and the beginning of a text: equal for records with the same problem.

    >>> cause("web/a.jsonl, line 12: message 3 of 4: weight must be 0 or 1, got 2")
    'message N of N: weight must be N or N, got N'
    >>> cause("a conversation: messages must be JSON (Expecting value), got a text that begins with b'Hello'")
    'messages must be JSON (Expecting value)'
    """
    place = r"^(a conversation|.*?, (line|row|the line at byte) \d+|\S*[/\\][^:]*): "
    return re.sub(r"\d+", "N", re.sub(place, "", problem).split(", got a text that begins with")[0])
