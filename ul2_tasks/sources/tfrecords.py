"""Files of TFRecords and the `tf.train.Example`s in them, read without TensorFlow, and through the compressions of other files."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from ul2_tasks.compiled import compiled
from ul2_tasks.files.opening import CorruptFileError
from ul2_tasks.sources.files import At, Layout, Rows, Shard
from ul2_tasks.sources.json_values import as_text

_HEAD = struct.Struct("<QI")  # how many bytes a record has, and the checksum of that
_POLYNOMIAL = 0x82F63B78  # of CRC-32C, reversed


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

    >>> hex(checksum(b""))
    '0xa282ead8'
    """
    crc = int(_crc32c(np.frombuffer(data, np.uint8), _TABLE))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def tfrecord_rows(file: BinaryIO, shard: Shard, layout: Layout) -> Rows:
    """The examples of TFRecords. Of a feature that the layout does not read there is no value."""
    for number, record in enumerate(records_of(file), 1):
        row: dict[str, Any] | ValueError
        try:
            features = features_of(record).items()
            row = {name: _plain(values_of(feature)) if layout.wants(name) else None for name, feature in features}
        except ValueError as error:
            row = ValueError(f"is not a tf.Example: {error}")
        yield At(f"{shard.path}, record {number}", number), row


def _plain(values: list) -> object:
    """The value of a feature that has one; else all of them."""
    return values[0] if len(values) == 1 else [*map(as_text, values)]


def records_of(file: BinaryIO) -> Iterator[bytes]:
    """The records of a file of TFRecords. A file that ends within one, or that has another checksum, raises an error."""
    while head := file.read(_HEAD.size):
        if len(head) < _HEAD.size:
            raise EOFError("it ends within a record's length")
        length, expected = _HEAD.unpack(head)
        if checksum(head[:8]) != expected:
            raise CorruptFileError("the checksum of a record's length must be that of TFRecords, got another")
        record, end = file.read(length), file.read(4)
        if len(record) < length or len(end) < 4:
            raise EOFError("it ends within a record")
        if checksum(record) != int.from_bytes(end, "little"):
            raise CorruptFileError("the checksum of a record must be that of its bytes, got another")
        yield record


def features_of(example: bytes) -> dict[str, memoryview]:
    """The features of a `tf.train.Example` by name, see `values_of`. Bytes that are none raise a CorruptFileError.

    An Example has Features as its field 1; these have as their fields 1 a name as field 1, and as field 2 a Feature.
    """
    entries = [dict(_messages(entry)) for _, features in _messages(memoryview(example)) for _, entry in _messages(features)]
    return {bytes(entry.get(1, b"")).decode(): entry.get(2, memoryview(b"")) for entry in entries}


def values_of(feature: memoryview) -> list[bytes | int | float]:
    """The values of a Feature, whose field 1 is a list of bytes, 2 of floats, and 3 of integers."""
    values: list[bytes | int | float] = []
    for kind, held in _messages(feature):
        for _, value in fields_of(held):
            if isinstance(value, int):
                values.append(_signed(value))
            elif kind == 1:
                values.append(bytes(value))
            else:
                values += np.frombuffer(value, "<f4").tolist() if kind == 2 else _integers(value).tolist()
    return values


def integers_of(feature: memoryview) -> np.ndarray:
    """The values of a Feature of integers, [n] int64. One of another kind raises a CorruptFileError."""
    found = [np.zeros([0], np.int64)]
    for kind, held in _messages(feature):
        if kind != 3:
            raise CorruptFileError(f"a feature must have integers, which are of the kind 3, got {kind}")
        found += [_integers(value) if not isinstance(value, int) else np.array([_signed(value)]) for _, value in fields_of(held)]
    return np.concatenate(found)


def _integers(value: memoryview) -> np.ndarray:
    numbers, is_whole = _varints(np.frombuffer(value, np.uint8))
    if not is_whole:
        raise CorruptFileError("an integer of a protocol buffer must have an end, got none")
    return numbers


@compiled
def _varints(data: np.ndarray) -> tuple[np.ndarray, bool]:
    """The integers in groups of 7 bits; and whether the last one ends where the data end, and none is of more than 64 bits."""
    numbers, count = np.zeros(len(data), np.int64), 0
    value, bits = np.uint64(0), np.uint64(0)
    for byte in data:
        if bits > 63:
            return numbers[:count], False
        value |= np.uint64(byte & 127) << bits
        bits += np.uint64(7)
        if byte < 128:
            numbers[count] = np.int64(value)
            count, value, bits = count + 1, np.uint64(0), np.uint64(0)
    return numbers[:count], bits == 0


def fields_of(message: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """The fields of a protocol buffer, each with its number. Bytes that are none raise a CorruptFileError."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        if tag & 7 == 0:
            value, place = _varint(message, place)
            yield tag >> 3, value
            continue
        if tag & 7 == 2:
            length, place = _varint(message, place)
        elif tag & 7 in (1, 5):
            length = 8 if tag & 7 == 1 else 4
        else:
            raise CorruptFileError(f"a field of a protocol buffer must be of the kinds 0, 1, 2 or 5, got {tag & 7}")
        if place + length > len(message):
            raise CorruptFileError("a field of a protocol buffer must end with it, got one that is longer")
        yield tag >> 3, message[place : place + length]
        place += length


def _messages(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    for number, value in fields_of(message):
        if isinstance(value, int):
            raise CorruptFileError("a field of a tf.train.Example must be bytes, got an integer")
        yield number, value


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    """An integer in groups of 7 bits, and the place behind it."""
    value = bits = 0
    while place < len(message) and bits < 70:
        group = message[place]
        value |= (group & 127) << bits
        place, bits = place + 1, bits + 7
        if group < 128:
            return value, place
    raise CorruptFileError("an integer of a protocol buffer must have an end, got none")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
