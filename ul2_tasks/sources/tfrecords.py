"""Documents in files of TFRecords, of tf.Examples, which TensorFlow reads."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Mapping, Sequence

import tensorflow as tf
from google.protobuf.message import DecodeError

from ul2_tasks.example_features import DOCUMENTS_PER_BATCH
from ul2_tasks.files.opening import COMPRESSIONS
from ul2_tasks.sources.files import Layout, Segment
from ul2_tasks.sources.records import PROBLEM


def stream_of_examples(segments: Sequence[Segment], segment: tf.Tensor, layout: Layout) -> tf.data.Dataset:
    """The records of one of these files, by its number."""
    path = tf.gather([segment.path for segment in segments], segment)
    examples = tf.data.TFRecordDataset(path, compression_type=_compression(segments))
    batches = examples.enumerate(1).batch(DOCUMENTS_PER_BATCH)
    kinds = kinds_of_features(segments[0])
    types = {layout.text_key: tf.string}
    if layout.id_key:
        types[layout.id_key] = tf.int64 if kinds.get(layout.id_key) == "int64_list" else tf.string
    return batches.map(functools.partial(_parse_examples, path, types)).unbatch()


def _compression(segments: Sequence[Segment]) -> str:
    suffixes = {os.path.splitext(segment.path)[1] for segment in segments} & set(COMPRESSIONS)
    if suffixes - {".gz"}:
        raise ValueError(
            f"TFRecords must be uncompressed or end in .gz, as TensorFlow reads them, got {sorted(suffixes)}. Compress them again."
        )
    return "GZIP" if suffixes else ""


def kinds_of_features(segment: Segment) -> dict[str, str]:
    """The features of the first record with their kinds, such as {"text": "bytes_list"}; empty where there is none to be read."""
    with tf.init_scope():  # it reads the file at once, also where the caller builds a graph
        dataset = tf.data.TFRecordDataset(segment.path, compression_type=_compression([segment]))
        with contextlib.suppress(tf.errors.DataLossError, DecodeError):  # which the reading of the records tells
            for record in dataset.take(1).as_numpy_iterator():
                features = tf.train.Example.FromString(record).features.feature
                return {name: value.WhichOneof("kind") for name, value in features.items()}
    return {}


def _parse_examples(
    path: tf.Tensor, types: Mapping[str, tf.DType], numbers: tf.Tensor, serialized: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Parses a batch of tf.Examples. One that has not exactly one value in each feature becomes a problem.

    `numbers`, [records] int64, count the records of the file from 1. Each feature, and `PROBLEM`, becomes [records] strings;
    integers are in digits.
    """
    parsed = tf.io.parse_example(serialized, {key: tf.io.RaggedFeature(type) for key, type in types.items()})
    whole = [parsed[key].row_lengths() == 1 for key in types]
    reason = f": has not exactly one value in each of its features {list(types)}"
    message = tf.strings.join([path, ", record ", tf.strings.as_string(numbers), reason])
    problem = tf.where(tf.reduce_all(whole, axis=0), "", message)
    texts = {key: parsed[key] if type == tf.string else tf.strings.as_string(parsed[key]) for key, type in types.items()}
    return {PROBLEM: problem, **{key: tf.where(problem == "", tf.strings.reduce_join(texts[key], axis=1), "") for key in types}}
