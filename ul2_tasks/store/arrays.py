"""Arrays in files: memory-mapped where the file is local, read in ranges where it is not."""

from __future__ import annotations

import os
import threading
from typing import Protocol

import fsspec
import numpy as np
import numpy.typing as npt
import tensorflow as tf


class Array(Protocol):
    """One-dimensional values of a file, which are read where they are asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, range: slice, /) -> np.ndarray: ...


def size(path: str) -> int:
    """The size of a file, in bytes."""
    if "://" not in path:
        return os.stat(path).st_size
    if _by_tensorflow(path):
        return tf.io.gfile.stat(path).length
    file_system, name = fsspec.core.url_to_fs(path)
    return file_system.size(name)


def read_array(path: str, dtype: npt.DTypeLike, start: int, count: int) -> np.ndarray:
    """`count` values that begin at the byte `start`: a memory map of a local file, else they are read at once."""
    dtype = np.dtype(dtype)
    if not count:
        return np.zeros([0], dtype)
    if "://" not in path:
        return np.memmap(path, dtype, "r", start, (count,)).view(np.ndarray)
    with _open(path) as file:
        file.seek(start)
        return np.frombuffer(_all(file, count * dtype.itemsize, path), dtype)


def open_array(path: str, dtype: npt.DTypeLike) -> Array:
    """All values of a file: a memory map of a local file, else what reads only the ranges that are asked for."""
    count = size(path) // np.dtype(dtype).itemsize
    return read_array(path, dtype, 0, count) if "://" not in path else _RemoteArray(path, np.dtype(dtype), count)


class _RemoteArray:
    """Reads each range when it is asked for; from several threads one after the other."""

    def __init__(self, path: str, dtype: np.dtype, count: int):
        self._path, self._dtype, self._count = path, dtype, count
        self._file = _open(path)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, range: slice, /) -> np.ndarray:
        start, stop, _ = range.indices(self._count)
        with self._lock:
            self._file.seek(start * self._dtype.itemsize)
            return np.frombuffer(_all(self._file, max(0, stop - start) * self._dtype.itemsize, self._path), self._dtype)


def _by_tensorflow(path: str) -> bool:
    return path.partition("://")[0] in tf.io.gfile.get_registered_schemes()


def _open(path: str):
    return tf.io.gfile.GFile(path, "rb") if _by_tensorflow(path) else fsspec.open(path, "rb").open()


def _all(file, count: int, path: str) -> bytes:
    """So many bytes from where the file is. Raises an OSError where it ends before."""
    found = file.read(count)
    if len(found) < count:
        raise OSError(f"{path} ends {count - len(found)} bytes too early: it was cut while it was read")
    return found
