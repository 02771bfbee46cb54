"""`Records`: conversations, and interleaved texts and images; their examples are the units.

An index of the records says of each example which record it is of, and how long it is, without its tokens.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ul2_tasks.chat.index import ChatIndex
from ul2_tasks.corpus.cache import read_manifest
from ul2_tasks.example_features import SPAN_ID, Feature, token_features
from ul2_tasks.order.order import BlockShuffle
from ul2_tasks.order.ranges import Ranges
from ul2_tasks.random_access.image_text import ImageTextIndex
from ul2_tasks.random_access.kinds import Origin, Task, blocks_of, copy_ranges, mark_text
from ul2_tasks.random_access.leaving_out import Others
from ul2_tasks.store.block_cache import BlockCache
from ul2_tasks.store.columns import Columns
from ul2_tasks.store.read import TokenStore

RecordIndex: TypeAlias = ChatIndex | ImageTextIndex


def records_of(
    index_of: Callable[[Columns], RecordIndex], blocks: BlockShuffle | None, readers: Sequence[Task], columns: Columns
) -> Records:
    """The examples of records, see `kinds.Task`. `index_of` finds those that records make."""
    index = index_of(columns)
    if in_examples := blocks_of(blocks, index.count, columns.tokens.tokens):
        firsts = np.arange(0, index.count, in_examples.block_tokens)
        ends = index.records(firsts), index.records(np.append(firsts[1:], index.count) - 1)
        index = dataclasses.replace(index, columns=columns.in_blocks(*ends, index.READ))
    return Records(tuple(readers), index)


@dataclasses.dataclass(frozen=True, eq=False)
class Records:
    """The examples of records, which are the units; for the methods see `text.Text`. `others` leaves records out."""

    members: tuple[Task, ...]
    index: Any  # a `RecordIndex`
    others: Others | None = None

    unit = "examples"
    fixed_sizes = None

    @property
    def store(self) -> TokenStore:
        return self.index.columns.tokens

    @property
    def left_out(self) -> Mapping[str, int]:
        return self.index.left_out

    @property
    def count(self) -> int:
        return self.index.count

    @property
    def lengths(self) -> tuple[int, ...]:
        return (1,) * len(self.members)

    def _kinds(self, ranges: Ranges) -> np.ndarray:
        return np.array([member.number for member in self.members])[ranges.kinds]

    def _numbers(self, ranges: Ranges) -> np.ndarray:
        return self.others.read(ranges.starts) if self.others else ranges.starts

    def sizes(self, ranges: Ranges, keys: np.ndarray) -> np.ndarray:
        return self.index.sizes(ranges.starts, self._kinds(ranges), keys)

    def read(self, ranges: Ranges, keys: np.ndarray) -> MadeRecords:
        """What is read in place of a shorter example, where no other is as short, ends where that does, and is not trained on."""
        numbers, member = self._numbers(ranges), self.members[0]
        found = self.index.read(numbers, self._kinds(ranges), keys)
        lengths = np.stack([found.lengths[key] for key in token_features(member.features)], axis=1)
        sizes, are_others = lengths, numbers != ranges.starts
        if are_others.any() and not member.has_images:
            sizes = np.where(are_others[:, np.newaxis], np.minimum(lengths, self.sizes(ranges, keys)), lengths)
        return MadeRecords(member.features, found.values, lengths, sizes, found.images if member.has_images else ())

    def origin(self, ranges: Ranges) -> Origin:
        numbers = self._numbers(ranges)
        return Origin(np.arange(len(numbers)), *self.store.ranges_of(self.index.records(numbers)), numbers != ranges.starts)

    def units_of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = np.array([self.index.examples_of(record) for record in documents.tolist()], np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    def units_with(self, document: int) -> tuple[np.ndarray, np.ndarray]:
        starts, stops = self.units_of(np.array([document]))
        if starts[0] == stops[0]:
            return starts[:0], stops[:0]
        return self.others.ranges_with(int(starts[0]), int(stops[0])) if self.others else (starts, stops)

    def tokens_an_epoch(self) -> np.ndarray:
        starts, stops = self.store.ranges_of(np.arange(self.store.documents))
        return (stops - starts) * np.bincount(self.index.records(np.arange(self.count)), minlength=self.store.documents)

    def without(self, documents: np.ndarray) -> Records:
        member = self.members[0]  # sizes of conversations are those without noise, whatever reads them
        sizes = None if member.has_images else lambda units: self.index.sizes(units, units, units.astype(np.uint64))
        return dataclasses.replace(self, others=Others(member.corpus.name, *self.units_of(documents), self.count, sizes))

    def read_by(self, readers: Sequence[Task]) -> Records:
        return dataclasses.replace(self, members=tuple(readers))

    @property
    def identity(self) -> str:
        return self.index.columns.identity

    @property
    def described(self) -> Mapping[str, object]:
        return {}

    @property
    def size_words(self) -> Sequence[object] | None:
        """Of a cache, what its manifest says of its files, and what the examples are made with."""
        cache_dir = getattr(self.members[0].corpus, "cache_dir", None)
        if not cache_dir or (manifest := read_manifest(cache_dir)) is None:
            return None
        described = [(each.number, json.dumps(each.described, sort_keys=True, default=repr)) for each in self.members]
        return [json.dumps(manifest["splits"], sort_keys=True), described, self.index.settings]

    @property
    def caches(self) -> Sequence[BlockCache]:
        return list(self.index.columns.caches.values())


class MadeRecords(NamedTuple):
    """Examples of records, see `text.MadeText`: of each feature the `values`, those of an example of its `lengths`."""

    features: Mapping[str, Feature]
    values: Mapping[str, np.ndarray]
    lengths: np.ndarray
    sizes: np.ndarray
    images: Sequence[Sequence[bytes]]

    def write(self, rows: np.ndarray, places: np.ndarray, written: Mapping[str, np.ndarray]) -> None:
        starts = np.cumsum(self.lengths, axis=0) - self.lengths
        for column, key in enumerate(token_features(self.features)):
            at = rows, places[:, column]
            copy_ranges(self.values[key], starts[:, column], self.sizes[:, column], *at, written[key])
        if SPAN_ID not in self.values:
            mark_text(rows, places, self.sizes, written)
        elif SPAN_ID in written:
            are_whole = (self.sizes == self.lengths).all(axis=1)
            copy_ranges(self.values[SPAN_ID], starts[:, -1], self.sizes[:, -1] * are_whole, *at, written[SPAN_ID])
