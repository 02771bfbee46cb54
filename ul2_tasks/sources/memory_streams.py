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
    index, num_shards = (shard_info.index, shard_info.num_shards) if shard_info else (0, 1)
    if num_shards > max(1, len(documents)):
        raise ValueError(
            f"split {split!r} must have a document for each of {num_shards} shards, got {len(documents)}. Use fewer hosts. See"
            " docs/help/troubleshooting.md#too-few-documents-for-the-hosts."
        )
    order = tf.data.Dataset.range(len(documents)).shard(num_shards, index)
    if shuffle:
        order = order.shuffle(max(1, len(documents)), seed=seed)
    texts = tf.constant(documents, tf.string)
    return order.map(lambda document: {"text": texts[document]}, num_parallel_calls=tf.data.AUTOTUNE)
