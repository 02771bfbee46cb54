"""Records of texts and images as serialized `tf.train.Example`s, without TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ul2_tasks.example_features import IMAGES
from ul2_tasks.files import tf_examples
from ul2_tasks.files.protobuf import field

TEXTS, WHERE = "texts", "where"


def serialized(texts: Sequence[bytes], images: Sequence[bytes], where: bytes) -> bytes:
    """A record as a `tf.train.Example`, see `ImageTextSource`, and `tf_examples` for its form."""
    features = {TEXTS: texts, IMAGES: images, WHERE: [where]}
    lists = {key: field(1, b"".join(field(1, value) for value in values)) for key, values in features.items()}
    return field(1, b"".join(field(1, field(1, key.encode()) + field(2, feature)) for key, feature in lists.items()))


def parsed(record: bytes) -> tuple[list[bytes], list[bytes], bytes]:
    """What `serialized` was given.

    >>> parsed(serialized([b"A cat:", b""], [b"", b".." * 100], b"line 1")) == ([b"A cat:", b""], [b"", b".." * 100], b"line 1")
    True
    """
    found: dict[str, Any] = tf_examples.parsed(record)
    return found[TEXTS], found[IMAGES], found[WHERE][0]
