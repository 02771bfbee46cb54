"""`BlockCache`: the tokens of its store, in blocks that are each read once, within a bound of bytes."""

import itertools
import threading
import time
import weakref
from concurrent import futures

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ul2_tasks
from ul2_tasks.store.block_cache import BlockCache, Blocks, is_remote
from ul2_tasks.store.read import MemoryStore, Store

TOKENS = np.random.default_rng(0).integers(0, 65536, 1000, np.uint16)


class Counted:
    """Notes which ranges are read, holds answers back until `opened` is set, and knows how many bytes of them are still there."""

    documents, tokens, dtype, provenance = 4, 1000, np.dtype(np.uint16), None

    def __init__(self):
        self.ranges: list[tuple[int, int]] = []
        self.opened = threading.Event()
        self.opened.set()
        self.given: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()

    def read_values(self, start, stop):
        self.ranges.append((start, stop))
        assert self.opened.wait(30)
        found = TOKENS[start:stop].copy()
        self.given[id(found)] = found
        return found

    def holds(self, most: int) -> bool:
        """Whether so many bytes are there at most, once threads that have fetched a block have let go of it."""
        # A list of references is taken at once; threads that fetch may add to the dictionary meanwhile.
        held = (sum(array.nbytes for each in self.given.valuerefs() if (array := each()) is not None) for _ in range(500))
        return any(each <= most or time.sleep(0.01) for each in held)


@pytest.fixture(autouse=True)
def bound():
    """Puts back what a test sets."""
    ul2_tasks.set_block_cache(1 << 20)
    yield ul2_tasks.set_block_cache
    ul2_tasks.set_block_cache()


def read(store, ranges) -> list[int]:
    starts, stops = np.array(ranges, np.int64).reshape(-1, 2).T
    return store.read_chunks(starts, stops).tolist()


def all_of(store) -> list[int]:
    return store.read_tokens(0, store.tokens).tolist()


def quiet(cache) -> None:
    """Waits until nothing of a cache is being fetched."""
    while loading := [each for each in list(cache.held.values()) if isinstance(each, futures.Future)]:
        futures.wait(loading, 30)


RANGES = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(sorted), max_size=12)
BLOCKS = st.sets(st.integers(0, 9))


@given(
    reads=st.lists(st.tuples(RANGES, BLOCKS, BLOCKS), max_size=6),
    block_tokens=st.integers(1, 1100),
    shared=st.integers(0, 30),
    max_bytes=st.integers(1, 5000),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_has_the_tokens_of_its_store_whatever_the_bound(bound, reads, block_tokens, shared, max_bytes):
    bound(max_bytes)
    blocks = Blocks.equal(1000, block_tokens)
    stops = np.minimum(blocks.stops + min(shared, block_tokens - 1), np.append(blocks.stops[1:], 1000))
    cache = BlockCache(store := Counted(), Blocks(blocks.starts, stops) if shared else block_tokens)
    for ranges, *ahead in reads:
        cache.prefetch(*([block for block in sorted(some) if block < len(blocks.starts)] for some in ahead))
        starts, ends = np.array(ranges, np.int64).reshape(-1, 2).T
        found = cache.read_chunks(starts, ends)
        assert found.dtype == np.int32
        assert found.tolist() == [token for start, end in ranges for token in TOKENS[start:end].tolist()]
    quiet(cache)
    assert store.holds(max(max_bytes, 2 * (block_tokens + shared)))


def test_reading_windows_reads_each_block_once_an_epoch_where_two_windows_fit(bound):
    """Chunk by chunk, with the window that comes next fetched ahead when one begins."""
    cache = BlockCache(store := Counted(), 20)
    most = 2 * 5 * 20 * 2
    bound(most)
    rng = np.random.default_rng(2)
    for _ in range(3):
        windows = rng.permutation(50).reshape(-1, 5)
        for window, after in itertools.zip_longest(windows, windows[1:], fillvalue=np.zeros(0, int)):
            chunks = window[:, None] * 20 + np.arange(0, 20, 5)
            for number, start in enumerate(rng.permutation(chunks.ravel())):
                assert cache.read_tokens(start, start + 5).tolist() == TOKENS[start : start + 5].tolist()
                if not number:
                    cache.prefetch(window.tolist(), after.tolist())
                assert store.holds(most)
            quiet(cache)
    assert len(store.ranges) <= 150
    assert len({*store.ranges[:50]}) == 50


def test_what_is_read_now_does_not_wait_for_a_full_queue_ahead():
    class Late(Counted):
        def read_values(self, start, stop):
            return super().read_values(start, stop) if start < 900 else TOKENS[start:stop]

    store = Late()
    store.opened.clear()
    cache = BlockCache(store, 10)
    cache.prefetch([], range(100))
    assert cache.read_tokens(900, 1000).tolist() == TOKENS[900:].tolist()
    store.opened.set()


def test_an_error_of_the_store_reaches_who_reads_and_the_next_try_may_succeed():
    class Broken(Counted):
        broken = True

        def read_values(self, start, stop):
            if self.broken:
                raise OSError("object a is not there")
            return super().read_values(start, stop)

    cache = BlockCache(store := Broken(), 64)
    cache.prefetch(range(8), range(8, 16))
    with pytest.raises(OSError, match="object a"):
        all_of(cache)
    quiet(cache)
    store.broken = False
    assert all_of(cache) == TOKENS.tolist()


def test_what_is_remote():
    far = Store(["/a", "s3://bucket/b"], [4, 4], [1000, 1000])
    near = MemoryStore(TOKENS, np.array([300, 1, 500, 199])), Store(["/a"], [4], [1000])
    assert [is_remote(each) for each in (*near, far)] == [False, False, True]


@pytest.mark.parametrize("wrong", [(-1, 3), (998, 1001), (5, 4)])
def test_ranges_outside_are_refused(wrong):
    with pytest.raises(IndexError, match=f"{wrong[0]} to {wrong[1]}"):
        BlockCache(Counted(), 64).read_chunks(*np.array([wrong]).T)


@pytest.mark.parametrize("value", [0, 1.5, True, "1"])
def test_a_wrong_bound_is_refused(value):
    with pytest.raises(ValueError, match="max_bytes"):
        ul2_tasks.set_block_cache(value)
