"""`BlockCache`: a store of which whole blocks are read, fetched ahead, and held in memory.

    block          0          1          2         3
    tokens     [0, B)    [B, 2 B)  [2 B, 3 B)  [3 B, N)      each is one long read of a remote store

Blocks of whole records begin and end where these do. All caches of the processes of a host share one bound of bytes, in equal
parts, as workers of a DataLoader share that of theirs. Where there is no room, the block goes that was not used for longest.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import logging
import os
import re
import sys
import threading
import weakref
from collections.abc import Sequence
from concurrent import futures
from typing import NamedTuple, TypeAlias

import numpy as np

from ul2_tasks.files.systems import is_local
from ul2_tasks.order.ranges import expanded
from ul2_tasks.scalars import is_integer
from ul2_tasks.store.arrays import MemoryArray, check_within, read_joined
from ul2_tasks.store.memory import available_bytes
from ul2_tasks.store.read import Store, TokenStore

_logger = logging.getLogger(__name__)
_THREADS = 32
_AHEAD = 16  # blocks are fetched ahead at once, so that what is read now never waits for a thread
_MOST_WAITING = 1 << 13  # blocks
_MOST_BYTES = 1 << 33  # unless more is asked for
_Key: TypeAlias = "tuple[weakref.ref[BlockCache], int]"  # a cache and its block


class Blocks(NamedTuple):
    """Which tokens each block of a store has, [starts, stops), [blocks] int64 each.

    Blocks are in the order of the store and have all that is read of it. Two of them may share the tokens of one record, which are
    then the last of one and the first of the other.
    """

    starts: np.ndarray
    stops: np.ndarray

    @classmethod
    def equal(cls, tokens: int, size: int) -> Blocks:
        """Blocks of so many tokens, the last one shorter."""
        starts = np.arange(0, tokens, size)
        return cls(starts, np.minimum(starts + size, tokens))


class _Held:
    """The blocks of all caches of this process that are held or being fetched, with their bytes; the last used at the end.

    Those that were fetched ahead stand apart until they are used: they take half of the bound at most, and go after the others. A
    cache has its blocks itself, so they go with it. The lock is held for moments, never while something is read.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.given: int | None = None
        self.default = min(available_bytes() // 4, _MOST_BYTES)
        self.used, self.ahead = (collections.OrderedDict[_Key, int]() for _ in range(2))
        self.waiting: dict[_Key, bool] = {}  # which are to be fetched, and whether these will be used at once
        self.bytes = self.fetching = 0
        self.has_warned = False

    @property
    def max_bytes(self) -> int:
        """Of this process."""
        data = sys.modules.get("torch.utils.data")
        worker = data.get_worker_info() if data else None
        return (self.given or self.default) // _processes() // (worker.num_workers if worker else 1)

    def read(self, cache: BlockCache, blocks: Sequence[int]) -> list[MemoryArray]:
        with self.lock:
            for block in blocks:
                self._use(cache, block)
            found = [cache.held[block] if block in cache.held else self._start(cache, block, self.used) for block in blocks]
        return [each.result() if isinstance(each, futures.Future) else each for each in found]

    def fetch_ahead(self, cache: BlockCache, now: Sequence[int], later: Sequence[int]) -> None:
        needed = sum(map(cache.size, (*now, *later)))
        if needed > self.max_bytes and not self.has_warned:
            self.has_warned = True
            _logger.warning(
                "max_bytes of set_block_cache must be at least %d for two windows of blocks, got %d: they are fetched repeatedly",
                needed,
                self.max_bytes,
            )
        with self.lock:
            for block in now:
                if not self._use(cache, block):
                    self.waiting[cache.ref, block] = True
            for block in later:
                if block not in cache.held:
                    self.waiting.setdefault((cache.ref, block), False)
            while len(self.waiting) > _MOST_WAITING:  # the first were for windows that are not read any more
                del self.waiting[next(iter(self.waiting))]
            self._advance()

    def has(self, cache: BlockCache, block: int) -> bool:
        """Whether a block is held, or on its way."""
        return block in cache.held or (cache.ref, block) in self.waiting

    def _use(self, cache: BlockCache, block: int) -> bool:
        """Whether a block is held, which was used last then."""
        if block in cache.held:
            key = cache.ref, block
            self.used[key] = self.ahead.pop(key) if key in self.ahead else self.used.pop(key)
        return block in cache.held

    def _start(
        self, cache: BlockCache, block: int, queue: collections.OrderedDict[_Key, int], is_awaited: bool = True
    ) -> futures.Future[MemoryArray]:
        size, key = cache.size(block), (cache.ref, block)
        while self.ahead and queue is self.ahead and 2 * (sum(self.ahead.values()) + size) > self.max_bytes:
            self._drop(next(iter(self.ahead)))
        while (self.used or self.ahead) and self.bytes + size > self.max_bytes:
            self._drop(next(iter(self.used or self.ahead)))
        self.waiting.pop(key, None)
        found = cache.held[block] = _threads(os.getpid()).submit(self._load, cache, block, is_awaited)
        queue[key] = size
        self.bytes, self.fetching = self.bytes + size, self.fetching + (not is_awaited)
        return found

    def _advance(self) -> None:
        """Starts what waits to be fetched. Nothing is started when Python is about to end."""
        with contextlib.suppress(RuntimeError):
            while self.waiting and self.fetching < _AHEAD:
                key = next(iter(self.waiting))
                queue, cache = self.used if self.waiting.pop(key) else self.ahead, key[0]()
                if cache and key[1] not in cache.held:
                    self._start(cache, key[1], queue, is_awaited=False)

    def _load(self, cache: BlockCache, block: int, is_awaited: bool) -> MemoryArray:
        """Runs in a thread, without the lock. What could not be read is not held, and so is read again."""
        found = None
        try:
            found = MemoryArray(cache.fetch(block))
            return found
        finally:
            with self.lock:
                self.fetching -= not is_awaited
                if found is not None and block in cache.held:  # it may have had to go
                    cache.held[block] = found
                elif block in cache.held:
                    self._drop((cache.ref, block))
                self._advance()

    def _drop(self, key: _Key) -> None:
        self.bytes -= self.used.pop(key) if key in self.used else self.ahead.pop(key)
        if cache := key[0]():
            del cache.held[key[1]]

    def in_child(self) -> None:
        """In a process that was forked, in which the threads that read blocks are not there. What was read it has."""
        self.lock = threading.Lock()
        self.waiting, self.fetching = {}, 0
        for reference, block in (*self.used, *self.ahead):
            if (cache := reference()) and isinstance(cache.held[block], futures.Future):
                self._drop((reference, block))


class BlockCache(TokenStore):
    """The tokens of a store, of which whole blocks are read and held; see `TokenStore` for the methods that are not described here.

    `blocks` are of so many tokens each, see `Blocks.equal`, or others. What is read is the same as without it.
    """

    def __init__(self, store: Store, blocks: int | Blocks):
        self.store, self.provenance = store, store.provenance
        self.blocks = blocks if isinstance(blocks, Blocks) else Blocks.equal(store.tokens, blocks)
        self.held: dict[int, MemoryArray | futures.Future[MemoryArray]] = {}
        self.ref = weakref.ref(self)
        self._width = store.dtype.itemsize

    def __reduce__(self) -> tuple:
        """For another process, which has the bound of this one, and blocks of its own."""
        return _reopened, (self.store, self.blocks, _held.given)

    @property
    def is_mask(self) -> bool:
        return self.store.is_mask

    @property
    def documents(self) -> int:
        return self.store.documents

    @property
    def tokens(self) -> int:
        return self.store.tokens

    def documents_at(self, start: int, stop: int) -> tuple[int, int]:
        return self.store.documents_at(start, stop)

    def ranges_of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.store.ranges_of(documents)

    def read_each(self, numbers: np.ndarray) -> list[np.ndarray]:
        """See `Store.read_each`; of documents of bytes."""
        values, counts = self.read_documents(numbers)
        return np.split(values.astype(np.uint8), np.cumsum(counts)[:-1]) if len(counts) else []

    def prefetch(self, now: Sequence[int], later: Sequence[int]) -> None:
        """Has blocks fetched in the background that are read now, and later, several at once. Returns at once."""
        _held.fetch_ahead(self, *([block for block in blocks if self.size(block)] for blocks in (now, later)))

    def read_chunks(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        starts, stops = np.asarray(starts, np.int64), np.asarray(stops, np.int64)
        check_within(starts, stops, np.full(len(starts), self.tokens))
        blocks, firsts, lasts = self._parts(starts, stops)
        blocks, numbers = np.unique(blocks, return_inverse=True)
        if len(starts) > 1 and sum(map(self.size, blocks.tolist())) > _held.max_bytes:
            half = len(starts) // 2
            return np.concatenate([self.read_chunks(starts[of], stops[of]) for of in (slice(half), slice(half, None))])
        return read_joined(_held.read(self, blocks.tolist()), numbers, firsts, lasts)

    def read_values(self, start: int, stop: int) -> np.ndarray:
        return self.store.read_values(start, stop)

    def document_lengths(self, first: int, stop: int) -> np.ndarray:
        return self.store.document_lengths(first, stop)

    def size(self, block: int) -> int:
        """How many bytes a block takes."""
        return self._width * int(self.blocks.stops[block] - self.blocks.starts[block])

    def fetch(self, block: int) -> np.ndarray:
        """The tokens of a block, from the store."""
        return self.store.read_values(int(self.blocks.starts[block]), int(self.blocks.stops[block]))

    def _parts(self, starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ranges cut at the borders of blocks: of each part its block, and where it starts and stops there, [parts] int64."""
        firsts = self.blocks.starts
        first = np.searchsorted(firsts, starts, side="right") - 1
        parts = np.where(stops > starts, np.searchsorted(firsts, stops - 1, side="right") - first, 0)
        ranges, blocks = expanded(np.arange(len(parts)), first, first + parts)
        starts = np.maximum(starts[ranges], firsts[blocks])
        stops = np.minimum(stops[ranges], np.append(firsts, self.tokens)[blocks + 1])
        # Where two blocks share a record, the one that is held.
        shared = np.flatnonzero((blocks > 0) & (self.blocks.stops[blocks - 1] >= stops))
        for place, block in zip(shared.tolist(), blocks[shared].tolist()):
            if not _held.has(self, block) and _held.has(self, block - 1):
                blocks[place] = block - 1
        return blocks, starts - firsts[blocks], stops - firsts[blocks]


def is_remote(store: TokenStore) -> bool:
    """Whether some of a store's files are not local ones."""
    if isinstance(store, BlockCache):
        return is_remote(store.store)
    return isinstance(store, Store) and not all(map(is_local, store.prefixes))


def set_block_cache(max_bytes: int | None = None) -> None:
    """Bounds the blocks that all processes of this host hold of a corpus with `block_shuffle` in an object store.

    The bound never changes an example.

    Args:
        max_bytes: how many bytes blocks take at most, in all; by default a quarter of the memory that this machine has, or this
            container or job of a scheduler may take, and 8 GiB at most. Of several processes that `torchrun`, `mpirun` or `srun`
            started here each takes an equal part, and of n workers of a DataLoader each an nth of that. Two windows of each
            partition that this host reads should fit: 2 x partitions x window_blocks x block_tokens x 2 bytes, or 4 bytes from
            65,500 ids on.

    Raises:
        ValueError: max_bytes is not an integer of at least 1.
    """
    if max_bytes is not None and not is_integer(max_bytes, at_least=1):
        raise ValueError(f"max_bytes must be an integer of at least 1, or None, got {max_bytes!r}.")
    _held.given = None if max_bytes is None else int(max_bytes)


def _processes() -> int:
    """How many processes of this run are on this host, as their launcher says: torchrun, Open MPI, or srun, such as `4(x2),3`."""
    said = (os.environ.get(name, "") for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE"))
    return max(1, int(next((found[0] for found in map(re.compile(r"\d+").match, said) if found), 1)))


def _reopened(store: Store, blocks: Blocks, max_bytes: int | None) -> BlockCache:
    _held.given = _held.given or max_bytes
    return BlockCache(store, blocks)


@functools.lru_cache
def _threads(process: int) -> futures.ThreadPoolExecutor:
    """Threads that read blocks, and wait for no other of them."""
    return futures.ThreadPoolExecutor(_THREADS)


_held = _Held()
# No other thread changes the blocks while they are copied.
os.register_at_fork(
    before=lambda: _held.lock.acquire(), after_in_parent=lambda: _held.lock.release(), after_in_child=_held.in_child
)
