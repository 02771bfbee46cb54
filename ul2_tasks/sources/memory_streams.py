"""Documents in memory as datasets."""

from __future__ import annotations

from collections.abc import Sequence

import seqio
import tensorflow as tf

from ul2_tasks.graphs import no_autograph


@no_autograph
def one_by_one(
    documents: Sequence[bytes], split: str, shuffle: bool, seed: int | None, shard_info: seqio.ShardInfo | None
) -> tf.data.Dataset:
    """See `MemoryDataSource.get_dataset`."""
    texts = tf.constant(documents, tf.string)
    order = _order(len(documents), split, shuffle, seed, shard_info)
    return order.map(lambda document: {"text": texts[document]}, num_parallel_calls=tf.data.AUTOTUNE)


@no_autograph
def in_batches(
    documents: Sequence[bytes], split: str, shuffle: bool, seed: int | None, shard_info: seqio.ShardInfo | None, size: int
) -> tf.data.Dataset:
    """See `MemoryDataSource.get_batches`."""
    texts = tf.constant(documents, tf.string)
    order = _order(len(documents), split, shuffle, seed, shard_info)
    return order.batch(size).map(lambda numbers: {"text": tf.gather(texts, numbers)})


def _order(count: int, split: str, shuffle: bool, seed: int | None, shard_info: seqio.ShardInfo | None) -> tf.data.Dataset:
    """The numbers of the documents."""
    index, num_shards = (shard_info.index, shard_info.num_shards) if shard_info else (0, 1)
    if num_shards > max(1, count):
        raise ValueError(
            f"split {split!r} must have a document for each of {num_shards} shards, got {count}. Use fewer hosts. See"
            " docs/help/troubleshooting.md#too-few-documents-for-the-hosts."
        )
    order = tf.data.Dataset.range(count).shard(num_shards, index)
    return order.shuffle(max(1, count), seed=seed) if shuffle else order
