"""`measure`: what examples of any kind are like, and whether they are right; with the summaries and checks that it makes."""

from __future__ import annotations

import array
import collections
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ul2_tasks.example_features import TASK

PERCENTS = (5, 25, 50, 75, 95, 99)


@dataclasses.dataclass(frozen=True)
class Summary:
    """What some integers are, such as lengths in tokens.

    Attributes:
        sd: the standard deviation of the sample, whose squares are divided by one less than their number; 0 of a single one.
        quantiles: by percentage, as a string such as "25"; interpolated between the two nearest values.
    """

    mean: float
    sd: float
    min: int
    max: int
    quantiles: Mapping[str, float]

    @classmethod
    def of(cls, values: Sequence[int] | np.ndarray, percents: Sequence[int] = PERCENTS) -> Summary | None:
        """The summary of values; None if there is none.

        >>> Summary.of([1, 2, 6], [50])
        Summary(mean=3.0, sd=2.6457513110645907, min=1, max=6, quantiles={'50': 2.0})
        """
        array = np.asarray(values)
        if not array.size:
            return None
        quantiles = dict(zip(map(str, percents), np.percentile(array, percents).tolist()))
        sd = float(array.std(ddof=1)) if array.size > 1 else 0.0
        return cls(float(array.mean()), sd, int(array.min()), int(array.max()), quantiles)


class Tally:
    """How many things of each kind were found, and what was said of the first."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.first: dict[str, str] = {}

    def add(self, kind: str, found: str, times: int = 1) -> None:
        self.counts[kind] += times
        self.first.setdefault(kind, found)


@dataclasses.dataclass(frozen=True)
class Check:
    """What must hold, whether it does, and what was found, in words."""

    name: str
    passed: bool
    found: str

    @classmethod
    def counted(cls, name: str, faults: Tally, examples: int) -> Check:
        """A check that an example passes unless it has the fault of this name.

        >>> Check.counted("no empty inputs", Tally(), 4000).found
        'in all 4,000 examples'
        """
        broken = faults.counts[name]
        found = f"not in {broken:,} of {examples:,} examples; {faults.first[name]}" if broken else f"in all {examples:,} examples"
        return cls(name, not broken, found)


class Checked:
    """Statistics that have checks."""

    checks: Sequence[Check]

    @property
    def passed(self) -> bool:
        """Whether all checks pass."""
        return all(check.passed for check in self.checks)


class Counted(NamedTuple):
    """The numbers of an example, by names that all examples of a task have; and what is wrong, by the check that it breaks."""

    numbers: Mapping[str, int]
    faults: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Measured:
    """What was counted in examples.

    Attributes:
        numbers: of each task, by name, those of its examples in their order, [examples] int64 each.
        faults: of all examples, by the check that they break.
        examples: how many there are.
    """

    numbers: Mapping[str, Mapping[str, np.ndarray]]
    faults: Tally
    examples: int

    def of(self, task: str, name: str) -> np.ndarray:
        """A number of the examples of a task; empty where it has none."""
        return self.numbers[task].get(name, np.zeros(0, np.int64))


def measure(
    examples: Iterable[Mapping[str, Any]],
    numbers: Mapping[str, Callable[[Mapping[str, Any]], Counted]],
    checks: Sequence[str | Callable[[Measured], Check]],
) -> tuple[Measured, list[Check]]:
    """Counts in examples, one by one, and checks what was counted. Memory grows by eight bytes for each number of an example.

    Args:
        examples: of any kind, each with its "task".
        numbers: by task what counts in an example.
        checks: the names of those that an example passes or breaks, and functions of all that was counted.
    """
    columns: dict[str, dict[str, array.array]] = {task: collections.defaultdict(lambda: array.array("q")) for task in numbers}
    faults, count = Tally(), 0
    for example in examples:
        task = str(example[TASK])
        counted = numbers[task](example)
        for name, number in counted.numbers.items():
            columns[task][name].append(number)
        for check, found in counted.faults.items():
            faults.add(check, f"{task}: {found}")
        count += 1
    of_tasks = {task: {name: np.array(values, np.int64) for name, values in of_task.items()} for task, of_task in columns.items()}
    measured = Measured(of_tasks, faults, count)
    return measured, [Check.counted(each, faults, count) if isinstance(each, str) else each(measured) for each in checks]
