"""The documents of a token store as a dataset, in an order of its own for each pass."""

from __future__ import annotations

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.graphs import no_autograph, python_op, ragged
from ul2_tasks.order.permutation import permute
from ul2_tasks.store.read import Store

DOCUMENTS_PER_BATCH = 128


@no_autograph
def read_store(store: Store, id_shift: int, shuffle: bool, seed: int | None, shard_info: seqio.ShardInfo | None) -> tf.data.Dataset:
    """Reads the documents of a store, 128 at a time.

    Host h of H reads documents h, h + H, h + 2 H .. A shuffled pass visits them in a pseudo-random permutation of them all,
    another one each time: there is no buffer, so an iterator's checkpoint holds two integers of it.

    Args:
        store: what is read.
        id_shift: is added to each id.
        shuffle: whether the documents are shuffled.
        seed: of the permutations.
        shard_info: which of the hosts this is; None for a single one.

    Returns:
        A dataset of {"targets": RaggedTensor [documents, tokens] int32}.
    """
    host, hosts = (shard_info.index, shard_info.num_shards) if shard_info else (0, 1)
    own = len(range(host, store.documents, hosts))

    def read(key: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        places = np.arange(int(first), min(int(first) + DOCUMENTS_PER_BATCH, own))
        numbers = permute(places, own, int(key)) if shuffle else places
        tokens, lengths = store.read_documents(host + hosts * numbers)
        return tokens + np.int32(id_shift), lengths

    def batch(key: tf.Tensor, first: tf.Tensor) -> dict[str, tf.RaggedTensor]:
        return {"targets": ragged(*python_op(read, [key, first], [tf.int32, tf.int64]))}

    def one_pass(key: tf.Tensor) -> tf.data.Dataset:
        firsts = tf.data.Dataset.range(0, own, DOCUMENTS_PER_BATCH)
        return firsts.map(lambda first: batch(key, first), num_parallel_calls=tf.data.AUTOTUNE)

    if not shuffle:
        return one_pass(tf.constant(0, tf.int64))
    # One random key a pass: it is drawn anew whenever the dataset is repeated, as `shuffle` draws a new order.
    return tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True).take(1).flat_map(one_pass)
