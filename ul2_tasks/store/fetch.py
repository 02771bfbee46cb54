"""Ranges of bytes of files: near ones are read as one, and those of a remote file system are asked for side by side.

A remote request that fails is tried again, see `files.retries`.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Sequence
from concurrent import futures
from typing import Any, NamedTuple

import numpy as np
from fsspec.asyn import AsyncFileSystem

from ul2_tasks.files.retries import ReadError, ShortReadError, wait_after
from ul2_tasks.files.systems import file_system, is_local

_NEAR = 1 << 16  # bytes: to read so many for nothing takes less time than another request
_THREADS = 32  # they wait for requests of file systems that are not asynchronous
_FILE = 48  # bits of a place in a file


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
        memoryview(buffers[request])[start:stop]
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


def _read(requests: Sequence[tuple[str, int, int]]) -> list[Any]:
    """The bytes [start, stop) of each (path, start, stop), all in one round. Those that fail are asked for again, and no others."""
    found: list[Any] = [None] * len(requests)
    missing, failed = list(range(len(requests))), 0
    while missing:
        answers, failures, failed = _answers([requests[number] for number in missing]), dict[int, Exception](), failed + 1
        for number, answer in zip(missing, answers, strict=True):
            if error := answer if isinstance(answer, Exception) else _wrong(answer, *requests[number]):
                failures[number] = error
            else:
                found[number] = answer
        missing = list(failures)
        if missing:
            time.sleep(max(wait_after(failed, error, requests[number][0]) for number, error in failures.items()))
    return found


def _answers(requests: Sequence[tuple[str, int, int]]) -> list[Any]:
    """What each request is answered, or the error that it ends with."""
    paths, starts, stops = map(list, zip(*requests))
    if all(map(is_local, paths)):
        return [np.fromfile(path, np.uint8, stop - start, offset=start) for path, start, stop in requests]
    found = {path: file_system(path) for path in set(paths)}
    system, _ = found[paths[0]]
    if isinstance(system, AsyncFileSystem) and all(other is system for other, _ in found.values()):
        try:
            return system.cat_ranges([found[path][1] for path in paths], starts, stops, on_error="return")
        except Exception as error:
            return [error] * len(requests)
    return [_answer(*requests[0])] if len(requests) == 1 else list(_threads(os.getpid()).map(_answer, paths, starts, stops))


def _answer(path: str, start: int, stop: int) -> Any:
    try:
        system, name = file_system(path)  # each thread has its own
        return system.cat_file(name, start=start, end=stop)  # by name: to s3fs, the second is the version
    except Exception as error:
        return error


def _wrong(answer: Any, path: str, start: int, stop: int) -> Exception | None:
    """Why an answer is not the bytes that were asked for; None where it is. A local file that ends before stays as it is."""
    if len(answer) < stop - start:
        kind = ReadError if is_local(path) else ShortReadError
        return kind(
            f"{path} ends {stop - start - len(answer)} bytes too early, because it was cut while it was read. Write or copy"
            " it again."
        )
    if len(answer) > stop - start:
        return ValueError(
            f"{path} must answer with the {stop - start} bytes that were asked for, got {len(answer)}. Use a server that supports"
            " range requests."
        )
    return None


@functools.lru_cache
def _threads(process: int) -> futures.ThreadPoolExecutor:
    """Threads that read ranges, and do nothing that waits for another of them."""
    return futures.ThreadPoolExecutor(_THREADS)
