"""Files of TFRecords and the `tf.train.Example`s in them, without TensorFlow, and through the compressions of other files.

A record is framed: its length as 8 bytes, the masked CRC-32C of these, its bytes, and their masked CRC-32C. The bytes are a message
of protocol buffers, of which these fields occur:

    Example    1: Features
    Features   1: an entry of a map, 1: the name, 2: a Feature
    Feature    1: a list of bytes, 2: of floats, 3: of integers
    each list  1: the values; bytes one by one, numbers packed or one by one
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

import numpy as np

from ul2_tasks.compiled import compiled
from ul2_tasks.files.opening import CorruptFileError
from ul2_tasks.files.protobuf import field, fields_of, packed, unpacked

_BYTES, _FLOATS, _INTEGERS = 1, 2, 3  # kinds of a Feature
_HEAD, _CHECKSUM = struct.Struct("<QI"), struct.Struct("<I")
_POLYNOMIAL = 0x82F63B78  # of CRC-32C, reversed
Value = np.ndarray | Sequence[bytes]


def _crc_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table


_TABLE = _crc_table()


@compiled
def _crc32c(data: np.ndarray, table: np.ndarray) -> int:
    crc = np.uint32(0xFFFFFFFF)
    for byte in data:
        crc = table[(crc ^ byte) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
    return crc ^ np.uint32(0xFFFFFFFF)


def checksum(data: bytes) -> int:
    """The checksum of TFRecords: CRC-32C, turned, and a constant added, so that one of a text with a checksum in it differs.

    >>> hex(checksum(b"123456789"))
    '0xc78ab0e5'
    """
    crc = int(_crc32c(np.frombuffer(data, np.uint8), _TABLE))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def framed(record: bytes) -> bytes:
    """A record as it is in a file."""
    length = struct.pack("<Q", len(record))
    return b"".join((length, _CHECKSUM.pack(checksum(length)), record, _CHECKSUM.pack(checksum(record))))


def records_of(file: BinaryIO) -> Iterator[bytes]:
    """The records of a file of TFRecords. A file that ends within one, or that has another checksum, raises an error."""
    while head := file.read(_HEAD.size):
        if len(head) < _HEAD.size:
            raise EOFError("it ends within a record's length")
        length, expected = _HEAD.unpack(head)
        if checksum(head[:8]) != expected:
            raise CorruptFileError("the checksum of a record's length must be that of TFRecords, got another")
        record, end = file.read(length), file.read(_CHECKSUM.size)
        if len(record) < length or len(end) < _CHECKSUM.size:
            raise EOFError("it ends within a record")
        if _CHECKSUM.unpack(end) != (checksum(record),):
            raise CorruptFileError("the checksum of a record must be that of its bytes, got another")
        yield record


def serialized(features: Mapping[str, Value]) -> bytes:
    """A `tf.train.Example` of lists of integers, [n] of at least 0, of floats, and of bytes, by name."""
    entries = (field(1, name.encode()) + field(2, _feature(features[name])) for name in sorted(features))
    return field(1, b"".join(field(1, entry) for entry in entries))


def _feature(value: Value) -> bytes:
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return field(_FLOATS, field(1, value.astype("<f4").tobytes()) if len(value) else b"")
    if isinstance(value, np.ndarray):
        if len(value) and value.min() < 0:
            raise ValueError(f"ids must be at least 0, got {value.min()}. Name a vocabulary without such ids.")
        return field(_INTEGERS, field(1, packed(value)) if len(value) else b"")
    return field(_BYTES, b"".join(field(1, each) for each in value))


def parsed(example: bytes) -> dict[str, Value]:
    """The values of each feature of a `tf.train.Example`, see `value_of`."""
    return {name: value_of(feature) for name, feature in features_of(example).items()}


def features_of(example: bytes) -> dict[str, memoryview]:
    """The features of a `tf.train.Example` by name, see `value_of`. Bytes that are none raise a CorruptFileError."""
    entries = [dict(_messages(entry)) for _, features in _messages(memoryview(example)) for _, entry in _messages(features)]
    return {bytes(entry.get(1, b"")).decode(): entry.get(2, memoryview(b"")) for entry in entries}


def value_of(feature: memoryview) -> Value:
    """The values of a feature: a list of bytes, [n] float32, or [n] int64; of one without values an empty list."""
    found: Value = []
    for kind, held in _messages(feature):
        if kind == _BYTES:
            found = [bytes(value) for _, value in _messages(held)]
        elif kind == _FLOATS:
            found = np.frombuffer(b"".join(value for _, value in _messages(held)), "<f4")
        else:  # of one that is not packed the tag is a byte, too
            integers = [unpacked(whole[1:] if isinstance(value, int) else value) for _, value, whole in fields_of(held)]
            found = np.concatenate([np.zeros([0], np.int64), *integers])
    return found


def _messages(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    for tag, value, _ in fields_of(message):
        if isinstance(value, int):
            raise CorruptFileError("a field of a tf.train.Example must be bytes, got an integer")
        yield tag >> 3, value
