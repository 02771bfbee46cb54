"""Arrays in files, of which many ranges are read at once: from memory maps, or where a file is not mapped by `fetch`."""

from __future__ import annotations

import functools
import mmap
import resource
import weakref
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numba
import numpy as np
import numpy.typing as npt
from numba.extending import intrinsic

from ul2_tasks.aligned import zeros_for_tensors
from ul2_tasks.compiled import compiled, part_of_compiled
from ul2_tasks.files.systems import is_local
from ul2_tasks.store.fetch import fetch, near_ranges
from ul2_tasks.store.memory import available_bytes

Reader: TypeAlias = Callable[[npt.DTypeLike, int, int], np.ndarray]


_MOST_MAPPED = 1 << 14  # arrays, if a process may have as many open files
_NO_INT32 = 1 << 31
_NEAR = 1 << 14  # bytes between two ranges of a memory map that are asked for as one: four pages


def most_open(share: int) -> int:
    """One of so many equal shares of the files that this process may have open; a memory map holds one."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (1 << 20 if most == resource.RLIM_INFINITY else most) // share


class MemoryArray:
    """Values in memory, [n], contiguous."""

    begin = 0

    def __init__(self, values: np.ndarray):
        self.dtype, self.values, self.address = values.dtype, values, _address_of(values)

    def __len__(self) -> int:
        return len(self.values)


class MappedArray(MemoryArray):
    """The values of a local file from a byte on, as a memory map. The file is not empty.

    `unread` is how many of its bytes were not read yet, if none was read twice.
    """

    def __init__(self, path: str, dtype: np.dtype, begin: int = 0):
        _MAPPED.add(self)
        self.map = _map(path)
        self.unread = len(self.map)
        super().__init__(np.frombuffer(self.map, dtype, offset=begin))
        self.begin = begin


class FileArray:
    """All values of a file, from a byte on, that is not mapped. Nothing of it is open between two reads."""

    def __init__(self, path: str, dtype: np.dtype, count: int, begin: int = 0):
        self.path, self.dtype, self.begin, self._count = path, dtype, begin, count

    def __len__(self) -> int:
        return self._count


Array: TypeAlias = MemoryArray | FileArray
_MAPPED: weakref.WeakSet[MappedArray] = weakref.WeakSet()


def open_array(path: str, dtype: np.dtype, count: int, begin: int = 0) -> Array:
    """So many values of a file from a byte on: memory-mapped if it is local, not empty, and this process has not too many maps."""
    may_map = is_local(path) and len(_MAPPED) < min(_MOST_MAPPED, most_open(4))
    return MappedArray(path, dtype, begin) if may_map and count else FileArray(path, dtype, count, begin)


def open_reader(path: str, beginning: bytes = b"") -> Reader:
    """A function of a dtype, a first byte and a count, which gives so many values of a file.

    They are views of one memory map of a local file; else of its first bytes, or they are read when they are asked for.
    """
    held = _map(path) if is_local(path) else beginning

    def values(dtype: npt.DTypeLike, start: int, count: int) -> np.ndarray:
        if not count:
            return np.zeros([0], dtype)
        is_held = start + count * np.dtype(dtype).itemsize <= len(held)
        return np.frombuffer(held, dtype, count, start) if is_held else _read(path, dtype, start, count)

    return values


def read_ranges(arrays: Sequence[Array], numbers: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> list[np.ndarray]:
    """Reads ranges of several arrays at once: the values of each, in the order asked.

    Range i has the values [starts[i], stops[i]) of array number `numbers[i]`; all three are [n] int64. An OSError says that a file
    cannot be read, or ends before.
    """
    fetched = _fetched(arrays, numbers, starts, stops)
    return [
        fetched[place] if place in fetched else arrays[number].values[start:stop]
        for place, (number, start, stop) in enumerate(zip(numbers.tolist(), starts.tolist(), stops.tolist()))
    ]


def read_joined(arrays: Sequence[Array], numbers: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """The ranges of `read_ranges`, of arrays of integers: [values] int32, one range's after the other's.

    Raises an IndexError where a range is not in its array.
    """
    check_within(starts, stops, np.array([len(array) for array in arrays], np.int64)[numbers])
    fetched = _fetched(arrays, numbers, starts, stops)
    dtypes = [array.dtype for array in arrays]
    bases = np.array([0 if isinstance(array, FileArray) else array.address for array in arrays], np.int64)
    addresses = bases[numbers] + starts * np.array([dtype.itemsize for dtype in dtypes], np.int64)[numbers]
    for place, values in fetched.items():
        addresses[place] = _address_of(values)
    counts = stops - starts
    places = np.cumsum(counts) - counts
    (joined,) = zeros_for_tensors(1, [int(counts.sum())])
    for dtype in set(dtypes):
        chosen = np.flatnonzero(np.array([other == dtype for other in dtypes], bool)[numbers])
        of_dtype = np.zeros([0], dtype)
        _copy(addresses[chosen], counts[chosen], of_dtype, places[chosen], joined)
    return joined


def check_within(starts: np.ndarray, stops: np.ndarray, sizes: np.ndarray) -> None:
    """What reads memory by its address would read something else."""
    wrong = np.flatnonzero((starts < 0) | (stops < starts) | (stops > sizes))
    if len(wrong):
        first = wrong[0]
        raise IndexError(f"values must be from 0 to {sizes[first]}, got {starts[first]} to {stops[first]}.")


def _address_of(values: np.ndarray) -> int:
    """Where in memory the values begin. They have to live until they were read."""
    return values.__array_interface__["data"][0]


@intrinsic
def _pointer(typing, address, of_dtype):
    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return numba.types.CPointer(of_dtype.dtype)(numba.types.int64, of_dtype), generate


@part_of_compiled
def _values_at(address, count, of_dtype):
    """The `count` values from an address on, of the dtype of the array `of_dtype`."""
    return numba.carray(_pointer(address, of_dtype), count)


@compiled
def _copy(addresses, counts, of_dtype, places, joined):
    """Copies ranges into `joined`, [values] int32, each to its place there.

    `addresses`, `counts` and `places` are [n] int64: where each range lies, how many values it has, and its place. `of_dtype` is an
    array of their dtype.
    """
    for number in range(len(addresses)):
        found, place = _values_at(addresses[number], counts[number], of_dtype), joined[places[number] :]
        for value in range(len(found)):  # from 0 in both, which is compiled to copies of many values at once
            id = found[value]
            place[value] = id if -_NO_INT32 <= np.int64(id) < _NO_INT32 else -1  # no id either, where one would wrap round


@functools.cache
def _page_cache() -> int:
    """Files of so many bytes are taken to stay in memory once they were read."""
    return available_bytes() // 2


def _fetched(arrays: Sequence[Array], numbers: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> dict[int, np.ndarray]:
    """The values of each range that does not lie in memory. The kernel is told of those that may be on the disk.

    That costs some microseconds each, and reading a cold page without it a hundred times as much. It is done until a file was read
    once, and always where all files together do not stay in memory.
    """
    are_large = sum(len(array.map) for array in arrays if isinstance(array, MappedArray)) > _page_cache()
    may_be_cold = np.array([isinstance(array, MappedArray) and (are_large or array.unread > 0) for array in arrays], bool)
    are_files = np.array([isinstance(array, FileArray) for array in arrays], bool)
    if not may_be_cold.any() and not are_files.any():
        return {}
    widths = np.array([array.dtype.itemsize for array in arrays], np.int64)[numbers]
    begins = np.array([array.begin for array in arrays], np.int64)[numbers]
    first_bytes, last_bytes = begins + starts * widths, begins + stops * widths
    cold, in_files = np.flatnonzero(may_be_cold[numbers]), np.flatnonzero(are_files[numbers])
    _announce(arrays, numbers[cold], first_bytes[cold], last_bytes[cold])
    paths = [getattr(array, "path", "") for array in arrays]
    buffers = fetch(paths, numbers[in_files], first_bytes[in_files], last_bytes[in_files])
    of_files = zip(in_files.tolist(), numbers[in_files].tolist(), buffers)
    return {place: np.frombuffer(buffer, arrays[number].dtype) for place, number, buffer in of_files}


def _announce(arrays: Sequence[Array], numbers: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> None:
    """Has the kernel fetch all of these bytes at once. A copy alone would wait for one page after the other."""
    wanted = np.flatnonzero(stops > starts)
    found = near_ranges(numbers[wanted], starts[wanted], stops[wanted], _NEAR)
    for number, start, stop in zip(found.files.tolist(), found.starts.tolist(), found.stops.tolist()):
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        arrays[number].map.madvise(mmap.MADV_WILLNEED, first, stop - first)
        arrays[number].unread -= stop - start


def _read(path: str, dtype: npt.DTypeLike, start: int, count: int) -> np.ndarray:
    stop = start + count * np.dtype(dtype).itemsize
    return np.frombuffer(fetch([path], np.array([0]), np.array([start]), np.array([stop]))[0], dtype)


def _map(path: str) -> mmap.mmap:
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
