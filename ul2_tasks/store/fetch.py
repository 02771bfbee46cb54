"""Ranges of bytes of files: near ones are read as one, and those of a remote file system are asked for side by side.

A remote request that fails is tried again, see `files.retries`.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any, NamedTuple, TypeVar

import numpy as np
from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem, sync

from ul2_tasks.files.retries import ShortReadError, retried, wait_after
from ul2_tasks.files.systems import file_system, is_local

_NEAR = 1 << 16  # bytes: to read so many for nothing takes less time than another request
_THREADS = 64  # they wait for requests
_COROUTINES = 512  # likewise; at 20 ms a request, 25,000 requests a second
_FILE = 48  # bits of a place in a file
_counts = [0, 0]  # requests and bytes
_lock = threading.Lock()
_In = TypeVar("_In")
_Out = TypeVar("_Out")


def fetch(paths: Sequence[str], numbers: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> list[memoryview]:
    """Reads ranges of files: the bytes of each, in the order asked.

    Range i has the bytes [starts[i], stops[i]) of file number `numbers[i]`; all three are [n] int64. An OSError says that a file
    cannot be read, or ends before.
    """
    if not len(numbers):
        return []
    found = near_ranges(numbers, starts, stops, _NEAR)
    requests = zip(found.files.tolist(), found.starts.tolist(), found.stops.tolist())
    buffers = _read([(paths[number], first, last) for number, first, last in requests])
    before = found.starts[found.which]
    return [
        buffers[request][start:stop]
        for request, start, stop in zip(found.which.tolist(), (starts - before).tolist(), (stops - before).tolist())
    ]


class NearRanges(NamedTuple):
    """In which of m ranges each of n others lies, [n] int64; and the files, starts and stops of these, [m] int64 each."""

    which: np.ndarray
    files: np.ndarray
    starts: np.ndarray
    stops: np.ndarray


def near_ranges(numbers: np.ndarray, starts: np.ndarray, stops: np.ndarray, near: int) -> NearRanges:
    """Makes one range of those of a file between which there are at most `near` bytes.

    Range i has the bytes [starts[i], stops[i]) of file number `numbers[i]`; all three are [n] int64. Gives the new ones in the
    order of the files.

    >>> files, starts, stops = np.array([0, 1, 0, 0]), np.array([50, 5, 0, 12]), np.array([60, 9, 10, 20])
    >>> [column.tolist() for column in near_ranges(files, starts, stops, near=2)]
    [[1, 2, 0, 0], [0, 0, 1], [0, 50, 5], [20, 60, 9]]
    """
    # All files lie one after the other, far apart.
    starts, stops = starts + (numbers << _FILE), stops + (numbers << _FILE)
    order = np.argsort(starts)
    reached = np.maximum.accumulate(stops[order])
    is_first = np.concatenate([[True], starts[order][1:] > reached[:-1] + near])[: len(order)]
    which = np.empty(len(order), np.int64)
    which[order] = np.cumsum(is_first) - 1
    files, firsts = numbers[order][is_first], starts[order][is_first]
    lasts = reached[np.append(np.flatnonzero(is_first)[1:], len(order)) - 1] if len(order) else stops
    return NearRanges(which, files, firsts - (files << _FILE), lasts - (files << _FILE))


def concurrently(function: Callable[[_In], _Out], items: Sequence[_In]) -> list[_Out]:
    """The function of each item, many at a time."""
    with futures.ThreadPoolExecutor(max(1, min(_THREADS, len(items)))) as pool:
        return list(pool.map(function, items))


def _read(requests: Sequence[tuple[str, int, int]]) -> list[memoryview]:
    """The bytes [start, stop) of each (path, start, stop)."""
    if len(requests) == 1 or all(is_local(path) for path, _, _ in requests):
        found = [_read_range(request) for request in requests]
    else:
        systems = {path: _file_system(path, os.getpid(), threading.get_ident())[0] for path, _, _ in requests}
        system = systems[requests[0][0]]
        if isinstance(system, AsyncFileSystem) and all(other is system for other in systems.values()):
            found = _from_async(system, requests)
        else:
            found = _from_threads(requests)
    return [memoryview(buffer) for buffer in found]


def _from_threads(requests: Sequence[tuple[str, int, int]]) -> list[Any]:
    """Each thread takes the next request when it has read one. A task for each request would take longer than a quick answer."""
    found: list[Any] = [None] * len(requests)
    waiting = iter(enumerate(requests))

    def work() -> None:
        for number, request in waiting:
            found[number] = _read_range(request)

    for task in [_threads(os.getpid()).submit(work) for _ in range(min(_THREADS, len(requests)))]:
        task.result()
    return found


def _from_async(system: AsyncFileSystem, requests: Sequence[tuple[str, int, int]]) -> list[Any]:
    """Likewise with coroutines, unless the file system has a way of its own to read many ranges."""
    names = {path: _file_system(path, os.getpid(), threading.get_ident())[1] for path, _, _ in requests}
    if type(system)._cat_ranges is not AsyncFileSystem._cat_ranges:
        return _by_its_own_way(system, names, requests)
    found: list[Any] = [None] * len(requests)
    waiting = iter(enumerate(requests))

    async def work() -> None:
        for number, request in waiting:
            path, start, stop = request
            failed = 0
            while found[number] is None:
                _count(requests=1)
                try:
                    found[number] = _whole(await system._cat_file(names[path], start=start, end=stop), request)
                except Exception as error:
                    failed += 1
                    await asyncio.sleep(wait_after(failed, error, path))

    async def all_work() -> None:
        tasks = [asyncio.ensure_future(work()) for _ in range(min(_COROUTINES, len(requests)))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    sync(system.loop, all_work)
    return found


def _by_its_own_way(system: AsyncFileSystem, names: dict[str, str], requests: Sequence[tuple[str, int, int]]) -> list[Any]:
    """Those that fail are asked for again, and no others."""
    found: list[Any] = [None] * len(requests)
    missing, failed = list(range(len(requests))), 0
    while missing:
        _count(requests=len(missing))
        paths, starts, stops = zip(*(requests[number] for number in missing))
        try:
            answers = system.cat_ranges(
                paths=[names[path] for path in paths], starts=list(starts), ends=list(stops), on_error="return"
            )
        except Exception as error:
            answers = [error] * len(missing)
        failures: dict[int, Exception] = {}
        for number, answer in zip(missing, answers):
            try:
                if isinstance(answer, Exception):
                    raise answer
                found[number] = _whole(answer, requests[number])
            except Exception as error:
                failures[number] = error
        missing, failed = list(failures), failed + 1
        if waits := [wait_after(failed, error, requests[number][0]) for number, error in failures.items()]:
            time.sleep(max(waits))
    return found


def _read_range(request: tuple[str, int, int]) -> Any:
    path, start, stop = request
    if is_local(path):
        return _whole(np.fromfile(path, np.uint8, stop - start, offset=start), request)
    system, name = _file_system(path, os.getpid(), threading.get_ident())

    def ask() -> Any:
        _count(requests=1)
        # By name: to s3fs, the second is the version.
        return _whole(system.cat_file(name, start=start, end=stop), request)

    return retried(ask, path)


def _whole(buffer: Any, request: tuple[str, int, int]) -> Any:
    """The bytes that were read, if they are those that were asked for."""
    path, start, stop = request
    if not is_local(path):
        _count(read=len(buffer))
    if len(buffer) < stop - start:
        raise ShortReadError(
            f"{path} ends {stop - start - len(buffer)} bytes too early, because it was cut while it was read. Write or copy"
            " it again."
        )
    if len(buffer) > stop - start:
        raise ValueError(
            f"{path} must answer with the {stop - start} bytes that were asked for, got {len(buffer)}. Use a server that supports"
            " range requests."
        )
    return buffer


def _count(requests: int = 0, read: int = 0) -> None:
    with _lock:
        _counts[:] = _counts[0] + requests, _counts[1] + read


def remote_reads() -> tuple[int, int]:
    """How many requests for bytes of remote files this process has made, failed ones too, and the bytes of the answers."""
    with _lock:
        return _counts[0], _counts[1]


def _unlock() -> None:
    """In a process that was forked, in which the thread that has the lock is not there."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_unlock)


@functools.lru_cache
def _threads(process: int) -> futures.ThreadPoolExecutor:
    """Threads that read ranges, and do nothing that waits for another of them."""
    return futures.ThreadPoolExecutor(_THREADS)


@functools.lru_cache(1 << 14)
def _file_system(path: str, process: int, thread: int) -> tuple[AbstractFileSystem, str]:
    """The file system of a path, and the name there. Each process and thread has its own."""
    return file_system(path)
