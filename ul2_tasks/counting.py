"""Counts of what is logged now and then."""

from __future__ import annotations

import collections
import re
import threading

_counting = threading.Lock()


def count(counts: collections.Counter[str], key: str) -> tuple[int, bool]:
    """Adds one to `counts[key]`, from any of TensorFlow's threads. Returns it, and whether it is one to log: 1, 10, 100 .."""
    with _counting:
        counts[key] += 1
        number = counts[key]
    return number, re.fullmatch("10*", str(number)) is not None
