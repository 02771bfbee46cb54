"""Sources as datasets of tf.data, whose iterators can be saved: for SeqIO's own tasks of them.

tf.data cannot save an iterator over a Python generator. So a shard is read in blocks of records, by a function that tf.data may
call again: what it returns depends on the source, the split, the shard and the block's number alone. An iterator's state is these
numbers; one that is restored, in this process or another, opens the shard again and skips the blocks before.

So that block 8 need not read blocks 0 to 7 again, an open shard waits for whoever asks for its next block. At most `MAX_OPEN` wait
in a process; of more, the one that waited longest is closed, and its reader begins again. That also bounds what iterators leave
open that nobody reads to their ends.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.scalars import check_split
from ul2_tasks.sources.files import Shard
from ul2_tasks.sources.records import PROBLEM, Record, in_lists
from ul2_tasks.tasks.graphs import no_autograph, python_op

MAX_OPEN = 128  # five tasks of a mixture read 16 shards each
_SHARDS_AT_A_TIME = 16  # as in SeqIO's sources
_RECORDS_PER_BLOCK, _BYTES_PER_BLOCK = 128, 1 << 20


@no_autograph
def dataset_of(source: Any, split: str, shuffle: bool, seed: int | None, shard_info: seqio.ShardInfo | None) -> tf.data.Dataset:
    """The records of a `base.RecordSource`, {text_key, "problem", id_key if there is one: string scalars}.

    They come one shard after the other; or, shuffled, from 16 shards at a time, in a random order of the shards. Fewer shards than
    are asked for are refused.
    """
    check_split(split, source.splits, source)
    index, num_shards = (shard_info.index, shard_info.num_shards) if shard_info else (0, 1)
    shards = source.shards(split, at_least=num_shards)
    if num_shards > len(shards):
        raise ValueError(
            f"split {split!r} of {source!r} must have a part for each of {num_shards} shards, got {len(shards)}. Use fewer hosts."
            " See docs/help/troubleshooting.md#too-few-documents-for-the-hosts."
        )
    numbers = tf.data.Dataset.range(len(shards)).shard(num_shards, index)
    if shuffle:
        numbers = numbers.shuffle(len(shards), seed=seed)
    read = functools.partial(_columns, source, shards)

    def records(shard: tf.Tensor) -> tf.data.Dataset:
        def block(number: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
            columns = python_op(read, [shard, number], [tf.string] * 3)
            texts, problems, ids = (tf.ensure_shape(column, [None]) for column in columns)
            records = {source.text_key: texts, PROBLEM: problems} | ({source.id_key: ids} if source.id_key else {})
            return number + 1, records  # a block whose reading failed is the next one again

        blocks = tf.data.Dataset.range(np.iinfo(np.int64).max).scan(np.int64(0), block)
        return blocks.take_while(lambda block: tf.size(block[PROBLEM]) > 0).unbatch()

    return numbers.interleave(
        records,
        cycle_length=_SHARDS_AT_A_TIME if shuffle else 1,
        block_length=16,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )


def _columns(source: Any, shards: Sequence[Shard], shard: np.ndarray, number: np.ndarray) -> list[np.ndarray]:
    """The texts, problems and ids of a block; none of one after the last."""
    block = _readers.block(source, shards[int(shard)], int(number))
    problems = [record.problem.encode(errors="backslashreplace") for record in block]
    columns = [record.as_text for record in block], problems, [record.id for record in block]
    return [np.array(column, object) for column in columns]


_Place = tuple[Any, Shard, int]  # a source, a shard of it, and the number of the block that is read next


class _Readers:
    """Open shards, which wait for whoever reads on where they are; the last one has waited least."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[tuple[_Place, Iterator[list[Record]]]] = []

    def block(self, source: Any, shard: Shard, number: int) -> list[Record]:
        """The block of a number, empty after the last."""
        blocks = self._taken((source, shard, number))
        if blocks is None:
            records = source.read(shard)
            blocks = in_lists(records, _RECORDS_PER_BLOCK, _BYTES_PER_BLOCK, lambda record: record.size)
            blocks = itertools.islice(blocks, number, None)
        if block := next(blocks, []):
            self._put((source, shard, number + 1), blocks)
        return block

    def _taken(self, place: _Place) -> Iterator[list[Record]] | None:
        with self._lock:
            for number in reversed(range(len(self._open))):
                of, blocks = self._open[number]
                if of[0] is place[0] and of[1:] == place[1:]:
                    del self._open[number]
                    return blocks
        return None

    def _put(self, place: _Place, blocks: Iterator[list[Record]]) -> None:
        with self._lock:
            self._open.append((place, blocks))
            closed, self._open = self._open[:-MAX_OPEN], self._open[-MAX_OPEN:]
        del closed  # their files are closed here, as nothing else has them


_readers = _Readers()
