"""Whether two tasks read the same text: its fingerprints, as a whole and example by example."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

WINDOW = 16  # tokens that are equal where text is
MAX_FINGERPRINTS = 200_000


class Fingerprints:
    """The distinct hashes of a text, at most `most`.

    If there are more, only those stay that are a multiple of twice the number; so it is the text that decides which,
    and two tasks' can still be compared (Wegman's adaptive sampling; Flajolet, "On adaptive sampling", Computing 43, 1990).
    """

    def __init__(self, every: int, most: int = MAX_FINGERPRINTS):
        self._every = every
        self._most = most
        self._kept = np.array([], np.uint64)
        self._new: list[np.ndarray] = []
        self._new_size = 0

    def add(self, hashes: np.ndarray) -> None:
        """Takes hashes in that are multiples of `every`, [H] uint64."""
        hashes = hashes[hashes % np.uint64(self._every) == 0]
        self._new.append(hashes)
        self._new_size += hashes.size
        if self._new_size > self._most:
            self.kept()

    def kept(self) -> np.ndarray:
        """[at most `most`] uint64, ascending."""
        self._kept = np.unique(np.concatenate([self._kept, *self._new]))
        self._new, self._new_size = [], 0
        while self._kept.size > self._most:
            self._every *= 2
            self._kept = self._kept[self._kept % np.uint64(self._every) == 0]
        return self._kept

    def part_shared(self, other: Fingerprints) -> float | None:
        """The part of the rarer one's that the other has, too."""
        texts = self.kept(), other.kept()
        every = np.uint64(max(self._every, other._every))
        few, many = sorted((text[text % every == 0] for text in texts), key=len)
        return float(np.isin(few, many).mean()) if few.size else None


def fingerprints(tokens: np.ndarray, every: int) -> np.ndarray:
    """Hashes of all windows of `WINDOW` tokens, of which those stay that are a multiple of `every`: equal text, equal hashes.

    (Broder, "On the resemblance and containment of documents", 1997; mixed by MurmurHash3's finalizer.)

    Args:
        tokens: [L] int.
        every: so many windows are one hash, on average.

    Returns:
        [H] uint64, none if L is less than the window.
    """
    tokens = tokens.astype(np.uint64)
    count = max(0, tokens.size - WINDOW + 1)
    hashes = np.zeros(count, np.uint64)
    for offset in range(WINDOW):
        hashes = hashes * np.uint64(0x9E3779B97F4A7C15) + tokens[offset : offset + count]
    for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53, 1):
        hashes = (hashes ^ (hashes >> np.uint64(33))) * np.uint64(multiplier)
    return hashes[hashes % np.uint64(every) == 0]


def pairs_that_share(a: Sequence[np.ndarray], b: Sequence[np.ndarray], shift: int) -> tuple[int, int]:
    """Of the pairs of number i of `a` and number i + shift of `b`, going round: how many share text, and how many have some.

    Args:
        a, b: of as many examples each, the fingerprints, [H] uint64.
        shift: 0 for examples of the same number.
    """
    if not a:
        return 0, 0
    b = [*b[shift:], *b[:shift]]
    numbers = [np.repeat(np.arange(len(texts), dtype=np.uint64), [text.size for text in texts]) for texts in (a, b)]
    # A hash and its number as one hash, so that all pairs are compared at once.
    keys = [np.concatenate(texts) ^ (number * np.uint64(0x9E3779B97F4A7C15)) for texts, number in zip((a, b), numbers)]
    shared = np.unique(numbers[0][np.isin(*keys)]).size
    return shared, sum(bool(ours.size and theirs.size) for ours, theirs in zip(a, b))
