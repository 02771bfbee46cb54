"""`Rows`: which examples of an order share row r. Rows have addresses, too.

    window      pool 0 | pool 1 | .. | the last pool, with what is left and the tail       of an order, see `Order`
    pool        so many cycles: of each denoiser as many of its examples, from anywhere in the window
    rows        0 ........ 2,710  | 2,711 ....... 5,398  | ..       best fit: which examples of a pool share a row

With `shuffle` the examples of each denoiser come in a permuted order, and so do the rows of a pool. So a row has examples from
anywhere in the window, and neighbouring rows are of any form. Without it both are in the order of the corpus.

A pool's rows are a function of the seed, the epoch and the pool alone. Where the full chunks of a denoiser have the same lengths,
all pools of a window but the last have the same rows: they are packed once, and a division tells where they begin. Else
any row can be made without those before it once it is known how many rows each pool before has. These are counted when they are
first asked for, and remembered; what they are kept in, if anything, has them for other processes.

The pools of the windows of a round take turns, as far as each has rows: row r of an epoch is of partition r mod C while all have.
A slot is the same example as in the `Order`: the same tokens, the same denoiser, the same key of the noise.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import os
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import NamedTuple, Protocol

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.order.order import FOR_CONTENTS, FOR_ROWS, Order, Places, Window
from ul2_tasks.order.pack import best_fit
from ul2_tasks.order.permutation import invert, keyed, keys, permute
from ul2_tasks.order.ranges import expanded

ROWS_VERSION = 2  # raised whenever a pool of examples is packed in another way
_POOL = 1 << 14  # examples
_PACKED = 1 << 7  # pools that are remembered, where no round has more
_SAMPLED = 8  # pools
_AT_ONCE = 1 << 8  # pools
_LEAST_KEPT = 1 << 5  # pools: fewer are packed in less time than a file is read and written
_lock = threading.RLock()


class RowSlots(NamedTuple):
    """The examples of n rows, [examples] int64 each: of which row each is, from 0 to n - 1, ascending; its epoch and its slot."""

    places: np.ndarray
    epochs: np.ndarray
    slots: np.ndarray


class ExampleLengths(Protocol):
    """The lengths of examples, known without their tokens."""

    def lengths_of(self, epochs: np.ndarray, slots: np.ndarray, /) -> np.ndarray:
        """[n, F] int64, how long each feature of the example of each slot is, in tokens. Both arguments are [n] int64."""


class Kept(Protocol):
    """What keeps how many rows each pool has, see `files.kept_counts.KeptCounts`."""

    def load(self) -> np.ndarray:
        """Of the first pools, [n] int64; none where nothing is kept."""

    def save(self, counts: np.ndarray) -> None:
        """Keeps those of the first pools, [n] int64."""


class _Packed(NamedTuple):
    """A packed pool: the row of each of its examples, [m]; where rows begin, [rows + 1]; and the examples row by row, [m]."""

    rows: np.ndarray
    starts: np.ndarray
    examples: np.ndarray


class _Pools(NamedTuple):
    """The pools of a section of an order: its windows, how many take turns, and the first round of pools in an epoch.

    Each window has so many pools, of so many cycles each, but the last, which has `last` cycles and the tail.
    """

    windows: int
    turns: int
    start: int
    pools: int
    cycles: int
    last: int
    tail: int


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """The examples of an order in rows, epoch after epoch without end. In an epoch each slot is in one row.

    `budgets` has the F lengths of a row. `sizes` has F integers for each of K denoisers, the length of each feature of a full
    chunk's example, where these are all the same; a shortened chunk has no longer ones. Else `lengths` tells them.

    >>> from ul2_tasks.order.cycles import nearest_cycle
    >>> order = Order(nearest_cycle([1, 1]), (8, 10), tokens=40, seed=0, shuffle=False)
    >>> rows = Rows(order, (12, 12), sizes=((6, 2), (3, 7)))
    >>> rows.first_of(1)  # two cycles, and a tail of 4 tokens
    3
    >>> rows.slots(np.array([0, 2, 3]))
    RowSlots(places=array([0, 0, 1, 2, 2]), epochs=array([0, 0, 0, 1, 1]), slots=array([0, 4, 3, 0, 4]))
    """

    order: Order
    budgets: tuple[int, ...]
    sizes: tuple[tuple[int, ...], ...] | None = None
    lengths: ExampleLengths | None = None
    kept: Kept | None = None

    def __post_init__(self):
        if self.sizes is not None and len(self.sizes) != len(self.order.lengths):
            raise ValueError(f"sizes must be those of {len(self.order.lengths)} denoisers, got {self.sizes}.")

    def __reduce__(self) -> tuple:
        """For another process, which packs for itself."""
        return Rows, (self.order, self.budgets, self.sizes, self.lengths, self.kept)

    def slots(self, rows: np.ndarray) -> RowSlots:
        """The examples of each row. Rows are [n] integers from 0, below 2**62."""
        rounds, turns, numbers = self._counts.find(np.asarray(rows, np.int64))
        pools, found = self._places(rounds, turns), [(np.zeros([0], np.int64),) * 2]
        for packed, of in self._by_packed(rounds, turns, pools):
            own = numbers[of]
            if self.order.shuffle:
                own = permute(own, len(packed.starts) - 1, self._keys(rounds[of], turns[of]))
            of_row, at = expanded(of, packed.starts[own], packed.starts[own + 1])
            found.append((of_row, packed.examples[at]))
        places, examples = found[-1]
        if len(found) > 2:
            places, examples = (np.concatenate(each) for each in zip(*found))
            by_row = np.argsort(places, kind="stable")
            places, examples = places[by_row], examples[by_row]
        return RowSlots(places, *self._slots(Places(*(each[places] for each in pools)), examples))

    def rows_at(self, epochs: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """The inverse of `slots`: in which row each slot of each epoch is, [n] int64."""
        rounds, turns, examples = self._examples(np.asarray(epochs, np.int64), np.asarray(slots, np.int64))
        found = np.zeros_like(examples)
        for packed, of in self._by_packed(rounds, turns, self._places(rounds, turns)):
            found[of] = packed.rows[examples[of]]
            if self.order.shuffle:
                found[of] = invert(found[of], len(packed.starts) - 1, self._keys(rounds[of], turns[of]))
        return self._counts.rows(rounds, turns, found)

    @cached_property
    def rows_about(self) -> float:
        """How many rows an epoch has; where lengths differ and are many, if all of it is as some pools spread over it."""
        if self.sizes is not None or self._per_epoch <= _SAMPLED:
            return float(self._counts.start(self._per_epoch))
        sampled = [number * self._per_epoch // _SAMPLED for number in range(max(1, _SAMPLED // self._sections[0].turns))]
        sizes = [(self._size(number), self._turns_of(number)) for number in sampled]
        examples = sum((cycles * len(self.order.cycle) + tail) * turns for (cycles, tail), turns in sizes)
        return sum(int(self._count(number).sum()) for number in sampled) / examples * self.order.examples

    @property
    def rounds(self) -> int:
        """See `Order.rounds`."""
        return self.order.rounds

    def reaches(self, round: int) -> bool:
        """See `Order.reaches`."""
        return self.order.reaches(round)

    def round_of(self, row: int) -> int:
        """See `Order.round_of`."""
        rounds, turns, _ = self._counts.find(np.array([row]))
        places = self._places(rounds, turns)
        slots = self.order.slots_at(places._replace(numbers=np.zeros_like(rounds)))
        return self.order.round_of(int(self.order.examples_at(places.epochs, slots)[0]))

    def first_of(self, round: int) -> int:
        """See `Order.first_of`."""
        rounds, turns, _ = self._examples(*self.order.slots(np.array([self.order.first_of(round)])))
        return self._counts.start(int(rounds[0] - self._places(rounds, turns).numbers[0]))

    # What follows counts rounds of pools, over all epochs: one has the pools of one number of the windows of a round of the order.

    @cached_property
    def _sections(self) -> tuple[_Pools, ...]:
        found, start = list[_Pools](), 0
        for windows, turns, inner in self.order.sections:
            cycles = max(1, _POOL // len(inner.cycle))
            pools = max(1, inner.cycles // cycles)
            found.append(_Pools(windows, turns, start, pools, cycles, inner.cycles - (pools - 1) * cycles, inner.tail))
            start += windows // turns * pools
        return tuple(found)

    @cached_property
    def _table(self) -> np.ndarray:
        """[sections, 7] int64."""
        return np.array(self._sections)

    @cached_property
    def _per_epoch(self) -> int:
        return sum(section.windows // section.turns * section.pools for section in self._sections)

    @cached_property
    def _counts(self) -> _Equal | _Counted:
        if self.sizes is None:
            return _Counted(self._count, self._turns_of, self.kept)
        ends = [(section.start, section.start + section.pools - 1) for section in self._sections]
        return _Equal(self._table, np.array([[self._rows(number, 0)[0].max() + 1 for number in of] for of in ends]))

    @cached_property
    def _remembered(self) -> collections.OrderedDict[tuple[int, int], _Packed]:
        return collections.OrderedDict()

    def _places(self, rounds: np.ndarray, turns: np.ndarray) -> Places:
        """Where pools are; numbers are theirs in their windows."""
        epochs, numbers = np.divmod(rounds, self._per_epoch)
        sections = np.searchsorted(self._table[:, 2], numbers, side="right") - 1
        _, all_turns, starts, pools, *_ = self._table[sections].T
        windows, numbers = np.divmod(numbers - starts, pools)
        return Places(epochs, sections, windows * all_turns + turns, numbers)

    def _section_of(self, number: int) -> _Pools:
        return self._sections[int(np.searchsorted(self._table[:, 2], number % self._per_epoch, side="right")) - 1]

    def _turns_of(self, number: int) -> int:
        return self._section_of(number).turns

    def _size(self, number: int) -> tuple[int, int]:
        """How many cycles each pool of a round has, and how many examples of a tail."""
        section = self._section_of(number)
        is_last = (number % self._per_epoch - section.start) % section.pools == section.pools - 1
        return (section.last, section.tail) if is_last else (section.cycles, 0)

    def _by_packed(self, rounds: np.ndarray, turns: np.ndarray, pools: Places) -> Iterator[tuple[_Packed, np.ndarray]]:
        """What some pools are packed as, and which of them are so."""
        if self.sizes is not None:  # as the first of a window, or the last
            _, _, starts, lasts, *_ = self._table[pools.sections].T
            rounds, turns = starts + np.where(pools.numbers == lasts - 1, pools.numbers, 0), np.zeros_like(turns)
        codes = rounds << 20 | turns  # no round has so many turns
        chosen = np.unique(codes) if len(codes) and (codes != codes[0]).any() else codes[:1]
        for code in chosen.tolist():
            of = np.flatnonzero(codes == code) if len(chosen) > 1 else np.arange(len(codes))
            yield self._packed(code >> 20, code & (1 << 20) - 1), of

    def _packed(self, number: int, turn: int) -> _Packed:
        with _lock:
            if (number, turn) in self._remembered:
                self._remembered.move_to_end((number, turn))
                return self._remembered[number, turn]
        rows, slots = self._rows(number, turn)
        by_row = np.argsort(rows, kind="stable")
        if not self.order.shuffle:  # then rows come in the order of their first examples
            firsts = np.full(rows.max() + 1, slots.max())
            np.minimum.at(firsts, rows, slots)
            rows = np.argsort(np.argsort(firsts))[rows]
            by_row = np.lexsort((slots, rows))
        found = _Packed(rows, np.cumsum([0, *np.bincount(rows)]), by_row)
        with _lock:
            self._remembered[number, turn] = found
            while len(self._remembered) > max(_PACKED, 2 * int(self._table[:, 1].max())):
                self._remembered.popitem(last=False)
        return found

    def _rows(self, number: int, turn: int) -> tuple[np.ndarray, np.ndarray]:
        """The row of each example of a pool, [m] int64, and its slot."""
        cycles, tail = self._size(number)
        examples = np.arange(cycles * len(self.order.cycle) + tail)
        pools = self._places(np.full_like(examples, number), np.full_like(examples, turn))
        epochs, slots = self._slots(pools, examples)
        if self.sizes is None:
            return best_fit(self.lengths.lengths_of(epochs, slots), self.budgets), slots  # type: ignore[union-attr]
        full = np.repeat(np.array(self.sizes), cycles * np.array(self.order.cycle.counts), axis=0)
        longest = np.tile(np.max(self.sizes, axis=0), (tail, 1))  # of what is shortened
        return best_fit(np.concatenate([full, longest]), self.budgets), slots

    def _count(self, number: int) -> np.ndarray:
        """[turns] int64, how many rows each pool of a round has."""
        return np.array([len(self._packed(number, turn).starts) - 1 for turn in range(self._turns_of(number))])

    # The examples of a pool are counted denoiser by denoiser, those of the tail at the end.

    def _slots(self, places: Places, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The epochs and the slots of examples of pools, [n] int64 each."""
        cycle, found = self.order.cycle, np.zeros_like(examples)
        counts, of_slots = np.array(cycle.counts), np.repeat(np.arange(len(cycle.counts)), cycle.counts)
        firsts = np.cumsum(counts) - counts
        for number, inner, of, times in self.order.by_section(places):
            section, pools, own = self._sections[number], places.numbers[of], examples[of]
            cycles = np.where(pools == section.pools - 1, section.last, section.cycles)
            slots = (inner.cycles - cycles) * len(cycle) + own  # of a tail
            full = np.flatnonzero(own < cycles * len(cycle))
            cycles = cycles[full]
            kinds = of_slots[own[full] // np.maximum(1, cycles)]
            ranks = pools[full] * section.cycles * counts[kinds] + own[full] - cycles * firsts[kinds]
            if self.order.shuffle:
                ranks = permute(ranks, *self._contents(inner, times[full], kinds))
            slots[full] = cycle.places(kinds, ranks)
            found[of] = slots
        return places.epochs, self.order.slots_at(places._replace(numbers=found))

    def _examples(self, epochs: np.ndarray, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The inverse of `_slots`: rounds, turns and examples."""
        places, cycle = self.order.places(epochs, slots), self.order.cycle
        counts = np.array(cycle.counts)
        firsts = np.cumsum(counts) - counts
        rounds, turns, found = (np.zeros_like(slots) for _ in range(3))
        for number, inner, of, times in self.order.by_section(places):
            section, own = self._sections[number], places.numbers[of]
            pools = np.full_like(own, section.pools - 1)
            examples = (section.last - inner.cycles) * len(cycle) + own  # of a tail
            full = np.flatnonzero(own < inner.cycles * len(cycle))
            kinds, ranks = cycle.positions(own[full])
            if self.order.shuffle:
                ranks = invert(ranks, *self._contents(inner, times[full], kinds))
            before = section.cycles * counts[kinds]
            pools[full] = np.minimum(ranks // before, section.pools - 1)
            cycles = np.where(pools[full] == section.pools - 1, section.last, section.cycles)
            examples[full] = cycles * firsts[kinds] + ranks - pools[full] * before
            windows, turns[of] = np.divmod(places.windows[of], section.turns)
            rounds[of] = epochs[of] * self._per_epoch + section.start + windows * section.pools + pools
            found[of] = examples
        return rounds, turns, found

    def _contents(self, inner: Window, times: np.ndarray, kinds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The size and the key of the permutation of each denoiser's examples, each time."""
        return inner.cycles * np.array(self.order.cycle.counts)[kinds], keys(keyed(inner.seed, FOR_CONTENTS), times, kinds)

    def _keys(self, rounds: np.ndarray, turns: np.ndarray) -> np.ndarray:
        return keys(keyed(self.order.seed, FOR_ROWS), rounds, turns)


@dataclasses.dataclass(frozen=True)
class _Equal:
    """Where rows are of pools of fixed lengths: each has `rows_of[s, 0]` rows, and the last of a window `rows_of[s, 1]`."""

    sections: np.ndarray
    rows_of: np.ndarray

    @cached_property
    def _of_rounds(self) -> np.ndarray:
        """[sections] int64, the rows of all pools of a round of windows."""
        return self.sections[:, 1] * ((self.sections[:, 3] - 1) * self.rows_of[:, 0] + self.rows_of[:, 1])

    @cached_property
    def _starts(self) -> np.ndarray:
        """[sections + 1] int64, where each section begins in an epoch, in rows, and where that ends."""
        return np.cumsum([0, *(self.sections[:, 0] // self.sections[:, 1] * self._of_rounds)])

    def find(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The round of pools of each row, the turn of its pool, and its number there, [n] int64 each."""
        epochs, numbers = np.divmod(rows, self._starts[-1])
        sections = np.searchsorted(self._starts, numbers, side="right") - 1
        _, turns, starts, pools, *_ = self.sections[sections].T
        windows, numbers = np.divmod(numbers - self._starts[sections], self._of_rounds[sections])
        of_pools = turns * self.rows_of[sections, 0]
        own = np.minimum(numbers // of_pools, pools - 1)
        numbers, turn = np.divmod(numbers - own * of_pools, turns)
        return epochs * self._per_epoch + starts + windows * pools + own, turn, numbers

    def rows(self, rounds: np.ndarray, turns: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """The inverse of `find`."""
        epochs, within = np.divmod(rounds, self._per_epoch)
        sections = np.searchsorted(self.sections[:, 2], within, side="right") - 1
        _, all_turns, starts, pools, *_ = self.sections[sections].T
        windows, own = np.divmod(within - starts, pools)
        before = self._starts[sections] + windows * self._of_rounds[sections] + own * all_turns * self.rows_of[sections, 0]
        return epochs * self._starts[-1] + before + numbers * all_turns + turns

    def start(self, number: int) -> int:
        """How many rows there are before a round of pools."""
        return int(self.rows(np.array([number]), np.array([0]), np.array([0]))[0])

    @property
    def _per_epoch(self) -> int:
        return int((self.sections[:, 0] // self.sections[:, 1] * self.sections[:, 3]).sum())


class _Counted:
    """Where rows are of pools whose examples differ: those of each round of pools are counted when they are first asked for.

    `count` gives the rows of each pool of a round, [turns] int64, and `turns_of` how many turns it has.
    """

    def __init__(self, count: Callable[[int], np.ndarray], turns_of: Callable[[int], int], kept: Kept | None):
        self._count, self._kept = count, kept
        self._starts, self._counts, self._kept_rounds = [0], list[np.ndarray](), 0
        pools = np.zeros([0], np.int64) if kept is None else kept.load()
        while len(pools) >= (turns := turns_of(len(self._counts))):
            self._add(pools[:turns])
            pools = pools[turns:]
        self._kept_rounds = len(self._counts)

    def find(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See `_Equal.find`."""
        while len(rows) and self._starts[-1] <= rows.max():
            of_each = self._starts[-1] / len(self._counts) if self._counts else rows.max() + 1
            self._count_more(1 + int((rows.max() - self._starts[-1]) / of_each))
        ends = (rows.min(), rows.max()) if len(rows) else (0, 0)
        first, last = (bisect.bisect_right(self._starts, int(each)) - 1 for each in ends)
        rounds = first + np.searchsorted(self._starts[first + 1 : last + 1], rows, side="right")
        turns, numbers = np.zeros_like(rows), np.zeros_like(rows)
        for number in np.unique(rounds).tolist():
            of = np.flatnonzero(rounds == number)
            turns[of], numbers[of] = _turns_of(rows[of] - self._starts[number], self._counts[number])
        return rounds, turns, numbers

    def rows(self, rounds: np.ndarray, turns: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """See `_Equal.rows`."""
        found = np.zeros_like(rounds)
        for number in np.unique(rounds).tolist():
            of = np.flatnonzero(rounds == number)
            found[of] = self.start(number) + _in_turns(turns[of], numbers[of], self._counts_of(number))
        return found

    def start(self, number: int) -> int:
        """See `_Equal.start`."""
        while len(self._counts) < number:
            self._count_more(number - len(self._counts))
        return self._starts[number]

    def _counts_of(self, number: int) -> np.ndarray:
        self.start(number + 1)
        return self._counts[number]

    def _count_more(self, rounds: int) -> None:
        """Counts at most so many rounds more, several at a time, and keeps them each time that they are a part more."""
        first = len(self._counts)
        numbers = range(first, first + min(rounds, _AT_ONCE))
        with futures.ThreadPoolExecutor(os.cpu_count()) as threads:
            found = list(threads.map(self._count, numbers))
        with _lock:
            for number, counts in zip(numbers, found):
                if number == len(self._counts):  # another thread may have been here
                    self._add(counts)
            more, known = (sum(map(len, self._counts[start:])) for start in (self._kept_rounds, 0))
            is_due = known >= _LEAST_KEPT and more >= (1 if 1 < rounds <= _AT_ONCE else max(_LEAST_KEPT, known // 16))
            if self._kept is None or not is_due:
                return
            self._kept_rounds = len(self._counts)
            counts = np.concatenate(self._counts)
        self._kept.save(counts)

    def _add(self, counts: np.ndarray) -> None:
        self._counts.append(counts)
        self._starts.append(self._starts[-1] + int(counts.sum()))


def rows_in_words(order: Order, budgets: tuple[int, ...]) -> str:
    """What decides how many rows each pool has, beside the lengths of examples."""
    return f"rows {ROWS_VERSION} of pools of {_POOL}, {order}, {budgets}"


def _turns_of(rows: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which pool each row of a round is of, and which of its rows. Pools of `counts` rows, [turns], take turns while they last.

    >>> [column.tolist() for column in _turns_of(np.arange(6), np.array([2, 3, 1]))]
    [[0, 1, 2, 0, 1, 1], [0, 0, 0, 1, 1, 2]]
    """
    common = int(counts.min())
    more = np.cumsum(counts - common)
    numbers, turns = np.divmod(rows, len(counts))
    after = np.flatnonzero(numbers >= common)
    beyond = rows[after] - common * len(counts)
    turns[after] = np.searchsorted(more, beyond, side="right")
    numbers[after] = common + beyond - (more - counts + common)[turns[after]]
    return turns, numbers


def _in_turns(turns: np.ndarray, numbers: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The inverse of `_turns_of`."""
    common = int(counts.min())
    before = np.cumsum([0, *(counts - common)])[turns]
    return np.where(numbers < common, numbers * len(counts) + turns, common * (len(counts) - 1) + before + numbers)


def _unlock() -> None:
    """In a process that was forked, in which the thread that has the lock is not there."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_unlock)
