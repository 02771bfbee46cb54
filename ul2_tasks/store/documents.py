"""The documents of a token store as a dataset, in an order of its own for each pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.example_features import DOCUMENTS_PER_BATCH
from ul2_tasks.graphs import no_autograph, python_op, ragged
from ul2_tasks.order.permutation import permute
from ul2_tasks.store.read import Store


@no_autograph
def read_store(store: Store, id_shift: int, shuffle: bool, seed: int | None, shard_info: seqio.ShardInfo | None) -> tf.data.Dataset:
    """Reads the documents of a store, 128 at a time.

    Host h of H reads documents h, h + H, h + 2 H .. A shuffled pass visits them in a pseudo-random permutation of them all, another
    one each time: there is no buffer, so an iterator's checkpoint holds two integers of it. `id_shift` is added to each id, and a
    `shard_info` of None is a single host. Gives {"targets": RaggedTensor [documents, tokens] int32}.
    """

    def read(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        tokens, lengths = store.read_documents(numbers)
        return tokens + np.int32(id_shift), lengths

    def batch(tokens: tf.Tensor, lengths: tf.Tensor) -> dict[str, tf.RaggedTensor]:
        return {"targets": ragged(tokens, lengths)}

    reading = (read, [tf.int32, tf.int64], batch)
    return read_in_order(store.documents, DOCUMENTS_PER_BATCH, *reading, shuffle=shuffle, seed=seed, shard_info=shard_info)


@no_autograph
def read_in_order(
    documents: int,
    at_a_time: int,
    read: Callable[[np.ndarray], tuple],
    dtypes: list[tf.DType],
    element: Callable[..., Any],
    *,
    shuffle: bool,
    seed: int | None,
    shard_info: seqio.ShardInfo | None,
) -> tf.data.Dataset:
    """Reads documents by their numbers, in the order that `read_store` has.

    `at_a_time` documents are an element of the dataset. `read` gives arrays of these dtypes for numbers of documents, [n] int64,
    and `element` makes an element of these, as tensors.
    """
    host, hosts = (shard_info.index, shard_info.num_shards) if shard_info else (0, 1)
    own = len(range(host, documents, hosts))

    def read_at(key: np.ndarray, first: np.ndarray) -> tuple:
        places = np.arange(int(first), min(int(first) + at_a_time, own))
        numbers = permute(places, own, int(key)) if shuffle else places
        return read(host + hosts * numbers)

    def one_pass(key: tf.Tensor) -> tf.data.Dataset:
        firsts = tf.data.Dataset.range(0, own, at_a_time)
        return firsts.map(lambda first: element(*python_op(read_at, [key, first], dtypes)), num_parallel_calls=tf.data.AUTOTUNE)

    if not shuffle:
        return one_pass(tf.constant(0, tf.int64))
    # One random key a pass: it is drawn anew whenever the dataset is repeated, as `shuffle` draws a new order.
    return tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True).take(1).flat_map(one_pass)
