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

With a key the kinds of each unit are shuffled, a group of places of each partition, each partition's in another turn: a reader of
every h-th place would otherwise find the same kinds always. A group is the shortest that has the ratio exactly, or has `_MOST`
places. Positions of a kind ascend all the same, those of each partition: so where a corpus ends is one place of a mixture, before
which nothing after it is read.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.compiled import compiled, part_of_compiled
from ul2_tasks.order.permutation import GOLDEN, keys, mix, permute
from ul2_tasks.scalars import fractions, is_finite

_MOST = 64  # places that are shuffled among each other, of each partition
_ROWS, _TURNS = 0, 1  # what a key is for
_EXACT = 1e-9  # of a place, what rounding of floats explains
_GOLDEN = np.uint64(GOLDEN)
_mix = part_of_compiled(mix)  # of one uint64


@dataclasses.dataclass(frozen=True)
class Shares:
    """Places of several kinds without end, at the fractions of `weights`, each a finite number above 0.

    >>> shares = Shares((0.75, 0.25))
    >>> shares.positions(np.arange(8))
    (array([0, 0, 1, 0, 0, 0, 1, 0]), array([0, 1, 0, 2, 3, 4, 1, 5]))
    >>> shares.taken(2)  # by two units
    array([6, 2])
    """

    weights: tuple[float, ...]
    partitions: int = 1

    def __post_init__(self):
        if not self.weights or not all(is_finite(weight) and weight > 0 for weight in self.weights):
            raise ValueError(f"weights must be finite numbers above 0, got {list(self.weights)}.")

    @classmethod
    def of(cls, weights: Iterable[float], partitions: int = 1) -> Shares:
        """Those of weights of any sum: of multiples of the weights they are the same."""
        return cls(tuple(fractions(dict(enumerate(weights))).values()), partitions)

    @cached_property
    def group(self) -> int:
        """How many places of each partition are shuffled among each other."""
        counts = np.outer(np.arange(1, _MOST), np.array(self.weights) / math.fsum(self.weights))
        exact = np.flatnonzero((np.abs(counts - np.rint(counts)) < _EXACT).all(axis=1))
        return int(exact[0]) + 1 if len(exact) else _MOST

    @property
    def unit(self) -> int:
        """How many places make a unit: its kinds are a permutation of those of the tree, of each partition."""
        return self.group * self.partitions

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

    def positions(self, places: np.ndarray, key: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The kind at each place, and how many of this kind stand before it, or of this kind and partition, see above.

        `key` shuffles the kinds within each unit; None is their order in the tree. Kinds and positions are int64, of the shape of
        the places.
        """
        places = np.asarray(places, np.int64)
        if len(self.weights) == 1:
            return np.zeros_like(places), places.copy()
        units, within = np.divmod(places.reshape(-1), self.unit)
        turns, partitions = np.divmod(within, self.partitions)
        if key is None:
            kinds, ranks = _walk(self._tree, units * self.group + turns)
        else:
            kinds, ranks = _at_turns(self._tree, self.group, self._shuffled(units, partitions, key), turns)
        return kinds.reshape(places.shape), (ranks * self.partitions + partitions).reshape(places.shape)

    def places(self, kinds: np.ndarray, positions: np.ndarray, key: int | None = None) -> np.ndarray:
        """The inverse of `positions`, [..] int64."""
        positions = np.asarray(positions, np.int64)
        if len(self.weights) == 1:
            return positions.copy()
        ranks, partitions = np.divmod(positions.reshape(-1), self.partitions)
        of = np.ascontiguousarray(np.broadcast_to(np.asarray(kinds, np.int64), positions.shape)).reshape(-1)
        units, turns = np.divmod(_climb(self._tree, of, ranks), self.group)
        if key is not None:
            turns = _turns_at(self._tree, self.group, self._shuffled(units, partitions, key), of, ranks)
        return (units * self.unit + turns * self.partitions + partitions).reshape(positions.shape)

    def taken(self, units: int) -> np.ndarray:
        """[K] int64, how many places of each kind the first units have."""
        return self.partitions * self.counts(units * self.group)

    def counts(self, places: int) -> np.ndarray:
        """[K] int64, how many of the first places each kind has, in the order of the tree and for one partition."""
        return _counts(self._tree, np.arange(len(self.weights)), places)

    def _shuffled(self, units: np.ndarray, partitions: np.ndarray, key: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The units, [n] int64, the seeds of their shuffles, and the turns with which each partition begins there."""
        offsets = np.zeros_like(units)
        if self.partitions > 1:
            offsets = permute(partitions % self.group, self.group, keys(key, units, np.full_like(units, _TURNS)))
        return units, keys(key, units, np.full_like(units, _ROWS)), offsets


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


@part_of_compiled
def _descend(tree, place):
    """The kind at a place, and how many places of it come before. For the tree, of more than one kind, see `Shares`."""
    left, right, fractions, _ = tree
    node, rank = 0, place
    while node >= 0:
        before = _left_of(rank, fractions[node])
        if _left_of(rank + 1, fractions[node]) > before:
            node, rank = left[node], before
        else:
            node, rank = right[node], rank - before
    return -1 - node, rank


@compiled
def _walk(tree, places):
    """`_descend` of places, [n] int64 each."""
    kinds, ranks = np.zeros_like(places), np.zeros_like(places)
    for number in range(len(places)):
        kinds[number], ranks[number] = _descend(tree, places[number])
    return kinds, ranks


@part_of_compiled
def _shuffle_unit(tree, unit, seed, kinds):
    """Writes the kinds of a unit, shuffled by a seed, and gives the rank of each kind's first, [group] int64 both."""
    firsts = np.zeros_like(kinds)
    for turn in range(len(kinds)):
        kinds[turn], firsts[turn] = _descend(tree, unit * len(kinds) + turn)
        for other in range(turn):
            if kinds[other] == kinds[turn]:
                firsts[turn] = firsts[other]
                break
    for turn in range(len(kinds) - 1, 0, -1):
        seed += _GOLDEN
        other = np.int64(_mix(seed) % np.uint64(turn + 1))
        kinds[turn], kinds[other] = kinds[other], kinds[turn]
        firsts[turn], firsts[other] = firsts[other], firsts[turn]
    return firsts


@compiled
def _at_turns(tree, group, shuffled, turns):
    """The kinds at turns, [n] int64, of what `_shuffled` gives, and their ranks, [n] int64."""
    units, seeds, offsets = shuffled
    kinds, ranks = np.zeros_like(turns), np.zeros_like(turns)
    of_unit = np.zeros(group, np.int64)
    firsts = of_unit
    for number in range(len(turns)):
        if number == 0 or units[number] != units[number - 1]:
            firsts = _shuffle_unit(tree, units[number], seeds[number], of_unit)
        place = (turns[number] + offsets[number]) % group
        rank = firsts[place]
        for turn in range(turns[number]):
            rank += of_unit[(turn + offsets[number]) % group] == of_unit[place]
        kinds[number], ranks[number] = of_unit[place], rank
    return kinds, ranks


@compiled
def _turns_at(tree, group, shuffled, kinds, ranks):
    """The inverse of `_at_turns`: the turn of each rank of each kind."""
    units, seeds, offsets = shuffled
    turns = np.zeros_like(ranks)
    of_unit = np.zeros(group, np.int64)
    firsts = of_unit
    for number in range(len(ranks)):
        if number == 0 or units[number] != units[number - 1]:
            firsts = _shuffle_unit(tree, units[number], seeds[number], of_unit)
        before = np.int64(0)
        for turn in range(group):
            place = (turn + offsets[number]) % group
            if of_unit[place] == kinds[number]:
                if firsts[place] + before == ranks[number]:
                    turns[number] = turn
                    break
                before += 1
    return turns


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
