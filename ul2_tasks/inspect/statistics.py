"""What the statistics of all kinds of data share: summaries, tallies of what is wrong, and checks."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Mapping, Sequence

import numpy as np


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
    def of(cls, values: Sequence[int] | np.ndarray, percents: Sequence[int]) -> Summary | None:
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
    def counted(cls, name: str, kind: str, faults: Tally, examples: int) -> Check:
        """A check that an example passes unless it has a fault of a kind.

        >>> Check.counted("inputs are never empty", "empty", Tally(), 4000).found
        'in all 4,000 examples'
        """
        broken = faults.counts[kind]
        found = f"not in {broken:,} of {examples:,} examples; {faults.first[kind]}" if broken else f"in all {examples:,} examples"
        return cls(name, not broken, found)


class Checked:
    """Statistics that have checks."""

    checks: Sequence[Check]

    @property
    def passed(self) -> bool:
        """Whether all checks pass."""
        return all(check.passed for check in self.checks)


def without_particulars(sentence: str) -> str:
    """Equal for records that are wrong for the same reason.

    >>> without_particulars("image_list has 3 images, expected at least 'four'")
    "image_list has N images, expected at least '..'"
    """
    return re.sub(r"\d+", "N", re.sub(r"'[^']*'|\"[^\"]*\"", "'..'", sentence))
