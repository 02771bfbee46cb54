"""Encodes many texts at once, at the speed of the tokenizer's own library, and long ones in parts.

TensorFlow's SentencePiece op costs twice as much as the same library called from Python with a list, and for a single short text
several times as much. SentencePiece works in the thread that calls it, and lets other threads of Python run; `tokenizers` uses all
cores, unless the environment has TOKENIZERS_PARALLELISM=false.

A tokenizer needs 20 to 300 bytes of memory for each byte of a text. So a text of more than `LONG` bytes is cut into parts, at
spaces where the tokenizer itself cuts: the ids of some thousand bytes around the cut are the same in one piece and in two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ul2_tasks.tokenizers.base import Vocabulary

LONG = 1 << 22  # bytes of a text, or of a part of it
_AROUND = 2000  # bytes on each side of a cut that are encoded to see whether it can be made
_TRIED = 200  # spaces, before a part is left as long as it is

Encode = Callable[[Sequence[bytes]], list[np.ndarray]]


def encode_batch(vocabulary: Vocabulary, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Encodes texts, which are UTF-8: [tokens] int32, the ids of one after the other's; and [texts] int64, how many each has.

    The ids of a text longer than `LONG` are those of its parts. They differ from those of the whole where a Unigram model's
    scores, which SentencePiece adds up in 32 bits, are too large to tell one segmentation from another.

    >>> from ul2_tasks import open_vocabulary
    >>> encode_batch(open_vocabulary("bytes"), [b"ab", b"", b"c"])
    (array([100, 101, 102], dtype=int32), array([2, 0, 1]))
    """
    encode = vocabulary.encode_batch
    if max(map(len, texts), default=0) <= LONG:
        found = encode(texts)
    else:
        found = [np.concatenate([encode([part])[0] for part in _parts(encode, text)]) for text in texts]
    return np.concatenate([np.zeros([0], np.int32), *found]), np.array([len(ids) for ids in found], np.int64)


def _parts(encode: Encode, text: bytes) -> Iterator[bytes]:
    """Parts of a text whose ids are, one part's after the other's, those of the text. Most are shorter than `LONG`."""
    start = 0
    while len(text) - start > LONG:
        found = _cut(encode, text, start, start + LONG - _AROUND)
        if found is None:
            break
        end, start_of_next = found
        yield text[start:end]
        start = start_of_next
    yield text[start:]


def _cut(encode: Encode, text: bytes, start: int, place: int) -> tuple[int, int] | None:
    """Where a part ends and the next one begins: at a space near `place`, which is theirs or neither's; None where none will do.

    A tokenizer that puts a space before each text would have it twice, so the next part may begin after the space.
    """
    for _ in range(_TRIED):
        place = text.rfind(b" ", start + _AROUND, place)
        if place < 0:
            return None
        before, after = text[place - _AROUND : place], text[place : place + _AROUND]
        # Whole characters: from the first space to the last one, if there are others than that of the cut.
        before, after = before[before.find(b" ") :] if b" " in before else b"", after[: after.rfind(b" ")]
        if not before or not after:
            continue
        whole, left, right, bare_right = encode([before + after, before, after, after[1:]])
        for begin, ids in ((place, right), (place + 1, bare_right)):
            if np.array_equal(whole, np.concatenate([left, ids])):
                return place, begin
    return None
