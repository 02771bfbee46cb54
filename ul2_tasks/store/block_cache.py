"""`BlockCache`: a store that is read in whole blocks, which are fetched ahead and kept in memory or in a local folder.

    block          0          1          2         3
    tokens     [0, B)    [B, 2 B)  [2 B, 3 B)  [3 B, N)      each is one long read of a remote store

Blocks of whole records begin and end where these do.

All caches of a process share one bound of bytes, and workers of a DataLoader share it in equal parts. When there is no room, the
blocks that go are, in this order:

1. those that are done: as many of their tokens were read as they have, and in an epoch each is read once;
2. those of which nothing was read while an eighth of the bound was read of others, and those that were fetched ahead for nothing;
3. the blocks that were fetched ahead, the last first, and then the one that was not read for longest.

What is fetched ahead takes the room of the first two alone, and waits until there is some. So it never pushes out the blocks that
are being read.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Collection, Sequence
from concurrent import futures
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from absl import logging

from ul2_tasks.cached import cached_property
from ul2_tasks.files.systems import is_local
from ul2_tasks.order.epochs import expanded
from ul2_tasks.scalars import is_integer
from ul2_tasks.store.arrays import MemoryArray, check_within, read_joined
from ul2_tasks.store.block_files import locked, read_block, write_block
from ul2_tasks.store.ends import WithEnds
from ul2_tasks.store.fetch import remote_reads
from ul2_tasks.store.memory import available_bytes
from ul2_tasks.store.provenance import Provenance
from ul2_tasks.store.read import Store, TokenStore

_THREADS = 32
_AHEAD = 16  # blocks are fetched ahead at once, so that what is read now never waits for a thread
_FEW = 16  # of the last 64 blocks: a reader that stops leaves some of which not all was read
_MOST_BYTES = 1 << 33  # unless more is asked for
_Key: TypeAlias = tuple[int, int]  # the number of the cache, and the block


class BlockCounts(NamedTuple):
    """What this process has read: requests of remote files and bytes of their answers; and of all block caches.

    `bytes_used` are those of the tokens that were given out, `blocks_loaded` how many blocks were read from their stores, and
    `bytes_held` those of the blocks that are held now.
    """

    requests: int
    bytes_read: int
    bytes_used: int
    blocks_loaded: int
    bytes_held: int


class Blocks(NamedTuple):
    """Which tokens each block of a store has, [blocks] int64 each: [starts, stops), and how many are read of it in an epoch.

    Blocks are in the order of the store and have all that is read of it. Two of them may share the tokens of one record, which are
    then the last of one and the first of the other.
    """

    starts: np.ndarray
    stops: np.ndarray
    reads: np.ndarray

    @classmethod
    def equal(cls, tokens: int, size: int) -> Blocks:
        """Blocks of so many tokens, the last one shorter, of which each token is read once."""
        starts = np.arange(0, tokens, size)
        stops = np.minimum(starts + size, tokens)
        return cls(starts, stops, stops - starts)


class _Setting(NamedTuple):
    max_bytes: int
    folder: str | None


@dataclasses.dataclass(eq=False, slots=True)
class _Block:
    """The tokens of a block, how many are read of them in an epoch and how many still are, when the last were, and its queue."""

    array: MemoryArray
    reads: int
    unread: int
    time: int
    queue: collections.OrderedDict[_Key, _Block]

    @property
    def bytes(self) -> int:
        return self.array.values.nbytes


class _Blocks:
    """The blocks of all caches of this process. Time is how many bytes were read.

    The lock is held for moments, never while something is read. Methods with an underscore are called by those that hold it.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.setting = _Setting(_MOST_BYTES, None)
        self.is_given = self.has_warned = False
        self.held: dict[_Key, _Block] = {}
        self.done, self.used, self.ahead = (collections.OrderedDict[_Key, _Block]() for _ in range(3))
        self.time = self.bytes = self.loaded = 0
        self.left: dict[_Key, int] = {}  # when blocks had to go of which not all was read; the oldest first, and none that is old
        self.came_again = collections.deque[bool](maxlen=64)  # of the last blocks, whether they had been left so
        self.gone = collections.deque[int]()  # the numbers of caches that are no more
        self.forget()

    def forget(self) -> None:
        """What is under way."""
        self.loading: dict[_Key, futures.Future[_Block]] = {}
        self.is_awaited: set[_Key] = set()
        self.waiting: collections.OrderedDict[_Key, tuple[weakref.ref[BlockCache], int]] = collections.OrderedDict()
        self.reserved = self.ahead_now = 0

    @property
    def max_bytes(self) -> int:
        """Of this process: workers take equal parts of the bound, unless they share the files of a folder."""
        return self.setting.max_bytes // (1 if self.setting.folder else _workers())

    def set(self, setting: _Setting, is_given: bool) -> None:
        with self.lock:
            self.setting, self.is_given, self.has_warned = setting, is_given, False
            self.came_again.clear()
            self._make_room(0, is_urgent=True)

    def get(self, cache: BlockCache, blocks: Sequence[int], counts: Sequence[int]) -> list[MemoryArray]:
        """Gives blocks, of which as many tokens are read as `counts` says."""
        keys = [(cache.number, block) for block in blocks]
        with self.lock:
            self._purge()
            self.time += sum(counts) * cache.width
            found = [self.held.get(key) for key in keys]
            for key, block, count in zip(keys, found, counts):
                if block:
                    self._use(key, block, count)
            absent = [place for place, block in enumerate(found) if block is None]
            self._load_now(cache, [keys[place] for place in absent], keep=keys)
            loading = [self.loading[keys[place]] for place in absent]
        for place, future in zip(absent, loading):
            found[place] = future.result()
        with self.lock:
            for place in absent:
                if (block := self.held.get(keys[place])) and block is found[place]:  # it may have had to go
                    self._use(keys[place], block, counts[place])
        return [block.array for block in found if block]

    def _load_now(self, cache: BlockCache, absent: Sequence[_Key], keep: Sequence[_Key]) -> None:
        missing = [key for key in absent if key not in self.loading]
        self._make_room(sum(cache.size(block) for _, block in missing), is_urgent=True, keep=set(keep) if missing else ())
        for key in missing:
            self.waiting.pop(key, None)
            self._start(cache, key, is_ahead=False)
        self.is_awaited.update(absent)

    def fetch_ahead(self, cache: BlockCache, blocks: Sequence[int]) -> None:
        with self.lock:
            self._purge()
            for key in [(cache.number, block) for block in blocks]:
                if key in self.done:
                    self._put(key, self.held[key], self.ahead)
                elif key not in self.held and key not in self.loading:
                    self.waiting[key] = weakref.ref(cache), self.time
            self._advance()

    def has(self, cache: BlockCache, block: int) -> bool:
        """Whether a block is held, or on its way."""
        key = cache.number, block
        with self.lock:
            return key in self.held or key in self.loading or key in self.waiting

    def advance(self) -> None:
        """Starts what waits to be fetched ahead, as far as there is room."""
        with self.lock:
            self._advance()

    def warn(self, needed: int) -> None:
        """Says once that blocks would take so many bytes."""
        if self.has_warned:
            return
        self.has_warned = True
        logging.warning(
            "max_bytes of the block cache must be at least %d for the blocks that are read at a time, got %d, so blocks are fetched"
            " again and again. Raise it with ul2_tasks.set_block_cache, or read smaller windows of blocks.",
            needed,
            self.max_bytes,
        )

    def _advance(self) -> None:
        while self.waiting and self.ahead_now < _AHEAD:
            key, (reference, since) = next(iter(self.waiting.items()))
            cache = reference()
            is_late = self.time - since > 2 * self.max_bytes  # it was for what is not read any more
            if cache and not is_late and not self._make_room(cache.size(key[1]), is_urgent=False):
                return
            del self.waiting[key]
            if cache and not is_late:
                self._start(cache, key, is_ahead=True)

    def _start(self, cache: BlockCache, key: _Key, is_ahead: bool) -> None:
        size = cache.size(key[1])
        self.came_again.append(self.left.pop(key, None) is not None)
        if not self.has_warned and sum(self.came_again) > _FEW:
            blocks = {block for number, block in (key, *self.used, *self.left, *self.loading) if number == cache.number}
            self.warn(2 * sum(map(cache.size, blocks)))  # those that are fetched ahead take as much
        self.reserved, self.ahead_now = self.reserved + size, self.ahead_now + is_ahead
        try:
            self.loading[key] = _threads(os.getpid()).submit(self._load, cache, key, size, is_ahead)
        except RuntimeError:  # Python is about to end
            self.reserved, self.ahead_now = self.reserved - size, self.ahead_now - is_ahead
            if not is_ahead:
                raise

    def _load(self, cache: BlockCache, key: _Key, size: int, is_ahead: bool) -> _Block:
        """Runs in a thread, without the lock."""
        array, is_new = None, False
        try:
            array, is_new = cache.load(key[1])
        finally:
            with self.lock:
                self.reserved, self.ahead_now = self.reserved - size, self.ahead_now - is_ahead
                self.loading.pop(key, None)
                self.loaded += is_new
                if array is not None:
                    queue = self.used if key in self.is_awaited else self.ahead
                    reads = int(cache.blocks.reads[key[1]])
                    block = self.held[key] = queue[key] = _Block(array, reads, reads, self.time, queue)
                    self.bytes += block.bytes
                    self._make_room(0, is_urgent=True, keep={key})
                self.is_awaited.discard(key)
                self._advance()
        return block

    def _use(self, key: _Key, block: _Block, count: int) -> None:
        block.unread -= count
        if block.unread <= 0:
            block.unread = block.reads
            self._put(key, block, self.done)
        else:
            self._put(key, block, self.used)

    def _put(self, key: _Key, block: _Block, queue: collections.OrderedDict[_Key, _Block]) -> None:
        if block.queue is queue:
            queue.move_to_end(key)
        else:
            del block.queue[key]
            queue[key] = block
            block.queue = queue
        block.time = self.time

    def _make_room(self, size: int, is_urgent: bool, keep: Collection[_Key] = ()) -> bool:
        """Drops blocks, but none of `keep`, until `size` more bytes fit; gives whether they do."""
        while self.bytes + self.reserved + size > self.max_bytes:
            key = self._next_to_go(is_urgent, keep)
            if key is None:
                return False
            self._drop(key)
        return True

    def _next_to_go(self, is_urgent: bool, keep: Collection[_Key]) -> _Key | None:
        max_bytes = self.max_bytes
        for queue, patience in ((self.done, -1), (self.used, max_bytes // 8), (self.ahead, 2 * max_bytes)):
            for key, block in queue.items():
                if self.time - block.time <= patience:
                    break
                if key not in keep:
                    return key
        if not is_urgent:
            return None
        return next((key for key in itertools.chain(reversed(self.ahead), self.used) if key not in keep), None)

    def _drop(self, key: _Key) -> None:
        block = self.held.pop(key)
        del block.queue[key]
        self.bytes -= block.bytes
        if block.unread < block.reads:
            self.left[key] = self.time
        while self.left and self.time - next(iter(self.left.values())) > self.max_bytes:
            del self.left[next(iter(self.left))]

    def _purge(self) -> None:
        """Drops what is held for caches that are no more."""
        while self.gone:
            number = self.gone.popleft()
            for key in [key for key in self.held if key[0] == number]:
                self._drop(key)
            for key in [key for key in self.left if key[0] == number]:
                del self.left[key]

    def lose(self, number: int) -> None:
        """When a cache is collected, which may be anywhere: another thread, or this one, may have the lock."""
        self.gone.append(number)
        if self.lock.acquire(blocking=False):
            try:
                self._purge()
            finally:
                self.lock.release()


_numbers = itertools.count()
_blocks = _Blocks()


class BlockCache:
    """The tokens of a store, of which whole blocks are read and held; see `TokenStore` for the methods that are not described here.

    `blocks` are of so many tokens each, see `Blocks.equal`, or others. What is read is the same as without it.
    """

    def __init__(self, store: TokenStore, blocks: int | Blocks):
        if not isinstance(blocks, Blocks) and not is_integer(blocks, at_least=1):
            raise ValueError(f"blocks must be an integer of at least 1, or Blocks, got {blocks!r}.")
        self.store, self._given = store, blocks
        self.blocks = blocks if isinstance(blocks, Blocks) else Blocks.equal(store.tokens, int(blocks))
        self._most = int((self.blocks.stops - self.blocks.starts).max(initial=1))
        self._share_tokens = bool((self.blocks.stops[:-1] > self.blocks.starts[1:]).any())
        self.width = 2  # bytes of a token; more is known when a block has been read
        self.number = next(_numbers)
        weakref.finalize(self, _blocks.lose, self.number).atexit = False
        if not _blocks.is_given:
            set_block_cache(**_gin_bindings())

    def __reduce__(self) -> tuple:
        """For another process, which has the setting of this one, and blocks of its own."""
        return _reopened, (self.store, self._given, _blocks.setting)

    @property
    def documents(self) -> int:
        return self.store.documents

    @property
    def tokens(self) -> int:
        return self.store.tokens

    @property
    def provenance(self) -> Provenance | None:
        return self.store.provenance

    def documents_at(self, start: int, stop: int) -> tuple[int, int]:
        return self.store.documents_at(start, stop)

    def tokens_of(self, document: int) -> tuple[int, int]:
        return self.store.tokens_of(document)

    def ranges_of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.store.ranges_of(documents)

    def read_tokens(self, start: int, stop: int) -> np.ndarray:
        return self.read_chunks(np.array([start]), np.array([stop]))

    def read_documents(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `Store.read_documents`; of a store whose documents have no end."""
        starts, stops = self.store.ranges_of(numbers)
        return self.read_chunks(starts, stops), stops - starts

    def read_each(self, numbers: np.ndarray) -> list[np.ndarray]:
        """See `Store.read_each`; of documents of bytes."""
        values, counts = self.read_documents(numbers)
        return np.split(values.astype(np.uint8), np.cumsum(counts)[:-1]) if len(counts) else []

    def prefetch(self, blocks: Collection[int]) -> None:
        """Has blocks fetched in the background, in this order and several at once, as far as there is room. Returns at once."""
        wrong = [block for block in blocks if not 0 <= block < len(self.blocks.starts)]
        if wrong:
            raise IndexError(f"blocks must be from 0 to {len(self.blocks.starts) - 1}, got {wrong[0]}.")
        self._prefix()  # which may take some reads: here, and not in all threads
        _blocks.fetch_ahead(self, [int(block) for block in blocks if self._count(block)])

    def read_chunks(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        starts, stops = np.asarray(starts, np.int64), np.asarray(stops, np.int64)
        check_within(starts, stops, np.full(len(starts), self.tokens))
        blocks, starts, stops = self._parts(starts, stops)
        counts = stops - starts
        blocks, numbers = np.unique(blocks, return_inverse=True)
        of_blocks = np.bincount(numbers, counts, len(blocks)).astype(np.int64).tolist()
        self._prefix()  # which may take some reads: here, and not in all threads
        groups = self._groups(blocks.tolist())
        if len(groups) <= 1:
            tokens = read_joined(_blocks.get(self, blocks.tolist(), of_blocks), numbers, starts, stops)
        else:
            tokens, places = np.zeros(counts.sum(), np.int32), np.cumsum(counts) - counts
            for group in groups:
                parts = np.flatnonzero((numbers >= group.start) & (numbers < group.stop))
                arrays = _blocks.get(self, blocks[group.start : group.stop].tolist(), of_blocks[group.start : group.stop])
                found = read_joined(arrays, numbers[parts] - group.start, starts[parts], stops[parts])
                befores = np.cumsum(counts[parts]) - counts[parts]
                tokens[np.arange(len(found)) + np.repeat(places[parts] - befores, counts[parts])] = found
        _blocks.advance()
        return tokens

    def size(self, block: int) -> int:
        """How many bytes a block takes, as far as is known."""
        return self.width * self._count(block)

    def _count(self, block: int) -> int:
        return int(self.blocks.stops[block] - self.blocks.starts[block])

    def load(self, block: int) -> tuple[MemoryArray, bool]:
        """Reads a block, from the folder or from the store; and whether it is from the store."""
        prefix = self._prefix()
        if prefix is None:
            found, is_new = MemoryArray(self._fetch(block)), True
        else:
            path, count = f"{prefix}-{block}.tokens", self._count(block)
            with locked(path):
                in_file = read_block(path, count)
                is_new = in_file is None
                found = write_block(path, self._fetch(block), _blocks.setting.max_bytes) if in_file is None else in_file
        self.width = max(self.width, found.dtype.itemsize)
        return found, is_new

    def _fetch(self, block: int) -> np.ndarray:
        """The tokens of a block in the narrowest dtype, from the store."""
        start, stop = int(self.blocks.starts[block]), int(self.blocks.stops[block])
        if isinstance(self.store, Store):
            tokens = self.store.read_values(start, stop)
        else:
            tokens = self.store.read_chunks(np.array([start]), np.array([stop]))
        if tokens.dtype in (np.uint8, np.uint16):
            return tokens
        least, most = int(tokens.min()), int(tokens.max())
        if least >= 0 and most <= np.iinfo(np.uint16).max:
            return tokens.astype(np.uint16)
        if tokens.itemsize > 4 and (least < 0 or most >= 1 << 31):
            raise ValueError(f"tokens must be ids from 0 to 2**31 - 1, got {least} to {most}.")
        return tokens.astype(np.int32, copy=False)

    def _parts(self, starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ranges cut at the borders of blocks: of each part its block, and where it starts and stops there, [parts] int64."""
        firsts = self.blocks.starts
        first = np.searchsorted(firsts, starts, side="right") - 1
        parts = np.where(stops > starts, np.searchsorted(firsts, stops - 1, side="right") - first, 0)
        ranges, blocks = expanded(np.arange(len(parts)), first, first + parts)
        starts = np.maximum(starts[ranges], firsts[blocks])
        stops = np.minimum(stops[ranges], np.append(firsts, self.tokens)[blocks + 1])
        if self._share_tokens:
            self._prefer_held(blocks, stops)
        before = firsts[blocks]
        return blocks, starts - before, stops - before

    def _prefer_held(self, blocks: np.ndarray, stops: np.ndarray) -> None:
        """Changes blocks to those before, where these have the same tokens up to `stops`, and are held, or on their way."""
        shared = np.flatnonzero((blocks > 0) & (self.blocks.stops[blocks - 1] >= stops))
        for place, block in zip(shared.tolist(), blocks[shared].tolist()):
            if not _blocks.has(self, block) and _blocks.has(self, block - 1):
                blocks[place] = block - 1

    def _groups(self, blocks: Sequence[int]) -> list[range]:
        """Which blocks are held at a time: all of them, unless they are more than the bound allows."""
        most = _blocks.max_bytes
        if len(blocks) <= max(1, most // (self.width * self._most)):
            return [range(len(blocks))]
        sizes = np.cumsum([self.size(block) for block in blocks])
        if sizes[-1] <= most:  # the last block of the store is short
            return [range(len(blocks))]
        _blocks.warn(int(sizes[-1]))
        groups, first = [], 0
        while first < len(blocks):
            before = sizes[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(sizes, before + most, side="right")))
            groups.append(range(first, last))
            first = last
        return groups

    def _prefix(self) -> str | None:
        """That of its files in the folder; None where blocks are in memory."""
        folder = _blocks.setting.folder
        return f"{folder}/{self._name}" if folder and self._name else None

    @cached_property
    def _name(self) -> str | None:
        """The same for the same tokens in the same blocks; None if all are in memory already."""
        tokens = _description(self.store)
        of = hashlib.sha256(np.stack(self.blocks[:2]).tobytes()).hexdigest() if isinstance(self._given, Blocks) else self._given
        return tokens and hashlib.sha256(f"{tokens}, blocks of {of}".encode()).hexdigest()[:32]


def is_remote(store: TokenStore) -> bool:
    """Whether some of a store's files are not local ones."""
    if isinstance(store, BlockCache | WithEnds):
        return is_remote(store.store)
    return isinstance(store, Store) and not all(map(is_local, store.prefixes))


def set_block_cache(max_bytes: int | None = None, folder: str | os.PathLike | None = None) -> None:
    """Bounds the cache of blocks into which this process, or its DataLoader's workers, read a corpus from an object store.

    The corpus has `block_shuffle`. The bound never changes an example. Without this call blocks are in memory, as with its default
    arguments.

    Args:
        max_bytes: how many bytes blocks take at most, in all; by default a quarter of the memory that this machine has, or this
            container or job of a scheduler may take, and 8 GiB at most; of several processes that `torchrun` started each takes an
            equal part. Each of n workers of a DataLoader takes an nth. Two windows of each partition that this host reads should
            fit: 2 x partitions x window_blocks x block_tokens x 2 bytes, or 4 bytes from 65,500 ids on.
        folder: a local folder that holds the blocks instead of memory. Several processes may share it, and max_bytes bounds all of
            their files.

    Raises:
        ValueError: max_bytes is not an integer of at least 1, or the folder is not a local one.
        OSError: the folder cannot be made.
    """
    if max_bytes is not None and not is_integer(max_bytes, at_least=1):
        raise ValueError(f"max_bytes must be an integer of at least 1, or None, got {max_bytes!r}.")
    path = None if folder is None else os.fspath(folder)
    if path is not None:
        if not is_local(path):
            raise ValueError(f"folder must be a local path, got {path!r}. Pass a folder on a disk of this machine.")
        path = os.path.abspath(path)
        os.makedirs(path, exist_ok=True)
    _blocks.set(_Setting(_default_bytes() if max_bytes is None else int(max_bytes), path), is_given=True)


def block_counts() -> BlockCounts:
    """What this process has read until now, see `BlockCounts`."""
    with _blocks.lock:
        return BlockCounts(*remote_reads(), _blocks.time, _blocks.loaded, _blocks.bytes)


def _gin_bindings() -> dict[str, Any]:
    """What gin files say of `set_block_cache`, which nothing in them has to call."""
    gin = sys.modules.get("gin")
    try:
        return gin.get_bindings("ul2_tasks.set_block_cache") if gin else {}
    except ValueError:  # they say nothing
        return {}


def _default_bytes() -> int:
    """Of this process: a launcher such as `torchrun` says how many of the host's there are."""
    processes = os.environ.get("LOCAL_WORLD_SIZE", "")
    return min(available_bytes() // 4, _MOST_BYTES) // max(1, int(processes) if processes.isdecimal() else 1)


def _workers() -> int:
    """How many workers of a DataLoader of PyTorch there are, if this process is one of them; else 1."""
    data = sys.modules.get("torch.utils.data")
    worker = data.get_worker_info() if data else None
    return worker.num_workers if worker else 1


def _description(store: TokenStore) -> str | None:
    """What tells the tokens of a store from those of any other; None where they are in memory already."""
    if isinstance(store, WithEnds):
        told = _description(store.store)
        return told and f"{told}, with {store.end} after each document"
    if not isinstance(store, Store):
        return None
    return f"{store.prefixes}, {store.contents}, without {store.end}"


def _reopened(store: TokenStore, blocks: int | Blocks, setting: _Setting) -> BlockCache:
    if not _blocks.is_given:
        _blocks.set(setting, is_given=True)
    return BlockCache(store, blocks)


@functools.lru_cache
def _threads(process: int) -> futures.ThreadPoolExecutor:
    """Threads that read blocks, and wait for no other of them."""
    return futures.ThreadPoolExecutor(_THREADS)


def _in_child() -> None:
    """In a process that was forked, in which the threads that read blocks are not there. What was read it has."""
    _blocks.lock = threading.Lock()
    _blocks.forget()


# No other thread changes the blocks while they are copied.
os.register_at_fork(before=lambda: _blocks.lock.acquire(), after_in_parent=lambda: _blocks.lock.release(), after_in_child=_in_child)
