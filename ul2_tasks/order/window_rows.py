"""`WindowRows`: packed rows of examples whose lengths differ. Windows of an epoch's examples are packed, each for itself.

    examples    0 ............... | 16,384 ............. | ..       in the order of the epoch, each with lengths of its own
    window      0                 | 1                    | ..       best fit: which of its examples share a row
    rows        0 ........ 2,710  | 2,711 ....... 5,398  | ..       permuted within their window

A window's rows are a function of the seed, the epoch and the window alone, so any row can be made without those before it, once it
is known how many rows each window before has. These are counted when they are first asked for, and remembered; what they are kept
in, if anything, has them for other processes. Rows that are read one after the other cost no more than their own windows.

A window of a `BlockOrder` is one of its own windows, so that a row is of the blocks of one partition. The windows of a round take
turns, as far as each has rows.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import os
import threading
from collections.abc import Iterator
from concurrent import futures
from typing import NamedTuple, Protocol

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.order.best_fit import best_fit
from ul2_tasks.order.blocks import BlockOrder, Places
from ul2_tasks.order.epochs import FOR_ROWS, Order, Switch, expanded
from ul2_tasks.order.permutation import invert, keyed, keys, permute
from ul2_tasks.order.rows import RowSlots

ROWS_VERSION = 1  # raised whenever a window of examples is packed in another way
_WINDOW = 1 << 14  # examples
_PACKED = 1 << 7  # windows that are remembered, where no round has more
_SAMPLED = 8  # windows
_AT_ONCE = 1 << 8  # rounds
_LEAST_KEPT = 1 << 5  # windows: fewer are packed in less time than a file is read and written
_lock = threading.RLock()


class ExampleLengths(Protocol):
    """The lengths of examples, known without their tokens."""

    def lengths_of(self, epochs: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """[n, F] int64, how long each feature of the example of each slot is, in tokens. Both arguments are [n] int64."""


class Kept(Protocol):
    """What keeps how many rows each window has, see `files.kept_counts.KeptCounts`."""

    def load(self) -> np.ndarray:
        """Of the first windows, [n] int64; none where nothing is kept."""

    def save(self, counts: np.ndarray) -> None:
        """Keeps those of the first windows, [n] int64."""


class _Window(NamedTuple):
    """A packed window: where its rows begin among `examples`, [rows + 1] int64; these in the order of the rows, [m] int64."""

    starts: np.ndarray
    examples: np.ndarray


@dataclasses.dataclass(eq=False)
class _Counted:
    """What is remembered: the rows before each round, those of the windows of each, and the windows that were packed last.

    `kept` of the counted windows are kept, those of `kept_rounds` rounds.
    """

    starts: list[int]
    counts: list[np.ndarray]
    windows: collections.OrderedDict[tuple[int, int], _Window]
    kept: int = 0
    kept_rounds: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class WindowRows:
    """The examples of an order in rows of these budgets, epoch after epoch; see `PackedOrder`, whose methods these are.

    Windows come in rounds, which are counted over all epochs. A round of an `Order` is one window.
    """

    order: Order | BlockOrder
    lengths: ExampleLengths
    budgets: tuple[int, ...]
    kept: Kept | None = None

    def __reduce__(self) -> tuple:
        """For another process, which packs for itself."""
        return WindowRows, (self.order, self.lengths, self.budgets, self.kept)

    @cached_property
    def _counted(self) -> _Counted:
        found = _Counted([0], [], collections.OrderedDict())
        self._take_up(found)
        return found

    @cached_property
    def _turns(self) -> list[int]:
        """How many windows each round of an epoch has."""
        if isinstance(self.order, Order):
            return [1] * -(-self.order.examples // _WINDOW)
        windows = self.order.windows
        return [turns for count, turns in zip(windows.windows, windows.partitions) for _ in range(count // turns)]

    @cached_property
    def _bounds(self) -> np.ndarray:
        """[rounds + 1] int64, where the windows of an epoch of an `Order` begin, in examples."""
        return np.arange(len(self._turns) + 1) * self.order.examples // len(self._turns)

    @cached_property
    def _sections(self) -> np.ndarray:
        """[sections + 1] int64, the first round of each section of a `BlockOrder`."""
        windows = self.order.windows  # type: ignore[union-attr]
        return np.cumsum([0, *(count // turns for count, turns in zip(windows.windows, windows.partitions))])

    @cached_property
    def rows_about(self) -> float:
        """How many rows an epoch has, if all of it is as some windows spread over it."""
        count = min(len(self._turns), max(1, _SAMPLED // self._turns[0]))
        rounds = [number * len(self._turns) // count for number in range(count)]
        if count == len(self._turns):
            return float(self._start(count))
        examples = sum(len(self._examples(number, turn)) for number in rounds for turn in range(self._turns[number]))
        return sum(int(self._count(number).sum()) for number in rounds) / examples * self.order.examples

    def slots(self, rows: np.ndarray) -> RowSlots:
        """See `PackedOrder.slots`."""
        rows = np.asarray(rows, np.int64)
        found = [(np.zeros([0], np.int64),) * 2]
        for number, of_round in self._by_round(rows):
            turns, numbers = _turns_of(rows[of_round] - self._start(number), self._counts(number))
            for turn in np.unique(turns).tolist():
                is_own = turns == turn
                window, own = self._packed(number, turn), numbers[is_own]
                if self.order.shuffle:
                    own = permute(own, len(window.starts) - 1, self._key(number, turn))
                of_row, at = expanded(of_round[is_own], window.starts[own], window.starts[own + 1])
                found.append((of_row, window.examples[at]))
        places, examples = (np.concatenate(each) for each in zip(*found))
        by_row = np.argsort(places, kind="stable")
        return RowSlots(places[by_row], *self.order.slots(examples[by_row]))

    def rows_at(self, epochs: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """See `PackedOrder.rows_at`."""
        examples = self.order.examples_at(epochs, slots)
        found = np.zeros_like(examples)
        windows, of_each = np.unique(np.stack(self._windows_with(examples), axis=1), axis=0, return_inverse=True)
        for place, (number, turn) in enumerate(windows.tolist()):
            of, window = np.flatnonzero(of_each.reshape(-1) == place), self._packed(number, turn)
            by_number = np.argsort(window.examples)
            at = by_number[np.searchsorted(window.examples, examples[of], sorter=by_number)]
            rows = np.searchsorted(window.starts, at, side="right") - 1
            if self.order.shuffle:
                rows = invert(rows, len(window.starts) - 1, self._key(number, turn))
            found[of] = self._start(number) + _in_turns(turn, rows, self._counts(number))
        return found

    def switch(self, row: int) -> Switch:
        """See `Order.switch`."""
        self._count_past(row)
        return self._switch(-(-bisect.bisect_left(self._counted.starts, row) // self._step))

    def begun(self, row: int) -> Switch:
        """See `Order.begun`."""
        self._count_past(row)
        return self._switch((bisect.bisect_right(self._counted.starts, row) - 1) // self._step)

    def first_of(self, epoch: int, number: int) -> int:
        """See `Order.first_of`."""
        return self._start(epoch * len(self._turns) + number)

    @property
    def _step(self) -> int:
        """How many rounds there are from where the order may end to where it may end next."""
        return len(self._turns) if isinstance(self.order, Order) else 1

    def _switch(self, steps: int) -> Switch:
        epoch, number = divmod(steps * self._step, len(self._turns))
        return Switch(epoch, number, self._start(steps * self._step))

    def _by_round(self, rows: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """The rounds that have some of the rows, and which these are."""
        if not len(rows):
            return
        self._count_past(int(rows.max()))
        first, last = (bisect.bisect_right(self._counted.starts, int(each)) - 1 for each in (rows.min(), rows.max()))
        numbers = first + np.searchsorted(self._counted.starts[first + 1 : last + 1], rows, side="right")
        for number in np.unique(numbers).tolist():
            yield number, np.flatnonzero(numbers == number)

    def _start(self, number: int) -> int:
        """How many rows there are before a round."""
        if len(self._counted.starts) <= number:
            first = len(self._counted.starts)
            while (known := len(self._counted.starts)) <= number:
                self._count_more(number + 1 - known)
            self._keep(is_last=number > first)
        return self._counted.starts[number]

    def _count_past(self, row: int) -> None:
        """Counts rounds until one ends after a row."""
        first = len(self._counted.counts)
        while (known := self._counted.starts[-1]) <= row:
            of_each = known / len(self._counted.counts) if known else row + 1
            self._count_more(1 + int((row - known) / of_each))
        if len(self._counted.counts) > first + 1:
            self._keep(is_last=True)

    def _count_more(self, rounds: int) -> None:
        """Counts at most so many rounds more, several at a time."""
        numbers = range(first := len(self._counted.counts), first + min(rounds, _AT_ONCE))
        if rounds == 1:  # it is about to be read
            turns = range(self._turns[first % len(self._turns)])
            found = [np.array([len(self._packed(first, turn).starts) - 1 for turn in turns])]
        else:
            with futures.ThreadPoolExecutor(os.cpu_count()) as threads:
                found = list(threads.map(self._count, numbers))
        with _lock:
            for number, counts in zip(numbers, found):
                if number == len(self._counted.counts):  # another thread may have been here
                    self._counted.counts.append(counts)
                    self._counted.starts.append(self._counted.starts[-1] + int(counts.sum()))
        self._keep()

    def _keep(self, is_last: bool = False) -> None:
        """Keeps what was counted: each time that some windows more are, and at the end of a jump, of which it `is_last`."""
        with _lock:
            found, more = self._counted, sum(map(len, self._counted.counts[self._counted.kept_rounds :]))
            windows = found.kept + more
            if self.kept is None or windows < _LEAST_KEPT or more < (1 if is_last else max(_LEAST_KEPT, windows // 16)):
                return
            found.kept, found.kept_rounds = windows, len(found.counts)
            counts = np.concatenate(found.counts)
        self.kept.save(counts)

    def _take_up(self, counted: _Counted) -> None:
        """Takes up what is kept."""
        if self.kept is None or not len(kept := self.kept.load()):
            return
        turns = np.resize(self._turns, max(1, len(kept) // min(self._turns)) + 1)
        stops = np.cumsum(turns)
        stops = stops[stops <= len(kept)]
        counted.counts += np.split(kept[: stops[-1]], stops[:-1]) if len(stops) else []
        counted.starts += np.cumsum(kept)[stops - 1].tolist()
        counted.kept, counted.kept_rounds = int(stops[-1]) if len(stops) else 0, len(stops)

    def _count(self, number: int) -> np.ndarray:
        """[turns] int64, how many rows each window of a round has."""
        turns = range(self._turns[number % len(self._turns)])
        return np.array([self._rows(self._examples(number, turn)).max() + 1 for turn in turns])

    def _counts(self, number: int) -> np.ndarray:
        """The same, of a round that is counted once."""
        self._start(number + 1)
        return self._counted.counts[number]

    def _packed(self, number: int, turn: int) -> _Window:
        with _lock:
            if (number, turn) in self._counted.windows:
                self._counted.windows.move_to_end((number, turn))
                return self._counted.windows[number, turn]
        examples = self._examples(number, turn)
        rows = self._rows(examples)
        if not self.order.shuffle:  # then rows come in the order of their first examples
            _, firsts, of_each = np.unique(rows, return_index=True, return_inverse=True)
            rows = np.argsort(np.argsort(firsts))[of_each.reshape(-1)]
        found = _Window(np.cumsum([0, *np.bincount(rows)]), examples[np.argsort(rows, kind="stable")])
        with _lock:
            self._counted.windows[number, turn] = found
            while len(self._counted.windows) > max(_PACKED, 2 * max(self._turns)):
                self._counted.windows.popitem(last=False)
        return found

    def _rows(self, examples: np.ndarray) -> np.ndarray:
        """[m] int64, the row of each example of a window."""
        return best_fit(self.lengths.lengths_of(*self.order.slots(examples)), self.budgets)

    def _examples(self, number: int, turn: int) -> np.ndarray:
        """[m] int64, the examples of a window, counted over all epochs."""
        epoch, number = divmod(number, len(self._turns))
        if isinstance(self.order, Order):
            return epoch * self.order.examples + np.arange(self._bounds[number], self._bounds[number + 1])
        windows, section = self.order.windows, int(np.searchsorted(self._sections, number, side="right")) - 1
        numbers = np.arange(windows.sizes[section])
        window = (number - int(self._sections[section])) * windows.partitions[section] + turn
        epochs, sections, of_window = (np.full_like(numbers, each) for each in (epoch, section, window))
        return windows.elements_at(Places(epochs, sections, of_window, numbers))

    def _windows_with(self, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The round that each example is of, and which of its windows, [n] int64 each."""
        if isinstance(self.order, Order):
            epochs, numbers = np.divmod(examples, self.order.examples)
            rounds = np.searchsorted(self._bounds, numbers, side="right") - 1
            return epochs * len(self._turns) + rounds, np.zeros_like(rounds)
        places = self.order.windows.places(examples)
        rounds, turns = np.divmod(places.windows, np.asarray(self.order.windows.partitions)[places.sections])
        return places.epochs * len(self._turns) + self._sections[places.sections] + rounds, turns

    def _key(self, number: int, turn: int) -> np.ndarray:
        return keys(keyed(self.order.seed, FOR_ROWS), np.array([number]), np.array([turn]))


def rows_in_words(order: Order | BlockOrder, budgets: tuple[int, ...]) -> str:
    """What decides how many rows each window has, beside the lengths of examples."""
    return f"rows {ROWS_VERSION} of windows of {_WINDOW}, {order}, {budgets}"


def _turns_of(rows: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which window each row of a round is of, and which of its rows. Windows of `counts` rows, [turns], take turns while they last.

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


def _in_turns(turn: int, numbers: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The inverse of `_turns_of`, for rows of one window."""
    common = int(counts.min())
    before = int((counts[:turn] - common).sum())
    return np.where(numbers < common, numbers * len(counts) + turn, common * (len(counts) - 1) + before + numbers)


def _unlock() -> None:
    """In a process that was forked, in which the thread that has the lock is not there."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_unlock)
