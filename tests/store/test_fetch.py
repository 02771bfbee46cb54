"""Ranges of bytes: near ones become one request, and those of a remote file system wait side by side."""

import threading
from typing import ClassVar

import fsspec
import numpy as np
import pytest
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


def test_a_file_that_is_mapped_and_one_that_is_not_are_read_alike(tmp_path):
    values = np.arange(100_000, dtype=np.uint16)
    values.tofile(tmp_path / "a")
    arrays = [kind(str(tmp_path / "a"), values.dtype) for kind in (MappedArray, FileArray)]
    starts, stops = np.array([7, 90_000, 3, 5]), np.array([9, 90_001, 3, 60_000])
    for order in ([0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0]):
        found = read_ranges(arrays, np.array(order), starts, stops)
        assert [part.tolist() for part in found] == [values[start:stop].tolist() for start, stop in zip(starts, stops)]
