"""Conversations and their messages, read from the columns of a split: of a cache or of memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ul2_tasks.chat.segments import COLUMNS, LENGTH, Conversations
from ul2_tasks.store.columns import TOKENS, Columns

MESSAGES = "messages"  # the column with the values of `segments.COLUMNS` of all messages of each conversation


def columns_of(found: Conversations) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Conversations as columns: of each the values, and how many each conversation has."""
    return {TOKENS: (found.tokens, found.lengths), MESSAGES: (found.messages.reshape(-1), found.counts * len(COLUMNS))}


def conversations_in(columns: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Conversations:
    """The inverse of `columns_of`."""
    return Conversations(*columns[TOKENS], *_as_messages(*columns[MESSAGES]))


def read_conversations(columns: Columns, numbers: np.ndarray) -> Conversations:
    """Some conversations, by their numbers, [n] int64, in any order. Raises a ValueError where columns do not belong together."""
    found = conversations_in({column: columns.read(column, numbers) for column in (TOKENS, MESSAGES)})
    ends = np.concatenate([[0], np.cumsum(found.messages[:, LENGTH], dtype=np.int64)])[np.cumsum(found.counts)]
    expected = np.diff(ends, prepend=0) + 1  # and the EOD
    if len(wrong := np.flatnonzero(found.lengths != expected)):
        raise ValueError(
            f"{columns.locate(int(numbers[wrong[0]]))}: it must have {expected[wrong[0]]} tokens, as its messages have, got"
            f" {found.lengths[wrong[0]]}. Write the cache again."
        )
    return found


def messages_of(columns: Columns, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The messages of some conversations, and how many each has: `Conversations.messages` and `counts`. Reads no token."""
    return _as_messages(*columns.stores[MESSAGES].read_documents(numbers))


def messages_within(columns: Columns, first: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """The messages of the conversations [first, stop), as `messages_of` gives them, and faster."""
    store = columns.stores[MESSAGES]
    sizes = store.document_lengths(first, stop)
    start = store.tokens_of(first)[0] if first < stop else 0
    return _as_messages(store.read_tokens(start, start + int(sizes.sum())), sizes)


def _as_messages(values: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`Conversations.messages` and `counts` of the values of the messages, and of how many each conversation has."""
    return values.reshape(-1, len(COLUMNS)), sizes // len(COLUMNS)
