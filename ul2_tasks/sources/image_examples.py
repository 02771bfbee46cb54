"""Records of texts and images as serialized `tf.train.Example`s, without TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ul2_tasks.example_features import IMAGES
from ul2_tasks.sources.tfrecords import features_of, values_of

TEXTS, WHERE = "texts", "where"


def serialized(texts: Sequence[bytes], images: Sequence[bytes], where: bytes) -> bytes:
    """A record as a `tf.train.Example`, see `ImageTextSource`, and `tfrecords.features_of` for its form."""
    features = {TEXTS: texts, IMAGES: images, WHERE: [where]}
    lists = {key: _field(1, b"".join(_field(1, value) for value in values)) for key, values in features.items()}
    return _field(1, b"".join(_field(1, _field(1, key.encode()) + _field(2, feature)) for key, feature in lists.items()))


def parsed(record: bytes) -> tuple[list[bytes], list[bytes], bytes]:
    """What `serialized` was given.

    >>> parsed(serialized([b"A cat:", b""], [b"", b".." * 100], b"line 1")) == ([b"A cat:", b""], [b"", b".." * 100], b"line 1")
    True
    """
    found: dict[str, Any] = {name: values_of(feature) for name, feature in features_of(record).items()}
    return found[TEXTS], found[IMAGES], found[WHERE][0]


def _field(number: int, content: bytes) -> bytes:
    """A field of a protocol buffer: its number, its length in groups of 7 bits, and its content."""
    length, groups = len(content), [number << 3 | 2]
    while length > 127:
        groups.append(length & 127 | 128)
        length >>= 7
    return bytes([*groups, length]) + content
