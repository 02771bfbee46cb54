"""Ranges of memory maps are announced to the kernel as long as reading waits for a disk."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.store import arrays
from ul2_tasks.store.arrays import MappedArray, read_joined

COUNT = 1 << 22


@pytest.fixture
def announcements(monkeypatch):
    monkeypatch.setattr(arrays, "_announcements", arrays._Announcements())
    return arrays._announcements


@given(st.lists(st.booleans(), max_size=300))
def test_reads_that_wait_are_followed_by_announced_ones_twice_as_many_each_time(waits):
    found, announced, next_ones = arrays._Announcements(), 0, 2
    assert found.are_needed(), "the first read is announced"
    for has_waited in waits:
        assert not found.are_needed()
        found.learn(has_waited)
        expected = next_ones if has_waited else 0
        next_ones = min(2 * next_ones, 1024) if has_waited else max(2, next_ones // 2)
        for _ in range(expected):
            assert found.are_needed()
        announced += expected
    assert announced <= 1024 * sum(waits)


def test_what_is_in_memory_is_not_announced_and_what_is_not_is(tmp_path, announcements, monkeypatch):
    path, values = f"{tmp_path}/values.bin", np.arange(COUNT, dtype=np.int32)
    values.tofile(path)
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    announced, announce = [], arrays._announce
    monkeypatch.setattr(arrays, "_announce", lambda *given: announced.append(len(given[1])) or announce(*given))
    array, rng = MappedArray(path, values.dtype), np.random.default_rng(0)

    def read() -> None:
        starts = rng.integers(0, COUNT - 50, 20)
        found = read_joined([array], np.zeros(20, np.int64), starts, starts + 50)
        assert found.tolist() == (starts[:, np.newaxis] + np.arange(50)).reshape(-1).tolist()

    waits = arrays._waits()
    read()
    read()
    assert announced == [20]
    if arrays._waits() > waits:  # not every file system lets go of what it holds
        assert announcements.left == 2
        read()
        read()
        assert announced == [20] * 3
    array.values.sum()
    announcements.left, before = 0, len(announced)
    for _ in range(5):
        read()
    assert len(announced) == before
