"""Datasets of documents that Python reads, with iterators that can be saved.

tf.data cannot save an iterator over a Python generator. So a segment (a part of a file) is read in blocks of records, by a
function that tf.data may call again: its result depends on the segment and on the block's number alone.

    _read_block(source, split, stream, segment, number) -> the stream's new number, and the records of that block

Reading block 8 must not read blocks 0 to 7 again. So the open generator waits in `_open` from one block to the next, under a
number that the iterator carries along in its state:

    block        stream's number, before -> after     _open afterwards
    0             0 -> 17                             {17: stream}      opens the segment
    1            17 -> 23                             {23: stream}      reads on
    2            23 -> 31                             {31: stream}      reads on
    3            31 -> 0                              {}                no records are left: the dataset ends

An iterator that is restored, in this process or another, carries a number that `_open` does not have, or has for a stream at
another place. Then the segment is opened again, and the blocks before `number` are read and dropped.

Who closes a stream that nobody reads to its end? The tensor with the stream's number owns it. TensorFlow uses the memory of
an aligned NumPy array as it is, and here that memory is a Python object that holds the stream. When the iterator goes, so
does its tensor, and with it the array, the memory and the stream, whose files Python closes. `_open` holds streams weakly.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import itertools
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.graphs import no_autograph, python_op
from ul2_tasks.scalars import check_split
from ul2_tasks.sources.records import PROBLEM, SEGMENTS_AT_A_TIME, Record, in_lists

_RECORDS_PER_BLOCK = 128
_BYTES_PER_BLOCK = 1 << 20
_MAX_OPEN = 512  # most systems allow a process 1,024 open files


@no_autograph
def interleaved(source: Any, split: str, shuffle: bool, seed: int | None, shard_info: seqio.ShardInfo | None) -> tf.data.Dataset:
    """The records of a `base.RecordSource`, see its `get_dataset`."""
    check_split(split, source.splits, source)
    count = len(source.list_shards(split))
    index, num_shards = (shard_info.index, shard_info.num_shards) if shard_info else (0, 1)
    if num_shards > count:
        raise ValueError(
            f"split {split!r} of {source!r} must have a segment for each of {num_shards} shards, got {count}. Use fewer hosts."
            " See docs/help/troubleshooting.md#too-few-documents-for-the-hosts."
        )
    segments = tf.data.Dataset.range(count).shard(num_shards, index)
    if shuffle:
        segments = segments.shuffle(count, seed=seed)
    return segments.interleave(
        functools.partial(_stream_of, source, split),
        cycle_length=SEGMENTS_AT_A_TIME if shuffle else 1,
        block_length=16,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )


def _stream_of(source: Any, split: str, segment: tf.Tensor) -> tf.data.Dataset:
    """The records of a segment of a `base.RecordSource`. The state of the scan is the stream's number; 0 is no stream."""
    read_block = functools.partial(_read_block, source, split)

    def block(stream: tf.Tensor, number: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        stream, *arrays = python_op(read_block, [stream, segment, number], [tf.int64, *[tf.string] * 3])
        texts, ids, problems = (tf.ensure_shape(array, [None]) for array in arrays)
        problems = tf.concat([problems, tf.fill([tf.size(texts) - tf.size(problems)], "")], axis=0)
        record = {source.text_key: texts, PROBLEM: problems} | ({source.id_key: ids} if source.id_key else {})
        return tf.ensure_shape(stream, []), record

    blocks = tf.data.Dataset.range(np.iinfo(np.int64).max).scan(np.int64(0), block)
    return blocks.take_while(lambda block: tf.size(block[PROBLEM]) > 0).unbatch()


_Place = tuple[Any, str, int, int]  # a source, its split, a segment of it, and the number of a block


class _Stream:
    """An open segment: the blocks that are left to read, and the place of the next one."""

    def __init__(self, blocks: Iterator[list[Record]], place: _Place):
        self.blocks, self.place = blocks, place


_open: weakref.WeakValueDictionary[int, _Stream] = weakref.WeakValueDictionary()  # the stream that was read last is the last
_numbers = itertools.count(1)
_lock = threading.Lock()


def _read_block(source: Any, split: str, stream: int, segment: int, number: int) -> tuple[np.ndarray, ...]:
    """Reads one block.

    `stream` is the number that came with the block before, 0 at the first block. Gives the new one, an int64 scalar, and the texts,
    ids and problems, each [records] of bytes. Ids are left out where none are wanted, and problems where no record has one, because
    TensorFlow's price is for each, also for an empty one. After the last block there are no records.
    """
    place = source, split, int(segment), int(number)
    opened = _take(int(stream), place)
    if opened is None:
        opened = _Stream(itertools.islice(_blocks(source.records(split, int(segment))), int(number), None), place)
    block = next(opened.blocks, None)
    if block is None:
        return (np.array(0), *[np.array([], object)] * 3)
    opened.place = (*place[:-1], place[-1] + 1)
    ids = [record.id for record in block] if source.id_key else []
    is_whole = not any(record.problem for record in block)
    problems = [] if is_whole else [record.problem.encode(errors="backslashreplace") for record in block]
    return (_put(opened), *(np.array(column, object) for column in ([record.as_text for record in block], ids, problems)))


def _blocks(records: Iterator[Record]) -> Iterator[list[Record]]:
    return in_lists(records, _RECORDS_PER_BLOCK, _BYTES_PER_BLOCK, lambda record: len(record.text))


def _take(number: int, place: _Place) -> _Stream | None:
    """Takes a stream out of `_open`; None unless it is there and at this place: a restored iterator may carry another's number."""
    with _lock:
        found = _open.get(number)
        return _open.pop(number) if found is not None and found.place == place else None


def _put(stream: _Stream) -> np.ndarray:
    """Puts a stream into `_open`, and returns its new number. Of too many streams, those that were read longest ago are closed."""
    with _lock:
        number = next(_numbers)
        _open[number] = stream
        _close_all_but(_MAX_OPEN)
    return _owner(number, stream)


def _close_all_but(count: int) -> None:
    for number in list(_open)[: max(0, len(_open) - count)]:
        if stream := _open.pop(number, None):
            stream.blocks = iter(())


@atexit.register
def _close_at_the_end() -> None:
    """Closes all streams, and every one that is put back from now on, while the modules that they need are still there."""
    global _MAX_OPEN
    with _lock:
        _MAX_OPEN = 0
        _close_all_but(0)


def _owner(number: int, stream: _Stream) -> np.ndarray:
    """The number as an int64 scalar whose memory holds the stream.

    The scalar starts at an address that 64 divides. TensorFlow would copy any other, and the copy would not hold the stream.
    """
    memory = _Memory()
    memory.stream = stream
    scalar = np.frombuffer(memory, np.int64, 1, offset=-ctypes.addressof(memory) % 64).reshape(())
    scalar[...] = number
    return scalar


class _Memory(ctypes.c_int64 * 16):  # type: ignore[misc]  # a base that is computed
    """128 bytes, in which some 8 bytes are aligned to 64; and an attribute for the stream."""

    stream: _Stream
