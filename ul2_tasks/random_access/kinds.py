"""What a kind of data answers, whatever it is: how many units, how long their examples are, what these are, where they are from.

An `Order` says which units make an example. Of text whose documents are joined these are tokens, [start, stop) of them or several
such ranges; of all else one unit makes an example: a piece of a document, a part of a conversation, a record of texts and images.
Nothing but its own file knows which kind of data there is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ul2_tasks.compiled import compiled
from ul2_tasks.example_features import SPAN_ID, TEXT, Feature
from ul2_tasks.order.order import BlockShuffle
from ul2_tasks.order.ranges import Ranges
from ul2_tasks.store.block_cache import BlockCache
from ul2_tasks.store.columns import Columns
from ul2_tasks.store.read import TokenStore
from ul2_tasks.tokenizers.base import Vocabulary

if TYPE_CHECKING:
    from ul2_tasks.corpus.corpus import Corpus


class Origin(NamedTuple):
    """The tokens that examples have: parts [start, stop) of the store's, of which example each is, ascending, [parts] int64 each;
    and whether they are read in place of documents that are left out, [parts] bool."""

    of: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    are_others: np.ndarray


class Made(Protocol):
    """Examples that are read: of each how long its features of tokens are, [n, features] int64, and its images, encoded."""

    @property
    def sizes(self) -> np.ndarray: ...
    @property
    def images(self) -> Sequence[Sequence[bytes]]: ...

    def write(self, rows: np.ndarray, places: np.ndarray, written: Mapping[str, np.ndarray], /) -> None:
        """Writes example i into row rows[i] of each feature of tokens, [rows, length], from place places[i, feature] on.

        Ids are the tokenizer's own. Loss groups are written where `written` has them. `rows` are [n] int64, `places` [n, features].
        """


class Kind(Protocol):
    """Data of some kind, with its readers: `kinds` of ranges are their numbers, and `keys`, [n] uint64, those of the noise."""

    @property
    def store(self) -> TokenStore:
        """Its documents."""

    @property
    def unit(self) -> str:
        """What units are, in the plural."""

    @property
    def index(self) -> Any:
        """That of the records which units are made of; None of text."""

    @property
    def left_out(self) -> Mapping[str, int]:
        """How many units there would be that are left out, by cause."""

    @property
    def count(self) -> int:
        """How many units there are."""

    @property
    def lengths(self) -> tuple[int, ...]:
        """How many units a full example of each reader has."""

    @property
    def fixed_sizes(self) -> tuple[tuple[int, ...], ...] | None:
        """Of each reader, the sizes of its full examples; None where some differ."""

    def sizes(self, ranges: Ranges, keys: np.ndarray, /) -> np.ndarray:
        """How long the features of tokens of examples are, [n, features] int64, without reading tokens."""

    def read(self, ranges: Ranges, keys: np.ndarray, /) -> Made:
        """Reads examples."""

    def origin(self, ranges: Ranges, /) -> Origin:
        """Where examples are from."""

    def units_of(self, documents: np.ndarray, /) -> tuple[np.ndarray, np.ndarray]:
        """The units [start, stop) of documents, [n] int64 each. Raises an IndexError where one is not there."""

    def units_with(self, document: int, /) -> tuple[np.ndarray, np.ndarray]:
        """The inverse of `origin`: ranges of units that have tokens of a document, ascending, none is empty, [n] int64 both."""

    def tokens_an_epoch(self) -> np.ndarray:
        """How many tokens of each document the units have, all together, [documents] int64."""

    def without(self, documents: np.ndarray, /) -> Kind:
        """The same, but for the tokens of documents, [n] int64, ascending, which are read as those of others. No example is longer
        than it is in its place. Raises a ValueError where there are no others."""

    def read_by(self, readers: Sequence, /) -> Kind:
        """The same data, read by some of its readers alone."""

    @property
    def identity(self) -> str:
        """What is read, in few words, where it is in memory: others for other data."""

    @property
    def described(self) -> Mapping[str, object]:
        """What a fingerprint says of how units are made of documents."""

    @property
    def size_words(self) -> Sequence[object] | None:
        """All that decides how long each example is, the same in any process; None where it is not known to be the same again."""

    @property
    def caches(self) -> Sequence[BlockCache]:
        """What is read in blocks of units; none where files are local."""


class Task(Protocol):
    """A task of a mixture, which reads a corpus at its rate. In another process `corpus` is a `CorpusName`.

    `described` is what a fingerprint says of it, and `denoiser` is empty where it has none. `longest` are its longest features of
    tokens, empty where these are not known. A task of text has a `solution`, which is None of others, and `separate_documents` says
    whether it reads documents with an EOS after each.
    """

    @property
    def task(self) -> str: ...
    @property
    def corpus(self) -> Corpus: ...
    @property
    def rate(self) -> float: ...
    @property
    def denoiser(self) -> str: ...
    @property
    def vocabulary(self) -> Vocabulary: ...
    @property
    def features(self) -> Mapping[str, Feature]: ...
    @property
    def longest(self) -> Mapping[str, int]: ...
    @property
    def has_images(self) -> bool: ...
    @property
    def described(self) -> Mapping[str, object]: ...
    @property
    def block_shuffle(self) -> BlockShuffle | None: ...
    @property
    def solution(self) -> Any: ...
    @property
    def separate_documents(self) -> bool: ...

    def kind(self, readers: Sequence, columns: Columns, /) -> Kind:
        """The documents of its corpus, of which there are some, read by these tasks, itself among them."""


class CorpusName(NamedTuple):
    """What is left of a corpus in another process."""

    name: str


def described_blocks(blocks: BlockShuffle | None) -> dict[str, object]:
    """The same of a corpus that is shuffled in blocks."""
    return {"block_shuffle": dataclasses.asdict(blocks)} if blocks else {}


def mark_text(rows: np.ndarray, places: np.ndarray, sizes: np.ndarray, written: Mapping[str, np.ndarray]) -> None:
    """Writes the loss group of text into the places of targets, where there are groups."""
    if SPAN_ID in written:
        fill_ranges(TEXT, rows, places[:, -1], sizes[:, -1], written[SPAN_ID])


@compiled
def fill_ranges(value, rows, places, sizes, written):
    """Writes a value into so many places of rows, from a place of each on; all three are [n] int64."""
    for number in range(len(rows)):
        written[rows[number]][places[number] : places[number] + sizes[number]] = value


@compiled
def copy_ranges(values, starts, sizes, rows, places, written):
    """Writes n ranges of values, of so many from a start on, into rows, from a place of each on; all four are [n] int64."""
    for number in range(len(starts)):
        row = written[rows[number]]
        for offset in range(sizes[number]):
            row[places[number] + offset] = values[starts[number] + offset]
