"""Stages that a training loop appends to a schedule while it reads, in memory that the workers share.

    step       0 ........ 400 | 401 .... 520 |          the loop appends a stage that begins at step 500
    workers                   | read ahead   |          so it must begin after what they have read: 521 is the first that it may

A worker looks for new stages before each element, and says before which element all that it gives is. With the stages in its place
a schedule of a description reads the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ul2_tasks.mixtures.mix import corpora_of
from ul2_tasks.mixtures.schedule import Stage
from ul2_tasks.order.steps import Steps
from ul2_tasks.pytorch.shared import SharedIntegers, for_copy
from ul2_tasks.random_access.sequence import Examples

_COUNT, _REACHED, _STAGES = 0, 1, 1025  # words: of workers 1,024; more of them share these
_MOST, _INTEGERS = 4096, 1 << 20


class Appended:
    """The stages that are appended to the schedule of examples."""

    def __init__(self, examples: Examples):
        self._base, self._names, self._width = examples, examples.numbering.names, 1 + len(examples.numbering.names)
        self._steps = Steps.of_record(examples.describe()["schedule"])  # type: ignore[arg-type]
        self._most = min(_MOST, _INTEGERS // self._width)
        self._shared = SharedIntegers([0] * (_STAGES + self._most * self._width))
        self._told: dict[int, dict[str, float]] = {}  # by a state that was loaded, after so many of the shared ones
        self._after, self._made = 0, (0, examples)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_shared": for_copy(self._shared)}

    @property
    def count(self) -> int:
        """How many were appended since this was made."""
        return self._shared[_COUNT]

    @property
    def stages(self) -> list[tuple[int, dict[str, float]]]:
        """The first step of each and the weights of corpora; of one step the last."""
        return sorted({**self._told, **dict(self._from(self._after))}.items())

    def _from(self, number: int) -> Iterator[tuple[int, dict[str, float]]]:
        """Those of the shared ones from a number on."""
        for at in range(_STAGES + number * self._width, _STAGES + self.count * self._width, self._width):
            step, *words = self._shared[at : at + self._width]
            weights = np.array(words, np.int64).view(np.float64).tolist()
            yield step, {name: weight for name, weight in zip(self._names, weights) if weight}

    @property
    def examples(self) -> Examples:
        """The examples of the schedule with these stages."""
        if more := list(self._from(self._made[0])):
            self._made = self._made[0] + len(more), self._made[1].with_stages(more)
        return self._made[1]

    def load(self, stages: Sequence[tuple[int, Mapping[str, float]]], is_worker: bool) -> None:
        """Has the stages of a state alone."""
        if not is_worker:
            self._shared[:_STAGES] = [0] * _STAGES
        self._told, self._after = {step: dict(weights) for step, weights in stages}, self.count
        self._made = self.count, self._base.with_stages(self.stages)

    def reach(self, worker: int, element: int) -> None:
        """A worker says before which element all is that it gives."""
        self._shared[_REACHED + worker % (_STAGES - _REACHED)] = element

    def append(self, step: int, weights: Mapping[Any, float] | Sequence[tuple[Any, float]], reached: int) -> None:
        """Appends a stage. Raises a ValueError where elements from its first on may have been read: those before `reached` were."""
        stage, by_corpus, number = Stage(step, weights), dict[str, float](), self.count
        for each, weight in stage.mixtures:
            corpora = corpora_of(each, self._names)
            if len(corpora) != 1 or not corpora <= {*self._names} or corpora & by_corpus.keys():
                raise ValueError(f"weights must be of corpora of the schedule, {self._names}, each once, got {sorted(corpora)}.")
            by_corpus[corpora.pop()] = float(weight)
        reached = max(reached, *self._shared[_REACHED:_STAGES])
        if self._steps.element(stage.first_step) < reached or number == self._most:
            least = self._steps.step(reached - 1) + 1
            raise ValueError(
                f"step must be at least {least}, as what comes before was read, or read ahead by workers, got {stage.first_step}"
                f" after {number:,} of at most {self._most:,} stages. Append it for a later step, or load the state into a new"
                " dataset."
            )
        found = self.examples.with_stages([(stage.first_step, by_corpus)])
        words = np.array([by_corpus.get(name, 0.0) for name in self._names]).view(np.int64).tolist()
        at = _STAGES + number * self._width
        self._shared[at : at + self._width] = [stage.first_step, *words]
        self._shared[_COUNT], self._made = number + 1, (number + 1, found)
