"""The pieces in the file of a SentencePiece model, read and changed without protobuf. All else in it is kept byte for byte.

The file is a message in protobuf's wire format (protobuf.dev/programming-guides/encoding). Of its fields these matter here:

    ModelProto     1 pieces: SentencePiece, repeated     2 trainer_spec     ..
    SentencePiece  1 piece, its name     2 score     3 type, which is NORMAL where it is absent

A field is a tag and a value. The tag is the field's number and the wire type of its value: a varint, 8 bytes, 4 bytes, or a length
and as many bytes. A varint is an integer with 7 bits in a byte, the lowest first; the highest bit says that another byte follows.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # types of pieces

_VARINT, _BYTES = 0, 2  # wire types
_SIZES = {1: 8, 5: 4}  # of the other ones' values
_PIECE = _NAME = 1 << 3 | _BYTES  # tags
_TYPE = 3 << 3 | _VARINT
_LEAST_TAG = 1 << 3
_MOST_BYTES = 10  # of a varint


class Pieces(NamedTuple):
    """The pieces of a model by id."""

    names: tuple[str, ...]
    types: tuple[int, ...]


@functools.lru_cache(maxsize=4)
def read_pieces(model: bytes) -> Pieces:
    """The pieces of a model. Raises a ValueError where the file is no model, or has no piece."""
    names_and_types = [_name_and_type(piece) for tag, piece, _ in _fields(model) if tag == _PIECE]
    if not names_and_types:
        raise ValueError("it has no piece")
    return Pieces(*zip(*names_and_types))


def with_pieces(model: bytes, types: Mapping[int, int], added: Iterable[tuple[str, int]] = ()) -> bytes:
    """A model with other types of pieces, by id, and with more pieces after the last one, each by its name and type.

    The bytes are those that protobuf would write.
    """
    fields = [*_fields(model)]
    pieces = [piece for tag, piece, _ in fields if tag == _PIECE]
    for id, type in types.items():
        own = [(tag, whole) for tag, _, whole in _fields(pieces[id]) if tag != _TYPE]
        before, after = ([whole for tag, whole in own if (tag < _TYPE) == is_before] for is_before in (True, False))
        pieces[id] = b"".join([*before, _varint(_TYPE), _varint(type), *after])
    pieces += [_sized(_NAME, name.encode()) + _varint(_TYPE) + _varint(type) for name, type in added]
    others = (whole for tag, _, whole in fields if tag != _PIECE)
    return b"".join([*(_sized(_PIECE, piece) for piece in pieces), *others])


def _name_and_type(piece: bytes) -> tuple[str, int]:
    name, type = b"", NORMAL
    for tag, value, _ in _fields(piece):
        if tag == _NAME:
            name = value
        elif tag == _TYPE and NORMAL <= value <= BYTE:
            type = value
    return name.decode(), type


def _fields(message: bytes) -> Iterator[tuple[int, Any, bytes]]:
    """Yields the fields of a message: the tag, the value, bytes or an integer, and both as they are in it."""
    start, end = 0, len(message)
    value: Any
    while start < end:
        tag, place = message[start], start + 1
        if tag > 0x7F:
            tag, place = _read_varint(message, start)
        wire_type = tag & 7
        if wire_type == _VARINT:
            value, stop = _read_varint(message, place)
        else:
            size, place = _read_varint(message, place) if wire_type == _BYTES else (_SIZES.get(wire_type, end), place)
            stop = place + size
            value = message[place:stop]
        if stop > end or tag < _LEAST_TAG:
            raise ValueError("it has a field that is none of protobuf's")
        yield tag, value, message[start:stop]
        start = stop


def _read_varint(message: bytes, start: int) -> tuple[int, int]:
    """The varint at a place, and the place after it."""
    value = shift = 0
    for place in range(start, min(start + _MOST_BYTES, len(message))):
        byte = message[place]
        if byte < 0x80:
            return value | byte << shift, place + 1
        value |= (byte & 0x7F) << shift
        shift += 7
    raise ValueError("it has an integer that does not end")


def _varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + _varint(value >> 7) if value > 0x7F else bytes([value])


def _sized(tag: int, value: bytes) -> bytes:
    return _varint(tag) + _varint(len(value)) + value
