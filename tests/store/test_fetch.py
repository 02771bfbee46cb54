"""Ranges of bytes: near ones become one request, and those of a remote file system wait side by side."""

import asyncio
import threading
from typing import ClassVar

import fsspec
import numpy as np
import pytest
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ul2_tasks.files.retries import ReadError
from ul2_tasks.store.arrays import FileArray, MappedArray, read_joined, read_ranges
from ul2_tasks.store.fetch import fetch
from ul2_tasks.store.read import MemoryStore

CONTENT = np.random.default_rng(0).bytes(1_000_000)


class Together:
    """Answers no request before `together` of them have been made: those that are asked for one after the other never are."""

    requests: ClassVar[list[tuple[int, int]]] = []
    barrier = threading.Barrier(1)


class TogetherInThreads(MemoryFileSystem):
    protocol = "together-threads"

    def cat_file(self, path, start=None, end=None, **keywords):
        Together.requests.append((start, end))
        Together.barrier.wait(30)
        return CONTENT[start:end]


class TogetherInCoroutines(AsyncFileSystem):
    protocol = "together-coroutines"

    async def _cat_file(self, path, start=None, end=None, **keywords):
        Together.requests.append((start, end))
        await asyncio.to_thread(Together.barrier.wait, 30)
        return CONTENT[start:end]


@pytest.mark.parametrize("system", [TogetherInThreads, TogetherInCoroutines])
def test_near_ranges_are_one_request_and_far_ones_wait_side_by_side(system):
    fsspec.register_implementation(system.protocol, system, clobber=True)
    Together.requests, Together.barrier = [], threading.Barrier(4)
    starts, stops = [500_000, 0, 50, 150, 80_000, 900_000], [500_100, 100, 60, 300, 80_010, 900_001]
    found = fetch([f"{system.protocol}://a"], np.zeros(6, np.int64), np.array(starts), np.array(stops))
    assert [bytes(part) for part in found] == [CONTENT[start:stop] for start, stop in zip(starts, stops)]
    assert sorted(Together.requests) == [(0, 300), (80_000, 80_010), (500_000, 500_100), (900_000, 900_001)]


def read_of(path, starts) -> list[bytes]:
    starts = np.array(starts)
    return [bytes(found) for found in fetch([path], np.zeros(len(starts), np.int64), starts, starts + 10)]


class Whole(MemoryFileSystem):
    """A server that answers with the whole file."""

    protocol = "whole"

    def cat_file(self, path, start=None, end=None, **keywords):
        return CONTENT


def test_a_file_that_was_cut_and_a_server_that_knows_no_ranges_are_errors(tmp_path):
    """`tests/stores` has requests that fail."""
    fsspec.register_implementation("whole", Whole, clobber=True)
    (tmp_path / "a").write_bytes(CONTENT[:100])
    for path, error in ((str(tmp_path / "a"), ReadError), ("whole://a", ValueError)):
        with pytest.raises(error, match=path):
            read_of(path, [95])


@pytest.fixture
def arrays(tmp_path):
    """100 values each, of every dtype that a store has, and of one in both kinds."""
    dtypes = [np.dtype(name) for name in ("uint8", "int32", "uint16")]
    for dtype in dtypes:
        np.arange(100, dtype=dtype).tofile(tmp_path / dtype.name)
    mapped = [MappedArray(str(tmp_path / dtype.name), dtype) for dtype in dtypes]
    return [*mapped, FileArray(str(tmp_path / "int32"), np.dtype(np.int32), 100)]


@given(ranges=st.lists(st.tuples(st.integers(0, 3), *[st.integers(0, 100)] * 2), max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ranges_of_arrays_of_several_dtypes_are_joined_in_the_order_asked(arrays, ranges):
    numbers = np.array([number for number, _, _ in ranges], np.int64)
    starts, stops = np.sort(np.array([ends for _, *ends in ranges], np.int64).reshape(-1, 2), axis=1).T
    found = read_joined(arrays, numbers, starts, stops)
    assert np.concatenate([[], *read_ranges(arrays, numbers, starts, stops)]).tolist() == found.tolist()
    assert found.tolist() == [value for start, stop in zip(starts, stops) for value in range(start, stop)]


@pytest.mark.parametrize("wrong", [(-1, 3), (98, 101), (5, 4)])
def test_ranges_outside_an_array_are_refused_before_its_memory_is_read(arrays, wrong):
    starts, stops = np.array([[0, 1], wrong]).T
    with pytest.raises(IndexError, match=f"{wrong[0]} to {wrong[1]}"):
        read_joined(arrays, np.array([0, 3]), starts, stops)
    store = MemoryStore(np.arange(100, dtype=np.int32), np.array([100]))
    with pytest.raises(IndexError, match=f"{wrong[0]} to {wrong[1]}"):
        store.read_chunks(starts, stops)
