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
from ul2_tasks.files.systems import size
from ul2_tasks.store import arrays as arrays_of_files
from ul2_tasks.store.arrays import FileArray, MappedArray, read_joined, read_ranges
from ul2_tasks.store.fetch import fetch, near_ranges
from ul2_tasks.store.read import MemoryStore


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


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(retries, "_WAITS", (0.001, 0.002))


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
    with pytest.raises(OSError, match=r"counting://folder/a ends 10 bytes too early,.*it was read\. Write or copy it again"):
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


class FailingInOneGo(FailingInCoroutines):
    protocol = "failing-one-go"

    async def _cat_ranges(self, paths, starts, ends, on_error="return", **keywords):
        answers = [self._cat_file(*each) for each in zip(paths, starts, ends)]
        return await asyncio.gather(*answers, return_exceptions=on_error == "return")


@pytest.fixture(params=[FailingInThreads, FailingInCoroutines, FailingInOneGo])
def failing(request) -> str:
    """The path of a file with `CONTENT`."""
    fsspec.register_implementation(request.param.protocol, request.param, clobber=True)
    Failing.failures, Failing.errors = {}, list(ERRORS.values())
    return f"{request.param.protocol}://failing/a"


CONTENT = np.random.default_rng(0).bytes(1_000_000)


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
    message = (
        rf"^{failing} must answer a request within 3 tries in 0 seconds, got errors, the last of them ConnectionResetError: \[Errno"
        r" 104\] Connection reset by peer\. Check the object store and the network, then resume\. See"
        r" docs/help/troubleshooting\.md#an-object-store-does-not-answer\.$"
    )
    with pytest.raises(OSError, match=message):
        read_of(failing, starts)
    assert Failing.failures == {100_000: 997}


def test_one_that_is_always_short_is_a_file_that_was_cut(failing):
    Failing.errors, Failing.failures = [None], {100_000: 1000}
    with pytest.raises(OSError, match=rf"^{failing} ends 1 bytes too early, because it was cut"):
        read_of(failing, [100_000])


@pytest.mark.parametrize("error", [FileNotFoundError("gone"), PermissionError("not yours"), TypeError("a bug")])
@pytest.mark.parametrize("starts", [[100_000], [0, 100_000]], ids=["one", "many"])
def test_what_another_try_would_not_change_is_raised_at_once(failing, error, starts):
    Failing.errors, Failing.failures = [error], {100_000: 1000}
    with pytest.raises(type(error), match=str(error)):
        read_of(failing, starts)
    assert Failing.failures == {100_000: 999}


def test_a_server_that_answers_with_the_whole_file_is_refused(failing, monkeypatch):
    monkeypatch.setattr(Failing, "answer", lambda path, start, end: CONTENT)
    with pytest.raises(ValueError, match=rf"^{failing} must answer with the 10 bytes that were asked for, got 1000000\. Use a"):
        read_of(failing, [0])


def test_the_size_of_a_file_is_asked_for_again():
    class Sizes(MemoryFileSystem):
        protocol = "failing-sizes"

        def info(self, path, **keywords):
            if not errors:
                return {"name": path, "type": "file", "size": 7}
            raise errors.pop()

    errors = [TimeoutError()]
    fsspec.register_implementation("failing-sizes", Sizes, clobber=True)
    assert size("failing-sizes://a") == 7


def test_a_file_that_is_mapped_and_one_that_is_not_are_read_alike(tmp_path):
    values = np.arange(100_000, dtype=np.uint16)
    values.tofile(tmp_path / "a")
    arrays = [kind(str(tmp_path / "a"), values.dtype) for kind in (MappedArray, FileArray)]
    starts, stops = np.array([7, 90_000, 3, 5]), np.array([9, 90_001, 3, 60_000])
    for order in ([0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0]):
        found = read_ranges(arrays, np.array(order), starts, stops)
        assert [part.tolist() for part in found] == [values[start:stop].tolist() for start, stop in zip(starts, stops)]
        joined = read_joined(arrays, np.array(order), starts, stops)
        assert joined.dtype == np.int32
        assert joined.tolist() == np.concatenate(found).tolist()


@pytest.fixture
def arrays(tmp_path):
    """100 values each, of every dtype that a store has, and of one in both kinds."""
    dtypes = [np.dtype(name) for name in ("uint8", "int8", "int16", "int32", "int64", "uint16")]
    for dtype in dtypes:
        np.arange(100, dtype=dtype).tofile(tmp_path / dtype.name)
    mapped = [MappedArray(str(tmp_path / dtype.name), dtype) for dtype in dtypes]
    return [*mapped, FileArray(str(tmp_path / "int64"), np.dtype(np.int64))]


@given(ranges=st.lists(st.tuples(st.integers(0, 6), *[st.integers(0, 100)] * 2), max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ranges_of_arrays_of_several_dtypes_are_joined_in_the_order_asked(arrays, ranges):
    numbers = np.array([number for number, _, _ in ranges], np.int64)
    starts, stops = np.sort(np.array([ends for _, *ends in ranges], np.int64).reshape(-1, 2), axis=1).T
    found = read_joined(arrays, numbers, starts, stops)
    assert found.tolist() == [value for start, stop in zip(starts, stops) for value in range(start, stop)]


@pytest.mark.parametrize("wrong", [(-1, 3), (98, 101), (5, 4)])
def test_ranges_outside_an_array_are_refused_before_its_memory_is_read(arrays, wrong):
    starts, stops = np.array([[0, 1], wrong]).T
    with pytest.raises(IndexError, match=f"values must be from 0 to 100, got {wrong[0]} to {wrong[1]}"):
        read_joined(arrays, np.array([0, 3]), starts, stops)
    store = MemoryStore(np.arange(100, dtype=np.int32), np.array([100]))
    with pytest.raises(IndexError, match=f"values must be from 0 to 100, got {wrong[0]} to {wrong[1]}"):
        store.read_chunks(starts, stops)


@pytest.mark.parametrize("value", [-1, 1 << 31])
@pytest.mark.parametrize("kind", [MappedArray, FileArray])
def test_a_wide_value_that_is_no_id_is_not_wrapped(tmp_path, kind, value):
    np.array([5, value, 7]).tofile(tmp_path / "wide")
    array = kind(str(tmp_path / "wide"), np.dtype(np.int64))
    assert read_joined([array], np.array([0]), np.array([2]), np.array([3])).tolist() == [7]
    with pytest.raises(ValueError, match=rf"tokens must be ids from 0 to 2\*\*31 - 1, got {min(value, 5)} to {max(value, 7)}"):
        read_joined([array], np.array([0]), np.array([0]), np.array([3]))


@given(
    ranges=st.lists(st.tuples(st.integers(0, 2), *[st.integers(0, 1000)] * 2), max_size=20),
    near=st.integers(0, 50),
)
def test_near_ranges_cover_what_was_asked_and_lie_apart(ranges, near):
    numbers = np.array([number for number, _, _ in ranges], np.int64)
    starts, stops = np.sort(np.array([ends for _, *ends in ranges], np.int64).reshape(-1, 2), axis=1).T
    which, files, firsts, lasts = near_ranges(numbers, starts, stops, near)
    assert (files[which] == numbers).all()
    assert (firsts[which] <= starts).all()
    assert (lasts[which] >= stops).all()
    assert sorted(zip(files, firsts)) == list(zip(files, firsts))
    assert all(first > last + near for file, other, last, first in zip(files, files[1:], lasts, firsts[1:]) if file == other)
    for file, first, last in zip(files, firsts, lasts):
        reached = first
        for start, stop in sorted((start, stop) for number, start, stop in zip(numbers, starts, stops) if number == file):
            if first <= start <= last:
                assert start <= reached + near
                reached = max(reached, stop)
        assert reached == last


def test_the_kernel_is_told_of_a_file_until_it_was_read_once(tmp_path, monkeypatch):
    """And always of files that are larger than what stays in memory."""
    told, announce = [], arrays_of_files._announce
    monkeypatch.setattr(arrays_of_files, "_announce", lambda *given: told.append(len(given[1])) or announce(*given))
    np.arange(100_000, dtype=np.uint16).tofile(tmp_path / "a")
    array, numbers = MappedArray(str(tmp_path / "a"), np.dtype(np.uint16)), np.zeros(4, np.int64)
    starts = np.arange(0, 100_000, 25_000)
    for expected in (4, 0):
        read_joined([array], numbers, starts, starts + 25_000)
        assert sum(told) == expected
        told.clear()
    monkeypatch.setattr(arrays_of_files, "_page_cache", lambda: 100)
    assert read_joined([array], numbers, starts, starts + 1).tolist() == (starts % 65536).tolist()
    assert told == [4]
