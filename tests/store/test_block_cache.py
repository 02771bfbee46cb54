"""`BlockCache`: the tokens of its store, in blocks that are each read once, within a bound of bytes, from memory or a folder."""

import functools
import gc
import multiprocessing
import os
import pathlib
import pickle
import signal
import threading
from concurrent import futures
from typing import ClassVar

import fsspec
import gin
import numpy as np
import pytest
from absl import logging
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ul2_tasks
from ul2_tasks.files import retries
from ul2_tasks.store import block_cache
from ul2_tasks.store.block_cache import BlockCache, block_counts, is_remote
from ul2_tasks.store.ends import WithEnds
from ul2_tasks.store.read import MemoryStore, Store
from ul2_tasks.store.write import PairWriter

TOKENS = np.random.default_rng(0).integers(0, 65536, 1000, np.int32)
LENGTHS = np.array([300, 1, 500, 199])


class Counted(MemoryStore):
    """Notes which ranges are read, and holds answers back until `opened` is set."""

    def __init__(self, tokens=TOKENS, lengths=LENGTHS):
        super().__init__(tokens, lengths)
        self.ranges: list[tuple[int, int]] = []
        self.opened = threading.Event()
        self.opened.set()

    def read_chunks(self, starts, stops):
        self.ranges += zip(starts.tolist(), stops.tolist())
        assert self.opened.wait(30)
        return super().read_chunks(starts, stops)


@pytest.fixture(autouse=True)
def bound():
    """Puts back what a test sets."""
    ul2_tasks.set_block_cache(1 << 20)
    yield ul2_tasks.set_block_cache
    ul2_tasks.set_block_cache()


@pytest.fixture
def warnings(monkeypatch) -> list[str]:
    found = []
    monkeypatch.setattr(logging, "warning", lambda message, *values: found.append(message % values))
    return found


def read(store, ranges) -> list[int]:
    starts, stops = np.array(ranges, np.int64).reshape(-1, 2).T
    return store.read_chunks(starts, stops).tolist()


def all_of(store) -> list[int]:
    return store.read_tokens(0, store.tokens).tolist()


def quiet() -> None:
    """Waits until nothing is under way."""
    while block_cache._blocks.loading:
        with block_cache._blocks.lock:
            loading = list(block_cache._blocks.loading.values())
        for each in loading:
            each.exception(30)


RANGES = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(sorted), max_size=12)


@given(
    reads=st.lists(st.tuples(RANGES, st.sets(st.integers(0, 9))), max_size=6),
    block_tokens=st.integers(1, 1100),
    max_bytes=st.integers(1, 5000),
    high=st.sampled_from([65535, 65536, 1 << 30]),
    ends=st.booleans(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_has_the_tokens_of_its_store_whatever_the_bound(bound, reads, block_tokens, max_bytes, high, ends):
    store = MemoryStore(np.where(TOKENS[400] == TOKENS, high, TOKENS).astype(np.int32), LENGTHS)
    store = WithEnds(store, 7) if ends else store
    bound(max_bytes)
    cache = BlockCache(store, block_tokens)
    for ranges, ahead in reads:
        cache.prefetch([block for block in ahead if block < len(cache.blocks.starts)])
        found = cache.read_chunks(*np.array(ranges, np.int64).reshape(-1, 2).T)
        assert found.dtype == np.int32
        assert found.tolist() == read(store, ranges)
    quiet()
    largest = 4 * min(block_tokens, cache.tokens)
    assert block_counts().bytes_held <= max(max_bytes, largest)
    assert block_cache._blocks.bytes == sum(block.bytes for block in block_cache._blocks.held.values())
    assert block_cache._blocks.reserved == block_cache._blocks.ahead_now == 0


def test_documents_are_those_of_its_store():
    cache = BlockCache(WithEnds(MemoryStore(TOKENS, LENGTHS), 7), 64)
    assert (cache.documents, cache.tokens, len(cache.blocks.starts)) == (4, 1004, 16)
    assert cache.documents_at(300, 304) == (0, 3)
    assert cache.tokens_of(1) == (301, 303)
    assert cache.read_tokens(299, 304).tolist() == [TOKENS[299], 7, TOKENS[300], 7, TOKENS[301]]


@pytest.mark.parametrize("wrong", [(-1, 3), (998, 1001), (5, 4)])
def test_ranges_outside_are_refused(wrong):
    with pytest.raises(IndexError, match=f"values must be from 0 to 1000, got {wrong[0]} to {wrong[1]}"):
        read(BlockCache(Counted(), 64), [wrong])


def test_each_block_is_read_once_where_the_bound_allows():
    store = Counted()
    cache = BlockCache(store, 64)
    before = block_counts()
    chunks = np.random.default_rng(1).permutation(100)
    for some in np.split(chunks, 10):
        assert read(cache, [(10 * chunk, 10 * chunk + 10) for chunk in some]) == [
            token for chunk in some for token in TOKENS[10 * chunk : 10 * chunk + 10].tolist()
        ]
    assert sorted(store.ranges) == [(start, min(start + 64, 1000)) for start in range(0, 1000, 64)]
    after = block_counts()
    assert (after.blocks_loaded - before.blocks_loaded, after.bytes_used - before.bytes_used) == (16, 2000)


@pytest.mark.parametrize(("largest", "width"), [(65535, 2), (65536, 4)])
def test_a_block_is_held_in_the_narrowest_dtype(largest, width):
    before = block_counts().bytes_held
    all_of(cache := BlockCache(MemoryStore(np.array([1, largest, 3], np.int32), np.array([3])), 3))
    assert block_counts().bytes_held - before == 3 * width
    del cache


def test_the_blocks_of_a_cache_that_is_gone_are_dropped():
    before = block_counts().bytes_held
    all_of(BlockCache(Counted(), 64))
    quiet()
    gc.collect()
    assert block_counts().bytes_held == before


def test_prefetch_returns_at_once_reads_side_by_side_and_reading_waits_for_it():
    store = Counted()
    store.opened.clear()
    cache = BlockCache(store, 100)
    cache.prefetch(range(10))
    threading.Timer(0.1, store.opened.set).start()
    assert all_of(cache) == TOKENS.tolist()
    assert len(store.ranges) == 10


def test_what_is_read_now_does_not_wait_for_a_full_queue_ahead(bound):
    """All threads for reading ahead wait for an answer."""

    class Late(Counted):
        def read_chunks(self, starts, stops):
            if starts[0] < 900:
                assert self.opened.wait(30)
            return MemoryStore.read_chunks(self, starts, stops)

    store = Late()
    store.opened.clear()
    cache = BlockCache(store, 10)
    cache.prefetch(range(100))
    assert cache.read_tokens(900, 1000).tolist() == TOKENS[900:].tolist()
    store.opened.set()
    quiet()


def test_prefetch_has_blocks_of_the_store_alone():
    with pytest.raises(IndexError, match="blocks must be from 0 to 15, got 16"):
        BlockCache(Counted(), 64).prefetch([3, 16])


@pytest.mark.parametrize("windows", [1, 2])
def test_reading_windows_reads_each_block_once_an_epoch_where_two_windows_fit(bound, windows, warnings):
    """Of one or more partitions at a time, chunk by chunk, with the next window fetched ahead when one begins."""
    store, block, size, epochs = Counted(), 20, 5, 3
    cache = BlockCache(store, block)
    at_a_time = windows * size
    bound(2 * at_a_time * block * 2)
    rng = np.random.default_rng(2)
    orders = [rng.permutation(50).reshape(-1, at_a_time) for _ in range(epochs)]
    rounds = np.concatenate(orders)
    for number, blocks in enumerate(rounds):
        if number + 1 < len(rounds):
            cache.prefetch(rounds[number + 1].tolist())
        for start in rng.permutation((blocks[:, None] * block + np.arange(0, block, 5)).ravel()):
            assert cache.read_tokens(start, start + 5).tolist() == TOKENS[start : start + 5].tolist()
            assert block_counts().bytes_held <= 2 * at_a_time * block * 2
        quiet()
    assert not warnings
    assert len(store.ranges) <= epochs * 50
    assert len({*store.ranges[:50]}) == 50


def test_what_is_fetched_ahead_waits_for_room_and_pushes_out_nothing_that_is_read(bound):
    store = Counted()
    cache = BlockCache(store, 100)
    bound(4 * 200)
    read(cache, [(100 * block, 100 * block + 50) for block in range(4)])
    cache.prefetch([5, 6])
    quiet()
    assert len(store.ranges) == 4
    cache.read_tokens(150, 200)  # block 1 is done
    quiet()
    assert store.ranges[4:] == [(500, 600)]
    read(cache, [(100 * block + 50, 100 * block + 60) for block in (0, 2, 3)])
    assert len(store.ranges) == 5


def test_a_bound_that_is_too_small_is_warned_of_once_with_the_bytes_that_it_takes(bound, warnings):
    store = Counted()
    cache = BlockCache(store, 100)
    bound(700)
    assert read(cache, [(950, 1000), (0, 900), (50, 120)]) == [*TOKENS[950:], *TOKENS[:900], *TOKENS[50:120]]
    assert all_of(cache) == TOKENS.tolist()
    (warning,) = warnings
    assert "max_bytes of the block cache must be at least 2000 for the blocks that are read at a time, got 700" in warning


def test_blocks_that_come_again_and_again_are_warned_of(bound, warnings):
    """Of chunks at random places, each of which fits."""
    cache = BlockCache(Counted(), 100)
    bound(800)
    for start in [0, 100, 200, 300, 400] * 3:
        assert not warnings
        cache.read_tokens(start, start + 10)
    for start in [0, 100, 200, 300, 400] * 3:
        cache.read_tokens(start, start + 10)
    (warning,) = warnings
    assert "must be at least 2000" in warning


def test_an_error_of_the_store_reaches_who_reads_and_the_next_try_may_succeed():
    class Broken(Counted):
        broken = True

        def read_chunks(self, starts, stops):
            if self.broken:
                raise OSError("object a is not there")
            return super().read_chunks(starts, stops)

    cache = BlockCache(store := Broken(), 64)
    cache.prefetch(range(16))
    with pytest.raises(OSError, match="object a is not there"):
        all_of(cache)
    quiet()
    store.broken = False
    assert all_of(cache) == TOKENS.tolist()


def test_many_threads_read_one_cache():
    cache, failed = BlockCache(store := Counted(), 7), []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(30):
            start = int(rng.integers(0, 900))
            if cache.read_tokens(start, start + 100).tolist() != TOKENS[start : start + 100].tolist():
                failed.append(start)

    threads = [threading.Thread(target=work, args=[seed]) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    assert len(store.ranges) == len(set(store.ranges))


class Uncertain(MemoryFileSystem):
    """Every third request fails, in one way after the other."""

    protocol = "uncertain"
    asked: ClassVar[list[int]] = [0]
    lock: ClassVar[threading.Lock] = threading.Lock()

    def cat_file(self, path, start=None, end=None, **keywords):
        with Uncertain.lock:
            Uncertain.asked[0] += 1
            number = Uncertain.asked[0]
        content = super().cat_file(path, start, end, **keywords)
        if number % 3:
            return content
        if number % 4 == 0:
            return content[:-1]
        raise [TimeoutError(), ConnectionResetError(), RuntimeError("503")][number % 3 - 1]


@pytest.fixture
def pair(tmp_path) -> pathlib.Path:
    with PairWriter(f"{tmp_path}/a.bin", f"{tmp_path}/a.idx", np.dtype(np.uint16)) as writer:
        writer.add(TOKENS, LENGTHS)
    return tmp_path / "a"


def test_from_a_file_system_that_fails_now_and_then(pair, monkeypatch):
    monkeypatch.setattr(retries, "_WAITS", (0.001,) * 20)
    fsspec.register_implementation("uncertain", Uncertain, clobber=True)
    for kind in ("bin", "idx"):
        fsspec.filesystem("uncertain").pipe(f"uncertain://blocks/a.{kind}", pair.with_suffix(f".{kind}").read_bytes())
    store = WithEnds(Store.open(["uncertain://blocks/a"]), 3)
    assert is_remote(BlockCache(store, 64))
    before = block_counts()
    assert all_of(BlockCache(store, 64)) == all_of(WithEnds(MemoryStore(TOKENS, LENGTHS), 3))
    after = block_counts()
    assert after.requests - before.requests >= after.blocks_loaded - before.blocks_loaded == 16
    assert after.bytes_read - before.bytes_read >= 2000


def test_what_is_remote(pair):
    assert not is_remote(MemoryStore(TOKENS, LENGTHS))
    assert not is_remote(WithEnds(Store([str(pair)], [4], [1000]), 3))
    assert is_remote(Store([str(pair), "s3://bucket/b"], [4, 4], [1000, 1000]))


@pytest.fixture
def folder(tmp_path, bound) -> pathlib.Path:
    bound(1 << 20, tmp_path / "blocks")
    return tmp_path / "blocks"


def processes(count: int) -> futures.ProcessPoolExecutor:
    """Of their own, in which nothing is set."""
    return futures.ProcessPoolExecutor(count, multiprocessing.get_context("spawn"))


def files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.glob("*.tokens"))


def of_store(path: pathlib.Path) -> BlockCache:
    return BlockCache(Store.open([str(path)]), 64)


def loaded(cache: BlockCache) -> int:
    """How many blocks come from the store when all is read."""
    before = block_counts().blocks_loaded
    assert all_of(cache) == TOKENS.tolist()
    return block_counts().blocks_loaded - before


def test_blocks_in_a_folder_are_read_again_by_another_cache_and_another_process(folder, pair):
    assert [loaded(of_store(pair)) for _ in range(3)] == [16, 0, 0]
    assert len(files(folder)) == 16
    with processes(1) as pool:
        assert pool.submit(loaded, of_store(pair)).result() == 0


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:5] + b"?" + data[6:], lambda data: b""])
def test_a_damaged_file_is_fetched_again(folder, pair, warnings, damage):
    loaded(of_store(pair))
    damaged = files(folder)[3]
    good = damaged.read_bytes()
    damaged.unlink()  # others may have it open
    damaged.write_bytes(damage(good))
    assert [loaded(of_store(pair)) for _ in range(2)] == [1, 0]
    assert damaged.read_bytes() == good
    assert warnings == [f"{damaged} is damaged, so its tokens are fetched again"]


def test_a_file_of_another_block_is_not_taken_for_it(folder, pair):
    loaded(of_store(pair))
    one, other = files(folder)[:2]
    other.unlink()
    other.write_bytes(one.read_bytes())
    assert loaded(of_store(pair)) == 1


@pytest.mark.parametrize("wrap", [lambda store: WithEnds(store, 3), lambda store: WithEnds(store, 4), lambda store: store])
def test_another_corpus_is_never_read_from_it(folder, pair, wrap):
    loaded(of_store(pair))
    with PairWriter(f"{pair}.bin", f"{pair}.idx", np.dtype(np.uint16)) as writer:
        writer.add(TOKENS[::-1], LENGTHS)
    store = wrap(Store.open([str(pair)]))
    assert all_of(BlockCache(store, 64)) == all_of(store)
    assert all_of(BlockCache(store, 65)) == all_of(store)


def test_a_folder_has_at_most_so_many_bytes_and_the_oldest_go(folder, pair, bound):
    bound(1000, folder)
    cache = of_store(pair)
    for block in range(15):
        cache.read_tokens(64 * block, 64 * block + 64)
        quiet()
        assert sum(file.stat().st_size for file in files(folder)) <= 1000
    names = {int(file.stem.rpartition("-")[2]) for file in files(folder)}
    assert names == set(range(15 - len(names), 15))


def test_a_folder_that_cannot_be_written_is_warned_of(folder, pair, monkeypatch):
    said = []
    monkeypatch.setattr(logging, "log_every_n_seconds", lambda level, message, seconds, *values: said.append(message % values))
    monkeypatch.setattr(block_cache, "write_block", functools.partial(missing_folder, block_cache.write_block))
    assert loaded(of_store(pair)) == 16
    assert "a block of tokens stays in memory, because" in said[0]


def missing_folder(write, path, values, max_bytes):
    return write(f"{os.path.dirname(path)}/missing/{os.path.basename(path)}", values, max_bytes)


def test_several_processes_share_a_folder_and_each_block_is_fetched_once(folder, pair):
    with processes(3) as pool:
        found = list(pool.map(read_in_some_order, [of_store(pair)] * 3, range(3)))
    assert [tokens for tokens, _ in found] == [TOKENS.tolist()] * 3
    assert sum(blocks for _, blocks in found) == 16


def read_in_some_order(cache: BlockCache, seed: int) -> tuple[list[int], int]:
    """All tokens, and how many blocks were fetched for them."""
    tokens = np.zeros(1000, np.int64)
    cache.prefetch(range(16))
    for start in np.random.default_rng(seed).permutation(100) * 10:
        tokens[start : start + 10] = cache.read_tokens(start, start + 10)
    return tokens.tolist(), block_counts().blocks_loaded


def test_a_pickled_cache_has_the_setting_and_its_own_blocks(bound, folder, pair):
    cache = of_store(pair)
    all_of(cache)
    copy = pickle.loads(pickle.dumps(cache))
    assert all_of(copy) == TOKENS.tolist()
    assert copy.number != cache.number
    with processes(1) as pool:
        assert pool.submit(setting_of, cache).result() == (1 << 20, str(folder))


def setting_of(cache: BlockCache) -> tuple:
    return tuple(block_cache._blocks.setting)


def test_a_forked_process_reads_though_its_parent_was_reading(bound):
    """No lock and no thread of the parent's is waited for, and what it held is there."""
    store = Counted()
    cache = BlockCache(store, 10)
    cache.read_tokens(0, 500)
    store.opened.clear()
    cache.prefetch(range(50, 100))
    held = block_counts().bytes_held
    child = os.fork()
    if not child:
        signal.alarm(60)
        status = 1
        try:
            store.opened.set()
            store.ranges.clear()
            is_right = block_counts().bytes_held == held and all_of(cache) == TOKENS.tolist() and len(store.ranges) == 50
            status = 0 if is_right else 1
        finally:
            os._exit(status)
    store.opened.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all_of(cache) == TOKENS.tolist()


@pytest.mark.parametrize("value", [0, 1.5, True, "1"])
def test_a_wrong_bound_is_refused(value):
    with pytest.raises(ValueError, match=r"max_bytes must be an integer of at least 1, or None, got"):
        ul2_tasks.set_block_cache(value)
    with pytest.raises(ValueError, match=r"blocks must be an integer of at least 1, or Blocks, got"):
        BlockCache(Counted(), value)


def test_a_remote_folder_is_refused():
    with pytest.raises(ValueError, match=r"folder must be a local path, got 's3://a'\. Pass a folder on a disk of this machine"):
        ul2_tasks.set_block_cache(folder="s3://a")


def test_gin_files_set_it_without_a_call(monkeypatch):
    monkeypatch.setattr(block_cache._blocks, "is_given", False)
    with gin.unlock_config():
        gin.parse_config("from __gin__ import dynamic_registration\nimport ul2_tasks\nul2_tasks.set_block_cache.max_bytes = 12345")
    try:
        BlockCache(Counted(), 64)
        assert block_cache._blocks.setting.max_bytes == 12345
    finally:
        gin.clear_config()
