"""The files of a cache that SeqIO's own job writes: TFRecords.

`SPLIT.tfrecord-00000-of-00064` .., each record a tf.Example with the tokens of a document, `targets`, and its name, `document`:
the id of the document and a digest of the settings that made it, as "ID/DIGEST". The name of the first record of each input
shard ends with the settings themselves. So the files say what made them, whatever job wrote them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf

from ul2_tasks.corpus.cached_files import expected_files
from ul2_tasks.corpus.configuration import as_json, digest
from ul2_tasks.example_features import DOCUMENTS_PER_BATCH
from ul2_tasks.files.systems import parallel_map, place
from ul2_tasks.graphs import no_autograph

SKIPPED = "skipped"  # the id of a record that is no document


@no_autograph
def document_names(numbers: tf.Tensor, texts: tf.Tensor, are_whole: tf.Tensor, settings: Mapping[str, str]) -> tf.Tensor:
    """The feature `document` of several records: "ID/DIGEST", or for the first record of a shard "ID/DIGEST/SETTINGS".

    `numbers`, [records] int64, are how many records of the input shard come before each, and the ID is the FarmHash64 of its text.
    `are_whole`, [records] bool, says which are documents; the others are records that are skipped. The names are [records] strings.
    """
    ids = tf.strings.as_string(tf.bitcast(tf.fingerprint(texts), tf.int64))
    endings = tf.where(numbers == 0, f"/{as_json(settings)}", "")
    return tf.strings.join([tf.where(are_whole, ids, SKIPPED), f"/{digest(settings)}", endings])


def read_file(path: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The documents of a file, 128 at a time: [tokens] int32, one document's after the other's, and how many each has, int64."""
    for batch in tf.data.TFRecordDataset(path).batch(DOCUMENTS_PER_BATCH):
        tokens = tf.io.parse_example(batch, {"targets": tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)})["targets"]
        yield tokens.flat_values.numpy().astype(np.int32), tokens.row_lengths().numpy()


def other_settings(cache_dir: str, split: str, expected: Mapping[str, str]) -> object | None:
    """The settings that made the files, or their digest, if the first record of a file says that they differ; otherwise None."""
    paths = [place(cache_dir, name) for name in expected_files(cache_dir, split)]
    for found in parallel_map(_first_digest, paths):
        if found not in (None, digest(expected)):
            named = (json.loads(name.split("/", 2)[2]) for name in _document_names(tf.data.TFRecordDataset(paths)) if "/{" in name)
            return next(named, f"digest {found}")
    return None


def _first_digest(path: str) -> str | None:
    """That in the name of the first record; None of a file without records."""
    return next((name.split("/")[1] for name in _document_names(tf.data.TFRecordDataset(path).take(1))), None)


def _document_names(records: tf.data.Dataset) -> Iterator[str]:
    for batch in records.batch(DOCUMENTS_PER_BATCH):
        name = tf.io.FixedLenFeature([], tf.string, default_value="unknown/none")
        yield from (name.decode() for name in tf.io.parse_example(batch, {"document": name})["document"].numpy())
