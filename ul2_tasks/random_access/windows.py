"""A stream is random access over one window after the other: of a corpus that has no cache and is too large for memory.

    pass 0     shard 4 ........ | shard 1 ....... | shard 7 ..      the shards of this host, in an order of that pass
    windows    0         | 1          | 2            | 3 ..         records until they have so many tokens
    elements   0 ..      | 310 ..     | 622 ..                      of each window: its own order, noise and rows

Within a window all is as it is for a whole corpus: the same order, examples, rows and models; its place takes the place of the
epoch's number in the keys. A pass reads each record once. Corpora of a mixture are mixed by the arithmetic of `Mix`: element i is
at a position of a corpus, whose windows are read one after the other. Corpora that have a cache or fit in memory are beside them
as they are, and each host has its share of them.

The state is a few integers: the next element, and where the present window of each corpus begins. So a stream goes on anywhere
from its state, after one window of each corpus is read again.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from typing import NamedTuple, Protocol

import numpy as np

from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.corpus.token_batches import MOST_TOKENS_IN_MEMORY, tokenize_records
from ul2_tasks.order.permutation import keyed, permute
from ul2_tasks.order.shares import Shares
from ul2_tasks.random_access.batches import Task, members_of
from ul2_tasks.random_access.numbering import MemberSchedule, Numbering, Slots, number_examples
from ul2_tasks.random_access.tokens import in_memory
from ul2_tasks.sources.shard_records import split_groups
from ul2_tasks.store.read import TokenStore

WINDOW_TOKENS = 1 << 22  # some 20 MB of text: read in seconds, and examples of thousands of documents are shuffled in it
_FOR_SHARDS, _FOR_WINDOWS = 0x73686172, 0x77696E64  # what a key is for
_NO_END = 1 << 60


class Place(NamedTuple):
    """Where a window begins: in which pass, at which of the host's shards, after which records of it; and its first position."""

    passes: int = 0
    shard: int = 0
    records: int = 0
    first: int = 0


class Window(NamedTuple):
    """Some positions [first, stop) of a corpus, in the order of a numbering of it alone; and where the next window begins.

    `index` gives the element of that numbering for each position, [n] int64.
    """

    numbering: Numbering
    stop: int
    following: Place | None
    index: Callable[[np.ndarray], np.ndarray]


class Feed(Protocol):
    """A corpus of a stream."""

    numbering: Numbering  # of some of it, which tells how many rows its examples make

    def window(self, place: Place) -> Window | None:
        """The window that begins at a place; None where the last epoch has ended."""


@dataclasses.dataclass(frozen=True, eq=False)
class Held:
    """A corpus that is read by number: in a cache, or in memory. A host has every so manieth of its elements."""

    numbering: Numbering
    host: int
    hosts: int
    epochs: int | None

    def window(self, place: Place) -> Window | None:
        """All of it."""
        stop = _NO_END if self.epochs is None else len(range(self.host, self.numbering.first_of(self.epochs), self.hosts))
        return None if place.passes else Window(self.numbering, stop, Place(1), lambda positions: self.host + positions * self.hosts)


class Windows:
    """A corpus that is read in windows."""

    def __init__(
        self,
        corpus: Corpus,
        split: str,
        number: Callable[[TokenStore, int], Numbering],
        sample: Numbering,
        *,
        seed: int,
        shuffle: bool,
        host: int,
        hosts: int,
        epochs: int | None,
        tokens: int,
        separate_documents: bool,
    ):
        """Takes what numbers the tokens of a window with a seed, and the numbering of the corpus's beginning.

        Raises a ValueError where there are fewer shards than hosts.
        """
        self.corpus, self.split, self.numbering = corpus, split, sample
        self._number, self._seed, self._shuffle, self._epochs, self._tokens = number, seed, shuffle, epochs, tokens
        self._host, self._hosts, self._separate_documents = host, hosts, separate_documents
        named = len(corpus.source.list_shards(split))
        self._shards = max(named, hosts) if corpus.source.supports_arbitrary_sharding else named
        if self._shards < hosts:
            raise ValueError(
                f"{corpus.name!r} must have a shard of split {split!r} for each of {hosts} hosts, got {self._shards}. Use fewer hosts,"
                " divide the corpus into more files, or write its cache with `ul2 cache`. See"
                " docs/help/troubleshooting.md#too-few-documents-for-the-hosts."
            )
        self._thread = futures.ThreadPoolExecutor(1)
        self._read: dict[Place, futures.Future[Window | None]] = {}  # the last window, and the next one

    def window(self, place: Place) -> Window | None:
        """Reads a window, and in a thread of its own already the next one."""
        own = self._read.get(place) or self._thread.submit(self._window, place)
        self._read = {place: own}
        window = own.result()
        if window and window.following:
            self._read[window.following] = self._thread.submit(self._window, window.following)
        return window

    def _window(self, place: Place) -> Window | None:
        while self._epochs is None or place.passes < self._epochs:
            tokens, lengths, end = self._documents(place)
            if tokens:
                store = in_memory(self.corpus, tokens, lengths, self._separate_documents)
                numbering = self._number(store, keyed(self._seed, _FOR_WINDOWS, place.passes, self._own(place), place.records))
                stop = place.first + numbering.first_of(1)
                following = Place(place.passes + 1, 0, 0, stop) if end is None else Place(place.passes, *end, stop)
                return Window(numbering, stop, following, lambda positions: positions - place.first)
            if not (place.shard or place.records):
                raise ValueError(
                    f"{self.corpus.name!r} must have a token of split {self.split!r} in the shards of host {self._host} of"
                    f" {self._hosts}, got none. Use fewer hosts, or look at the corpus with `ul2 doctor`."
                )
            place = Place(place.passes + 1, 0, 0, place.first)
        return None

    def _own(self, place: Place) -> int:
        """Which shard of all a place is in."""
        return self._shards_of(place.passes)[place.shard]

    def _shards_of(self, passes: int) -> list[int]:
        """The shards of this host, in the order of a pass; those of all hosts are all shards."""
        shards = np.arange(self._shards)
        if self._shuffle:
            shards = permute(shards, len(shards), keyed(self._seed, _FOR_SHARDS, passes))
        return shards[self._host :: self._hosts].tolist()

    def _documents(self, place: Place) -> tuple[list[np.ndarray], list[np.ndarray], tuple[int, int] | None]:
        """The tokens of the documents from a place on, how many each has, and after which records of which shard they end."""
        shards, own = self._shards_of(place.passes), split_groups(self.corpus.source)
        splits = next(group for group in own if self.split in group)
        tokens: list[np.ndarray] = []
        lengths: list[np.ndarray] = []
        count = 0
        for number in range(place.shard, len(shards)):
            counter = itertools.count()
            records = self.corpus.shard_records(splits, shards[number], self._shards)
            counted = (item for item, _ in zip(records, counter))
            left = itertools.islice(counted, place.records if number == place.shard else 0, None)
            for batch in tokenize_records(self.corpus, (item for item in left if item[0] == self.split)):
                of_batch, of_each = batch.of(self.split)
                if len(of_batch):
                    tokens.append(of_batch)
                    lengths.append(of_each)
                count += len(of_batch)
                if count >= self._tokens:
                    return tokens, lengths, (number, next(counter))
        return tokens, lengths, None


@dataclasses.dataclass(frozen=True)
class Stretch:
    """Elements of a mixture while no corpus comes to its window's end: a `Numbering`, as far as rows are made of it."""

    corpora: tuple
    packed: tuple
    found: Slots

    def slots(self, numbers: np.ndarray) -> Slots:
        """The examples of these elements, which are the ones that were looked for."""
        return self.found


class Stream:
    """The elements of a host of a mixture, one stretch after the other.

    `feeds` are its corpora and `shares` their shares of the examples. With `budgets` elements are packed rows of these lengths.
    """

    def __init__(self, feeds: Sequence[Feed], shares: Sequence[float], budgets: Mapping[str, int | None] | None):
        self.feeds, self._budgets = tuple(feeds), budgets
        per_example = [_rows_per_example(feed.numbering, budgets) for feed in feeds]
        self._shares = Shares.of([share * rows for share, rows in zip(shares, per_example)])

    @property
    def start(self) -> np.ndarray:
        """The state of the beginning, int64: the next element, and the place of the window of each corpus."""
        return np.array([0, *itertools.chain.from_iterable(Place() for _ in self.feeds)], np.int64)

    @property
    def members(self) -> list[Task]:
        """The tasks of all corpora."""
        return list(itertools.chain.from_iterable(members_of(feed.numbering) for feed in self.feeds))

    def read(self, state: np.ndarray, most: int) -> tuple[np.ndarray, Stretch, np.ndarray] | None:
        """The next elements, at most so many, and the state after them; None where the last epoch has ended.

        The last value is their numbers, [n] int64.
        """
        element, places = int(state[0]), [Place(*place) for place in state[1:].reshape(-1, len(Place._fields)).tolist()]
        numbers = np.arange(element, element + most)
        corpora, positions = self._shares.positions(numbers)
        windows: list[Window] = []
        for number, feed in enumerate(self.feeds):
            window, own = feed.window(places[number]), positions[corpora == number]
            while window and len(own) and own[0] >= window.stop and window.following:
                places[number] = window.following
                window = feed.window(places[number])
            if window is None or (len(own) and own[0] >= window.stop):
                ended = np.flatnonzero(corpora == number)[:1]
                numbers = numbers[: int(ended[0]) if len(ended) else most]
                window = None
            elif len(own) and own[-1] >= window.stop:
                numbers = numbers[: int(np.flatnonzero(corpora == number)[np.searchsorted(own, window.stop)])]
            windows.append(window)  # type: ignore[arg-type]
        if not len(numbers):
            return None
        corpora, positions = corpora[: len(numbers)], positions[: len(numbers)]
        stretch = self._stretch(windows, corpora, positions)
        after = [element + len(numbers), *itertools.chain.from_iterable(places)]
        return np.array(after, np.int64), stretch, numbers

    def _stretch(self, windows: Sequence[Window | None], corpora: np.ndarray, positions: np.ndarray) -> Stretch:
        numberings = [window.numbering if window else feed.numbering for window, feed in zip(windows, self.feeds)]
        found = []
        for number in np.unique(corpora).tolist():
            of = np.flatnonzero(corpora == number)
            own = numberings[number].slots(windows[number].index(positions[of]))  # type: ignore[union-attr]
            found.append(own._replace(places=of[own.places], corpora=own.corpora + number))
        order = np.argsort(np.concatenate([each.places for each in found]), kind="stable")
        slots = Slots(*(np.concatenate(each)[order] for each in zip(*found)))
        ordered = tuple(numbering.corpora[0] for numbering in numberings)
        packed = tuple(numbering.packed[0] for numbering in numberings if numbering.packed)
        return Stretch(ordered, packed, slots)


def _rows_per_example(numbering: Numbering, budgets: Mapping[str, int | None] | None) -> float:
    if budgets is None:
        return 1.0
    return numbering.in_rows(budgets).packed[0].rows_about / numbering.corpora[0].order.examples
