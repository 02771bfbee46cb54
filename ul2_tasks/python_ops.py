"""Python functions in tf.data graphs, whose iterators can still be saved."""

from __future__ import annotations

import atexit
import collections
import math
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def python_op(function: Callable, inputs: Sequence[tf.Tensor], dtypes: Any) -> Any:
    """`tf.numpy_function` of a function that depends on its inputs alone: an op without state, which lets an iterator be saved.

    Args:
        function: of arrays; what it raises ends the iteration.
        inputs: its arguments.
        dtypes: those of what it returns.
    """

    def call(*values: Any) -> Any:
        with _calls:
            return function(*values)

    return tf.numpy_function(call, inputs, dtypes, stateful=False)


def count(counts: collections.Counter[str], key: str) -> tuple[int, bool]:
    """Adds one, from whichever of TensorFlow's threads: how many there are now, and whether that is to be told (1, 10, 100 ..)."""
    with _counting:
        counts[key] += 1
        number = counts[key]
    return number, re.fullmatch("10*", str(number)) is not None


class _Calls:
    """The calls that TensorFlow's threads make. None may be under way, or begin, when Python ends.

    A thread that calls Python then waits for ever, and the end waits for the thread: so hangs a program that leaves an
    iterator behind whose buffers are being filled. So before the end, calls are refused until no more come.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._under_way = 0
        self._last = -math.inf
        self._refused = False

    def __enter__(self) -> None:
        with self._lock:
            self._last = time.monotonic()
            if self._refused:
                raise StopIteration  # what TensorFlow takes for an end, not for a failure to report
            self._under_way += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._under_way -= 1

    def end(self, quiet: float = 0.2, most: float = 10.0) -> None:
        """Refuses calls, and returns when none came for so many seconds, or after the most of them."""
        self._refused = True
        last = time.monotonic() + most
        while (self._under_way or time.monotonic() < self._last + quiet) and time.monotonic() < last:
            time.sleep(0.01)


_counting = threading.Lock()
_calls = _Calls()
atexit.register(_calls.end)
