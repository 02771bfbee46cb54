"""The files of a cache that SeqIO's own job writes: TFRecords.

`SPLIT.tfrecord-00000-of-00064` .., each record a tf.Example with the tokens of a document, `targets`, and its name, `document`:
the id of the document and a digest of the settings that made it, as "ID/DIGEST". The name of the first record of each input
shard ends with the settings themselves. So the files say what made them, whatever job wrote them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import seqio
import tensorflow as tf

from ul2_tasks.corpus.cached_files import expected_files
from ul2_tasks.corpus.configuration import as_json, digest
from ul2_tasks.example_features import DOCUMENTS_PER_BATCH
from ul2_tasks.files.systems import parallel_map, place
from ul2_tasks.graphs import no_autograph

SKIPPED = "skipped"  # the id of a record that is no document
_FILES_AT_A_TIME = 16  # as SeqIO's cached source
_SHUFFLE_BUFFER = seqio.SHUFFLE_BUFFER_SIZE


@no_autograph
def document_names(numbers: tf.Tensor, texts: tf.Tensor, are_whole: tf.Tensor, settings: Mapping[str, str]) -> tf.Tensor:
    """The feature `document` of several records: "ID/DIGEST", or for the first record of a shard "ID/DIGEST/SETTINGS".

    `numbers`, [records] int64, are how many records of the input shard come before each, and the ID is the FarmHash64 of its text.
    `are_whole`, [records] bool, says which are documents; the others are records that are skipped. The names are [records] strings.
    """
    ids = tf.strings.as_string(tf.bitcast(tf.fingerprint(texts), tf.int64))
    endings = tf.where(numbers == 0, f"/{as_json(settings)}", "")
    return tf.strings.join([tf.where(are_whole, ids, SKIPPED), f"/{digest(settings)}", endings])


@no_autograph
def read_files(files: list[str], shuffle: bool, seed: int | None, shard_info: seqio.ShardInfo | None) -> tf.data.Dataset:
    """Reads the documents of some files, 128 at a time.

    Each host reads some of the files; where there are more hosts than files, some of the documents of all files. In each epoch the
    files are shuffled anew, 16 files are read at a time, and their documents are shuffled among 1,000 others. Gives {"targets":
    RaggedTensor [documents, tokens] int32}.
    """
    index, num_shards = (shard_info.index, shard_info.num_shards) if shard_info else (0, 1)
    names = tf.data.Dataset.from_tensor_slices(files)
    by_file = num_shards <= len(files)
    if by_file:
        names = names.shard(num_shards, index)
    if shuffle:
        names = names.shuffle(len(files), seed=seed)
    records = names.interleave(
        tf.data.TFRecordDataset,
        cycle_length=_FILES_AT_A_TIME,
        block_length=_FILES_AT_A_TIME,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    if not by_file:
        records = records.shard(num_shards, index)
    if shuffle:
        records = records.shuffle(_SHUFFLE_BUFFER, seed=seed)
    return records.batch(DOCUMENTS_PER_BATCH).map(_parse_tokens, num_parallel_calls=tf.data.AUTOTUNE)


def other_settings(cache_dir: str, split: str, expected: Mapping[str, str]) -> object | None:
    """The settings that made the files, or their digest, if the first record of a file says that they differ; otherwise None."""
    paths = [place(cache_dir, name) for name in expected_files(cache_dir, split)]
    for found in parallel_map(_first_digest, paths):
        if found not in (None, digest(expected)):
            named = (json.loads(name.split("/", 2)[2]) for name in _document_names(tf.data.TFRecordDataset(paths)) if "/{" in name)
            return next(named, f"digest {found}")
    return None


def _parse_tokens(records: tf.Tensor) -> dict[str, tf.RaggedTensor]:
    """Parses [documents] serialized tf.Examples to {"targets": [documents, tokens] int32}."""
    parsed = tf.io.parse_example(records, {"targets": tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)})
    return {"targets": tf.cast(parsed["targets"], tf.int32)}


def _first_digest(path: str) -> str | None:
    """That in the name of the first record; None of a file without records."""
    return next((name.split("/")[1] for name in _document_names(tf.data.TFRecordDataset(path).take(1))), None)


def _document_names(records: tf.data.Dataset) -> Iterator[str]:
    for batch in records.batch(DOCUMENTS_PER_BATCH):
        name = tf.io.FixedLenFeature([], tf.string, default_value="unknown/none")
        yield from (name.decode() for name in tf.io.parse_example(batch, {"document": name})["document"].numpy())
