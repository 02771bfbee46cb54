"""Messages of protocol buffers, read and written without their library (protobuf.dev/programming-guides/encoding).

A message is fields. A field is a tag and a value; the tag is the field's number and the wire type of its value: a varint, 8 bytes,
4 bytes, or a length and as many bytes. A varint is an integer with 7 bits in a byte, the lowest first; the highest bit says that
another byte follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np

from ul2_tasks.files.opening import CorruptFileError

VARINT, BYTES = 0, 2  # wire types
_SIZES = {1: 8, 5: 4}  # of the other ones' values
_LEAST_TAG = 1 << 3
_MOST_BYTES = 10  # of a varint
_Message = TypeVar("_Message", bytes, memoryview)


def fields_of(message: _Message) -> Iterator[tuple[int, Any, _Message]]:
    """Yields the fields of a message: the tag, the value, a stretch of the message or an integer, and both as they are in it.

    Bytes that are no message raise a CorruptFileError.
    """
    start, end = 0, len(message)
    value: Any
    while start < end:
        tag, place = message[start], start + 1
        if tag > 0x7F:
            tag, place = _read_varint(message, start)
        wire_type = tag & 7
        if wire_type == VARINT:
            value, stop = _read_varint(message, place)
        else:
            size, place = _read_varint(message, place) if wire_type == BYTES else (_SIZES.get(wire_type, end), place)
            stop = place + size
            value = message[place:stop]
        if stop > end or tag < _LEAST_TAG:
            raise CorruptFileError("it has a field that is none of protobuf's")
        yield tag, value, message[start:stop]
        start = stop


def field(number: int, value: int | bytes) -> bytes:
    """A field of this number: a varint, or a length and as many bytes."""
    if isinstance(value, int):
        return _varint(number << 3 | VARINT) + _varint(value)
    return _varint(number << 3 | BYTES) + _varint(len(value)) + value


def packed(values: np.ndarray) -> bytes:
    """Integers of at least 0, [n], as varints one after the other."""
    groups = values.astype(np.uint64)[:, np.newaxis] >> (7 * np.arange(9, dtype=np.uint64))
    is_there = groups > 0
    is_there[:, 0] = True
    more = np.pad(is_there[:, 1:], [(0, 0), (0, 1)])
    return ((groups & np.uint64(127)) | (more.astype(np.uint64) << np.uint64(7))).astype(np.uint8)[is_there].tobytes()


def unpacked(content: bytes | memoryview) -> np.ndarray:
    """The integers of varints one after the other, [n] int64. One that does not end raises a CorruptFileError.

    >>> unpacked(packed(np.array([0, 300, 2**40])))
    array([            0,           300, 1099511627776])
    """
    found = np.frombuffer(content, np.uint8)
    if not len(found):
        return np.zeros([0], np.int64)
    ends = np.flatnonzero(found < 128) + 1
    starts = np.concatenate([[0], ends[:-1]])
    if found[-1] > 127 or (ends - starts).max() > _MOST_BYTES:
        raise CorruptFileError("it has an integer that does not end")
    places = np.arange(len(found)) - np.repeat(starts, ends - starts)
    return np.add.reduceat((found & 127).astype(np.int64) << (7 * places), starts)


def _read_varint(message: bytes | memoryview, start: int) -> tuple[int, int]:
    """The varint at a place, and the place after it."""
    value = shift = 0
    for place in range(start, min(start + _MOST_BYTES, len(message))):
        byte = message[place]
        if byte < 0x80:
            return value | byte << shift, place + 1
        value |= (byte & 0x7F) << shift
        shift += 7
    raise CorruptFileError("it has an integer that does not end")


def _varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + _varint(value >> 7) if value > 0x7F else bytes([value])
