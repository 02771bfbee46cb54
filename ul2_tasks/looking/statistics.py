"""What the statistics of all kinds of data share: summaries, laws, and problems of the same kind."""

from __future__ import annotations

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


@dataclasses.dataclass(frozen=True)
class Law:
    """A law: what must hold, whether it does, and what was found, in words."""

    law: str
    holds: bool
    found: str

    @classmethod
    def counted(cls, law: str, broken: int, examples: int, first: str = "") -> Law:
        """A law that some of the examples break; `first` says what was found of the first of them.

        >>> Law.counted("inputs are never empty", 0, 4000).found
        'in all 4,000 examples'
        """
        found = f"not in {broken:,} of {examples:,} examples; {first}" if broken else f"in all {examples:,} examples"
        return cls(law, not broken, found)


class Checked:
    """Statistics that have laws."""

    laws: Sequence[Law]

    @property
    def holds(self) -> bool:
        """Whether all laws hold."""
        return all(law.holds for law in self.laws)


def without_particulars(sentence: str) -> str:
    """Equal for records that are wrong for the same reason.

    >>> without_particulars("image_list has 3 pictures, expected at least 'four'")
    "image_list has N pictures, expected at least '..'"
    """
    return re.sub(r"\d+", "N", re.sub(r"'[^']*'|\"[^\"]*\"", "'..'", sentence))
