"""What a run leaves out: documents, from an element on, and steps.

    documents   are read as others that are near, drawn by their numbers, and those that follow: of joined documents as many tokens,
                of those that are kept apart and of records whole pieces and examples; an example's element, denoiser and noise, and
                the other examples stay what they are
    steps       data  0 .. 99 | 100 .. 119 | 120 ..       a run that skips [100, 120) has the data of its step 120 at its step 100,
                run   0 .. 99 |            | 100 ..       and goes on from there

Both are functions of an element's number, so that any host finds the same, and a run can be resumed at any step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.corpus.document_list import DocumentList
from ul2_tasks.order.order import Order
from ul2_tasks.order.permutation import keyed, keys
from ul2_tasks.order.ranges import Ranges, cut, cut_at
from ul2_tasks.store.read import TokenStore

NOWHERE = -2  # instead of what an example is read as: nothing that fits into its place of a packed row was found
_FOR_DOCUMENTS = 0x6578636C756465  # what a key is for
_NEAR = 1 << 8  # documents
_TRIES = 1 << 8


class InOrder(Protocol):
    """A corpus in order, an `OrderedCorpus` or an `OrderedRecords`."""

    @property
    def name(self) -> str: ...

    @property
    def store(self) -> TokenStore: ...

    @property
    def order(self) -> Order: ...

    @property
    def instead(self) -> tuple[Instead, ...]: ...

    @property
    def moves_keep_lengths(self) -> bool: ...

    def units_of(self, documents: np.ndarray, /) -> tuple[np.ndarray, np.ndarray]: ...

    def lengths_of(self, epochs: np.ndarray, slots: np.ndarray, elsewhere: np.ndarray | None = None, /) -> np.ndarray: ...


@dataclasses.dataclass(frozen=True, eq=False)
class LeftOutDocuments:
    """Documents that are in no example from element `first` of a run on: of each corpus by its name, [n] int64, ascending.

    `named` is the list that names them.
    """

    first: int
    documents: Mapping[str, np.ndarray]
    named: DocumentList

    @property
    def identity(self) -> str:
        """Another one for another list."""
        return self.named.sha256[:16]


@dataclasses.dataclass(frozen=True)
class Skip:
    """From element `first` of a run on, as its elements are before, `count` are skipped."""

    first: int
    count: int


@dataclasses.dataclass(frozen=True, eq=False)
class LeavingOut:
    """All that a run leaves out. Both are in the order of their first elements."""

    documents: tuple[LeftOutDocuments, ...] = ()
    skips: tuple[Skip, ...] = ()

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

    def instead_of(self, corpus: InOrder) -> tuple[Instead, ...]:
        """What a corpus is read as while the first list holds, the first two, and so on."""
        return tuple(Instead.of(corpus, self.left_out(corpus.name, lists + 1)) for lists in range(len(self.documents)))

    def left_out(self, corpus: str, lists: int | None = None) -> np.ndarray:
        """The documents of a corpus that are left out by the first lists, or by all, [n] int64, ascending."""
        named = [each.documents.get(corpus, np.zeros([0], np.int64)) for each in self.documents[:lists]]
        return np.unique(np.concatenate([np.zeros([0], np.int64), *named]))

    def lists_of(self, numbers: np.ndarray) -> np.ndarray:
        """How many of `documents` hold for each element of a run, [n] int64."""
        return np.searchsorted([each.first for each in self.documents], numbers, side="right")


NOTHING = LeavingOut()


@dataclasses.dataclass(frozen=True, eq=False)
class Instead:
    """What is read instead of documents: of `count` units of an order, those of the ranges [start, stop) are read as others.

    Ranges are ascending and apart, and none is empty, [n] int64 both. The others are counted as if these were not there, round
    their end. `firsts`, [n] int64, says as which of them the first of each range is read.
    """

    count: int
    starts: np.ndarray
    stops: np.ndarray
    firsts: np.ndarray

    @classmethod
    def of(cls, corpus: InOrder, documents: np.ndarray) -> Instead:
        """What is read instead of documents, [n] int64, ascending. Raises a ValueError where no unit of the corpus is of others."""
        (starts, stops), count = corpus.units_of(documents), corpus.order.tokens
        has_some = starts < stops
        left = cls(count, starts[has_some], stops[has_some], starts[:0])
        if left.others < 1:
            raise ValueError(
                f"exclude must leave some of {corpus.name!r}, got lists without which it has none of its"
                f" {corpus.store.documents:,} documents that make examples. Shorten the lists, or leave the corpus out of the"
                " mixture: from a later step on by a Stage without it."
            )
        kept = corpus.store.documents - len(documents)
        before = documents - np.arange(len(documents))  # how many that are kept come before each
        drawn = keys(keyed(_FOR_DOCUMENTS), documents) % np.uint64(min(_NEAR, max(1, kept)))
        chosen = (before + drawn.astype(np.int64))[has_some] % max(1, kept)
        begins = corpus.units_of(chosen + np.searchsorted(before, chosen, side="right"))[0]
        return dataclasses.replace(left, firsts=begins - left._left_before[np.searchsorted(left.starts, begins)])

    @cached_property
    def others(self) -> int:
        """How many units are not of the ranges."""
        return self.count - int(self._left_before[-1])

    @cached_property
    def _left_before(self) -> np.ndarray:
        """[n + 1] int64, how many units are in the ranges before each."""
        return np.concatenate([[0], np.cumsum(self.stops - self.starts)])

    @cached_property
    def _others_before(self) -> np.ndarray:
        """[n] int64, how many others come before each range."""
        return self.starts - self._left_before[:-1]

    @cached_property
    def _borders(self) -> np.ndarray:
        return np.unique([self.starts, self.stops])

    @cached_property
    def _other_borders(self) -> np.ndarray:
        return np.unique(self._others_before)

    def touches(self, ranges: Ranges) -> np.ndarray:
        """Whether each example has some of the units, [examples] bool."""
        return touch(self.starts, self.stops, ranges)

    def read(self, ranges: Ranges, further: int = 0) -> Ranges:
        """What is read of ranges of units, or so many others further on."""
        part, starts, stops = cut_at(ranges.starts, ranges.stops, self._borders)
        which = np.searchsorted(self.stops, starts, side="right")
        is_left = np.append(self.starts, self.count)[which] <= starts
        left = np.flatnonzero(is_left)
        at = (self.firsts[which[left]] + further + starts[left] - self.starts[which[left]]) % self.others
        of, begins, ends = cut(at, at + stops[left] - starts[left], self.others)
        rounds = begins // self.others * self.others
        of_round, begins, ends = cut_at(begins - rounds, ends - rounds, self._other_borders)
        moved = self._left_before[np.searchsorted(self._others_before, begins, side="right")]
        places = np.concatenate([np.flatnonzero(~is_left), left[of[of_round]]])
        by_place = np.argsort(places, kind="stable")
        starts, stops = (
            np.concatenate([own[~is_left], other + moved])[by_place] for own, other in ((starts, begins), (stops, ends))
        )
        return ranges._replace(of=ranges.of[part[places[by_place]]], starts=starts, stops=stops)


def touch(starts: np.ndarray, stops: np.ndarray, ranges: Ranges) -> np.ndarray:
    """Whether each example has some units of [start, stop), which are ascending and apart, [n] int64 both; [examples] bool."""
    found = np.zeros(len(ranges.kinds), bool)
    if len(starts):
        after = np.searchsorted(stops, ranges.starts, side="right")
        found[ranges.of[np.append(starts, 1 << 62)[after] < ranges.stops]] = True
    return found


def units_of(corpus: InOrder, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ranges of the units of documents, [n] int64, ascending. A document without tokens has none."""
    starts, stops = corpus.units_of(documents)
    return starts[starts < stops], stops[starts < stops]


def moves(corpus: InOrder, list_: int, epochs: np.ndarray, slots: np.ndarray, must_fit: np.ndarray) -> np.ndarray:
    """As what the examples of slots are read while the lists until one hold, see `unit_ranges`, [n] int64; -1 for as they are.

    Where `must_fit`, [n] bool, no feature of an example is longer than before; if nothing such is found it is NOWHERE.
    """
    found, instead = np.full(len(slots), -1), corpus.instead[list_]
    left = np.flatnonzero(instead.touches(corpus.order.ranges(epochs, slots)))
    if corpus.moves_keep_lengths:
        found[left] = list_
        return found
    for further in range(min(_TRIES, instead.others)):
        if not len(left):
            break
        others = instead.read(corpus.order.ranges(epochs[left], slots[left]), further).starts
        fits, to_fit = ~must_fit[left], np.flatnonzero(must_fit[left])
        if len(to_fit):
            own = epochs[left[to_fit]], slots[left[to_fit]]
            fits[to_fit] = (corpus.lengths_of(*own, others[to_fit]) <= corpus.lengths_of(*own)).all(axis=1)
        found[left[fits]] = others[fits]
        left = left[~fits]
    found[left] = NOWHERE
    return found


def unit_ranges(corpus: InOrder, epochs: np.ndarray, slots: np.ndarray, elsewhere: np.ndarray | None = None) -> Ranges:
    """Which units of an order make the examples of slots; see `Order.ranges`.

    Where `elsewhere`, [n] int64, is not below 0, they are others: the number of the list until which all hold; or, where examples
    are single units, the unit.
    """
    found = corpus.order.ranges(epochs, slots)
    if elsewhere is None or (elsewhere < 0).all():
        return found
    of_range = elsewhere[found.of]
    if not corpus.moves_keep_lengths:
        starts = np.where(of_range < 0, found.starts, of_range)
        return found._replace(starts=starts, stops=starts + 1)
    parts = []
    for number in np.unique(of_range).tolist():
        own = of_range == number
        part = found._replace(of=found.of[own], starts=found.starts[own], stops=found.stops[own])
        parts.append(part if number < 0 else corpus.instead[number].read(part))
    of, starts, stops = (np.concatenate(each) for each in zip(*(part[2:] for part in parts)))
    by_example = np.argsort(of, kind="stable")
    return found._replace(of=of[by_example], starts=starts[by_example], stops=stops[by_example])
