"""Files of tf.train.Examples, written and read without TensorFlow.

A record is framed: its length as 8 bytes, the masked CRC-32C of these, its bytes, and their masked CRC-32C. The bytes are a message
of protocol buffers, of which these fields occur:

    Example    1: Features
    Features   1: an entry of a map, 1: the name, 2: a Feature
    Feature    1: BytesList, 3: Int64List
    both       1: the values; bytes one by one, integers packed
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

import numpy as np

from ul2_tasks.compiled import compiled

_BYTES_LIST, _INT64_LIST, _LENGTH_DELIMITED = 1, 3, 2
_POLYNOMIAL = 0x82F63B78  # of CRC-32C, reflected
_HEADER, _CHECKSUM = struct.Struct("<QI"), struct.Struct("<I")
Value = np.ndarray | Sequence[bytes]


def _crc_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table


_TABLE = _crc_table()


@compiled
def _crc32c(data, table):
    crc = np.uint32(0xFFFFFFFF)
    for byte in data:
        crc = table[(crc ^ byte) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
    return crc ^ np.uint32(0xFFFFFFFF)


def masked_crc32c(data: bytes) -> int:
    """The checksum of a record.

    >>> hex(masked_crc32c(b"123456789"))
    '0xc78ab0e5'
    """
    crc = int(_crc32c(np.frombuffer(data, np.uint8), _TABLE))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def framed(record: bytes) -> bytes:
    """A record as it is in a file."""
    length = struct.pack("<Q", len(record))
    return b"".join((length, _CHECKSUM.pack(masked_crc32c(length)), record, _CHECKSUM.pack(masked_crc32c(record))))


def records_in(file: BinaryIO) -> Iterator[bytes]:
    """The records of a file. Raises a ValueError where one is truncated or altered."""
    while header := file.read(_HEADER.size):
        length, of_length = _HEADER.unpack(header) if len(header) == _HEADER.size else (0, -1)
        if masked_crc32c(header[:8]) != of_length:
            raise ValueError("a record must begin with its length and the checksum of this, got others")
        record, checksum = file.read(length), file.read(_CHECKSUM.size)
        if len(record) != length or len(checksum) != _CHECKSUM.size or _CHECKSUM.unpack(checksum) != (masked_crc32c(record),):
            raise ValueError("a record must have the checksum of its bytes, got another or a part of it")
        yield record


def serialize(features: Mapping[str, Value]) -> bytes:
    """A tf.train.Example of lists of integers, [n] of at least 0, and of bytes, by name."""
    entries = (_field(1, name.encode()) + _field(2, _feature(features[name])) for name in sorted(features))
    return _field(1, b"".join(_field(1, entry) for entry in entries))


def parse(record: bytes) -> dict[str, Value]:
    """The features of a tf.train.Example: [n] int64, or a list of bytes."""
    found: dict[str, Value] = {}
    for _, features in _fields(memoryview(record)):
        for _, entry in _fields(features):
            by_number = dict(_fields(entry))
            for kind, values in _fields(by_number[2]):
                lists = [value for _, value in _fields(values)]
                found[bytes(by_number[1]).decode()] = _integers(b"".join(lists)) if kind == _INT64_LIST else list(map(bytes, lists))
    return found


def _feature(value: Value) -> bytes:
    if isinstance(value, np.ndarray):
        return _field(_INT64_LIST, _field(1, _varints(value)) if len(value) else b"")
    return _field(_BYTES_LIST, b"".join(_field(1, each) for each in value))


def _field(number: int, content: bytes) -> bytes:
    header, left = bytearray([number << 3 | _LENGTH_DELIMITED]), len(content)
    while left > 127:
        header.append(left & 127 | 128)
        left >>= 7
    return bytes(header) + bytes([left]) + content


def _varints(values: np.ndarray) -> bytes:
    """Integers of at least 0, seven bits in a byte, the lowest first; all but the last byte of each have the highest bit."""
    if len(values) and values.min() < 0:
        raise ValueError(f"ids must be at least 0, got {values.min()}. Name a vocabulary without such ids.")
    groups = values.astype(np.uint64)[:, np.newaxis] >> (7 * np.arange(9, dtype=np.uint64))
    is_there = groups > 0
    is_there[:, 0] = True
    more = np.pad(is_there[:, 1:], [(0, 0), (0, 1)])
    return ((groups & np.uint64(127)) | (more.astype(np.uint64) << np.uint64(7))).astype(np.uint8)[is_there].tobytes()


def _integers(packed: bytes) -> np.ndarray:
    """The inverse of `_varints`."""
    found = np.frombuffer(packed, np.uint8)
    ends = np.flatnonzero(found < 128) + 1
    if not len(ends):
        return np.zeros(0, np.int64)
    starts = np.concatenate([[0], ends[:-1]])
    places = np.arange(ends[-1]) - np.repeat(starts, ends - starts)
    return np.add.reduceat((found[: ends[-1]] & 127).astype(np.int64) << (7 * places), starts)


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The fields of a message, each with its number; all are of bytes of some length."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        length, place = _varint(message, place)
        if tag & 7 != _LENGTH_DELIMITED or place + length > len(message):
            raise ValueError("a record must be a tf.train.Example, got other bytes")
        yield tag >> 3, message[place : place + length]
        place += length


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while message[place] > 127:
        value |= (message[place] & 127) << shift
        place, shift = place + 1, shift + 7
    return value | message[place] << shift, place + 1
