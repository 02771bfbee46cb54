"""The files of a cache that SeqIO's own job writes: TFRecords.

`SPLIT.tfrecord-00000-of-00064` .., each record a tf.Example with the tokens of a document, `targets`, and its name, `document`:
the id of the document and a digest of the settings that made it, as "ID/DIGEST". The name of the first record of each input
shard ends with the settings themselves. So the files say what made them, whatever job wrote them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping

import numpy as np

from ul2_tasks.corpus.cached_files import expected_files
from ul2_tasks.corpus.configuration import digest
from ul2_tasks.example_features import DOCUMENTS_PER_BATCH
from ul2_tasks.files.opening import CorruptFileError, open_file
from ul2_tasks.files.systems import parallel_map, place
from ul2_tasks.files.tf_examples import features_of, parsed, records_of, value_of

SKIPPED = "skipped"  # the id of a record that is no document


def read_file(path: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The documents of a file, 128 at a time: [tokens] int32, one document's after the other's, and how many each has, int64."""
    with open_file(path) as file:
        records = records_of(file)
        while batch := list(map(_tokens, itertools.islice(records, DOCUMENTS_PER_BATCH))):
            yield np.concatenate(batch).astype(np.int32), np.array([len(tokens) for tokens in batch], np.int64)


def _tokens(record: bytes) -> np.ndarray:
    tokens = value_of(features_of(record)["targets"])
    if len(tokens) and not (isinstance(tokens, np.ndarray) and tokens.dtype == np.int64):
        raise CorruptFileError("the feature 'targets' must have integers, got others")
    return np.asarray(tokens, np.int64)


def other_settings(cache_dir: str, split: str, expected: Mapping[str, str]) -> object | None:
    """The settings that made the files, or their digest, if the first record of a file says that they differ; otherwise None."""
    paths = [place(cache_dir, name) for name in expected_files(cache_dir, split)]
    for found in parallel_map(_first_digest, paths):
        if found not in (None, digest(expected)):
            names = itertools.chain.from_iterable(map(_document_names, paths))
            return next((json.loads(name.split("/", 2)[2]) for name in names if "/{" in name), f"digest {found}")
    return None


def _first_digest(path: str) -> str | None:
    """That in the name of the first record; None of a file without records."""
    return next((name.split("/")[1] for name in _document_names(path)), None)


def _document_names(path: str) -> Iterator[str]:
    with open_file(path) as file:
        for record in records_of(file):
            named = parsed(record).get("document", [])
            yield named[0].decode() if named and isinstance(named[0], bytes) else "unknown/none"
