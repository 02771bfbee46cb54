"""Records of texts and images as serialized `tf.train.Example`s, without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ul2_tasks.example_features import IMAGES

TEXTS, WHERE = "texts", "where"


def serialized(texts: Sequence[bytes], images: Sequence[bytes], where: bytes) -> bytes:
    """A record as a `tf.train.Example`, see `ImageTextSource`.

    An Example has Features as its field 1; these have as their fields 1 a name as field 1, and as field 2 a Feature, whose field 1
    is a BytesList, whose fields 1 are the values.
    """
    features = {TEXTS: texts, IMAGES: images, WHERE: [where]}
    lists = {key: _field(1, b"".join(_field(1, value) for value in values)) for key, values in features.items()}
    return _field(1, b"".join(_field(1, _field(1, key.encode()) + _field(2, feature)) for key, feature in lists.items()))


def parsed(record: bytes) -> tuple[list[bytes], list[bytes], bytes]:
    """What `serialized` was given.

    >>> parsed(serialized([b"A cat:", b""], [b"", b".." * 100], b"line 1")) == ([b"A cat:", b""], [b"", b".." * 100], b"line 1")
    True
    """
    [features] = _fields(memoryview(record))
    found = {}
    for entry in _fields(features):
        key, feature = _fields(entry)
        [values] = _fields(feature)
        found[bytes(key).decode()] = list(map(bytes, _fields(values)))
    return found[TEXTS], found[IMAGES], found[WHERE][0]


def _field(number: int, content: bytes) -> bytes:
    """A field of a protocol buffer: its number, its length in groups of 7 bits, and its content."""
    length, groups = len(content), [number << 3 | 2]
    while length > 127:
        groups.append(length & 127 | 128)
        length >>= 7
    return bytes([*groups, length]) + content


def _fields(message: memoryview) -> Iterator[memoryview]:
    """The contents of the fields."""
    place = 0
    while place < len(message):
        length = bits = 0
        more = True
        while more:
            place += 1
            more, group = message[place] > 127, message[place] & 127
            length |= group << bits
            bits += 7
        yield message[place + 1 : place + 1 + length]
        place += 1 + length
