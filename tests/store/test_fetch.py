"""Ranges of bytes: near ones become one request, and those of a remote file system wait side by side."""

import asyncio
import threading
from typing import ClassVar

import fsspec
import numpy as np
import pytest
from fsspec.asyn import AsyncFileSystem
from fsspec.exceptions import FSTimeoutError
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ul2_tasks.files import retries
from ul2_tasks.files.retries import ReadError
from ul2_tasks.store.arrays import FileArray, MappedArray, read_joined, read_ranges
from ul2_tasks.store.fetch import fetch
from ul2_tasks.store.read import MemoryStore


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(retries, "_WAITS", (0.001, 0.002))


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
    starts, stops = [500_000, 0, 50, 100, 80_000, 900_000], [500_100, 100, 60, 300, 80_010, 900_001]
    found = fetch([f"{system.protocol}://a"], np.zeros(6, np.int64), np.array(starts), np.array(stops))
    assert [bytes(part) for part in found] == [CONTENT[start:stop] for start, stop in zip(starts, stops)]
    assert sorted(Together.requests) == [(0, 300), (80_000, 80_010), (500_000, 500_100), (900_000, 900_001)]


# What object stores and networks answer now and then.
ERRORS = {
    "time-out": TimeoutError("timed out"),
    "reset": ConnectionResetError(104, "Connection reset by peer"),
    "503": RuntimeError("503 Slow Down\nplease"),  # of a package whose errors are no OSErrors
    "time-out of fsspec": FSTimeoutError(),
    "short read": None,
}


class Failing:
    """Each request fails as often as `failures` says for its first byte, each time by the next error."""

    failures: ClassVar[dict[int, int]] = {}
    errors: ClassVar[list[Exception | None]] = []
    lock: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def answer(cls, path, start, end) -> bytes:
        with cls.lock:
            if not cls.failures.get(start):
                return CONTENT[start:end]
            cls.failures[start] -= 1
            cls.errors.append(error := cls.errors.pop(0))
        if error is not None:
            raise error
        return CONTENT[start : end - 1]


class FailingInThreads(MemoryFileSystem):
    protocol = "failing-threads"

    def cat_file(self, path, start=None, end=None, **keywords):
        return Failing.answer(path, start, end)


class FailingInCoroutines(AsyncFileSystem):
    protocol = "failing-coroutines"

    async def _cat_file(self, path, start=None, end=None, **keywords):
        return Failing.answer(path, start, end)


@pytest.fixture(params=[FailingInThreads, FailingInCoroutines])
def failing(request) -> str:
    """The path of a file with `CONTENT`."""
    fsspec.register_implementation(request.param.protocol, request.param, clobber=True)
    Failing.failures, Failing.errors = {}, list(ERRORS.values())
    return f"{request.param.protocol}://failing/a"


def read_of(path, starts) -> list[bytes]:
    starts = np.array(starts)
    return [bytes(found) for found in fetch([path], np.zeros(len(starts), np.int64), starts, starts + 10)]


@pytest.mark.parametrize("starts", [[100_000], list(range(0, 900_000, 100_000))], ids=["one", "many"])
@pytest.mark.parametrize("error", ERRORS)
def test_a_request_that_fails_is_tried_again(failing, starts, error):
    Failing.errors, Failing.failures = [ERRORS[error]], {100_000: 2, 300_000: 1}
    assert read_of(failing, starts) == [CONTENT[start : start + 10] for start in starts]


@pytest.mark.parametrize("starts", [[100_000], list(range(0, 900_000, 100_000))], ids=["one", "many"])
def test_one_that_fails_too_often_is_an_error_that_names_the_object_and_the_last_error(failing, starts):
    Failing.errors, Failing.failures = [ERRORS["reset"], ERRORS["503"]], {100_000: 1000}
    with pytest.raises(ReadError, match=failing) as error:
        read_of(failing, starts)
    assert "Connection reset by peer" in str(error.value)
    assert Failing.failures == {100_000: 997}


@pytest.mark.parametrize("error", [FileNotFoundError("gone"), PermissionError("not yours"), TypeError("a bug")])
@pytest.mark.parametrize("starts", [[100_000], [0, 100_000]], ids=["one", "many"])
def test_what_another_try_would_not_change_is_raised_at_once(failing, error, starts):
    Failing.errors, Failing.failures = [error], {100_000: 1000}
    with pytest.raises(type(error), match=str(error)):
        read_of(failing, starts)
    assert Failing.failures == {100_000: 999}


def test_a_server_that_answers_with_the_whole_file_is_refused(failing, monkeypatch):
    monkeypatch.setattr(Failing, "answer", lambda path, start, end: CONTENT)
    with pytest.raises(ValueError, match=failing):
        read_of(failing, [0])


def test_a_local_file_that_was_cut_is_an_error_at_once(tmp_path):
    (tmp_path / "a").write_bytes(CONTENT[:100])
    with pytest.raises(ReadError, match=str(tmp_path / "a")):
        read_of(str(tmp_path / "a"), [95])


@pytest.fixture
def arrays(tmp_path):
    """100 values each, of every dtype that a store has, and of one in both kinds."""
    dtypes = [np.dtype(name) for name in ("uint8", "int32", "uint16")]
    for dtype in dtypes:
        np.arange(100, dtype=dtype).tofile(tmp_path / dtype.name)
    mapped = [MappedArray(str(tmp_path / dtype.name), dtype) for dtype in dtypes]
    return [*mapped, FileArray(str(tmp_path / "int32"), np.dtype(np.int32))]


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
