"""`Pieces`: documents that are kept apart, each cut into pieces of its own, which have an index.

    documents   | 0                 | 1     | 2                          |     of 568, 90 and 1,200 tokens
    pieces      | 0       | 1       | 2     | 3        | 4     | 5       |     of at most 567 tokens: 284 284 90 400 400 400

A document has the fewest pieces that are short enough, as long as each other but for a token. So their number is that of the
document alone, whatever denoiser reads them, and no piece is a rest of a few tokens. A document without tokens has none.

The lengths of documents lie in the index of the store. Of each group of documents the first piece is kept, and where it begins.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ul2_tasks.compiled import compiled
from ul2_tasks.store.read import MemoryStore, Store

GROUP = 64  # documents
_AT_A_TIME = 1 << 22  # documents


@dataclasses.dataclass(frozen=True, eq=False)
class Pieces:
    """The pieces of a store's documents, of at most `most` tokens each, in the order of the documents.

    `groups` are [groups + 1] int64 each: the pieces, the tokens and the documents before each group, and all. The groups of a pair
    of files begin with its first document; `pairs`, [pairs + 1] int64, are the first groups of each.
    """

    store: MemoryStore | Store
    most: int
    pieces: np.ndarray
    tokens: np.ndarray
    documents: np.ndarray
    pairs: np.ndarray

    @property
    def count(self) -> int:
        """How many there are."""
        return int(self.pieces[-1])

    def tokens_of(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The tokens [start, stop) of each piece among those of the store, [n] int64 each."""
        return self._found(numbers)[:2]

    def documents_of(self, numbers: np.ndarray) -> np.ndarray:
        """The document that each piece is of, [n] int64."""
        return self._found(numbers)[2]

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

    def _found(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        numbers = np.asarray(numbers, np.int64)
        groups = np.searchsorted(self.pieces, numbers, side="right") - 1
        places = numbers - self.pieces[groups]
        starts, stops, documents = np.zeros([3, len(numbers)], np.int64)
        pairs = np.searchsorted(self.pairs, groups, side="right") - 1
        for pair in np.unique(pairs).tolist():
            of = np.flatnonzero(pairs == pair)
            firsts = (groups[of] - self.pairs[pair]) * GROUP
            starts[of], stops[of], documents[of] = _find(self.store.pair_lengths(pair), firsts, places[of], self.most)
            if (stops[of] < 0).any():
                raise ValueError(
                    f"pair {pair} of the corpus must have the document lengths that it had when its dataset was made, got others."
                    " Make the dataset again, because the file was rewritten."
                )
        return starts + self.tokens[groups], stops + self.tokens[groups], documents + self.documents[groups]


def cut_documents(store: MemoryStore | Store, most: int) -> Pieces:
    """Cuts the documents of a store into pieces of at most `most` tokens, without reading their tokens."""
    pieces, tokens, documents, pairs = ([np.zeros([1], np.int64)] for _ in range(4))
    for pair in range(len(store.borders) - 1):
        lengths, groups = store.pair_lengths(pair), 0
        for first in range(0, len(lengths), _AT_A_TIME):
            of_pieces, of_tokens, of_documents = _sums(np.asarray(lengths[first : first + _AT_A_TIME]), most, GROUP)
            pieces.append(of_pieces)
            tokens.append(of_tokens)
            documents.append(of_documents)
            groups += len(of_pieces)
        pairs.append(np.array([groups]))
    return Pieces(store, most, *(np.cumsum(np.concatenate(each)) for each in (pieces, tokens, documents, pairs)))


@compiled
def _sums(lengths, most, group):
    """Of each group of documents of these lengths, [documents] integers: how many pieces, tokens and documents it has, int64."""
    groups = -(-len(lengths) // group)
    pieces, tokens, documents = np.zeros(groups, np.int64), np.zeros(groups, np.int64), np.zeros(groups, np.int64)
    for document in range(len(lengths)):
        length = np.int64(lengths[document])
        pieces[document // group] += -(-length // most)
        tokens[document // group] += length
        documents[document // group] += 1
    return pieces, tokens, documents


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
    """Where pieces are in their groups: their tokens [start, stop), and their documents, [n] int64 each; -1 where one is in none.

    `lengths` are those of the documents of a pair, [documents] integers. `firsts`, [n] int64, are where groups begin; and `places`,
    [n] int64, are which of the pieces of its group each is.
    """
    starts, stops, documents = np.zeros(len(places), np.int64), np.zeros(len(places), np.int64), np.zeros(len(places), np.int64)
    for number in range(len(places)):
        place, document, token = places[number], firsts[number], np.int64(0)
        stops[number] = -1
        while document < len(lengths):
            length = np.int64(lengths[document])
            count = -(-length // most)
            if place < count:
                starts[number], stops[number] = token + length * place // count, token + length * (place + 1) // count
                documents[number] = document - firsts[number]
                break
            place, token, document = place - count, token + length, document + 1
    return starts, stops, documents
