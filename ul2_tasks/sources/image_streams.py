"""Records of texts and images in tf.data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import tensorflow as tf

from ul2_tasks.example_features import IMAGES
from ul2_tasks.graphs import no_autograph
from ul2_tasks.sources.image_examples import TEXTS, WHERE, serialized
from ul2_tasks.sources.records import PROBLEM, Record
from ul2_tasks.sources.rows import At


@no_autograph
def places_of(records: tf.data.Dataset, record_key: str) -> tf.data.Dataset:
    """The places of records that are tf.Examples, see `ImageTextSource`."""
    places = tf.io.FixedLenSequenceFeature([], tf.string, allow_missing=True)
    features = {TEXTS: places, IMAGES: places, WHERE: tf.io.FixedLenFeature([], tf.string)}

    def parse(record: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {**tf.io.parse_single_example(record[record_key], features), PROBLEM: record[PROBLEM]}

    return records.map(parse, num_parallel_calls=tf.data.AUTOTUNE)


def records_of(dataset: tf.data.Dataset) -> Iterator[Record]:
    """The records of a dataset of texts and images, each serialized."""
    check_features(dataset)
    for row, record in enumerate(dataset.as_numpy_iterator(), 1):
        where, problem = (record.get(key, b"") for key in (WHERE, PROBLEM))
        text = serialized(record[TEXTS].tolist(), record[IMAGES].tolist(), where)
        yield Record(text, problem=problem.decode(errors="replace"), where=At(where.decode(errors="replace"), row))


def check_features(records: tf.data.Dataset) -> None:
    """Raises a ValueError where records are none of texts and images."""
    if missing := sorted({TEXTS, IMAGES} - records.element_spec.keys()):
        raise ValueError(f"source must have the features texts and images, got {sorted(records.element_spec)}, without {missing}.")
