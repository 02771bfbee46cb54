"""`Chats`: conversations, whose cache has their tokens and, in second files, their messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from ul2_tasks.chat.by_name import Renderer, render_all
from ul2_tasks.chat.messages import Conversation, conversation_in, parse
from ul2_tasks.chat.reading import MESSAGES, columns_of
from ul2_tasks.chat.segments import Segment, as_arrays
from ul2_tasks.chat.supervision import ConversationError, Supervision, check_kinds
from ul2_tasks.corpus.check_texts import find_problems
from ul2_tasks.corpus.corpus import Corpus, Encoded
from ul2_tasks.sources.records import Record
from ul2_tasks.sources.splits import conversation_key
from ul2_tasks.tokenizers.base import Vocabulary


@dataclasses.dataclass(frozen=True)
class Chats:
    """The `Encoder` of conversations, which a renderer writes.

    `supervision` is that of its tasks. A message of a kind without a loss group is an error when it is rendered, where its file and
    row are known. A cache does not depend on it.
    """

    renderer: Renderer
    supervision: Supervision

    columns: ClassVar[Mapping[str, np.dtype]] = {MESSAGES: np.dtype(np.int32)}
    counts_ids = True
    read_as: ClassVar[tuple[str, dict[str, int]]] = ("chat", {"tokens": 4096})

    def encode(self, corpus: Corpus, records: Sequence[Record]) -> Encoded:
        """Renders conversations. A record that cannot be rendered is a problem, with the location of the record."""
        rendered, problems = [], []
        for record, segments in zip(records, self._render(records)):
            problem = f"{_where(record)}: {segments}" if isinstance(segments, ValueError) else record.problem
            rendered.append([] if isinstance(segments, ValueError) else segments)
            problems.append(problem.encode(errors="replace"))
        problems = find_problems(corpus.configuration.on_error, [b""] * len(records), problems)
        found = as_arrays(rendered, self.renderer.eod)
        try:
            check_kinds(found, self.supervision)
        except ConversationError as error:
            raise ValueError(f"{_where(records[error.number])}: {error.what}") from error
        return Encoded(columns_of(found), problems)

    def hashed(self, record: Record) -> bytes:
        """The messages, the same in each file format."""
        messages, settings, _ = conversation_of(record)
        return conversation_key([messages, settings] if settings else messages)

    def _render(self, records: Sequence[Record]) -> list[list[Segment] | ValueError]:
        """The segments of each record, none of one with a problem; or why it cannot be rendered."""
        found: list[Conversation | ValueError | None] = []
        for record in records:
            try:
                found.append(None if record.problem else conversation_of(record))
            except ValueError as error:
                found.append(error)
        rendered = iter(render_all(self.renderer, [one for one in found if isinstance(one, Conversation)]))
        return [next(rendered) if isinstance(one, Conversation) else one or [] for one in found]

    def own_ids(self, vocabulary: Vocabulary) -> frozenset[int]:
        return frozenset()

    def settings(self, vocabulary: Vocabulary) -> dict[str, str]:
        return {"renderer": self.renderer.identity}


def conversation_of(record: Record) -> Conversation:
    """The conversation of a record, see `messages.parse`."""
    found = parse(record.text) if record.value is None else conversation_in(record.value)
    return found._replace(unread=(*record.unread, *found.unread))


def _where(record: Record) -> str:
    return str(record.where) or "a conversation"
