"""`OrderedRecords`: a corpus whose records make examples as they are, in an order; conversations are such.

What is in order is the examples of all records, each of which is a chunk of length 1, see `Order`. An index of the records says of
each example which record it is of, and how long it is, without its tokens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ul2_tasks.example_features import EXAMPLE, SPAN_ID, Feature, token_features
from ul2_tasks.order.blocks import BlockOrder
from ul2_tasks.order.epochs import Order
from ul2_tasks.order.window_rows import WindowRows
from ul2_tasks.random_access.corpora import CorpusName, cycle_of, row_lengths
from ul2_tasks.random_access.leaving_out import units_of
from ul2_tasks.store.read import TokenStore
from ul2_tasks.vocabulary.special_ids import id_shift

if TYPE_CHECKING:
    import seqio

    from ul2_tasks.corpus.corpus import Corpus


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

    def __reduce__(self) -> tuple:
        """For another process, see `Member`."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values["features"], values["described"] = dict(self.features), dict(self.described)
        return RecordMember, tuple((values | {"corpus": CorpusName(self.corpus.name)}).values())


@dataclasses.dataclass(frozen=True)
class OrderedRecords:
    """A corpus of records with the tasks that read it; see `OrderedCorpus`, whose methods these are."""

    name: str
    members: tuple[RecordMember, ...]
    order: Order | BlockOrder

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

    def packed(self, budgets: Mapping[str, int | None]) -> WindowRows:
        """See `OrderedCorpus.packed`."""
        if has_images(self.members):
            raise ValueError(
                f"pack must be False for {self.name!r}, whose examples have images, got True: no model takes a mask for several of"
                " them in a row. Set pack=False."
            )
        return WindowRows(self.order, self, row_lengths(budgets, token_features(self.members[0].features)))

    moves_keep_lengths = False

    def lengths_of(self, epochs: np.ndarray, slots: np.ndarray, elsewhere: np.ndarray | None = None) -> np.ndarray:
        """See `window_rows.ExampleLengths`, and `Order.ranges`."""
        ranges = self.order.ranges(epochs, slots, elsewhere)
        return self.index.sizes(ranges.starts, self._kinds[ranges.kinds], self.order.noise_keys(epochs, slots))

    def slots_with(self, epoch: int, document: int) -> np.ndarray:
        """See `OrderedCorpus.slots_with`."""
        return self.order.slots_with(epoch, *units_of(self, np.array([document])))

    def units_of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `OrderedCorpus.units_of`: the examples of records."""
        found = np.array([self.index.examples_of(record) for record in documents.tolist()], np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    def tokens_at(
        self, epoch: int, slot: int, elsewhere: int = -1
    ) -> tuple[int, tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
        """See `OrderedCorpus.tokens_at`: the tokens are those of the record, or of the chunk of it."""
        ranges = self.order.ranges(np.array([epoch]), np.array([slot]), np.array([elsewhere]))
        record = int(self.index.records(ranges.starts)[0])
        start, stop = self.index.ranges(ranges.starts)[0].tolist()
        return int(ranges.kinds[0]), ((start, stop),), ((record, record + 1),)

    def read(self, epochs: np.ndarray, slots: np.ndarray, elsewhere: np.ndarray | None = None) -> tuple[np.ndarray, Made]:
        """The members of the examples of slots, [n] int64, and these, with SeqIO's ids; see `Order.ranges`."""
        ranges = self.order.ranges(epochs, slots, elsewhere)
        made = self.index.read(ranges.starts, self._kinds[ranges.kinds], self.order.noise_keys(epochs, slots))
        if shift := np.int32(id_shift(self.members[0].vocabulary)):
            for key in token_features(self.members[0].features):
                made.values[key] += shift
        return ranges.kinds, made


def order_records(members: Sequence[RecordMember], seed: int, shuffle: bool) -> OrderedRecords:
    """Puts the examples of records in order."""
    cycle, count = cycle_of({member.task: member.rate for member in members}), members[0].index.count
    return OrderedRecords(members[0].corpus.name, tuple(members), Order(cycle, (1,) * len(members), count, seed, shuffle))


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
