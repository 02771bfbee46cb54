"""Whether two tasks read the same text, by its fingerprints: in all examples, and in those of the same number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

WINDOW = 16  # tokens: two texts share a passage if so many tokens in a row are equal
MAX_FINGERPRINTS = 200_000  # of a task


class Fingerprints:
    """A sample of the distinct hashes of a text, at most `most` of them.

    It keeps the hashes that are a multiple of `every`. When it has more than `most`, it doubles `every`. So a hash is kept or
    dropped whatever else is in the text, and the samples of two tasks can be compared (Wegman's adaptive sampling; Flajolet,
    "On adaptive sampling", Computing 43, 1990).
    """

    def __init__(self, every: int, most: int = MAX_FINGERPRINTS):
        self._every = every
        self._most = most
        self._kept = np.array([], np.uint64)
        self._new: list[np.ndarray] = []
        self._new_size = 0

    def add(self, hashes: np.ndarray) -> None:
        """Adds hashes, [H] uint64."""
        hashes = hashes[hashes % np.uint64(self._every) == 0]
        self._new.append(hashes)
        self._new_size += hashes.size
        if self._new_size > self._most:
            self.kept()

    def kept(self) -> np.ndarray:
        """The hashes in the sample, [at most `most`] uint64, ascending."""
        self._kept = np.unique(np.concatenate([self._kept, *self._new]))
        self._new, self._new_size = [], 0
        while self._kept.size > self._most:
            self._every *= 2
            self._kept = self._kept[self._kept % np.uint64(self._every) == 0]
        return self._kept

    def part_shared(self, other: Fingerprints) -> float | None:
        """The part of the smaller sample that the other one has, too; None if one is empty."""
        texts = self.kept(), other.kept()
        every = np.uint64(max(self._every, other._every))
        few, many = sorted((text[text % every == 0] for text in texts), key=len)
        return float(np.isin(few, many).mean()) if few.size else None


def fingerprints(tokens: np.ndarray, every: int) -> np.ndarray:
    """The hashes of all windows of `WINDOW` tokens that are a multiple of `every`, so that equal text has equal hashes.

    See Broder, "On the resemblance and containment of documents", 1997. Hashes are mixed by the finalizer of MurmurHash3. On
    average, one of so many windows is kept: [H] uint64, empty if there are fewer tokens than `WINDOW`.
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
    """How many pairs of examples, number i of `a` and number i + shift (modulo their number) of `b`, share text.

    `a` and `b` are the fingerprints of equally many examples, [H] uint64 each. Also returns in how many pairs both have one.
    """
    if not a:
        return 0, 0
    b = [*b[shift:], *b[:shift]]
    numbers = [np.repeat(np.arange(len(texts), dtype=np.uint64), [text.size for text in texts]) for texts in (a, b)]
    # A hash and the number of its example make one hash, so that all pairs are compared at once.
    keys = [np.concatenate(texts) ^ (number * np.uint64(0x9E3779B97F4A7C15)) for texts, number in zip((a, b), numbers)]
    shared = np.unique(numbers[0][np.isin(*keys)]).size
    return shared, sum(bool(ours.size and theirs.size) for ours, theirs in zip(a, b))
