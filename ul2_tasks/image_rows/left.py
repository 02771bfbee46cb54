"""Which pools are left where several shards stopped, so that any other number of shards can read the rest.

shards of 2      0: pools 0 1 2 | 6 ..      1: pools 3 4 5 | 9 ..      runs of three
they are at      pool 6, row 4              pool 4, row 0
left             4 5, 6 from row 4, 7 ..    with 0 to 3 done; any shards share these, as they share 0 1 2 .. at the start
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.scalars import is_integer


@dataclasses.dataclass(frozen=True)
class Left:
    """The pools that are left: those of `parts`, in their order, and then all from `first` on.

    A part is its first pool, the pool behind its last, and how many rows of its first pool are done.

    >>> left = Left(parts=((4, 6, 0), (6, 7, 4)), first=7)
    >>> left.before_first, [left.pool(number) for number in range(4)], left.rows_done(6)
    (3, [4, 5, 6, 7], 4)
    """

    parts: Sequence[tuple[int, int, int]] = ()
    first: int = 0

    def __post_init__(self):
        ends = [0, *(end for start, stop, _ in self.parts for end in (start, stop)), self.first]
        are_rows = all(is_integer(row, at_least=0) for *_, row in self.parts)
        if not are_rows or not all(is_integer(end, at_least=0) for end in ends) or sorted(ends) != ends:
            raise ValueError(f"left must have parts of ascending pools, got {self!r:.100}. Pass what state_dict() returned.")

    @classmethod
    def of(cls, plain: Mapping[str, Any] | None) -> Left:
        """What `plain` has made of it; None is all."""
        return cls() if plain is None else cls(tuple((start, stop, row) for start, stop, row in plain["parts"]), plain["first"])

    @property
    def plain(self) -> dict[str, Any]:
        """It as JSON has it."""
        return {"parts": [list(part) for part in self.parts], "first": self.first}

    @property
    def before_first(self) -> int:
        """How many pools there are in the parts."""
        return int(self._ends[-1])

    def pool(self, number: int) -> int:
        """The pool of a number, from 0, among those that are left."""
        if number >= self._ends[-1]:
            return self.first + number - self.before_first
        part = int(np.searchsorted(self._ends, number, side="right")) - 1
        return self.parts[part][0] + number - int(self._ends[part])

    def rows_done(self, pool: int) -> int:
        """How many rows of a pool that is left are done."""
        return next((row for start, _, row in self.parts if start == pool), 0)

    def after(self, places: Sequence[tuple[int, int]], run: int) -> Left:
        """What is left where each shard is at a place: its pools before this pool are done, and so many rows of this one.

        The shards share what was left here in runs, see `pools.Pools.shard`.
        """
        first = max([self.first, *(pool + (row > 0) for pool, row in places)])
        of_parts = [np.arange(start, stop) for start, stop, _ in self.parts]
        pools = np.concatenate([*of_parts, np.arange(self.first, first)])
        rows = np.zeros(len(pools), np.int64)
        rows[self._ends[:-1]] = [row for *_, row in self.parts]
        shards = np.arange(len(pools)) // run % len(places)
        at = np.array(places)[shards]
        rows = np.where(pools == at[:, 0], np.maximum(rows, at[:, 1]), rows)[pools >= at[:, 0]]
        pools = pools[pools >= at[:, 0]]
        starts = np.flatnonzero((np.diff(pools, prepend=-2) != 1) | (rows > 0))
        stops = np.append(starts[1:], len(pools)) - 1
        return Left(tuple((int(pools[a]), int(pools[b]) + 1, int(rows[a])) for a, b in zip(starts, stops)), first)

    @cached_property
    def _ends(self) -> np.ndarray:
        """[parts + 1] int64, how many pools there are before each part, and in all."""
        return np.cumsum([0, *(stop - start for start, stop, _ in self.parts)])
