"""Ranges of bytes of files: near ones are read as one, and those of a remote file system are asked for side by side."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent import futures
from typing import Any, TypeVar

import fsspec
import numpy as np
import tensorflow as tf

_NEAR = 1 << 16  # bytes: to read so many for nothing takes less time than another request
_THREADS = 64  # they wait for requests
_FILE = 48  # bits of a place in a file
_In = TypeVar("_In")
_Out = TypeVar("_Out")


def is_local(path: str) -> bool:
    """Whether a path is that of a file of this machine, and no URL."""
    return "://" not in path


def size(path: str) -> int:
    """The size of a file, in bytes."""
    if is_local(path):
        return os.stat(path).st_size
    if _by_tensorflow(path):
        return tf.io.gfile.stat(path).length
    file_system, name = fsspec.core.url_to_fs(path)
    return file_system.size(name)


def fetch(paths: Sequence[str], numbers: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> list[memoryview]:
    """Reads ranges of files.

    Args:
        paths: of the files.
        numbers: [n] int64, which file each range is of.
        starts, stops: [n] int64, the bytes [start, stop) of each range.

    Returns:
        The bytes of each range, in the order asked.

    Raises:
        OSError, tf.errors.OpError: a file cannot be read, or it ends before.
    """
    if not len(numbers):
        return []
    # All files lie one after the other, far apart.
    starts, stops = starts + (numbers << _FILE), stops + (numbers << _FILE)
    order = np.argsort(starts)
    reached = np.maximum.accumulate(stops[order])
    is_first = np.concatenate([[True], starts[order][1:] > reached[:-1] + _NEAR])
    firsts = starts[order][is_first]
    lasts = np.maximum.reduceat(stops[order], np.flatnonzero(is_first))
    requests = zip(numbers[order][is_first].tolist(), firsts.tolist(), lasts.tolist())
    buffers = _read([(paths[number], first - (number << _FILE), last - (number << _FILE)) for number, first, last in requests])
    which = np.empty(len(order), np.int64)
    which[order] = np.cumsum(is_first) - 1
    return [
        buffers[request][start:stop]
        for request, start, stop in zip(which.tolist(), (starts - firsts[which]).tolist(), (stops - firsts[which]).tolist())
    ]


def concurrently(function: Callable[[_In], _Out], items: Sequence[_In]) -> list[_Out]:
    """The function of each item, many at a time."""
    with futures.ThreadPoolExecutor(max(1, min(_THREADS, len(items)))) as pool:
        return list(pool.map(function, items))


def _read(requests: Sequence[tuple[str, int, int]]) -> list[memoryview]:
    """The bytes [start, stop) of each (path, start, stop)."""
    if all(is_local(path) for path, _, _ in requests):
        found: Iterable = [_read_range(request) for request in requests]
    else:
        places = [_file_system(path, os.getpid(), threading.get_ident()) for path, _, _ in requests]
        system = places[0][0]
        if getattr(system, "async_impl", False) and all(other is system for other, _ in places):
            names = [name for _, name in places]
            found = system.cat_ranges(
                names, [start for _, start, _ in requests], [stop for _, _, stop in requests], on_error="raise"
            )
        else:
            found = concurrently(_read_range, requests)
    buffers = [memoryview(buffer) for buffer in found]
    for (path, start, stop), buffer in zip(requests, buffers):
        if len(buffer) < stop - start:
            raise OSError(f"{path} ends {stop - start - len(buffer)} bytes too early: it was cut while it was read")
    return buffers


def _read_range(request: tuple[str, int, int]) -> Any:
    path, start, stop = request
    if is_local(path):
        return np.fromfile(path, np.uint8, stop - start, offset=start)
    if _by_tensorflow(path):
        with tf.io.gfile.GFile(path, "rb") as file:
            file.seek(start)
            return file.read(stop - start)
    file_system, name = fsspec.core.url_to_fs(path)
    return file_system.cat_file(name, start, stop)


@functools.lru_cache(1 << 14)
def _file_system(path: str, process: int, thread: int) -> tuple[Any, str]:
    """Fsspec's file system of a path, or None, and the name there. Each process and thread has its own."""
    return (None, path) if is_local(path) or _by_tensorflow(path) else fsspec.core.url_to_fs(path)


def _by_tensorflow(path: str) -> bool:
    return path.partition("://")[0] in tf.io.gfile.get_registered_schemes()
