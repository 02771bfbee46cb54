"""Conversations with random access: in a cache, whose second pairs of files have their messages; or in memory."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.chat.segments import COLUMNS, LENGTH, Conversations, as_arrays
from ul2_tasks.order.ranges import integers_of
from ul2_tasks.store.block_cache import BlockCache
from ul2_tasks.store.read import MemoryStore, Store, TokenStore


class Reader(Protocol):
    @property
    def count(self) -> int:
        """How many conversations there are."""

    @property
    def identity(self) -> str:
        """What they are, in few words: others for other conversations."""

    @property
    def store(self) -> TokenStore:
        """The tokens of all conversations, each a document."""

    def read(self, numbers: np.ndarray) -> Conversations:
        """Some conversations, by their numbers, [n] int64, in any order. Ids are the tokenizer's own."""

    def messages_of(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The messages of some conversations, and how many each has: `Conversations.messages` and `counts`. Reads no token."""

    def messages_within(self, first: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """The messages of the conversations [first, stop), as `messages_of` gives them, and faster."""

    def locate(self, number: int) -> str:
        """The location of a conversation, as text, as far as it is known."""


@dataclasses.dataclass(frozen=True)
class StoredConversations:
    """Conversations in a cache.

    `messages` are the values of `segments.COLUMNS` of all messages of each. `shards` are those of the tokens, their names and, as
    far as it is known, what each was made of; `documents` says how many conversations each has. `caches` are those of the tokens
    and of the messages, if conversations are read in blocks.
    """

    tokens: Store
    messages: Store
    shards: tuple[tuple[str, str], ...]
    documents: tuple[int, ...]
    caches: tuple[BlockCache, ...] = ()

    @property
    def count(self) -> int:
        return self.tokens.documents

    @property
    def identity(self) -> str:
        return f"{self.count} conversations, {self.tokens.tokens} tokens in {len(self.tokens.prefixes)} pairs"

    def read(self, numbers: np.ndarray) -> Conversations:
        tokens, messages = self.caches or (self.tokens, self.messages)
        found = Conversations(*tokens.read_documents(numbers), *_as_messages(*messages.read_documents(numbers)))
        ends = np.concatenate([[0], np.cumsum(found.messages[:, LENGTH], dtype=np.int64)])[np.cumsum(found.counts)]
        expected = np.diff(ends, prepend=0) + 1  # and the EOD
        if len(wrong := np.flatnonzero(found.lengths != expected)):
            raise ValueError(
                f"{self.locate(int(numbers[wrong[0]]))}: it must have {expected[wrong[0]]} tokens, as its messages have, got"
                f" {found.lengths[wrong[0]]}. Write the cache again."
            )
        return found

    def messages_of(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _as_messages(*self.messages.read_documents(numbers))

    def messages_within(self, first: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        sizes = self.messages.document_lengths(first, stop)
        start = self.messages.tokens_of(first)[0] if first < stop else 0
        return _as_messages(self.messages.read_tokens(start, start + int(sizes.sum())), sizes)

    @property
    def store(self) -> Store:
        return self.tokens

    def locate(self, number: int) -> str:
        ends = np.cumsum(self.documents)
        shard = int(np.searchsorted(ends, number, side="right"))
        name, source = self.shards[shard]
        if self.tokens.provenance:
            source = str(*self.tokens.provenance.of([number]))
        place = number - int(ends[shard]) + self.documents[shard] + 1
        return f"conversation {number} of the cache, number {place} of {name}" + (f", which is of {source}" if source else "")


class ConversationsInMemory:
    """Conversations in memory; those without a message are left out, as a cache has none of these either.

    Each batch comes with the locations of its conversations: as many objects, whose `str` is a location, or is empty.
    """

    def __init__(self, batches: Iterable[tuple[Conversations, Sequence[object]]]):
        found, self._places = [as_arrays([], eod=0)], list[object]()
        for batch, places in batches:
            found.append(batch)
            self._places += [place for place, count in zip(places, batch.counts, strict=True) if count]
        columns = (np.concatenate([batch[field] for batch in found]) for field in range(len(Conversations._fields)))
        all_of_them = Conversations(*columns)
        kept = all_of_them.counts > 0
        self._all = all_of_them._replace(lengths=all_of_them.lengths[kept], counts=all_of_them.counts[kept])
        self._token_ends, self._message_ends = np.cumsum(self._all.lengths), np.cumsum(self._all.counts)

    @property
    def count(self) -> int:
        return len(self._all.counts)

    @cached_property
    def identity(self) -> str:
        found = hashlib.sha256()
        for array in self._all:
            found.update(array.tobytes())
        return f"{self.count} conversations, sha256 {found.hexdigest()[:16]}"

    def read(self, numbers: np.ndarray) -> Conversations:
        lengths, ends = self._all.lengths[numbers], self._token_ends[numbers]
        tokens = self._all.tokens[integers_of(ends - lengths, ends)]
        return Conversations(tokens, lengths, *self.messages_of(numbers))

    def messages_of(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        counts, ends = self._all.counts[numbers], self._message_ends[numbers]
        return self._all.messages[integers_of(ends - counts, ends)], counts

    def messages_within(self, first: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        start, end = (int(self._message_ends[number - 1]) if number else 0 for number in (first, stop))
        return self._all.messages[start:end], self._all.counts[first:stop]

    @cached_property
    def store(self) -> MemoryStore:
        return MemoryStore(self._all.tokens, self._all.lengths)

    def locate(self, number: int) -> str:
        return str(self._places[number]) or f"conversation {number}"


def _as_messages(values: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`Conversations.messages` and `counts` of the values of the messages, and of how many each conversation has."""
    return values.reshape(-1, len(COLUMNS)), sizes // len(COLUMNS)
