"""Numbers as users give them: Python's or NumPy's, but no bool."""

from __future__ import annotations

import math

import numpy as np


def is_integer(value: object, at_least: int) -> bool:
    """Whether it is an integer, and large enough."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= at_least


def is_finite(value: object) -> bool:
    """Whether it is a number, and finite."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool) and math.isfinite(value)


def as_python(value: object) -> object:
    """The same number as Python's own, which JSON knows; anything else as it is.

    >>> as_python(np.int64(512)), as_python(0.15)
    (512, 0.15)
    """
    return value.item() if isinstance(value, np.generic) else value
