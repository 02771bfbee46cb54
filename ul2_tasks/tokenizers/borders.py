"""Where words, lines, sentences and characters may begin in a text of tokens, as the tokens tell it, without the text."""

from __future__ import annotations

import functools
import re

import numpy as np

from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.text_bytes import text_bytes

# Bits of a token: one may begin after it, if the next token says so, too; it begins one; one begins after it whatever comes.
BEFORE, AT, AFTER = 1, 2, 4
_END = r"[.!?…][\"'”’»)\]]*"
_PATTERNS = {
    "words": ("", r"\s", r"\s\Z"),
    "lines": ("", r"\n\s*\S", r"\n\s*\Z"),
    "sentences": (rf"{_END}\Z", r"\s", rf"{_END}\s+\Z|[。！？]\Z|\n\s*\Z"),
}
BORDERS = tuple(_PATTERNS)
CHARACTERS = "characters"


@functools.lru_cache(maxsize=16)
def border_table(vocabulary: Vocabulary, of: str) -> bytes:
    """The bits of each id, and 0 for those beyond: a byte each. An EOS is a border on both sides.

    Of "characters" it is what `halves_in` reads. Raises a ValueError where no token of the vocabulary tells where one begins.
    """
    if of == CHARACTERS:
        return _halves(vocabulary)
    before, at, after = map(re.compile, _PATTERNS[of])
    table = bytearray(vocabulary.vocab_size + 1)
    ordinary = [id for id in range(vocabulary.vocab_size) if vocabulary.is_ordinary(id)]
    for id, data in text_bytes(vocabulary, ordinary).items():
        text = data.decode(errors="replace")
        if text:
            table[id] = BEFORE * bool(before.search(text)) + AT * bool(at.match(text)) + AFTER * bool(after.search(text))
    if not any(bits & (AT | AFTER) for bits in table):
        raise ValueError(f"borders must be told by tokens of {vocabulary}, got {of!r}, of which none tells. Leave borders out.")
    if vocabulary.eos_id is not None:
        table[vocabulary.eos_id] = BEFORE | AT | AFTER
    return bytes(table)


def _halves(vocabulary: Vocabulary) -> bytes:
    """Of each character that begins in a token, the ids of the token's halves before and after it.

    Where a half is no token it is the nearest character whose halves are. One is -1 where that is the token's beginning or end.
    """
    found = text_bytes(vocabulary, [id for id in range(vocabulary.vocab_size) if vocabulary.is_ordinary(id)])
    ids = {data: id for id, data in found.items()}  # a byte's own token comes before that of a character
    firsts, halves = [0], list[tuple[int, int]]()
    for id in range(vocabulary.vocab_size + 1):
        data = found.get(id, b"")
        begins = [at for at, byte in enumerate(data) if byte & 0xC0 != 0x80]
        may = {at: (ids[data[:at]], ids[data[at:]]) for at in begins if at and data[:at] in ids and data[at:] in ids}
        may = (may if ids.get(data) == id else {}) | ({0: (-1, id)} if begins[:1] == [0] else {})
        if not may or data[begins[-1] :].decode(errors="ignore"):
            may[len(data)] = id, -1
        halves += [may.get(at) or may[min(may, key=lambda each: (abs(each - at), each))] for at in begins]
        firsts.append(len(halves))
    return np.array([len(firsts), *firsts, *np.array(halves, np.int32).flatten()], "<i4").tobytes()


def halves_in(table: bytes) -> tuple[np.ndarray, np.ndarray]:
    """The first of the halves of each id, [ids + 2] int32, and all of them, [n, 2] int32; see `_halves`."""
    values = np.frombuffer(table, "<i4").astype(np.int32)
    return values[1 : values[0] + 1], values[values[0] + 1 :].reshape(-1, 2)


def are_borders(table: bytes, ids: np.ndarray) -> np.ndarray:
    """Whether one may begin at each token but the first, [tokens - 1] bool."""
    bits = np.frombuffer(table, np.uint8)[ids]
    return ((bits[:-1] & AFTER) > 0) | (((bits[:-1] & BEFORE) > 0) & ((bits[1:] & AT) > 0))
