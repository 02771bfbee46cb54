"""What a run leaves out: documents, from an element on, and steps.

    documents   an example that would have a token of one of them has as many tokens from elsewhere instead, drawn by its key until
                they are of none; its element, denoiser, noise, and the other examples stay what they are
    steps       data  0 .. 99 | 100 .. 119 | 120 ..       a run that skips [100, 120) has the data of its step 120 at its step 100,
                run   0 .. 99 |            | 100 ..       and goes on from there

Both are functions of an element's number, so that any host finds the same, and a run can be resumed at any step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.corpus.document_list import DocumentList
from ul2_tasks.order.blocks import BlockOrder
from ul2_tasks.order.epochs import Order, Ranges
from ul2_tasks.order.permutation import keyed, keys

NOWHERE = -2  # instead of where an example's tokens are: nothing that fits into its place of a packed row was found
_FOR_MOVES = 0x6578636C756465  # what a key is for
_NEAR, _MOST = 1 << 8, 1 << 12  # draws
_AT_ONCE = 1 << 16


class InOrder(Protocol):
    """A corpus in order, an `OrderedCorpus` or an `OrderedRecords`."""

    @property
    def name(self) -> str: ...

    @property
    def order(self) -> Order | BlockOrder: ...

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

    def left_out(self, corpus: str, lists: int | None = None) -> np.ndarray:
        """The documents of a corpus that are left out by the first lists, or by all, [n] int64, ascending."""
        named = [each.documents.get(corpus, np.zeros([0], np.int64)) for each in self.documents[:lists]]
        return np.unique(np.concatenate([np.zeros([0], np.int64), *named]))

    def units(self, corpus: InOrder, lists: int) -> Units:
        """What the documents of the first lists are in the orders of a corpus, of which all have the same units."""
        if (corpus.name, lists) not in self._units:
            self._units[corpus.name, lists] = units_of(corpus, self.left_out(corpus.name, lists))
        return self._units[corpus.name, lists]

    @cached_property
    def _units(self) -> dict[tuple[str, int], Units]:
        return {}

    def __reduce__(self) -> tuple:
        """For another process, which finds units by itself."""
        return LeavingOut, (self.documents, self.skips)

    def lists_of(self, numbers: np.ndarray) -> np.ndarray:
        """How many of `documents` hold for each element of a run, [n] int64."""
        return np.searchsorted([each.first for each in self.documents], numbers, side="right")


NOTHING = LeavingOut()


class Units(NamedTuple):
    """What documents are in an order: ranges [start, stop), ascending and apart, [n] int64 both."""

    starts: np.ndarray
    stops: np.ndarray

    def touch(self, ranges: Ranges) -> np.ndarray:
        """Whether each example has some of them, [examples] bool."""
        found = np.zeros(len(ranges.kinds), bool)
        if len(self.starts):
            after = np.searchsorted(self.stops, ranges.starts, side="right")
            found[ranges.of[np.append(self.starts, 1 << 62)[after] < ranges.stops]] = True
        return found


def units_of(corpus: InOrder, documents: np.ndarray) -> Units:
    """The units of documents, [n] int64, ascending. A document without tokens has none."""
    starts, stops = corpus.units_of(documents)
    return Units(starts[starts < stops], stops[starts < stops])


def moves(corpus: InOrder, units: Units, epochs: np.ndarray, slots: np.ndarray, must_fit: np.ndarray) -> np.ndarray:
    """Where the examples of slots have their tokens from instead of from `units`, [n] int64: see `Order.ranges`; -1 for the others.

    Where `must_fit`, [n] bool, no feature of an example is longer than before; if nothing such is found it is NOWHERE. Raises a
    ValueError where all that was drawn is of the units, too.
    """
    found = np.full(len(slots), -1)
    left, tries, at_once = np.flatnonzero(units.touch(corpus.order.ranges(epochs, slots))), 0, 1
    seen_other = np.zeros(len(slots), bool)
    while len(left) and tries < _MOST:
        for first in range(0, len(left), max(1, _AT_ONCE // at_once)):
            of = left[first : first + max(1, _AT_ONCE // at_once)]
            drawn, is_other, is_good = _draw(corpus, units, epochs[of], slots[of], must_fit[of], range(tries, tries + at_once))
            has_one = is_good.any(axis=1)
            found[of[has_one]] = drawn[has_one, is_good[has_one].argmax(axis=1)]
            seen_other[of] |= is_other.any(axis=1)
        left, tries = left[found[left] < 0], tries + at_once
        at_once = min(tries, _NEAR)
    if len(left) and not seen_other[left].all():
        raise ValueError(
            f"exclude must leave some of {corpus.name!r}, got lists without which {_MOST:,} examples drawn in place of one all have"
            " documents of the lists. Shorten them, or leave the corpus out of the mixture."
        )
    found[left] = NOWHERE
    return found


def _draw(
    corpus: InOrder, units: Units, epochs: np.ndarray, slots: np.ndarray, must_fit: np.ndarray, tries: range
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Some tries for each slot, [n, tries]: where its example may be, whether that is of no unit, and whether it fits, too."""
    epochs, slots, fitting = (np.repeat(each, len(tries)) for each in (epochs, slots, must_fit))
    of_try = np.tile(np.arange(tries.start, tries.stop), len(slots) // len(tries))
    draws = keys(keyed(_FOR_MOVES), corpus.order.noise_keys(epochs, slots), of_try)
    drawn = corpus.order.drawn(epochs, slots, draws, is_near=tries.start < _NEAR)
    is_other = ~units.touch(corpus.order.ranges(epochs, slots, drawn))
    is_good = is_other.copy()
    if not corpus.moves_keep_lengths and len(to_fit := np.flatnonzero(is_other & fitting)):
        before = corpus.lengths_of(epochs[to_fit], slots[to_fit])
        is_good[to_fit] = (corpus.lengths_of(epochs[to_fit], slots[to_fit], drawn[to_fit]) <= before).all(axis=1)
    return drawn.reshape(-1, len(tries)), is_other.reshape(-1, len(tries)), is_good.reshape(-1, len(tries))
