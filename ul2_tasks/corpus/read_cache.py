"""A cached corpus as a dataset."""

from __future__ import annotations

from collections.abc import Mapping

import seqio
import tensorflow as tf

from ul2_tasks.corpus import cache, tfrecords
from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.store.documents import read_store


def read_cache(
    cache_dir: str,
    corpus: Corpus,
    expected: Mapping[str, str],
    split: str,
    *,
    shuffle: bool,
    seed: int | None,
    shard_info: seqio.ShardInfo | None,
) -> tf.data.Dataset:
    """Reads the documents of a cached corpus, 128 at a time; see `documents.read_store` and `tfrecords.read_files`.

    `expected` are the settings of the corpus that is asked for, and a `shard_info` of None is a single host. Gives {"targets":
    RaggedTensor [documents, tokens] int32}. Raises a ValueError where other settings made the cache, where it is not whole, and
    where the split has no document, or fewer documents than hosts.
    """
    manifest = cache.check(cache_dir, corpus, expected)
    cache.check_documents(cache_dir, split, manifest, shard_info.num_shards if shard_info else 1)
    if manifest is None:
        return tfrecords.read_files(cache.record_files(cache_dir, split), shuffle, seed, shard_info)
    return read_store(cache.open_store(cache_dir, manifest, split), manifest["id_shift"], shuffle, seed, shard_info)
