"""`Attribution`: the tokens of the text that a chat template writes, and the segment and region of each.

    pieces    <|im_start|>   user\\n     Hi      <|im_end|>
    tokens    1              872 198    13048   2
    regions   header         header     body    body

Special tokens are single tokens, so the text between two of them is a stretch. In one of a single segment and region all tokens
belong to these. In others, template text comes first, "user\\n", and then a content; the number of tokens of the template text
depends on that text and on two letters of the content, and is cached. So conversations are encoded in batches, and without the
offsets of tokens, which cost more than the encoding. Where a token crosses the border, or text of another segment follows a
content, the offsets of all tokens of the conversation are needed.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ul2_tasks.chat.skeletons import Piece, Skeleton
from ul2_tasks.vocabulary.batches import LONG, encode_all
from ul2_tasks.vocabulary.tokenizer_json import Marked

_REMEMBERED = 1 << 16  # borders
_LOOKED_AHEAD = 2  # letters, by which tokenizers may decide where the text before them is cut


class _Borders(NamedTuple):
    """How many tokens there are up to the end of each of some texts, and the ids of all of these."""

    ends: tuple[int, ...]
    ids: np.ndarray


class Attribution:
    """Tokenizes pieces. `size` is how many ids the tokenizer has."""

    def __init__(self, marked: Marked, size: int):
        self._marked = marked
        self._is_marker = np.zeros(size, bool)
        self._is_marker[[*marked.ids.values()]] = True
        self._borders = functools.lru_cache(_REMEMBERED)(self._find_borders)

    def encode(self, texts: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """The ids of conversations, [tokens] int32 each, of the texts of their pieces with private names for special tokens."""
        return encode_all(self._encode, ["".join(each).encode() for each in texts])

    def labels(self, skeleton: Skeleton, texts: Sequence[str], ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The segment and the region of each token, [tokens] int64.

        `ids` are what `encode` makes of `texts`. Raises a ValueError where a token has characters of two contents, or where
        offsets are needed and the conversation is too long for them.
        """
        numbers = self._by_stretches(skeleton, texts, ids)
        if numbers is None:
            numbers = self._by_places(skeleton.pieces, texts)
        return tuple(np.array([(piece.segment, piece.region) for piece in skeleton.pieces], np.int64).T[:, numbers])

    def _encode(self, texts: Sequence[bytes]) -> list[np.ndarray]:
        encoded = self._marked.tokenizer.encode_batch_fast([text.decode() for text in texts], add_special_tokens=False)
        return [np.array(each.ids, np.int32) for each in encoded]

    def _by_stretches(self, skeleton: Skeleton, texts: Sequence[str], ids: np.ndarray) -> np.ndarray | None:
        """The number of a piece of the segment and region of each token; None where it is not known without places."""
        places = np.flatnonzero(self._is_marker[ids]).tolist()
        if len(places) + 1 != len(skeleton.stretches):
            return None
        numbers = np.empty(len(ids), np.int64)
        for (marker, runs), place, stop in zip(skeleton.stretches, [-1, *places], [*places, len(ids)]):
            start = place + 1
            if marker is not None:
                numbers[place] = marker
            if not runs:
                if start < stop:
                    return None
                continue
            if any(skeleton.pieces[number].hole is not None for run in runs[:-1] for number in run):
                return None
            if len(runs) > 1:
                following = "".join([texts[number] for number in runs[-1]])[:_LOOKED_AHEAD]
                before = "" if marker is None else texts[marker]
                borders = self._borders(before, tuple("".join([texts[number] for number in run]) for run in runs[:-1]), following)
                if borders is None or ids[start:stop][: len(borders.ids)].tobytes() != borders.ids.tobytes():
                    return None
                for run, end in zip(runs, borders.ends):
                    numbers[start : place + 1 + end] = run[0]
                    start = place + 1 + end
            numbers[start:stop] = runs[-1][0]
        return numbers

    def _find_borders(self, marker: str, texts: tuple[str, ...], following: str) -> _Borders | None:
        """None where a token lies over the end of a text."""
        encoded = self._marked.tokenizer.encode("".join((marker, *texts, following)), add_special_tokens=False)
        given = bool(marker)  # a token
        places = encoded.offsets[given:]
        counts = []
        for end in itertools.accumulate(map(len, texts[1:]), initial=len(marker) + len(texts[0])):
            counts.append(sum(stop <= end for _, stop in places))
            if any(begin < end for begin, _ in places[counts[-1] :]):
                return None
        return _Borders(tuple(counts), np.array(encoded.ids[given : given + counts[-1]], np.int32))

    def _by_places(self, pieces: Sequence[Piece], texts: Sequence[str]) -> np.ndarray:
        text = "".join(texts)
        if len(text) > LONG:
            raise ValueError(
                f"the conversation must have at most {LONG:,} characters, because the chat template writes no special token between"
                f" its texts, got {len(text):,}. Leave it out, or use a template with special tokens"
            )
        encoded = self._marked.tokenizer.encode(text, add_special_tokens=False)
        numbers = _pieces_of(np.array(encoded.offsets, np.int64).reshape(-1, 2), [*map(len, texts)], pieces)
        # A special token may include white space beside it, also of a content, so its offset does not count.
        is_marker = self._is_marker[np.array(encoded.ids, np.int32)]
        numbers[is_marker] = [number for number, piece in enumerate(pieces) if piece.is_marker]
        return numbers


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
