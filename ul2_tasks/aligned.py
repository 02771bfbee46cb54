"""Arrays that TensorFlow takes as they are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

_HUGE_PAGE = 1 << 21  # bytes; NumPy asks the kernel for such pages
_ALIGNMENT = 64  # of tensors, in bytes


def zeros_for_tensors(count: int, shape: Sequence[int]) -> list[np.ndarray]:
    """Arrays of zeros, int32, that TensorFlow takes from a Python function as they are.

    It copies an array whose memory does not start at a multiple of 64 bytes, and NumPy's starts anywhere. They are one piece of
    memory. A large one has whole huge pages, since it costs more to be given small pages than to write into them.
    """
    size = 4 * math.prod(shape)
    stride = -(-size // _ALIGNMENT) * _ALIGNMENT
    page = _HUGE_PAGE if count * stride >= _HUGE_PAGE else _ALIGNMENT
    memory = np.zeros(-(-count * stride // page) * page + page, np.uint8)
    first = -memory.__array_interface__["data"][0] % page
    starts = [first + number * stride for number in range(count)]
    return [memory[start : start + size].view(np.int32).reshape(shape) for start in starts]
