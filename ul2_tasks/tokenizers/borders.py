"""Where words, lines and sentences may begin in a text of tokens, as the tokens tell it, without the text."""

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


@functools.lru_cache(maxsize=16)
def border_table(vocabulary: Vocabulary, of: str) -> bytes:
    """The bits of each id, and 0 for those beyond: a byte each. An EOS is a border on both sides.

    Raises a ValueError where no token of the vocabulary tells where one begins.
    """
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


def are_borders(table: bytes, ids: np.ndarray) -> np.ndarray:
    """Whether one may begin at each token but the first, [tokens - 1] bool."""
    bits = np.frombuffer(table, np.uint8)[ids]
    return ((bits[:-1] & AFTER) > 0) | (((bits[:-1] & BEFORE) > 0) & ((bits[1:] & AT) > 0))
