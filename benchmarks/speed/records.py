"""Writes the cached documents of this benchmark as the peers read them, TFRecords of tf.train.Example: `python records.py`."""

import pathlib

import numpy as np
import tensorflow as tf

from ul2_tasks.corpus import cache

SHARDS = 16


def main() -> None:
    folder = "cache/ours_corpus"
    manifest = cache.read_manifest(folder)
    assert manifest
    store = cache.open_store(folder, manifest, "train")
    pathlib.Path("records").mkdir()
    for shard in range(SHARDS):
        tokens, lengths = store.read_documents(np.arange(shard, store.documents, SHARDS))
        with tf.io.TFRecordWriter(f"records/train.tfrecord-{shard:05}-of-{SHARDS:05}") as file:
            for document in np.split(tokens, np.cumsum(lengths)[:-1]):
                feature = tf.train.Feature(int64_list=tf.train.Int64List(value=document))
                file.write(tf.train.Example(features=tf.train.Features(feature={"targets": feature})).SerializeToString())


if __name__ == "__main__":
    main()
