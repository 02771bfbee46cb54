"""`Attribution`: the tokens of the text that a chat template writes, and the segment and region of each, by their characters.

pieces    <|im_start|>   user\\n     Hi      <|im_end|>
tokens    1              872 198    13048   2
regions   header         header     body    body
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ul2_tasks.chat.skeletons import Piece
from ul2_tasks.tokenizers.tokenizer_json import Marked


class Attributed(NamedTuple):
    """The tokens of a conversation, [tokens]: int32 ids, and the segment and the region of each, int64."""

    ids: np.ndarray
    segments: np.ndarray
    regions: np.ndarray


class Attribution:
    """Tokenizes pieces. `size` is how many ids the tokenizer has."""

    def __init__(self, marked: Marked, size: int):
        self._tokenizer = marked.tokenizer
        self._is_marker = np.zeros(size, bool)
        self._is_marker[[*marked.ids.values()]] = True

    def encode(self, texts: Sequence[Sequence[str]]) -> list[Any]:
        """What the tokenizer gives of conversations, of the texts of their pieces with private names for special tokens."""
        return self._tokenizer.encode_batch(["".join(each) for each in texts], add_special_tokens=False)

    def attribute(self, pieces: Sequence[Piece], texts: Sequence[str], encoded: Any) -> Attributed:
        """The tokens of a conversation. `encoded` is what `encode` gives of its texts.

        Raises a ValueError where a token has characters of two contents.
        """
        ids = np.array(encoded.ids, np.int32)
        numbers = _pieces_of(np.array(encoded.offsets, np.int64).reshape(-1, 2), [*map(len, texts)], pieces)
        # A special token may include white space beside it, also of a content, so its characters do not count.
        numbers[self._is_marker[ids]] = [number for number, piece in enumerate(pieces) if piece.is_marker]
        return Attributed(ids, *np.array([(piece.segment, piece.region) for piece in pieces], np.int64).T[:, numbers])


def _pieces_of(places: np.ndarray, lengths: Sequence[int], pieces: Sequence[Piece]) -> np.ndarray:
    """The number of the piece that each token belongs to.

    A token in several pieces belongs to the content among them; where there is none, to the last. `places` is [tokens, 2], where
    the characters of each token begin and end, and `lengths` are the characters of each piece. Raises a ValueError where a token
    has characters of two messages.
    """
    first, last = np.searchsorted(np.cumsum(lengths), places.T - [[0], [1]], side="right")
    numbers = np.minimum(np.maximum(first, last), len(lengths) - 1)
    for token in np.flatnonzero(first < last):
        touched = range(first[token], last[token] + 1)
        inside = [number for number in touched if pieces[number].hole is not None and lengths[number]]
        if len({pieces[number].segment for number in inside}) > 1:
            raise ValueError("the chat template must write text between two contents, got none, so that they share a token")
        if inside:
            numbers[token] = inside[0]
    return numbers
