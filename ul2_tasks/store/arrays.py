"""Arrays in files, of which many ranges are read at once: from memory maps, or where a file is not mapped by `fetch`."""

from __future__ import annotations

import functools
import mmap
import resource
import weakref
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ul2_tasks.store.fetch import fetch, is_local, size

Reader: TypeAlias = Callable[[npt.DTypeLike, int, int], np.ndarray]


# Each memory map holds an open file, of which a process may have so many.
MOST_OPEN = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
_MOST_MAPPED = min(1 << 14, MOST_OPEN // 4)


class MappedArray:
    """All values of a local file, as a memory map. It has one at least."""

    def __init__(self, path: str, dtype: np.dtype):
        _MAPPED.add(self)
        self.map = _map(path)
        self.dtype, self.values = dtype, np.frombuffer(self.map, dtype)

    def __len__(self) -> int:
        return len(self.values)


class FileArray:
    """All values of a file that is not mapped. Nothing of it is open between two reads."""

    def __init__(self, path: str, dtype: np.dtype):
        self.path, self.dtype, self._count = path, dtype, size(path) // dtype.itemsize

    def __len__(self) -> int:
        return self._count


Array: TypeAlias = MappedArray | FileArray
_MAPPED: weakref.WeakSet[MappedArray] = weakref.WeakSet()


def open_array(path: str, dtype: np.dtype) -> Array:
    """All values of a file: memory-mapped if it is a local one, not empty, and this process does not have too many maps."""
    is_mapped = is_local(path) and len(_MAPPED) < _MOST_MAPPED and size(path)
    return MappedArray(path, dtype) if is_mapped else FileArray(path, dtype)


def open_reader(path: str) -> Reader:
    """A function of a dtype, a first byte and a count, which gives so many values of a file.

    They are views of one memory map of a local file; else they are read when they are asked for.
    """
    if not is_local(path):
        return functools.partial(_read, path)
    mapped = _map(path)
    return lambda dtype, start, count: np.frombuffer(mapped, dtype, count, start) if count else np.zeros([0], dtype)


def read_ranges(arrays: Sequence[Array], numbers: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> list[np.ndarray]:
    """Reads ranges of several arrays at once.

    Args:
        arrays: of either kind.
        numbers: [n] int64, which of them each range is of.
        starts, stops: [n] int64, the values [start, stop) of each range.

    Returns:
        The values of each range, in the order asked.

    Raises:
        OSError, tf.errors.OpError: a file cannot be read, or it ends before.
    """
    widths = np.array([array.dtype.itemsize for array in arrays], np.int64)[numbers]
    first_bytes, last_bytes = starts * widths, stops * widths
    are_mapped = np.array([isinstance(array, MappedArray) for array in arrays], bool)[numbers]
    mapped, others = np.flatnonzero(are_mapped), np.flatnonzero(~are_mapped)
    _announce(arrays, numbers[mapped], first_bytes[mapped], last_bytes[mapped])
    found: list[np.ndarray] = [np.zeros([0])] * len(numbers)
    columns = (mapped, numbers[mapped], starts[mapped], stops[mapped])
    for place, number, start, stop in zip(*(column.tolist() for column in columns)):
        found[place] = arrays[number].values[start:stop]
    if len(others):
        paths = [getattr(array, "path", "") for array in arrays]
        buffers = fetch(paths, numbers[others], first_bytes[others], last_bytes[others])
        for place, number, buffer in zip(others.tolist(), numbers[others].tolist(), buffers):
            found[place] = np.frombuffer(buffer, arrays[number].dtype)
    return found


def _announce(arrays: Sequence[Array], numbers: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> None:
    """Has the kernel fetch all of these bytes at once. A copy alone would wait for one page after the other."""
    order = np.lexsort((starts, numbers))
    order = order[stops[order] > starts[order]]
    firsts = starts[order] // mmap.PAGESIZE * mmap.PAGESIZE
    lengths = stops[order] - firsts
    for number, first, length in zip(numbers[order].tolist(), firsts.tolist(), lengths.tolist()):
        arrays[number].map.madvise(mmap.MADV_WILLNEED, first, length)


def _read(path: str, dtype: npt.DTypeLike, start: int, count: int) -> np.ndarray:
    stop = start + count * np.dtype(dtype).itemsize
    return np.frombuffer(fetch([path], np.array([0]), np.array([start]), np.array([stop]))[0], dtype)


def _map(path: str) -> mmap.mmap:
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
