"""`OrderedRecords`: a corpus whose records make examples as they are, in an order; conversations are such.

What is in order is the examples of all records, each of which is a chunk of length 1, see `Order`. An index of the records says of
each example which record it is of, and how long it is, without its tokens.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.corpus.cache import read_manifest
from ul2_tasks.example_features import EXAMPLE, SPAN_ID, Feature, token_features
from ul2_tasks.files.kept_counts import KeptCounts
from ul2_tasks.order.order import BlockShuffle, Order
from ul2_tasks.order.ranges import Ranges, integers_of
from ul2_tasks.order.rows import Rows
from ul2_tasks.random_access.corpora import (
    CorpusName,
    TokensAt,
    blocks_of,
    check_windows,
    cycle_of,
    fetch_windows,
    has_units,
    kept_rows,
    row_lengths,
)
from ul2_tasks.random_access.leaving_out import Others
from ul2_tasks.store.block_cache import BlockCache
from ul2_tasks.store.read import TokenStore
from ul2_tasks.vocabulary.special_ids import id_shift

if TYPE_CHECKING:
    import seqio

    from ul2_tasks.corpus.corpus import Corpus

_NO_END = 1 << 60


class Made(Protocol):
    """Examples as `chat.examples.Examples` has them."""

    @property
    def values(self) -> dict[str, np.ndarray]:
        """Of each feature, [tokens], one example after the other."""

    @property
    def lengths(self) -> Mapping[str, np.ndarray]:
        """Of each feature, [examples] int64."""


def images_of(made: Made) -> list[list[bytes]]:
    """The images of each example, encoded; of examples without images none."""
    return getattr(made, "images", [])


class RecordIndex(Protocol):
    """The examples of the records of a split, each with a number."""

    @property
    def count(self) -> int:
        """How many examples there are."""

    @property
    def store(self) -> TokenStore:
        """The tokens of all records, each a document."""

    @property
    def identity(self) -> str:
        """What the records are, in few words: others for other records."""

    @property
    def settings(self) -> str:
        """All that is made of them, in words: others where an example may have other lengths."""

    def records(self, numbers: np.ndarray) -> np.ndarray:
        """The record that each example is of, [n] int64."""

    def ranges(self, numbers: np.ndarray) -> np.ndarray:
        """The tokens [start, stop) of the store that each example is made of, [n, 2] int64."""

    def examples_of(self, record: int) -> tuple[int, int]:
        """The examples [first, stop) of a record. Raises an IndexError where there is no such record."""

    def sizes(self, numbers: np.ndarray, kinds: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """The lengths of the features of tokens of each example, [n, features] int64, without reading it.

        `kinds` are the members that read each, [n] int64, and `keys` those of their noise, [n] uint64.
        """

    def read(self, numbers: np.ndarray, kinds: np.ndarray, keys: np.ndarray) -> Made:
        """The examples, in this order, with the tokenizer's own ids. For the arguments see `sizes`."""

    @property
    def caches(self) -> Sequence[BlockCache]:
        """What `read` reads in blocks of examples; none where files are local."""

    def in_blocks(self, size: int) -> RecordIndex:
        """The same examples, of which so many are a block, and remote files are read in blocks."""


@dataclasses.dataclass(frozen=True)
class RecordMember:
    """A task of a mixture whose examples are those of records.

    `described` is what a fingerprint says of it. `denoiser` is empty where it has none, and `kind` its number among those of the
    index. Examples that have images have them beside their tokens.
    """

    task: str
    corpus: Corpus
    rate: float
    features: Mapping[str, Feature]
    vocabulary: seqio.Vocabulary
    index: RecordIndex
    described: Mapping[str, object]
    denoiser: str = ""
    kind: int = 0
    has_images: bool = False
    block_shuffle: BlockShuffle | None = None

    def __reduce__(self) -> tuple:
        """For another process, see `Member`."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values["features"], values["described"] = dict(self.features), dict(self.described)
        return RecordMember, tuple((values | {"corpus": CorpusName(self.corpus.name)}).values())


@dataclasses.dataclass(frozen=True)
class OrderedRecords:
    """A corpus of records with the tasks that read it; see `OrderedCorpus`, whose methods these are.

    `others` are the examples that are read in place of those of records that are left out.
    """

    name: str
    members: tuple[RecordMember, ...]
    order: Order
    others: Others | None = None

    lengths_are_fixed = False

    @property
    def index(self) -> RecordIndex:
        return self.members[0].index

    @property
    def store(self) -> TokenStore:
        return self.index.store

    @property
    def _kinds(self) -> np.ndarray:
        """[members] int64, their numbers in the index."""
        return np.array([member.kind for member in self.members])

    def packed(self, budgets: Mapping[str, int | None]) -> Rows:
        """See `OrderedCorpus.packed`."""
        if has_images(self.members):
            raise ValueError(
                f"pack must be False for {self.name!r}, whose examples have images, got True: no model takes a mask for several of"
                " them in a row. Set pack=False."
            )
        rows = row_lengths(budgets, token_features(self.members[0].features))
        return Rows(self.order, rows, lengths=self, kept=self._kept(rows))

    def _kept(self, rows: tuple[int, ...]) -> KeptCounts | None:
        """Of a cache, what its manifest says of its files, and what the examples are made with."""
        cache_dir = getattr(self.members[0].corpus, "cache_dir", None)
        if not cache_dir or (manifest := read_manifest(cache_dir)) is None:
            return None
        described = [(member.kind, json.dumps(member.described, sort_keys=True, default=repr)) for member in self.members]
        lengths = [json.dumps(manifest["splits"], sort_keys=True), described, self.index.settings]
        return kept_rows(self.store, self.order, rows, lengths)

    def without(self, documents: np.ndarray) -> OrderedRecords:
        """See `OrderedCorpus.without`. An example that is read in place of another has its place in a packed row."""
        if not len(documents):
            return dataclasses.replace(self, others=None)
        sizes = None if has_images(self.members) else self._sizes
        return dataclasses.replace(self, others=Others(self.name, *self.units_of(documents), self.index.count, sizes))

    def _sizes(self, numbers: np.ndarray) -> np.ndarray:
        """Those of conversations, which have no noise: whatever reads them."""
        return self.index.sizes(numbers, np.zeros_like(numbers), np.zeros(len(numbers), np.uint64))

    def examples(self, epochs: np.ndarray, slots: np.ndarray) -> tuple[Ranges, np.ndarray]:
        """The places of slots in the order, and the numbers of the examples that are read there, [n] int64."""
        ranges = self.order.ranges(epochs, slots)
        return ranges, self.others.read(ranges.starts) if self.others else ranges.starts

    def lengths_of(self, epochs: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """See `rows.ExampleLengths`."""
        ranges, _ = self.examples(epochs, slots)
        return self.index.sizes(ranges.starts, self._kinds[ranges.kinds], self.order.noise_keys(epochs, slots))

    def fetch_ahead(self, epochs: np.ndarray, slots: np.ndarray) -> None:
        """See `OrderedCorpus.fetch_ahead`."""
        if caches := self.index.caches:
            fetch_windows(caches, self.order, self._begun, epochs, slots)

    @cached_property
    def _begun(self) -> set[tuple[int, int, int]]:
        """The windows whose blocks were asked for."""
        return set()

    def slots_with(self, epoch: int, document: int) -> np.ndarray:
        """See `OrderedCorpus.slots_with`."""
        starts, stops = has_units(*self.units_of(np.array([document])))
        if self.others and len(starts):
            starts, stops = self.others.ranges_with(int(starts[0]), int(stops[0]))
        return self.order.slots_with(epoch, starts, stops)

    def units_of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `OrderedCorpus.units_of`: the examples of records."""
        found = np.array([self.index.examples_of(record) for record in documents.tolist()], np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    def tokens_at(self, epoch: int, slot: int) -> TokensAt:
        """See `OrderedCorpus.tokens_at`: the tokens are those of the record, or of the chunk of it."""
        ranges, numbers = self.examples(np.array([epoch]), np.array([slot]))
        own, record = (int(self.index.records(each)[0]) for each in (ranges.starts, numbers))
        tokens, replaces = tuple(self.index.ranges(numbers)[0].tolist()), ((own, own + 1),) if numbers != ranges.starts else ()
        return TokensAt(int(ranges.kinds[0]), (tokens,), ((record, record + 1),), replaces)

    def read(self, epochs: np.ndarray, slots: np.ndarray) -> tuple[np.ndarray, Made]:
        """The members of the examples of slots, [n] int64, and these, with SeqIO's ids."""
        ranges, numbers = self.examples(epochs, slots)
        kinds, keys = self._kinds[ranges.kinds], self.order.noise_keys(epochs, slots)
        made = self.index.read(numbers, kinds, keys)
        are_others = numbers != ranges.starts
        if are_others.any() and not has_images(self.members):
            own = self.index.sizes(ranges.starts, kinds, keys)
            made = cut_off(made, np.where(are_others[:, np.newaxis], own, _NO_END), self.members[0].features)
        if shift := np.int32(id_shift(self.members[0].vocabulary)):
            for key in token_features(self.members[0].features):
                made.values[key] += shift
        return ranges.kinds, made


class _Cut(NamedTuple):
    values: dict[str, np.ndarray]
    lengths: dict[str, np.ndarray]


def cut_off(made: Made, most: np.ndarray, features: Mapping[str, Feature]) -> Made:
    """Examples, of which those that are longer than [n, features] int64 have their beginning alone, and nothing to train on.

    It is what is read in place of an example, where none was found that is as short, and there is no other room in a packed row.
    """
    lengths = {key: made.lengths[key] for key in token_features(features)}
    kept = {key: np.minimum(of_each, own) for (key, of_each), own in zip(lengths.items(), most.T)}
    is_cut = np.any([kept[key] < lengths[key] for key in lengths], axis=0)
    if not is_cut.any():
        return made
    values, of_all = {}, {}
    for key, own in made.values.items():
        of = features[key].per_token_of
        starts = np.cumsum(lengths[of]) - lengths[of]
        values[key], of_all[key] = own[integers_of(starts, starts + kept[of])], kept[of]
        if of != key:
            values[key][np.repeat(is_cut, kept[of])] = 0
    return _Cut(values, of_all)


def index_in_blocks(member: RecordMember) -> RecordIndex:
    """The index of a task, which reads remote files in the blocks of its order, if this has some."""
    blocks = _blocks_of(member)
    return member.index.in_blocks(blocks.block_tokens) if blocks else member.index


def _blocks_of(member: RecordMember) -> BlockShuffle | None:
    return blocks_of(member.block_shuffle, member.index.count, member.index.store.tokens)


def order_records(members: Sequence[RecordMember], index: RecordIndex, seed: int, shuffle: bool) -> OrderedRecords:
    """Puts the examples of records in order. They are read through this index."""
    cycle, name = cycle_of({member.task: member.rate for member in members}), members[0].corpus.name
    order = Order(cycle, (1,) * len(members), index.count, seed, shuffle, _blocks_of(members[0]))
    check_windows(name, order, "examples")
    return OrderedRecords(name, tuple(dataclasses.replace(member, index=index) for member in members), order)


def has_images(members: Iterable[object]) -> bool:
    """Whether some examples of members have images."""
    return any(isinstance(member, RecordMember) and member.has_images for member in members)


def features_of(members: Sequence[object]) -> Mapping[str, Feature]:
    """The features of the examples of members: with masks where one of them has some."""
    with_masks = [member.features for member in members if isinstance(member, RecordMember) and SPAN_ID in member.features]
    specs = {tuple(token_features(spec)) for spec in with_masks} | {
        tuple(token_features(getattr(member, "features", EXAMPLE))) for member in members
    }
    if len(specs) > 1:
        raise ValueError(
            f"the tasks of a mixture must have the same features of tokens, got {sorted(specs)}. Mix tasks of one form."
        )
    return with_masks[0] if with_masks else EXAMPLE
