"""`Steps`: which elements each step of a run has, whose batches may become larger or smaller."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from ul2_tasks.cached import cached_property


@dataclasses.dataclass(frozen=True)
class Steps:
    """Steps from 0 on, in order, of so many elements each: `sizes` has pairs of a first step and its batch size.

    >>> steps = Steps(((0, 8), (10, 2)))
    >>> steps.element(9), steps.element(12), steps.step(84), steps.size(12)
    (72, 84, 12, 2)
    """

    sizes: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, size: int | Steps) -> Steps:
        """Those of one batch size."""
        return size if isinstance(size, Steps) else cls(((0, int(size)),))

    @classmethod
    def of_elements(cls, sizes: Iterable[tuple[int, int]]) -> Steps:
        """Of pairs of a first element and the batch size from there on.

        >>> Steps.of_elements([(0, 8), (40, 8), (80, 2)])
        Steps(sizes=((0, 8), (10, 2)))
        """
        found: list[tuple[int, int]] = []
        for first, size in sizes:
            if not found or found[-1][1] != size:
                found.append((cls(tuple(found)).step(first) if found else 0, size))
        return cls(tuple(found))

    @classmethod
    def of_record(cls, told: Mapping[str, Any]) -> Steps:
        """Those of what a fingerprint, or the record of a run, says of its schedule."""
        return cls.of_elements((each["first"], each.get("batch_size", told["batch_size"])) for each in told["stages"])

    def size(self, step: int) -> int:
        """The batch size of a step."""
        return self.sizes[self._at(step)][1]

    def element(self, step: int) -> int:
        """The first element of a step."""
        at = self._at(step)
        return self._elements[at] + (step - self._steps[at]) * self.sizes[at][1]

    def step(self, element: int) -> int:
        """The step that has an element."""
        at = max(0, bisect.bisect_right(self._elements, element) - 1)
        return self._steps[at] + (element - self._elements[at]) // self.sizes[at][1]

    @cached_property
    def _steps(self) -> list[int]:
        """The first step of each size."""
        return [first for first, _ in self.sizes]

    @cached_property
    def _elements(self) -> list[int]:
        """The first element of each size."""
        own = ((following - first) * size for (first, size), following in zip(self.sizes, self._steps[1:]))
        return [*itertools.accumulate(own, initial=0)]

    def _at(self, step: int) -> int:
        return max(0, bisect.bisect_right(self._steps, step) - 1)
