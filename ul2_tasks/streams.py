"""Documents that Python reads, as datasets whose iterators can be saved.

tf.data cannot save an iterator over a Python generator. So a stream is read in blocks: a block is a function of the piece it
is of and of its number alone, which tf.data may call again. The stream of each piece stays open between two blocks, so
nothing is read twice, but when an iterator is restored in the middle of a piece, from the beginning of it.

An open stream belongs to the iterator that reads it, and is closed with it. From block to block the iterator carries a
tensor, the stream's number, whose memory is that of a Python object that holds the stream: TensorFlow takes an aligned
NumPy array as it is, and lets go of it when the iterator is gone.
"""

from __future__ import annotations

import abc
import atexit
import ctypes
import functools
import itertools
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.graphs import python_op
from ul2_tasks.records import PROBLEM, Record

_PIECES_AT_A_TIME = 16  # as in SeqIO's sources
_RECORDS_PER_BLOCK = 128
_BYTES_PER_BLOCK = 1 << 20
_MAX_OPEN = 512  # most systems allow a process 1,024 open files


class RecordSource(seqio.DataSource):
    """A corpus that Python reads in pieces, which hosts and workers share out."""

    def __init__(self, splits: Iterable[str], text_key: str, id_key: str | None):
        super().__init__(splits=splits)
        self.text_key, self.id_key = text_key, id_key

    @abc.abstractmethod
    def list_shards(self, split: str) -> Sequence[str]:
        """The names of the pieces."""

    @abc.abstractmethod
    def records(self, split: str, piece: int) -> Iterator[Record]:
        """The records of a piece, from its beginning."""

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return False

    def get_dataset(
        self,
        split: str = "train",
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        **unused_kwargs,
    ) -> tf.data.Dataset:
        """A dataset of string scalars: the text and the id under their keys, and the problem; see `seqio.DataSource.get_dataset`.

        In the order of the corpus, or, shuffled, 16 pieces at a time in a random order of them.

        Raises:
            ValueError: there is no such split, no document in it, or there are fewer pieces than shards.
        """
        pieces = self._own_pieces(split, shard_info)
        if shuffle:
            pieces = pieces.shuffle(len(self.list_shards(split)), seed=seed)
        return pieces.interleave(
            functools.partial(self._stream, split),
            cycle_length=_PIECES_AT_A_TIME if shuffle else 1,
            block_length=16,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )

    def _own_pieces(self, split: str, shard_info: seqio.ShardInfo | None) -> tf.data.Dataset:
        if split not in self.splits:
            raise ValueError(f"there is no split {split!r} in {self!r}, only {sorted(self.splits)}")
        count = len(self.list_shards(split))
        index, num_shards = (shard_info.index, shard_info.num_shards) if shard_info else (0, 1)
        if num_shards > count:
            raise ValueError(f"split {split!r} of {self!r} has {count} pieces, too few for {num_shards} shards; use fewer hosts")
        return tf.data.Dataset.range(count).shard(num_shards, index)

    def _stream(self, split: str, piece: tf.Tensor) -> tf.data.Dataset:
        read_block = functools.partial(_read_block, self, split)

        def block(stream: tf.Tensor, number: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
            stream, *arrays = python_op(read_block, [stream, piece, number], [tf.int64, *[tf.string] * 3])
            texts, ids, problems = (tf.ensure_shape(array, [None]) for array in arrays)
            record = {self.text_key: texts, PROBLEM: problems} | ({self.id_key: ids} if self.id_key else {})
            return tf.ensure_shape(stream, []), record

        blocks = tf.data.Dataset.range(np.iinfo(np.int64).max).scan(np.int64(0), block)
        return blocks.take_while(lambda block: tf.size(block[PROBLEM]) > 0).unbatch()


_Place = tuple[RecordSource, str, int, int]  # a source, its split, a piece of it, and the number of a block


class _Stream:
    """The blocks of a piece that are left to read, and the place of the next one."""

    def __init__(self, blocks: Iterator[list[Record]], place: _Place):
        self.blocks, self.place = blocks, place


_open: weakref.WeakValueDictionary[int, _Stream] = weakref.WeakValueDictionary()  # the one that was read last at the end
_numbers = itertools.count(1)
_lock = threading.Lock()


def _read_block(source: RecordSource, split: str, stream: int, piece: int, number: int) -> tuple[np.ndarray, ...]:
    """The number of the stream that is open after it; and the block's texts, ids and problems, each [records] of bytes.

    They are empty after the last block. `stream` is the number that came with the block before.
    """
    place = source, split, int(piece), int(number)
    opened = _take(int(stream), place)
    if opened is None:
        opened = _Stream(itertools.islice(_blocks(source.records(split, int(piece))), int(number), None), place)
    block = next(opened.blocks, None)
    if block is None:
        return (np.array(0), *[np.array([], object)] * 3)
    opened.place = (*place[:-1], place[-1] + 1)
    return (_leave(opened), *(np.array([record[column] for record in block], object) for column in range(3)))


def _blocks(records: Iterator[Record]) -> Iterator[list[Record]]:
    """Lists of records, each of some size, so that memory holds but a little of a stream."""
    block: list[Record] = []
    size = 0
    for record in records:
        block.append(record)
        size += len(record.text)
        if len(block) == _RECORDS_PER_BLOCK or size >= _BYTES_PER_BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def _take(number: int, place: _Place) -> _Stream | None:
    """The stream of this number, if it is open and at this place; an iterator that was restored may have the number of another."""
    with _lock:
        found = _open.get(number)
        return _open.pop(number) if found is not None and found.place == place else None


def _leave(stream: _Stream) -> np.ndarray:
    """A new number for a stream, which keeps it open; of too many the one that was read the longest time ago is closed."""
    with _lock:
        number = next(_numbers)
        _open[number] = stream
        _close_all_but(_MAX_OPEN)
    return _holding(number, stream)


def _close_all_but(count: int) -> None:
    for number in list(_open)[: max(0, len(_open) - count)]:
        if stream := _open.pop(number, None):
            stream.blocks = iter(())


@atexit.register
def _close_at_the_end() -> None:
    """Closes what is open, and what is left from now on, before Python takes apart what reads it."""
    global _MAX_OPEN
    with _lock:
        _MAX_OPEN = 0
        _close_all_but(0)


def _holding(number: int, stream: _Stream) -> np.ndarray:
    """A number as an int64 scalar whose memory holds the stream. TensorFlow copies what is not aligned to 64 bytes."""
    memory = _Memory()
    memory.stream = stream
    scalar = np.frombuffer(memory, np.int64, 1, offset=-ctypes.addressof(memory) % 64).reshape(())
    scalar[...] = number
    return scalar


class _Memory(ctypes.c_int64 * 16):
    stream: _Stream
