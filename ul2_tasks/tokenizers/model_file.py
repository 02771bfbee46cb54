"""The pieces in the file of a SentencePiece model, read and changed without protobuf. All else in it is kept byte for byte.

The file is a message in protobuf's wire format (protobuf.dev/programming-guides/encoding). Of its fields these matter here:

    ModelProto     1 pieces: SentencePiece, repeated     2 trainer_spec     ..
    SentencePiece  1 piece, its name     2 score     3 type, which is NORMAL where it is absent
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ul2_tasks.files.protobuf import BYTES, VARINT, field, fields_of

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # types of pieces

_PIECE = _NAME = 1 << 3 | BYTES  # tags
_TYPE = 3 << 3 | VARINT


class Pieces(NamedTuple):
    """The pieces of a model by id."""

    names: tuple[str, ...]
    types: tuple[int, ...]


@functools.lru_cache(maxsize=4)
def read_pieces(model: bytes) -> Pieces:
    """The pieces of a model. Raises a ValueError where the file is no model, or has no piece."""
    names_and_types = [_name_and_type(piece) for tag, piece, _ in fields_of(model) if tag == _PIECE]
    if not names_and_types:
        raise ValueError("it has no piece")
    return Pieces(*zip(*names_and_types))


def with_pieces(model: bytes, types: Mapping[int, int], added: Iterable[tuple[str, int]] = ()) -> bytes:
    """A model with other types of pieces, by id, and with more pieces after the last one, each by its name and type.

    The bytes are those that protobuf would write.
    """
    fields = [*fields_of(model)]
    pieces = [piece for tag, piece, _ in fields if tag == _PIECE]
    for id, type in types.items():
        own = [(tag, whole) for tag, _, whole in fields_of(pieces[id]) if tag != _TYPE]
        before, after = ([whole for tag, whole in own if (tag < _TYPE) == is_before] for is_before in (True, False))
        pieces[id] = b"".join([*before, field(3, type), *after])
    pieces += [field(1, name.encode()) + field(3, type) for name, type in added]
    others = (whole for tag, _, whole in fields if tag != _PIECE)
    return b"".join([*(field(1, piece) for piece in pieces), *others])


def _name_and_type(piece: bytes) -> tuple[str, int]:
    name, type = b"", NORMAL
    for tag, value, _ in fields_of(piece):
        if tag == _NAME:
            name = value
        elif tag == _TYPE and NORMAL <= value <= BYTE:
            type = value
    return name.decode(), type
