"""The bytes that each token adds to a text.

`vocabulary.decode` is for whole texts. From a part of a text it drops the leading space, and half a character becomes U+FFFD or
nothing. So here each token is decoded on its own, after a letter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ul2_tasks.tokenizers.base import Vocabulary

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def text_bytes(vocabulary: Vocabulary, ids: Iterable[int]) -> dict[int, bytes]:
    """The bytes that each id adds to a text; none if it adds none, or if they cannot be known."""
    known = {id: data for id in ids if (data := vocabulary.bytes_of(id)) is not None}
    letter = vocabulary.encode("a")
    before = vocabulary.decode(letter)

    def added(id: int) -> bytes:
        text = vocabulary.decode([*letter, id])
        text = text[len(before) :] if text.startswith(before) else vocabulary.decode([id])
        name = vocabulary.id_to_piece(id)
        if _REPLACEMENT not in text or _REPLACEMENT in name:
            return text.encode()
        spelled = (_spelled_in_hexadecimal(name), _spelled_in_letters(name))
        return next((data for data in spelled if data and data.decode(errors="replace") == text), b"")

    return {id: known[id] if id in known else added(id) for id in ids}


def _spelled_in_hexadecimal(name: str) -> bytes | None:
    """The byte of a piece such as "<0xE6>", which models with byte fallback have; None for other pieces."""
    found = re.fullmatch("<0x([0-9A-F]{2})>", name)
    return bytes.fromhex(found[1]) if found else None


def _spelled_in_letters(name: str) -> bytes | None:
    """The bytes of a piece of a byte-level tokenizer such as GPT-2's, which writes each byte as a letter; None for other pieces.

    The letter of a visible byte is the byte itself; the other bytes have letters from U+0100 on.
    """
    return bytes(_LETTERS[letter] for letter in name) if _LETTERS.keys() >= {*name} else None


_VISIBLE = (*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1))
_INVISIBLE = [byte for byte in range(256) if byte not in _VISIBLE]
_LETTERS = {chr(byte): byte for byte in _VISIBLE} | {chr(256 + number): byte for number, byte in enumerate(_INVISIBLE)}
