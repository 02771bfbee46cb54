"""Cycles: so many slots of each kind as the weights say, spread evenly. Kinds are the denoisers of a corpus.

    weights  1 1 1 1 4
    counts   1 1 1 1 4            8 slots
    kinds    4 0 4 1 2 4 3 4      the kind of each slot

Weights are floats, and a cycle has whole slots. So the ratio is exact where a cycle of at most `MAX_SLOTS` slots has it, else it is
the nearest such cycle's, which tells its error. Corpora are mixed by `Shares`, which have none.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.scalars import is_finite

MAX_SLOTS = 4096
_EXACT = 1e-9  # the relative error of a ratio that rounding of floats explains


@dataclasses.dataclass(frozen=True)
class Cycle:
    """Slots of several kinds: `counts[k]` of kind k, at least 1.

    `error` is how far a kind's share of the slots is from the share that was asked for, at most: |share / wanted - 1|.

    >>> cycle = nearest_cycle([1, 1, 1, 1, 4])
    >>> cycle.counts, cycle.kinds.tolist(), cycle.error
    ((1, 1, 1, 1, 4), [4, 0, 4, 1, 2, 4, 3, 4], 0.0)
    >>> places = np.array([0, 1, 2, 8, 9])
    >>> cycle.positions(places)
    (array([4, 0, 4, 4, 0]), array([0, 0, 1, 4, 1]))
    >>> cycle.places(*cycle.positions(places))
    array([0, 1, 2, 8, 9])
    """

    counts: tuple[int, ...]
    error: float = 0.0

    def __len__(self) -> int:
        """How many slots a cycle has."""
        return len(self.kinds)

    @cached_property
    def kinds(self) -> np.ndarray:
        """[slots] int64, the kind of each slot.

        Slot by slot it is the kind that is most behind its share: each kind gains its count in each slot, and the one that has
        gained most pays a whole cycle for it.
        """
        gained, kinds = np.zeros(len(self.counts), np.int64), []
        for _ in range(sum(self.counts)):
            gained += self.counts
            kinds.append(int(gained.argmax()))
            gained[kinds[-1]] -= sum(self.counts)
        return np.array(kinds)

    @cached_property
    def _ranks(self) -> np.ndarray:
        """[slots], how many slots of the same kind stand before each."""
        ranks = np.zeros(len(self), np.int64)
        ranks[self._by_kind] = np.arange(len(self)) - self._firsts[self.kinds[self._by_kind]]
        return ranks

    @cached_property
    def _by_kind(self) -> np.ndarray:
        """[slots], those of kind 0, then those of kind 1, and so on."""
        return np.argsort(self.kinds, kind="stable")

    @cached_property
    def _firsts(self) -> np.ndarray:
        """[K], where the slots of each kind begin in `_by_kind`."""
        return np.cumsum(self.counts) - self.counts

    def positions(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The kind at each place of the cycle that repeats for ever, and how many of this kind stand before it, [..] int64."""
        cycles, slots = np.divmod(np.asarray(places, np.int64), len(self))
        kinds = self.kinds[slots]
        return kinds, cycles * np.asarray(self.counts)[kinds] + self._ranks[slots]

    def places(self, kinds: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """The inverse of `positions`: at which place each position of each kind comes, [..] int64."""
        cycles, ranks = np.divmod(np.asarray(positions, np.int64), np.asarray(self.counts)[kinds])
        return cycles * len(self) + self._by_kind[self._firsts[kinds] + ranks]


def nearest_cycle(weights: Sequence[float]) -> Cycle:
    """The cycle of at most `MAX_SLOTS` slots whose ratio is nearest to that of the weights; of equally near ones the shortest.

    >>> nearest_cycle([0.5, 0.25, 0.25]).counts
    (2, 1, 1)
    >>> cycle = nearest_cycle([1, math.pi])
    >>> cycle.counts, f"{cycle.error:.0e}"
    ((113, 355), '6e-08')
    """
    if not 1 <= len(weights) <= MAX_SLOTS or not all(is_finite(weight) and weight > 0 for weight in weights):
        raise ValueError(f"weights must be 1 to {MAX_SLOTS} finite numbers above 0, got {list(weights)}.")
    shares = np.array(weights, np.float64) / math.fsum(weights)
    counts = np.maximum(1, np.rint(np.arange(1, MAX_SLOTS + 1)[:, np.newaxis] * shares)).astype(np.int64)
    slots = counts.sum(axis=1)
    counts, slots = counts[slots <= MAX_SLOTS], slots[slots <= MAX_SLOTS]
    errors = np.abs(counts / slots[:, np.newaxis] / shares - 1).max(axis=1)
    near = np.flatnonzero(errors <= errors.min() + _EXACT)
    best = near[slots[near].argmin()]
    return Cycle(tuple(counts[best].tolist()), float(errors[best]) if errors[best] > _EXACT else 0.0)
