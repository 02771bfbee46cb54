"""`Timeline`: which corpus each element of a run is from, and its position there, where the weights change while the run goes on.

    element    0 ............ first_1 ................. first_2 .......
    stage      | 0            | 1                       | 2             each with weights of its own
    corpus a   0 1 . 2 . 3 .. | .. 40 . . 41 .. 42 .... |               goes on where it is
    corpus b   . . 0 . 1 . .. | .. . 17 18 . 19 . ..... | 60 . 61 ..

A corpus is read at positions 0, 1, 2, .., each once, whatever the weights. Within a unit of a stage, see `Shares`, partitions take
turns of their own. So a stage that ends within a unit may have left out some positions of that unit. The next stage that reads the
corpus reads them first. What was read before the end does not depend on where, or whether, the stage ends: so what comes may be
changed while a run goes on.

Where a stage changes how a corpus is cut (its denoisers), the change waits for the end of a round of the order that is being read,
after which another order goes on: so each token of an epoch stays in one example.

    positions  0 ............... asked .. switch ..............
    part       | 0                        | 1                           each an order, and an index in it
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.order.shares import Shares

_NO_END = 1 << 62


class Rounds(Protocol):
    """An order of examples or of rows, as far as where one may end and another go on; see `Order`."""

    @property
    def rounds(self) -> int: ...
    def round_of(self, element: int, /) -> int: ...
    def first_of(self, round: int, /) -> int: ...


class Wanted(NamedTuple):
    """A stage as it is asked for: its first element, how it mixes, and in the order of its kinds the corpora and their orders."""

    first: int
    mixing: Shares
    corpora: tuple[int, ...]
    orders: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Stage:
    """A stage as it is read: [first, stop), and for each of its kinds the corpus, and which positions there it reads.

    They are all from `fresh` of the kind on, and those of `left` of it, [m] int64, ascending, which earlier stages left out. With
    partitions the element i reads positions p of p = i modulo their number alone; of these it reads those left out first.
    """

    first: int
    stop: int
    mixing: Shares
    corpora: tuple[int, ...]
    left: tuple[np.ndarray, ...]
    fresh: tuple[int, ...]

    @cached_property
    def _lanes(self) -> tuple[_Lanes, ...]:
        """What is left of each kind."""
        found = []
        for left in self.left:
            of = left % self.mixing.partitions
            by_lane = np.argsort(of, kind="stable")
            counts = np.bincount(of, minlength=self.mixing.partitions)
            starts = np.cumsum(counts) - counts
            turns = np.empty_like(left)
            turns[by_lane] = np.arange(len(left)) - starts[of[by_lane]]
            found.append(_Lanes(left[by_lane], starts, counts, turns))
        return tuple(found)

    def at(self, kind: int, ranks: np.ndarray) -> np.ndarray:
        """The positions of the elements of a kind, by how many of the kind come before in this stage."""
        turns, lanes = np.divmod(ranks, self.mixing.partitions)
        lanes = (lanes + self.first) % self.mixing.partitions
        left, starts, counts, _ = self._lanes[kind]
        positions = self._fresh(kind, lanes) + (turns - counts[lanes]) * self.mixing.partitions
        if not len(left):
            return positions
        return np.where(turns < counts[lanes], left[np.minimum(starts[lanes] + turns, len(left) - 1)], positions)

    def ranks(self, kind: int, positions: np.ndarray) -> np.ndarray:
        """The inverse of `at`, [n] int64; -1 for a position that this stage does not come to."""
        lanes = positions % self.mixing.partitions
        _, _, counts, of_left = self._lanes[kind]
        turns = counts[lanes] + (positions - self._fresh(kind, lanes)) // self.mixing.partitions
        is_read = positions >= self.fresh[kind]
        if len(left := self.left[kind]):
            place = np.minimum(np.searchsorted(left, positions), len(left) - 1)
            turns = np.where(left[place] == positions, of_left[place], turns)
            is_read |= left[place] == positions
        return np.where(is_read, turns * self.mixing.partitions + (lanes - self.first) % self.mixing.partitions, -1)

    def most(self, kind: int) -> int:
        """How many elements of a kind the units have that this stage begins: it has no more of them."""
        return int(self.mixing.taken(-(-(self.stop - self.first) // self.mixing.unit))[kind])

    def after(self, kind: int, key: int | None) -> tuple[int, np.ndarray]:
        """What is read of a kind until the stage stops: see `Timeline.progress`."""
        size, partitions = self.mixing.unit, self.mixing.partitions
        units, rest = divmod(self.stop - self.first, size)
        before, after = (int(self.mixing.taken(each)[kind]) for each in (units, units + bool(rest)))
        kinds, ranks = self.mixing.positions(units * size + np.arange(rest), key)
        omitted = np.setdiff1d(np.arange(before, after), ranks[kinds == kind], assume_unique=True)
        left, starts, counts, _ = self._lanes[kind]
        lanes, turns = np.arange(partitions), after // partitions
        firsts = self._fresh(kind, lanes) + np.maximum(0, turns - counts) * partitions  # of each lane, the next that is fresh
        fresh = max(self.fresh[kind], int(firsts.max()) - partitions + 1)
        behind = np.arange(int(firsts.min()), fresh)  # lanes that had more left have come less far
        kept = np.arange(len(left)) - np.repeat(starts, counts) >= turns
        found = np.sort(np.concatenate([self.at(kind, omitted), left[kept], behind[behind >= firsts[behind % partitions]]]))
        gaps = np.flatnonzero(found != fresh - len(found) + np.arange(len(found)))
        apart = int(gaps[-1]) + 1 if len(gaps) else 0
        return fresh - (len(found) - apart), found[:apart]  # what comes right before the fresh ones is as they are

    def _fresh(self, kind: int, lanes: np.ndarray) -> np.ndarray:
        """The first fresh position of lanes."""
        return self.fresh[kind] + (lanes - self.fresh[kind]) % self.mixing.partitions


class _Lanes(NamedTuple):
    """What is left of a kind, lane by lane: the positions, [m]; where each lane's begin, and how many they are, [C].

    `turns`, [m], are which of its lane's each of `Stage.left` is, which ascend.
    """

    left: np.ndarray
    starts: np.ndarray
    counts: np.ndarray
    turns: np.ndarray


class Part(NamedTuple):
    """From position `first` of a corpus on, it is read in the order of this number, from element `start` of that on."""

    first: int
    order: int
    start: int


@dataclasses.dataclass(frozen=True)
class Timeline:
    """The stages of a run, and the parts of each corpus. `key` is of the order of corpora within a unit; None is that of a tree."""

    stages: tuple[Stage, ...]
    parts: tuple[tuple[Part, ...], ...]
    key: int | None

    def elements(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The order that makes each element, by its number, and its index there, [n] int64 each. Elements are from 0 to 2**62."""
        numbers = np.asarray(numbers, np.int64)
        if len(self.stages) == 1:
            return self._of_stage(self.stages[0], numbers)
        orders, indices = np.zeros_like(numbers), np.zeros_like(numbers)
        which = np.searchsorted([stage.first for stage in self.stages], numbers, side="right") - 1
        for number in np.unique(which).tolist():
            of = np.flatnonzero(which == number)
            orders[of], indices[of] = self._of_stage(self.stages[number], numbers[of])
        return orders, indices

    def _of_stage(self, stage: Stage, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        kinds, ranks = stage.mixing.positions(numbers - stage.first, self.key)
        if len(stage.corpora) == 1:
            return self._of_corpus(stage.corpora[0], stage.at(0, ranks))
        orders, indices = np.zeros_like(numbers), np.zeros_like(numbers)
        for kind in np.unique(kinds).tolist():
            of = np.flatnonzero(kinds == kind)
            orders[of], indices[of] = self._of_corpus(stage.corpora[kind], stage.at(kind, ranks[of]))
        return orders, indices

    def _of_corpus(self, corpus: int, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        parts = self.parts[corpus]
        if len(parts) == 1:
            return np.full_like(positions, parts[0].order), positions + (parts[0].start - parts[0].first)
        which = np.searchsorted([part.first for part in parts], positions, side="right") - 1
        firsts, orders, indices = np.array(parts, np.int64).T
        return orders[which], positions - firsts[which] + indices[which]

    def numbers(self, order: int, indices: np.ndarray) -> np.ndarray:
        """The inverse of `elements`: the elements that have these indices of an order, [m] int64; -1 for one that none has."""
        indices = np.asarray(indices, np.int64)
        found = np.full_like(indices, -1)
        for corpus, part, stop in self._parts_of(order):
            positions = np.where(indices >= part.start, indices - part.start + part.first, stop)
            for stage, kind in self._stages_of(corpus):
                ranks, most = stage.ranks(kind, positions), stage.most(kind)
                of = np.flatnonzero((ranks >= 0) & (ranks < most) & (positions < stop) & (found < 0))
                if len(of):
                    elements = stage.first + stage.mixing.places(np.full_like(of, kind), ranks[of], self.key)
                    found[of] = np.where(elements < stage.stop, elements, -1)
        return found

    def indices(self, order: int, first: int, last: int) -> list[tuple[int, int]]:
        """Ranges of indices of an order in which all lie that the elements first .. last have."""
        found = []
        for corpus, part, stop in self._parts_of(order):
            bounds = []
            for stage, kind in self._stages_of(corpus):
                start, end = max(first, stage.first), min(last + 1, stage.stop)
                if start < end:
                    units = (start - stage.first) // stage.mixing.unit, -(-(end - stage.first) // stage.mixing.unit)
                    ranks = [int(stage.mixing.taken(each)[kind]) for each in units]
                    turns = [np.arange(stage.mixing.partitions) + rank for rank in (ranks[0], ranks[1] - stage.mixing.partitions)]
                    bounds += [*stage.left[kind].tolist(), *(int(each) for of in turns for each in stage.at(kind, of))]
            least, most = max(min(bounds, default=stop), part.first), min(max(bounds, default=-1) + 1, stop)
            if least < most:
                found.append((least - part.first + part.start, most - part.first + part.start))
        return found

    def progress(self, corpus: int, element: int) -> tuple[int, np.ndarray]:
        """What the elements before one have read of a corpus: all positions below the first, without the second, [m] int64."""
        begun = [(stage, kind) for stage, kind in self._stages_of(corpus) if stage.first < element]
        if not begun:
            return 0, np.zeros([0], np.int64)
        stage, kind = begun[-1]
        fresh, left = dataclasses.replace(stage, stop=min(stage.stop, element)).after(kind, self.key)
        return fresh, left

    def parts_until(self, corpus: int, position: int = _NO_END) -> list[tuple[Part, int]]:
        """The parts of a corpus that begin before a position, each with where it ends, at the latest there."""
        parts = [part for part in self.parts[corpus] if part.first < position]
        return list(zip(parts, [*(following.first for following in parts[1:]), position]))

    def _stages_of(self, corpus: int) -> Iterator[tuple[Stage, int]]:
        return ((stage, stage.corpora.index(corpus)) for stage in self.stages if corpus in stage.corpora)

    def _parts_of(self, order: int) -> list[tuple[int, Part, int]]:
        """The parts with an order: their corpora, they themselves, and where they end."""
        return self._by_order.get(order, [])

    @cached_property
    def _by_order(self) -> dict[int, list[tuple[int, Part, int]]]:
        found: dict[int, list[tuple[int, Part, int]]] = {}
        for corpus in range(len(self.parts)):
            for part, stop in self.parts_until(corpus):
                found.setdefault(part.order, []).append((corpus, part, stop))
        return found


def arrange(wanted: Sequence[Wanted], orders: Sequence[Rounds], key: int | None) -> Timeline:
    """Finds where each corpus is at the beginning of each stage, and where its orders change.

    The first stage begins at 0, and each has a later first element than the one before.
    """
    corpora = 1 + max(corpus for stage in wanted for corpus in stage.corpora)
    stages: list[Stage] = []
    parts: list[list[Part]] = [[] for _ in range(corpora)]
    left = [np.zeros([0], np.int64) for _ in range(corpora)]
    fresh = [0] * corpora
    for number, (first, mixing, of, by) in enumerate(wanted):
        stop = wanted[number + 1].first if number + 1 < len(wanted) else _NO_END
        for corpus, order in zip(of, by):
            _switch_to(parts[corpus], order, fresh[corpus], orders)
        stages.append(Stage(first, stop, mixing, of, tuple(left[corpus] for corpus in of), tuple(fresh[corpus] for corpus in of)))
        if stop != _NO_END:
            for kind, corpus in enumerate(of):
                fresh[corpus], left[corpus] = stages[-1].after(kind, key)
    return Timeline(tuple(stages), tuple(map(tuple, parts)), key)


def _switch_to(parts: list[Part], order: int, position: int, orders: Sequence[Rounds]) -> None:
    """Has a corpus go on in an order from its first switch at or after a position on."""
    while len(parts) > 1 and parts[-1].first >= position:
        parts.pop()  # asked for, but not begun
    if not parts:
        parts.append(Part(0, order, 0))
    elif parts[-1].order != order:
        last = parts[-1]
        index = position - last.first + last.start
        before = orders[last.order]
        round = before.round_of(index)
        round += before.first_of(round) < index
        first = position + before.first_of(round) - index
        new = Part(first, order, orders[order].first_of(round))
        parts[-1:] = [new] if first == last.first else [last, new]
