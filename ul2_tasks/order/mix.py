"""`Mix`: which corpus each element of a run is of, and its position there: arithmetic, for any number of corpora and any weights.

    weights  0.9  0.1  0.000001           after n elements each corpus has come its fraction of n times,
               \\    \\  /                  give or take about one
                \\    p = 0.99999
                 p = 0.9

Corpora are the leaves of a tree. Each node splits the elements that reach it in two, as evenly as a fraction p can be kept: of the
first n, [n p + 1/2] go left. So how many elements of each corpus come before any n is known, and a stage may end anywhere:

    element    0 ............ first_1 ................. first_2 .......
    stage      | 0            | 1                       | 2             each with weights of its own
    corpus a   0 1 . 2 . 3 .. | .. 40 . . 41 .. 42 .... |               goes on where it is
    corpus b   . . 0 . 1 . .. | .. . 17 18 . 19 . ..... | 60 . 61 ..

A corpus is read at positions 0, 1, 2, .., each once, whatever the weights; and what was read does not depend on what comes.

Where corpora are shuffled in blocks, with C partitions, C elements in a row are of one corpus, a *turn*, one of each partition:
element i is of partition i mod C, and so is its position. Stages then begin at whole turns, and it is turns that are mixed exactly.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.compiled import compiled, part_of_compiled
from ul2_tasks.scalars import fractions, is_finite


class Stage(NamedTuple):
    """From element `first` on, these corpora are mixed in these shares."""

    first: int
    corpora: tuple[int, ...]
    shares: Shares


@dataclasses.dataclass(frozen=True)
class Mix:
    """The corpora of elements without end. The first stage begins at 0, and each other one later than the one before.

    >>> mix = Mix((Stage(0, (0, 1), Shares((3, 1))), Stage(5, (1,), Shares((1,)))))
    >>> mix.elements(np.arange(7))
    (array([0, 0, 1, 0, 0, 1, 1]), array([0, 1, 0, 2, 3, 1, 2]))
    >>> mix.before(5), mix.numbers(1, np.arange(3))
    (array([4, 1]), array([2, 5, 6]))
    """

    stages: tuple[Stage, ...]
    turns: int = 1

    @cached_property
    def _firsts(self) -> np.ndarray:
        """[stages] int64, their first turns."""
        return np.array([-(-stage.first // self.turns) for stage in self.stages])

    @cached_property
    def _begun(self) -> np.ndarray:
        """[stages, corpora] int64, how many turns of each corpus come before each stage."""
        found = np.zeros([len(self.stages), 1 + max(max(stage.corpora) for stage in self.stages)], np.int64)
        for number, (stage, turns) in enumerate(zip(self.stages, np.diff(self._firsts).tolist())):
            found[number + 1] = found[number]
            found[number + 1, list(stage.corpora)] += stage.shares.counts(turns)
        return found

    @property
    def begun(self) -> np.ndarray:
        """[stages, corpora] int64, the position of each corpus where each stage begins."""
        return self._begun * self.turns

    def elements(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The corpus of each element, and the position in it, [n] int64 each. Elements are [n] integers from 0, below 2**60."""
        turns, lanes = np.divmod(np.asarray(numbers, np.int64), self.turns)
        stages = np.searchsorted(self._firsts, turns, side="right") - 1
        corpora, positions = np.zeros_like(turns), np.zeros_like(turns)
        for number in np.unique(stages).tolist():
            of = np.flatnonzero(stages == number)
            kinds, ranks = self.stages[number].shares.positions(turns[of] - self._firsts[number])
            corpora[of] = np.array(self.stages[number].corpora)[kinds]
            positions[of] = (self._begun[number, corpora[of]] + ranks) * self.turns + lanes[of]
        return corpora, positions

    def numbers(self, corpus: int, positions: np.ndarray) -> np.ndarray:
        """The inverse of `elements`, [n] int64; -1 for a position that no stage comes to."""
        turns, lanes = np.divmod(np.asarray(positions, np.int64), self.turns)
        stages = np.searchsorted(self._begun[1:, corpus], turns, side="right")
        found = np.full_like(turns, -1)
        for number in np.unique(stages).tolist():
            stage = self.stages[number]
            if corpus in stage.corpora:
                of = np.flatnonzero(stages == number)
                kinds = np.full_like(of, stage.corpora.index(corpus))
                places = stage.shares.places(kinds, turns[of] - self._begun[number, corpus])
                found[of] = (self._firsts[number] + places) * self.turns + lanes[of]
        return found

    def before(self, element: int) -> np.ndarray:
        """[corpora] int64, how many elements of each corpus come before one: so many of its positions are read."""
        turns, lanes = divmod(element, self.turns)
        number = int(np.searchsorted(self._firsts, turns, side="right")) - 1
        found, stage = self._begun[number].copy(), self.stages[number]
        found[list(stage.corpora)] += stage.shares.counts(turns - int(self._firsts[number]))
        found *= self.turns
        if lanes:
            found[self.elements(np.array([turns * self.turns]))[0]] += lanes
        return found


@dataclasses.dataclass(frozen=True)
class Shares:
    """Places of several kinds without end, at the fractions of `weights`, each a finite number above 0.

    >>> shares = Shares((0.75, 0.25))
    >>> shares.positions(np.arange(8))
    (array([0, 0, 1, 0, 0, 0, 1, 0]), array([0, 1, 0, 2, 3, 4, 1, 5]))
    >>> shares.counts(8)
    array([6, 2])
    """

    weights: tuple[float, ...]

    def __post_init__(self):
        if not self.weights or not all(is_finite(weight) and weight > 0 for weight in self.weights):
            raise ValueError(f"weights must be finite numbers above 0, got {list(self.weights)}.")

    @classmethod
    def of(cls, weights: Iterable[float]) -> Shares:
        """Those of weights of any sum: of multiples of the weights they are the same."""
        return _shares(tuple(weights))

    @cached_property
    def _tree(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The left and right child of each node and the fraction of the left, in 2**-64; and the parents of all, [nodes] each.

        Node 0 is the root. A child that is a leaf is -1 - its kind. The parent of kind k is in place k, as 2 * node + is_right.
        """
        left: list[int] = []
        right: list[int] = []
        fractions: list[int] = []
        parents = np.zeros(len(self.weights), np.int64)
        ratios = [weight.as_integer_ratio() for weight in map(float, self.weights)]
        scale = max(denominator for _, denominator in ratios)  # a power of 2, as all are
        exact = [numerator * (scale // denominator) for numerator, denominator in ratios]
        order = sorted(range(len(exact)), key=lambda kind: -exact[kind])
        node_parents: list[int] = []
        waiting = [(order, -1)]
        while waiting:
            kinds, parent = waiting.pop()
            if len(kinds) == 1:
                parents[kinds[0]] = parent
                child = -1 - kinds[0]
            else:
                child = len(left)
                first = _half([exact[kind] for kind in kinds])
                share = Fraction(sum(exact[kind] for kind in kinds[:first]), sum(exact[kind] for kind in kinds))
                left.append(0)
                right.append(0)
                node_parents.append(parent)
                fractions.append(min((1 << 64) - 1, max(1, round(share * (1 << 64)))))
                waiting += [(kinds[:first], 2 * child), (kinds[first:], 2 * child + 1)]
            if parent >= 0:
                (right if parent % 2 else left)[parent // 2] = child
        as_arrays = (np.array(each, np.int64) for each in (left, right))
        return *as_arrays, np.array(fractions, np.uint64), np.concatenate([parents, np.array(node_parents, np.int64)])

    def positions(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The kind at each place, and how many of this kind stand before it, [n] int64 both."""
        places = np.asarray(places, np.int64)
        return (np.zeros_like(places), places.copy()) if len(self.weights) == 1 else _descend(self._tree, places)

    def places(self, kinds: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """The inverse of `positions`, [n] int64."""
        positions = np.asarray(positions, np.int64)
        return positions.copy() if len(self.weights) == 1 else _climb(self._tree, np.asarray(kinds, np.int64), positions)

    def counts(self, places: int) -> np.ndarray:
        """[K] int64, how many of the first places each kind has."""
        return _counts(self._tree, np.arange(len(self.weights)), places)


@functools.lru_cache(1 << 12)
def _shares(weights: tuple[float, ...]) -> Shares:
    """Those of the same weights once, with their tree: a run may have thousands of stages, and get more."""
    return Shares(tuple(fractions(dict(enumerate(weights))).values()))


def _half(weights: Sequence[int]) -> int:
    """How many of the weights, which descend, are nearest to half of all: at least one, and not all."""
    total, before, best = sum(weights), 0, 1
    nearest = 2 * total
    for count, weight in enumerate(weights[:-1], start=1):
        before += weight
        if abs(2 * before - total) < nearest:
            best, nearest = count, abs(2 * before - total)
    return best


@part_of_compiled
def _left_of(count, fraction):
    """[count * fraction / 2**64 + 1/2], for a count below 2**63."""
    low, high = np.uint64(0xFFFFFFFF), np.uint64(32)
    n, p = np.uint64(count), np.uint64(fraction)
    n0, n1, p0, p1 = n & low, n >> high, p & low, p >> high
    middle = (n0 * p0 >> high) + (n1 * p0 & low) + n0 * p1
    upper = n1 * p1 + (n1 * p0 >> high) + (middle >> high)
    return np.int64(upper + (np.uint64(n * p) >> np.uint64(63)))


@compiled
def _descend(tree, places):
    """The kind at each place, and how many places of it come before, [n] int64 each. For the tree see `Shares`."""
    left, right, fractions, _ = tree
    kinds, ranks = np.zeros_like(places), np.zeros_like(places)
    for number in range(len(places)):
        node, rank = 0, places[number]
        while node >= 0:
            before = _left_of(rank, fractions[node])
            if _left_of(rank + 1, fractions[node]) > before:
                node, rank = left[node], before
            else:
                node, rank = right[node], rank - before
        kinds[number], ranks[number] = -1 - node, rank
    return kinds, ranks


@compiled
def _climb(tree, kinds, ranks):
    """The place of each rank of each kind, [n] int64."""
    _, _, fractions, parents = tree
    leaves = len(parents) - len(fractions)
    found = np.zeros(len(kinds), np.int64)
    for number in range(len(kinds)):
        rank, at = ranks[number], parents[kinds[number]]
        while at >= 0:
            node, is_right = at >> 1, at & 1
            # The last n of whose first n the side has had `rank`: about (rank + 1/2) / fraction, and then by halves.
            fraction = np.uint64(0) - fractions[node] if is_right else fractions[node]
            about = (rank + 0.5) * 2.0**64 / np.float64(fraction)
            slack = 2 + about * 2.0**-48
            first, last = np.int64(max(0.0, about - slack)), np.int64(min(about + slack, 2.0**62))
            while last - first > 1:
                middle = first + (last - first) // 2
                had = _left_of(middle, fractions[node])
                if (middle - had if is_right else had) > rank:
                    last = middle
                else:
                    first = middle
            rank, at = first, parents[leaves + node]
        found[number] = rank
    return found


@compiled
def _counts(tree, kinds, places):
    """How many of the first places each kind has, [n] int64."""
    left, right, fractions, _ = tree
    at_nodes, found = np.zeros(len(fractions), np.int64), np.zeros(len(kinds), np.int64)
    if not len(fractions):
        found[:] = places
        return found
    at_nodes[0] = places
    for node in range(len(fractions)):  # a child comes after its parent
        had = _left_of(at_nodes[node], fractions[node])
        for child, count in ((left[node], had), (right[node], at_nodes[node] - had)):
            if child >= 0:
                at_nodes[child] = count
            else:
                found[-1 - child] = count
    return found
