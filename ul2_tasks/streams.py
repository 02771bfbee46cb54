"""Documents that Python reads, as datasets whose iterators can be saved.

tf.data cannot save an iterator over a Python generator. So a stream is read in blocks: a block is a function of the piece it
is of and of its number alone, which tf.data may call again. The stream of each piece stays open between two blocks, so
nothing is read twice, but when an iterator is restored in the middle of a piece, from the beginning of it.
"""

from __future__ import annotations

import abc
import collections
import functools
import itertools
import threading
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.python_ops import python_op
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

        def block(number: tf.Tensor) -> dict[str, tf.Tensor]:
            arrays = python_op(read_block, [piece, number], [tf.string] * 3)
            texts, ids, problems = (tf.ensure_shape(array, [None]) for array in arrays)
            return {self.text_key: texts, PROBLEM: problems} | ({self.id_key: ids} if self.id_key else {})

        blocks = tf.data.Dataset.range(np.iinfo(np.int64).max).map(block)
        return blocks.take_while(lambda block: tf.size(block[PROBLEM]) > 0).unbatch()


# The streams that are open, by source, split, piece and the number of the block that comes next in them.
_streams: collections.OrderedDict[tuple[int, str, int, int], list[Iterator[list[Record]]]] = collections.OrderedDict()
_lock = threading.Lock()


def _read_block(source: RecordSource, split: str, piece: int, number: int) -> tuple[np.ndarray, ...]:
    """The texts, ids and problems of a block, each [records] of bytes; empty after the last block."""
    place = id(source), split, int(piece), int(number)
    stream = _take(place) or itertools.islice(_blocks(source.records(split, int(piece))), int(number), None)
    block = next(stream, None)
    if block is None:
        return (np.array([], object),) * 3
    _leave((*place[:-1], place[-1] + 1), stream)
    return tuple(np.array([record[column] for record in block], object) for column in range(3))


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


def _take(place: tuple[int, str, int, int]) -> Iterator[list[Record]] | None:
    with _lock:
        waiting = _streams.pop(place, [])
        stream = waiting.pop() if waiting else None
        if waiting:
            _streams[place] = waiting
        return stream


def _leave(place: tuple[int, str, int, int], stream: Iterator[list[Record]]) -> None:
    """Keeps a stream open; the one that was left the longest time ago is closed where there are too many."""
    with _lock:
        _streams.setdefault(place, []).append(stream)
        while len(_streams) > _MAX_OPEN:
            _streams.popitem(last=False)
