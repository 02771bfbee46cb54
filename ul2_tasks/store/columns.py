"""`Columns`: the documents of a split, in a cache or in memory: their tokens, and what a corpus has beside these."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.store.block_cache import BlockCache, Blocks, is_remote
from ul2_tasks.store.read import MemoryStore, Store

TOKENS = "tokens"
_AT_A_TIME = 1 << 24  # values that are hashed


@dataclasses.dataclass(frozen=True, eq=False)
class Columns:
    """A store for each column, all with the same documents. Ids are the tokenizer's own.

    Attributes:
        stores: by the names of the columns; the first is `TOKENS`.
        names: of a cache the names of its shards that have documents. In memory the location of each document, as objects whose
            `str` it is, or none where locations are not kept.
        caches: of the columns that are read in blocks.
    """

    stores: Mapping[str, Store | MemoryStore]
    names: Sequence[object] = ()
    caches: Mapping[str, BlockCache] = dataclasses.field(default_factory=dict)

    @property
    def tokens(self) -> Store | MemoryStore:
        return self.stores[TOKENS]

    @property
    def count(self) -> int:
        """How many documents there are."""
        return self.tokens.documents

    def read(self, column: str, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The values of documents, in any order, one document's after the other's, int32; and how many each has, [n] int64."""
        return self.caches.get(column, self.stores[column]).read_documents(numbers)

    def read_each(self, column: str, numbers: np.ndarray) -> list[np.ndarray]:
        """The values of each document, with the dtype of the column."""
        return self.caches.get(column, self.stores[column]).read_each(numbers)

    @cached_property
    def identity(self) -> str:
        """What documents in memory are, in few words: others for other documents."""
        if isinstance(self.tokens, Store):
            return f"{self.count} documents, {self.tokens.tokens} tokens in {len(self.tokens.prefixes)} pairs"
        found = hashlib.sha256()
        for store in self.stores.values():
            found.update(store.document_lengths(0, store.documents).astype("<i8").tobytes())
            for start in range(0, store.tokens, _AT_A_TIME):
                found.update(store.read_values(start, min(start + _AT_A_TIME, store.tokens)).tobytes())
        return f"{self.count} documents in memory, sha256 {found.hexdigest()[:16]}"

    def locate(self, number: int) -> str:
        """The location of a document, as text, as far as it is known."""
        if isinstance(self.tokens, MemoryStore):
            return (str(self.names[number]) if len(self.names) else "") or f"record {number}"
        borders = self.tokens.borders
        shard = int(np.searchsorted(borders, number, side="right")) - 1
        place = f"record {number} of the cache, number {number - int(borders[shard]) + 1} of {self.names[shard]}"
        return f"{place}, which is of {self.tokens.provenance.of([number])[0]}" if self.tokens.provenance else place

    def in_blocks(self, firsts: np.ndarray, lasts: np.ndarray, columns: Iterable[str]) -> Columns:
        """The same, of which these columns are read in blocks of documents, if files are remote.

        Blocks are the documents from firsts to lasts, [blocks] int64 both; two may share one.
        """
        if not is_remote(self.tokens):
            return self
        caches = {}
        for column in columns:
            store = self.stores[column]
            (starts, _), (_, stops) = store.ranges_of(firsts), store.ranges_of(lasts)
            caches[column] = BlockCache(store, Blocks(starts, stops))  # type: ignore[arg-type]  # in files
        return dataclasses.replace(self, caches=caches)


def in_memory(columns: Mapping[str, tuple[np.ndarray, np.ndarray]], names: Sequence[object] = ()) -> Columns:
    """Documents in memory: of each column the values, one document's after the other's, and [documents] int64, how many each has.

    A document without tokens is left out, as caches have none of these either.
    """
    are_kept = columns[TOKENS][1] > 0
    stores = {}
    for column, (values, lengths) in columns.items():
        kept = (values, lengths) if are_kept.all() else (values[np.repeat(are_kept, lengths)], lengths[are_kept])
        stores[column] = MemoryStore(*kept)
    return Columns(stores, [name for name, is_kept in zip(names, are_kept) if is_kept])


def joined(parts: Sequence[Mapping[str, tuple[np.ndarray, np.ndarray]]]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The columns of several lists of documents, one after the other; there is one list at least."""
    found = {}
    for column in parts[0]:
        values, lengths = zip(*(part[column] for part in parts))
        found[column] = np.concatenate(values), np.concatenate(lengths)
    return found
