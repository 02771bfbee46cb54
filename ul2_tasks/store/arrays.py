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

from ul2_tasks.compiled import address_of, compiled, values_at
from ul2_tasks.graphs import zeros_for_tensors
from ul2_tasks.store.fetch import fetch, is_local, near_ranges, size

Reader: TypeAlias = Callable[[npt.DTypeLike, int, int], np.ndarray]


# Each memory map holds an open file, of which a process may have so many.
MOST_OPEN = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
_MOST_MAPPED = min(1 << 14, MOST_OPEN // 4)
_NEAR = 1 << 14  # bytes between two ranges of a memory map that are asked for as one: four pages


class MappedArray:
    """All values of a local file, as a memory map. It has one at least."""

    def __init__(self, path: str, dtype: np.dtype):
        _MAPPED.add(self)
        self.map = _map(path)
        self.dtype, self.values = dtype, np.frombuffer(self.map, dtype)
        self.address = address_of(self.values)

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
    mapped, fetched = _mapped_and_fetched(arrays, numbers, starts, stops)
    found: list[np.ndarray] = [np.zeros([0])] * len(numbers)
    columns = (mapped, numbers[mapped], starts[mapped], stops[mapped])
    for place, number, start, stop in zip(*(column.tolist() for column in columns)):
        found[place] = arrays[number].values[start:stop]
    for place, values in fetched.items():
        found[place] = values
    return found


def read_joined(arrays: Sequence[Array], numbers: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Reads ranges of several arrays of integers at once, see `read_ranges`.

    Returns:
        [values] int32, one range's after the other's.

    Raises:
        ValueError: see `joined`.
        IndexError: a range does not lie in its array.
        OSError, tf.errors.OpError: see `read_ranges`.
    """
    check_within(starts, stops, np.array([len(array) for array in arrays], np.int64)[numbers])
    _, fetched = _mapped_and_fetched(arrays, numbers, starts, stops)
    bases = np.array([array.address if isinstance(array, MappedArray) else 0 for array in arrays], np.int64)
    widths = np.array([array.dtype.itemsize for array in arrays], np.int64)
    addresses = bases[numbers] + starts * widths[numbers]
    for place, values in fetched.items():
        addresses[place] = address_of(values)
    dtypes, of_arrays = np.unique([array.dtype.str for array in arrays], return_inverse=True)
    return joined(addresses, stops - starts, [np.dtype(dtype) for dtype in dtypes], of_arrays[numbers])


def check_within(starts: np.ndarray, stops: np.ndarray, sizes: np.ndarray) -> None:
    """Raises an IndexError unless 0 <= start <= stop <= size: what reads memory by its address would read something else."""
    wrong = np.flatnonzero((starts < 0) | (stops < starts) | (stops > sizes))
    if len(wrong):
        first = wrong[0]
        raise IndexError(f"there are no values from {starts[first]} to {stops[first]}, only 0 to {sizes[first]}")


def joined(addresses: np.ndarray, counts: np.ndarray, dtypes: Sequence[np.dtype], of_ranges: np.ndarray) -> np.ndarray:
    """Copies ranges of integers from anywhere in memory.

    Args:
        addresses: [n] int64, where each range lies, see `address_of`.
        counts: [n] int64, how many values it has.
        dtypes: of integers.
        of_ranges: [n] int64, which of them that of each range is.

    Returns:
        [values] int32, one range's after the other's.

    Raises:
        ValueError: a wider dtype holds what is no id.
    """
    places = np.cumsum(counts) - counts
    (values,) = zeros_for_tensors(1, [int(counts.sum())])
    for number, dtype in enumerate(dtypes):
        chosen, of_dtype = np.flatnonzero(of_ranges == number), np.zeros([0], dtype)
        if dtype.itemsize > values.itemsize:
            least, most = _extremes(addresses[chosen], counts[chosen], of_dtype)
            if least < 0 or most >= 1 << 31:
                raise ValueError(f"there are tokens from {least} to {most}, expected ids, from 0 to 2**31 - 1")
        _copy(addresses[chosen], counts[chosen], of_dtype, places[chosen], values)
    return values


@compiled
def _copy(addresses, counts, of_dtype, places, values):
    """Copies ranges of the dtype of the array `of_dtype` into `values`, each to its place there; see `joined`."""
    for number in range(len(addresses)):
        found, place = values_at(addresses[number], counts[number], of_dtype), places[number]
        for value in range(counts[number]):
            values[place + value] = found[value]


@compiled
def _extremes(addresses, counts, of_dtype):
    """The least and the most of the values of these ranges, int64; of none the least is more."""
    least, most = np.int64((1 << 63) - 1), np.int64(-(1 << 63))
    for number in range(len(addresses)):
        for value in values_at(addresses[number], counts[number], of_dtype):
            least, most = min(least, np.int64(value)), max(most, np.int64(value))
    return least, most


def _mapped_and_fetched(
    arrays: Sequence[Array], numbers: np.ndarray, starts: np.ndarray, stops: np.ndarray
) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """Which ranges lie in memory maps, and the values of each of the others. All are asked for at once."""
    widths = np.array([array.dtype.itemsize for array in arrays], np.int64)[numbers]
    first_bytes, last_bytes = starts * widths, stops * widths
    are_mapped = np.array([isinstance(array, MappedArray) for array in arrays], bool)[numbers]
    mapped, others = np.flatnonzero(are_mapped), np.flatnonzero(~are_mapped)
    _announce(arrays, numbers[mapped], first_bytes[mapped], last_bytes[mapped])
    paths = [getattr(array, "path", "") for array in arrays] if len(others) else []
    buffers = fetch(paths, numbers[others], first_bytes[others], last_bytes[others])
    of_others = zip(others.tolist(), numbers[others].tolist(), buffers)
    return mapped, {place: np.frombuffer(buffer, arrays[number].dtype) for place, number, buffer in of_others}


def _announce(arrays: Sequence[Array], numbers: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> None:
    """Has the kernel fetch all of these bytes at once. A copy alone would wait for one page after the other."""
    wanted = np.flatnonzero(stops > starts)
    _, files, firsts, lasts = near_ranges(numbers[wanted], starts[wanted], stops[wanted], _NEAR)
    firsts = firsts // mmap.PAGESIZE * mmap.PAGESIZE
    for number, first, length in zip(files.tolist(), firsts.tolist(), (lasts - firsts).tolist()):
        arrays[number].map.madvise(mmap.MADV_WILLNEED, first, length)


def _read(path: str, dtype: npt.DTypeLike, start: int, count: int) -> np.ndarray:
    stop = start + count * np.dtype(dtype).itemsize
    return np.frombuffer(fetch([path], np.array([0]), np.array([start]), np.array([stop]))[0], dtype)


def _map(path: str) -> mmap.mmap:
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
