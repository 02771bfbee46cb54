"""`Shares`: which kind comes at each place, for any number of kinds and fractions of any size: one in a million is not raised.

A `Cycle` has a table of its slots, and so at most some thousands. Here kinds are the leaves of a tree. Each node splits the places
that reach it in two, as evenly as a fraction p can be kept: of the first n, [n p + 1/2] go left. So the kind of place n, and how
many places of its kind come before, follow from n by one multiplication a level, and back.

    weights  0.9  0.1  0.000001           after n places each kind has come its fraction of n times,
               \\    \\  /                  give or take about one
                \\    p = 0.99999
                 p = 0.9

With `partitions` C a kind comes C times in a row of turns, one turn for each partition: place i is of partition i mod C, and so is
the position that it has among those of its kind, modulo C. So a reader of every C-th place reads every C-th position of each kind.
In a unit of `_GROUP` C places each partition meets each of `_GROUP` leaves once, each at another time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.compiled import compiled, part_of_compiled
from ul2_tasks.order.permutation import invert, keys, permute
from ul2_tasks.scalars import is_finite

_GROUP = 64  # places that are shuffled among each other, of each partition
_ROWS, _TURNS = 0, 1  # what a key is for


@dataclasses.dataclass(frozen=True)
class Shares:
    """Places of several kinds without end, at the fractions of `weights`, each a finite number above 0.

    It has the methods of a `Cycle` that repeats.

    >>> shares = Shares((0.75, 0.25))
    >>> shares.positions(np.arange(8))
    (array([0, 0, 1, 0, 0, 0, 1, 0]), array([0, 1, 0, 2, 3, 4, 1, 5]))
    >>> shares.taken(2)  # by two units
    array([96, 32])
    """

    weights: tuple[float, ...]
    partitions: int = 1

    def __post_init__(self):
        if not self.weights or not all(is_finite(weight) and weight > 0 for weight in self.weights):
            raise ValueError(f"weights must be finite numbers above 0, got {list(self.weights)}.")

    @property
    def unit(self) -> int:
        """How many places make a unit: they are a permutation of places of the tree, or of each partition's."""
        return _GROUP * self.partitions

    @cached_property
    def _tree(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The left and right child of each node and the fraction of the left, in 2**-64; and the parents of all, [nodes] each.

        Node 0 is the root. A child that is a leaf is -1 - its kind. The parent of kind k is in place k, as 2 * node + is_right.
        """
        left: list[int] = []
        right: list[int] = []
        fractions: list[int] = []
        parents = np.zeros(len(self.weights), np.int64)
        exact = [Fraction(weight) for weight in self.weights]
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
                share = sum(exact[kind] for kind in kinds[:first]) / sum(exact[kind] for kind in kinds)
                left.append(0)
                right.append(0)
                node_parents.append(parent)
                fractions.append(min((1 << 64) - 1, max(1, round(share * (1 << 64)))))
                waiting += [(kinds[:first], 2 * child), (kinds[first:], 2 * child + 1)]
            if parent >= 0:
                (right if parent % 2 else left)[parent // 2] = child
        as_arrays = (np.array(each, np.int64) for each in (left, right))
        return *as_arrays, np.array(fractions, np.uint64), np.concatenate([parents, np.array(node_parents, np.int64)])

    def positions(self, places: np.ndarray, key: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """See `Cycle.positions`. `key` shuffles the places within each unit."""
        units, within = np.divmod(np.asarray(places, np.int64), self.unit)
        turns, partitions = np.divmod(within, self.partitions)
        if key is not None:
            turns = permute(turns, _GROUP, keys(key, units, np.full_like(units, _ROWS)))
            if self.partitions > 1:
                turns = (turns + self._offsets(units, partitions, key)) % _GROUP
        kinds, ranks = self._at(units * _GROUP + turns)
        return kinds, ranks * self.partitions + partitions

    def places(self, kinds: np.ndarray, positions: np.ndarray, key: int | None = None) -> np.ndarray:
        """The inverse of `positions`, [..] int64."""
        ranks, partitions = np.divmod(np.asarray(positions, np.int64), self.partitions)
        units, turns = np.divmod(self._places_of(np.broadcast_to(np.asarray(kinds, np.int64), ranks.shape), ranks), _GROUP)
        if key is not None:
            if self.partitions > 1:
                turns = (turns - self._offsets(units, partitions, key)) % _GROUP
            turns = invert(turns, _GROUP, keys(key, units, np.full_like(units, _ROWS)))
        return units * self.unit + turns * self.partitions + partitions

    def taken(self, units: int) -> np.ndarray:
        """[K] int64, how many places of each kind the first units have."""
        kinds = np.arange(len(self.weights))
        return self.partitions * _counts(self._tree, kinds, units * _GROUP)

    def _offsets(self, units: np.ndarray, partitions: np.ndarray, key: int) -> np.ndarray:
        return permute(partitions % _GROUP, _GROUP, keys(key, units, np.full_like(units, _TURNS)))

    def _at(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = _walk(self._tree, np.ascontiguousarray(places).reshape(-1))
        return found[0].reshape(places.shape), found[1].reshape(places.shape)

    def _places_of(self, kinds: np.ndarray, ranks: np.ndarray) -> np.ndarray:
        flat = (np.ascontiguousarray(each).reshape(-1) for each in (kinds, ranks))
        return _climb(self._tree, *flat).reshape(ranks.shape)


def _half(weights: Sequence[Fraction]) -> int:
    """How many of the weights, which descend, are nearest to half of all: at least one, and not all."""
    total, before, best = sum(weights, Fraction(0)), Fraction(0), 1
    nearest = total
    for count, weight in enumerate(weights[:-1], start=1):
        before += weight
        if abs(before - total / 2) < nearest:
            best, nearest = count, abs(before - total / 2)
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
def _walk(tree, places):
    """The kind at each place, and how many places of it come before, [n] int64 each. For the tree see `Shares`."""
    left, right, fractions, _ = tree
    kinds, ranks = np.zeros(len(places), np.int64), places.copy()
    if not len(fractions):
        return kinds, ranks
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
            # The last n of whose first n the side has had `rank`: found by halves.
            first, last = np.int64(rank), np.int64(rank + 1)
            while True:
                had = _left_of(last, fractions[node])
                if (last - had if is_right else had) > rank or last >= np.int64(1 << 62):
                    break
                first, last = last, min(np.int64(last * 2), np.int64(1 << 62))
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
