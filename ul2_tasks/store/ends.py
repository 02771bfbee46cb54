"""`WithEnds`: the tokens of a store with one more after each document, of which none is stored."""

from __future__ import annotations

import numpy as np

from ul2_tasks.store.provenance import Provenance
from ul2_tasks.store.read import MemoryStore, Store


class WithEnds:
    """A store in which each document is followed by one token, `end`, which belongs to the document.

        the store        a b c | d e |   | f
        with ends        a b c $ d e $ $ f $

    A document without tokens is followed by one, too: so the document of a token is found by a binary search in the index as it
    lies in the file, and no document before it is looked at. A cache has no such document. `end` is one of the store's own ids.
    """

    def __init__(self, store: MemoryStore | Store, end: int):
        self.store, self.end = store, end

    @property
    def documents(self) -> int:
        return self.store.documents

    @property
    def tokens(self) -> int:
        return self.store.tokens + self.store.documents

    @property
    def provenance(self) -> Provenance | None:
        return self.store.provenance

    def read_tokens(self, start: int, stop: int) -> np.ndarray:
        """See `Store`, also for the other methods."""
        return self.read_chunks(np.array([start]), np.array([stop])) if start < stop else np.zeros([0], np.int32)

    def read_chunks(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        ends = self.store.ends_within(starts, stops)
        tokens = self.store.read_chunks(starts - ends.before, stops - ends.before - ends.counts)
        lengths = stops - starts
        in_result = ends.places + np.repeat(np.cumsum(lengths) - lengths - starts, ends.counts)
        return np.insert(tokens, in_result - np.arange(len(ends.places)), self.end)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.int32)

    def read_values(self, start: int, stop: int) -> np.ndarray:
        return self.read_tokens(start, stop)

    def documents_at(self, start: int, stop: int) -> tuple[int, int]:
        first, last = self.store.ends_within(np.array([start, stop - 1]), np.array([start + 1, stop])).before
        return int(first), int(last) + 1

    def tokens_of(self, document: int) -> tuple[int, int]:
        start, stop = self.store.tokens_of(document)
        return start + document, stop + document + 1

    def ranges_of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        starts, stops = self.store.ranges_of(documents)
        return starts + documents, stops + documents + 1
