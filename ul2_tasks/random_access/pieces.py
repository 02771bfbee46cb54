"""`Pieces`: documents that are kept apart, each cut into pieces of its own, which have an index.

    documents   | 0                 | 1     | 2                          |     of 568, 90 and 1,200 tokens
    pieces      | 0       | 1       | 2     | 3        | 4     | 5       |     of at most 567 tokens: 284 284 90 400 400 400

A document has the fewest pieces that are short enough, as long as each other but for a token. So their number is that of the
document alone, whatever denoiser reads them, and no piece is a rest of a few tokens. A document without tokens has none.

The lengths of documents lie in the index of the store. Of each group of documents the first piece is kept, and where it begins.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np

from ul2_tasks.compiled import compiled
from ul2_tasks.order.ranges import expanded
from ul2_tasks.store.read import MemoryStore, Store

GROUP = 64  # documents
_FNV = 0x100000001B3
_AT_A_TIME = 1 << 22  # documents


@dataclasses.dataclass(frozen=True, eq=False)
class Pieces:
    """The pieces of a store's documents, of at most `most` tokens each, in the order of the documents.

    `groups` are [groups + 1] int64 each: the pieces, the tokens and the documents before each group, and all. The groups of a pair
    of files begin with its first document; `pairs`, [pairs + 1] int64, are the first groups of each. `lengths_hash` is of the
    lengths of all documents.
    """

    store: MemoryStore | Store
    most: int
    pieces: np.ndarray
    tokens: np.ndarray
    documents: np.ndarray
    pairs: np.ndarray
    lengths_hash: int = 0

    @property
    def count(self) -> int:
        """How many there are."""
        return int(self.pieces[-1])

    def tokens_of(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The tokens [start, stop) of each piece among those of the store, [n] int64 each."""
        numbers = np.asarray(numbers, np.int64)
        groups = np.searchsorted(self.pieces, numbers, side="right") - 1
        starts, stops = np.zeros([2, len(numbers)], np.int64)
        for pair, of in self._by_pair(groups):
            own = groups[of]
            within = (own - self.pairs[pair]) * GROUP, numbers[of] - self.pieces[own]
            starts[of], stops[of] = _find(self.store.pair_lengths(pair), *within, self.most)
            if (stops[of] < 0).any():
                raise ValueError(
                    f"pair {pair} of the corpus must have the document lengths that it had when its dataset was made, got others."
                    " Make the dataset again, because the file was rewritten."
                )
        return starts + self.tokens[groups], stops + self.tokens[groups]

    def of_documents(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The first piece of each document, of [n] int64, and the one after its last, [n] int64 both."""
        starts, stops = self.store.ranges_of(documents)
        groups = np.searchsorted(self.documents, documents, side="right") - 1
        firsts = np.zeros_like(documents)
        pairs = np.searchsorted(self.pairs, groups, side="right") - 1
        for pair in np.unique(pairs).tolist():
            of = np.flatnonzero(pairs == pair)
            in_pair = (groups[of] - self.pairs[pair]) * GROUP
            firsts[of] = _before(self.store.pair_lengths(pair), in_pair, documents[of] - self.documents[groups[of]], self.most)
        firsts += self.pieces[groups]
        return firsts, firsts + -(-(stops - starts) // self.most)

    def with_tokens(self, starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ranges of pieces that have some tokens of ranges, each of one document, [n] int64 both."""
        documents = [self.store.documents_at(*each)[0] for each in zip(starts.tolist(), stops.tolist())]
        of, pieces = expanded(np.arange(len(starts)), *self.of_documents(np.array(documents, np.int64)))
        firsts, lasts = self.tokens_of(pieces)
        found = np.unique(pieces[(firsts < stops[of]) & (starts[of] < lasts)])
        return found, found + 1

    def _by_pair(self, groups: np.ndarray) -> Iterator[tuple[int, np.ndarray | slice]]:
        """The pairs that have some of the groups, and which these are."""
        if len(self.pairs) == 2:
            yield 0, slice(None)
            return
        pairs = np.searchsorted(self.pairs, groups, side="right") - 1
        by_pair = np.argsort(pairs, kind="stable")
        borders = np.flatnonzero(np.diff(pairs[by_pair], prepend=-1, append=len(self.pairs)))
        for first, stop in itertools.pairwise(borders.tolist()):
            yield int(pairs[by_pair[first]]), by_pair[first:stop]


def cut_documents(store: MemoryStore | Store, most: int) -> Pieces:
    """Cuts the documents of a store into pieces of at most `most` tokens, without reading their tokens."""
    pieces, tokens, documents, pairs = ([np.zeros([1], np.int64)] for _ in range(4))
    hashed = 0
    for pair in range(len(store.borders) - 1):
        lengths, groups = store.pair_lengths(pair), 0
        for first in range(0, len(lengths), _AT_A_TIME):
            of_pieces, of_tokens, of_documents, hashed = _sums(
                np.asarray(lengths[first : first + _AT_A_TIME]), most, GROUP, np.uint64(hashed)
            )
            pieces.append(of_pieces)
            tokens.append(of_tokens)
            documents.append(of_documents)
            groups += len(of_pieces)
        pairs.append(np.array([groups]))
    sums = [np.cumsum(np.concatenate(each)) for each in (pieces, tokens, documents, pairs)]
    return Pieces(store, most, sums[0], sums[1], sums[2], sums[3], int(hashed))


@compiled
def _sums(lengths, most, group, hashed):
    """Of each group of documents of these lengths, [documents] integers: how many pieces, tokens and documents it has, int64.

    And a hash of the lengths, which goes on from the one that is given: FNV-1a's, of whole lengths.
    """
    groups = -(-len(lengths) // group)
    pieces, tokens, documents = np.zeros(groups, np.int64), np.zeros(groups, np.int64), np.zeros(groups, np.int64)
    for document in range(len(lengths)):
        length = np.int64(lengths[document])
        pieces[document // group] += -(-length // most)
        tokens[document // group] += length
        documents[document // group] += 1
        hashed = (hashed ^ np.uint64(length)) * np.uint64(_FNV)
    return pieces, tokens, documents, hashed


@compiled
def _before(lengths, firsts, places, most):
    """How many pieces come before documents in their groups, [n] int64: for `lengths` and `firsts` see `_find`.

    `places`, [n] int64, are which of its group's each document is.
    """
    found = np.zeros(len(places), np.int64)
    for number in range(len(places)):
        for document in range(firsts[number], firsts[number] + places[number]):
            found[number] += -(-np.int64(lengths[document]) // most)
    return found


@compiled
def _find(lengths, firsts, places, most):
    """Where pieces are in their groups: their tokens [start, stop), [n] int64 each; -1 where one is in none.

    `lengths` are those of the documents of a pair, [documents] integers. `firsts`, [n] int64, are where groups begin; and `places`,
    [n] int64, are which of the pieces of its group each is.
    """
    starts, stops = np.zeros(len(places), np.int64), np.zeros(len(places), np.int64)
    inverse = 1 / most
    for number in range(len(places)):
        place, document, token = places[number], firsts[number], np.int64(0)
        stops[number] = -1
        while document < len(lengths):
            length = np.int64(lengths[document])
            count = np.int64((length + most - 0.5) * inverse)  # length / most, rounded up: exact for lengths of 32 bits
            if place < count:
                first, stop = (0, length) if count == 1 else (length * place // count, length * (place + 1) // count)
                starts[number], stops[number] = token + first, token + stop
                break
            place, token, document = place - count, token + length, document + 1
    return starts, stops
