"""What a run leaves out: documents and steps.

    documents   their tokens are read as those of others that are near, drawn by their numbers, and records as other records: the
                order, the denoisers, the masks, and all other tokens stay what they are
    steps       data  0 .. 99 | 100 .. 119 | 120 ..       a run that skips [100, 120) has the data of its step 120 at its step 100,
                run   0 .. 99 |            | 100 ..       and goes on from there

Both are functions of numbers alone, so that any host finds the same, and a run can be resumed at any step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.corpus.document_list import DocumentList
from ul2_tasks.order.permutation import keyed, keys
from ul2_tasks.order.ranges import cut, cut_at, integers_of
from ul2_tasks.store.read import TokenStore

_FOR_DOCUMENTS = 0x6578636C756465  # what a key is for
_NEAR = 1 << 8  # documents
_TRIES = 1 << 8


@dataclasses.dataclass(frozen=True)
class Skip:
    """From element `first` of a run on, as its elements are before, `count` are skipped."""

    first: int
    count: int


@dataclasses.dataclass(frozen=True, eq=False)
class LeavingOut:
    """All that a run leaves out: of each corpus, by its name, documents, [n] int64, ascending; and elements, by their firsts.

    `named` is the list that names the documents.
    """

    documents: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    skips: tuple[Skip, ...] = ()
    named: DocumentList = dataclasses.field(default_factory=lambda: DocumentList(()))

    @property
    def identity(self) -> str:
        """Another one for another list."""
        return self.named.sha256[:16]

    def data_of(self, numbers: np.ndarray) -> np.ndarray:
        """Which elements of the data those of a run are, [n] int64 both.

        >>> LeavingOut(skips=(Skip(2, 3), Skip(4, 1))).data_of(np.arange(6)).tolist()
        [0, 1, 5, 6, 8, 9]
        """
        return np.asarray(numbers, np.int64) + self._skipped[np.searchsorted(self._firsts, numbers, side="right")]

    def numbers_of(self, data: np.ndarray) -> np.ndarray:
        """The inverse of `data_of`; -1 for one that is skipped.

        >>> LeavingOut(skips=(Skip(2, 3), Skip(4, 1))).numbers_of(np.arange(10)).tolist()
        [0, 1, -1, -1, -1, 2, 3, -1, 4, 5]
        """
        numbers = self.first_from(data)
        return np.where(self.data_of(numbers) == data, numbers, -1)

    def first_from(self, data: np.ndarray) -> np.ndarray:
        """The first elements of a run whose data are these, or come later, [n] int64."""
        parts = np.searchsorted(self._firsts + self._skipped[1:], data, side="right")
        return np.minimum(data - self._skipped[parts], np.append(self._firsts, 1 << 62)[parts])

    @cached_property
    def _firsts(self) -> np.ndarray:
        return np.array([skip.first for skip in self.skips], np.int64)

    @cached_property
    def _skipped(self) -> np.ndarray:
        """[skips + 1] int64, how many elements are skipped before each part of a run."""
        return np.cumsum([0, *(skip.count for skip in self.skips)])

    def left_out(self, corpus: str) -> np.ndarray:
        """The documents of a corpus that are left out, [n] int64, ascending."""
        return self.documents.get(corpus, np.zeros([0], np.int64))


NOTHING = LeavingOut()


class Remaining:
    """The units that are kept where those of ascending ranges [start, stop), [n] int64 both, are left out; in their order."""

    def __init__(self, name: str, starts: np.ndarray, stops: np.ndarray, count: int):
        self.starts, self.stops = starts, stops
        self._left_before = np.concatenate([[0], np.cumsum(stops - starts)])
        self._others_before = starts - self._left_before[:-1]
        self.borders = np.unique(self._others_before)  # where some follow each other that are apart
        self.count = count - int(self._left_before[-1])
        if not self.count:
            raise ValueError(
                f"exclude must leave some of {name!r}, got a list without which it has no document that makes examples. Shorten"
                " the list, or leave the corpus out of the mixture: from a later step on by a Stage without it."
            )

    def before(self, units: np.ndarray) -> np.ndarray:
        """How many that are kept come before units, or before ranges of units, which are not within a range; [n] int64."""
        return units - self._left_before[np.searchsorted(self.stops, units, side="right")]

    def units(self, numbers: np.ndarray) -> np.ndarray:
        """The units of numbers among those that are kept, [n] int64."""
        return numbers + self._left_before[np.searchsorted(self._others_before, numbers, side="right")]

    def near(self, units: np.ndarray, attempt: int = 0) -> np.ndarray:
        """Of units that are left out others that are near and kept, drawn by their numbers, [n] int64 both."""
        firsts = self.starts[np.searchsorted(self.starts, units, side="right") - 1]
        drawn = keys(keyed(_FOR_DOCUMENTS, attempt), units) % np.uint64(min(_NEAR, self.count))
        return self.units((self.before(firsts) + drawn.astype(np.int64)) % self.count)


class Overlay:
    """A store in which the tokens of left-out documents, [n] int64, ascending, are read as those of others.

    A document is read as the last tokens of one that is near, and where that is shorter as those of documents before it, too: so
    what ends in EOS still does.
    """

    def __init__(self, name: str, store: TokenStore, documents: np.ndarray):
        starts, stops = store.ranges_of(documents)
        has_some = starts < stops
        self.store, self._documents, self._starts, self._stops = store, documents, starts[has_some], stops[has_some]
        self._kept = Remaining(name, self._starts, self._stops, store.tokens)
        near = Remaining(name, documents, documents + 1, store.documents).near(documents[has_some])
        self._ends = self._kept.before(store.ranges_of(near)[1])  # among the tokens that are kept
        self._borders = np.unique([self._starts, self._stops])

    def places(self, starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The tokens that are read of ranges, in parts: of which range each is, where it starts and stops, and if others are read.

        All are [n] or [parts] int64, but for the last, [parts] bool.
        """
        part, starts, stops = cut_at(starts, stops, self._borders)
        which = np.searchsorted(self._stops, starts, side="right")
        is_left = np.append(self._starts, self.store.tokens)[which] <= starts
        left, own = np.flatnonzero(is_left), np.flatnonzero(~is_left)
        if not len(left):
            return part, starts, stops, is_left
        moved = (self._ends - self._stops)[which[left]]
        of, begins, ends = cut(starts[left] + moved, stops[left] + moved, self._kept.count)
        rounds = begins // self._kept.count * self._kept.count
        of_round, begins, ends = cut_at(begins - rounds, ends - rounds, self._kept.borders)
        at = np.concatenate([own, left[of[of_round]]])
        by_place = np.argsort(at, kind="stable")
        begins, lengths = self._kept.units(begins), ends - begins
        starts, stops = np.concatenate([starts[own], begins]), np.concatenate([stops[own], begins + lengths])
        return part[at[by_place]], starts[by_place], stops[by_place], is_left[at[by_place]]

    def ranges_with(self, document: int) -> tuple[np.ndarray, np.ndarray]:
        """The ranges of tokens that are read as those of a document, ascending, [n] int64 both."""
        start, stop = self.store.tokens_of(document)
        if document in self._documents or start == stop:
            return self._starts[:0], self._starts[:0]
        first, last = self._kept.before(np.array([start, stop])).tolist()
        of, begins, ends = cut(self._ends - (self._stops - self._starts), self._ends, self._kept.count)
        rounds, moved = begins // self._kept.count * self._kept.count, (self._ends - self._stops)[of]
        starts = np.append(np.maximum(begins, first + rounds) - moved, start)
        stops = np.append(np.minimum(ends, last + rounds) - moved, stop)
        found = np.flatnonzero(starts < stops)
        found = found[np.argsort(starts[found])]
        return starts[found], stops[found]


class Others:
    """The units that are read where some, those of ascending ranges [start, stop), are left out: of each another one that is near.

    `sizes` gives those of units, [n, features] int64. No other one is longer than its own, as far as one was found.
    """

    def __init__(
        self, name: str, starts: np.ndarray, stops: np.ndarray, count: int, sizes: Callable[[np.ndarray], np.ndarray] | None
    ):
        kept = Remaining(name, starts[starts < stops], stops[starts < stops], count)
        self._units = integers_of(starts, stops)
        self._others, left = np.zeros_like(self._units), np.arange(len(self._units))
        own = sizes(self._units) if sizes else None
        for attempt in range(_TRIES):
            self._others[left] = kept.near(self._units[left], attempt)
            if sizes is None or own is None:
                break
            left = left[(sizes(self._others[left]) > own[left]).any(axis=1)]
            if not len(left):
                break

    def read(self, units: np.ndarray) -> np.ndarray:
        """What units, [n] int64, are read as, [n] int64."""
        at = np.minimum(np.searchsorted(self._units, units), len(self._units) - 1)
        return np.where(self._units[at] == units, self._others[at], units)

    def ranges_with(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """The ranges of units that are read as some of [start, stop), ascending, [n] int64 both."""
        own = np.setdiff1d(np.arange(start, stop), self._units)
        found = np.union1d(own, self._units[(self._others >= start) & (self._others < stop)])
        return found, found + 1
