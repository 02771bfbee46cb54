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
    found, next_ones, is_clean = arrays._Announcements(), 2, False
    assert not found.left_out(512).any(), "the first read is announced"
    for has_waited in waits:
        assert found.left_out(512).sum() == (512 if is_clean else 4)
        found.learn(has_waited)
        if has_waited:
            for _ in range(next_ones):
                assert not found.left_out(512).any()
            next_ones = min(2 * next_ones, 1024)
        elif is_clean:
            next_ones = max(2, next_ones // 2)
        is_clean = not has_waited


@pytest.mark.parametrize("ranges", [0, 1, 3, 5, 9])
def test_of_few_ranges_some_are_left_out(ranges):
    found = arrays._Announcements()
    found.left_out(ranges)
    assert min(1, ranges) <= found.left_out(ranges).sum() <= max(5, ranges)


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
    assert announced == [20, 16]
    if arrays._waits() > waits:  # not every file system lets go of what it holds
        assert announcements.left == 2
        read()
        read()
        assert announced == [20, 16, 20, 20]
    array.values.sum()
    announcements.left, before = 0, len(announced)
    for _ in range(5):
        read()
    assert len(announced) <= before + 1
    assert announcements.are_needless
