"""`Records`: conversations, and interleaved texts and images; their examples are the units.

An index of the records says of each example which record it is of, and how long it is, without its tokens.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from ul2_tasks.corpus.cache import read_manifest
from ul2_tasks.example_features import SPAN_ID, Feature, token_features
from ul2_tasks.order.order import BlockShuffle
from ul2_tasks.order.ranges import Ranges
from ul2_tasks.random_access.kinds import CorpusName, Origin, copy_ranges, mark_text
from ul2_tasks.random_access.leaving_out import Others
from ul2_tasks.random_access.text import blocks_of
from ul2_tasks.store.block_cache import BlockCache
from ul2_tasks.store.columns import Columns
from ul2_tasks.store.read import TokenStore
from ul2_tasks.tokenizers.base import Vocabulary

if TYPE_CHECKING:
    from ul2_tasks.corpus.corpus import Corpus


class Values(Protocol):
    """Of each feature the values of examples, [tokens], one's after the other's, and the lengths, [n] int64."""

    @property
    def values(self) -> dict[str, np.ndarray]: ...
    @property
    def lengths(self) -> Mapping[str, np.ndarray]: ...


class RecordIndex(Protocol):
    """The examples of the records of a split, each with a number.

    `store` has the tokens of all records, each a document; `identity` and `settings` say what the records are, and what is made of
    them, in words; `left_out` is how many examples are left out, by cause; `caches` are what is read in blocks of examples.
    """

    @property
    def count(self) -> int: ...
    @property
    def store(self) -> TokenStore: ...
    @property
    def identity(self) -> str: ...
    @property
    def settings(self) -> str: ...
    @property
    def left_out(self) -> Mapping[str, int]: ...
    @property
    def caches(self) -> Sequence[BlockCache]: ...

    def records(self, numbers: np.ndarray) -> np.ndarray:
        """The record that each example is of, [n] int64."""

    def examples_of(self, record: int) -> tuple[int, int]:
        """The examples [first, stop) of a record. Raises an IndexError where there is no such record."""

    def sizes(self, numbers: np.ndarray, kinds: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """The lengths of the features of tokens, [n, features] int64, of examples that readers of these numbers, [n] int64, read
        with these keys of their noise, [n] uint64."""

    def read(self, numbers: np.ndarray, kinds: np.ndarray, keys: np.ndarray) -> Values:
        """The examples, in this order, with the tokenizer's own ids."""

    def why_none(self, record: int) -> str:
        """Why a record makes no example."""

    def where(self, record: int) -> str:
        """Where a record is from, as far as that is known here."""

    def in_blocks(self, size: int) -> RecordIndex:
        """The same examples, of which so many are a block, and remote files are read in blocks."""


@dataclasses.dataclass(frozen=True)
class RecordMember:
    """A task of records, see `kinds.Task`.

    `index_of` finds the examples that records make, and `kind_number` is the number of the denoiser among those of the index.
    """

    task: str
    corpus: Corpus
    rate: float
    features: Mapping[str, Feature]
    vocabulary: Vocabulary
    index_of: Callable[[Columns], RecordIndex]
    described: Mapping[str, object]
    denoiser: str = ""
    kind_number: int = 0
    has_images: bool = False
    block_shuffle: BlockShuffle | None = None

    solution = None
    separate_documents = False

    @property
    def longest(self) -> dict[str, int]:
        return {}

    def kind(self, readers: Sequence[RecordMember], columns: Columns) -> Records:
        """See `kinds.Task.kind`."""
        index = self.index_of(columns)
        blocks = blocks_of(self.block_shuffle, index.count, index.store.tokens)
        return Records(tuple(readers), index.in_blocks(blocks.block_tokens) if blocks else index)

    def __reduce__(self) -> tuple:
        """For another process, see `text.Member`."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values |= {"features": dict(self.features), "described": dict(self.described)}
        return RecordMember, tuple((values | {"corpus": CorpusName(self.corpus.name)}).values())


@dataclasses.dataclass(frozen=True, eq=False)
class Records:
    """The examples of records, which are the units; for the methods see `kinds.Kind`. `others` leaves records out."""

    members: tuple[RecordMember, ...]
    index: RecordIndex
    others: Others | None = None

    unit = "examples"
    fixed_sizes = None

    @property
    def store(self) -> TokenStore:
        return self.index.store

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
        return np.array([member.kind_number for member in self.members])[ranges.kinds]

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
        return MadeRecords(member.features, found.values, lengths, sizes, found.images if member.has_images else ())  # type: ignore[attr-defined]

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

    def read_by(self, readers: Sequence[RecordMember]) -> Records:
        return dataclasses.replace(self, members=tuple(readers))

    @property
    def identity(self) -> str:
        return self.index.identity

    @property
    def described(self) -> Mapping[str, object]:
        return {}

    @property
    def size_words(self) -> Sequence[object] | None:
        """Of a cache, what its manifest says of its files, and what the examples are made with."""
        cache_dir = getattr(self.members[0].corpus, "cache_dir", None)
        if not cache_dir or (manifest := read_manifest(cache_dir)) is None:
            return None
        described = [(each.kind_number, json.dumps(each.described, sort_keys=True, default=repr)) for each in self.members]
        return [json.dumps(manifest["splits"], sort_keys=True), described, self.index.settings]

    @property
    def caches(self) -> Sequence[BlockCache]:
        return self.index.caches


class MadeRecords(NamedTuple):
    """Examples of records that are read, see `kinds.Made`: of each feature the `values`, those of an example of its `lengths`."""

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
