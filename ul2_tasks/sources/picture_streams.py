"""Records of texts and pictures as tf.Examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from ul2_tasks.example_features import IMAGES
from ul2_tasks.graphs import no_autograph
from ul2_tasks.sources.records import PROBLEM

TEXTS, WHERE = "texts", "where"


@no_autograph
def places_of(records: tf.data.Dataset, record_key: str) -> tf.data.Dataset:
    """The places of records that are tf.Examples, see `PictureSource`."""
    places = tf.io.FixedLenSequenceFeature([], tf.string, allow_missing=True)
    features = {TEXTS: places, IMAGES: places, WHERE: tf.io.FixedLenFeature([], tf.string)}

    def parse(record: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {**tf.io.parse_single_example(record[record_key], features), PROBLEM: record[PROBLEM]}

    return records.map(parse, num_parallel_calls=tf.data.AUTOTUNE)


def serialized(texts: Sequence[bytes], images: Sequence[bytes], where: bytes) -> bytes:
    """A record as a `tf.train.Example`, see `PictureSource`."""
    features = {TEXTS: texts, IMAGES: images, WHERE: [where]}
    lists = {key: tf.train.Feature(bytes_list=tf.train.BytesList(value=values)) for key, values in features.items()}
    return tf.train.Example(features=tf.train.Features(feature=lists)).SerializeToString()


def parsed(record: bytes) -> tuple[list[bytes], list[bytes], bytes]:
    """What `serialized` was given."""
    features = tf.train.Example.FromString(record).features.feature
    texts, images, where = (list(features[key].bytes_list.value) for key in (TEXTS, IMAGES, WHERE))
    return texts, images, b"".join(where)
