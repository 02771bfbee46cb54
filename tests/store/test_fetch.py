"""Ranges of bytes: near ones become one request, and those of a remote file system wait side by side."""

import asyncio
import threading
from typing import ClassVar

import fsspec
import numpy as np
import pytest
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from ul2_tasks.store.arrays import FileArray, MappedArray, read_ranges
from ul2_tasks.store.fetch import fetch


class Counting(MemoryFileSystem):
    """Counts requests, and answers none before `together` of them have been made."""

    protocol = "counting"
    requests: ClassVar[list[tuple[int, int]]] = []
    together: threading.Barrier | None = None

    def cat_file(self, path, start=None, end=None, **keywords):
        Counting.requests.append((start, end))
        if Counting.together:
            Counting.together.wait(timeout=30)
        return super().cat_file(path, start, end, **keywords)


@pytest.fixture
def remote():
    fsspec.register_implementation("counting", Counting, clobber=True)
    Counting.requests, Counting.together = [], None
    content = np.random.default_rng(0).integers(0, 256, 1 << 20, np.uint8).tobytes()
    fsspec.filesystem("counting").pipe("counting://folder/a", content)
    return content


def read(starts, stops) -> list[bytes]:
    numbers = np.zeros(len(starts), np.int64)
    return [bytes(found) for found in fetch(["counting://folder/a"], numbers, np.array(starts), np.array(stops))]


def test_near_adjacent_and_overlapping_ranges_are_one_request(remote):
    starts, stops = [500_000, 0, 50, 100, 80_000], [500_100, 100, 60, 300, 80_010]
    assert read(starts, stops) == [remote[start:stop] for start, stop in zip(starts, stops)]
    assert sorted(Counting.requests) == [(0, 300), (80_000, 80_010), (500_000, 500_100)]


def test_far_ranges_wait_side_by_side(remote):
    """Asked for one after the other, the first would never be answered."""
    Counting.together = threading.Barrier(8)
    starts = list(range(0, 800_000, 100_000))
    assert read(starts, [start + 10 for start in starts]) == [remote[start : start + 10] for start in starts]


def test_a_file_that_ends_before_is_an_error(remote):
    with pytest.raises(OSError, match="ends 10 bytes too early: it was cut while it was read"):
        read([(1 << 20) - 10], [(1 << 20) + 10])


class InCoroutines(AsyncFileSystem):
    """The files of `memory://`. Answers no request before `together` of them have been made."""

    protocol = "coroutines"
    together = 1
    waiting: ClassVar[list[asyncio.Event]] = []

    async def _cat_file(self, path, start=None, end=None, **keywords):
        answered = asyncio.Event()
        InCoroutines.waiting.append(answered)
        if len(InCoroutines.waiting) >= InCoroutines.together:
            for event in InCoroutines.waiting:
                event.set()
        await asyncio.wait_for(answered.wait(), timeout=30)
        return fsspec.filesystem("memory").cat_file(path, start, end)


class InOneGo(InCoroutines):
    """Has a way of its own to read many ranges."""

    protocol = "one-go"

    async def _cat_file(self, path, start=None, end=None, **keywords):
        raise AssertionError("it was asked for one range")

    async def _cat_ranges(self, paths, starts, ends, **keywords):
        return [fsspec.filesystem("memory").cat_file(*request) for request in zip(paths, starts, ends)]


@pytest.fixture(params=[InCoroutines, InOneGo])
def protocol(request) -> str:
    fsspec.register_implementation(request.param.protocol, request.param, clobber=True)
    InCoroutines.waiting, InCoroutines.together = [], 1
    return request.param.protocol


def test_ranges_of_an_asynchronous_file_system_wait_side_by_side(protocol):
    content = np.random.default_rng(0).bytes(1 << 20)
    fsspec.filesystem("memory").pipe({"memory://asked/a": content, "memory://asked/b": content[::-1]})
    starts, numbers = np.arange(0, 900_000, 100_000), np.arange(9) % 2
    InCoroutines.together = len(starts)
    found = fetch([f"{protocol}://asked/{name}" for name in "ab"], numbers, starts, starts + 10)
    assert [bytes(part) for part in found] == [
        [content, content[::-1]][number][start : start + 10] for number, start in zip(numbers, starts)
    ]


def test_a_file_that_is_not_there_is_an_error_of_its_file_system(protocol):
    with pytest.raises(FileNotFoundError):
        fetch([f"{protocol}://asked/none"], np.zeros(3, np.int64), np.array([0, 500_000, 900_000]), np.array([1, 500_001, 900_001]))


def test_a_file_that_is_mapped_and_one_that_is_not_are_read_alike(tmp_path):
    values = np.arange(100_000, dtype=np.uint16)
    values.tofile(tmp_path / "a")
    arrays = [kind(str(tmp_path / "a"), values.dtype) for kind in (MappedArray, FileArray)]
    starts, stops = np.array([7, 90_000, 3, 5]), np.array([9, 90_001, 3, 60_000])
    for order in ([0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0]):
        found = read_ranges(arrays, np.array(order), starts, stops)
        assert [part.tolist() for part in found] == [values[start:stop].tolist() for start, stop in zip(starts, stops)]
