"""`Store`: files of tokens, such as pairs of `.bin` and `.idx`, as one long list of documents, and as one long stream of tokens."""

from __future__ import annotations

import bisect
import collections
import functools
import hashlib
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ul2_tasks.cached import cached_property
from ul2_tasks.files.systems import is_local, parallel_map, size, sizes
from ul2_tasks.order.ranges import expanded
from ul2_tasks.store.arrays import Array, MemoryArray, most_open, open_array, read_joined, read_ranges
from ul2_tasks.store.index import Index
from ul2_tasks.store.provenance import Provenance, provenance_of_pairs
from ul2_tasks.store.samples import sampled_hash
from ul2_tasks.store.token_formats import MEGATRON, TokenFormat

_MOST_INDEXES = 1 << 12  # of all stores, if a process may have so many open files
_used: collections.OrderedDict[tuple[weakref.ref[Store], int], None] = collections.OrderedDict()  # indexes, the last at the end
_lock = threading.Lock()
_Of = TypeVar("_Of")
_Pair = TypeVar("_Pair")


class TokenStore(Protocol):
    """Documents of tokens that can be read at any place: a `Store`, or a `MemoryStore`. Their provenance may not be known."""

    provenance: Provenance | None

    @property
    def is_mask(self) -> bool:
        """Of weights of tokens, whether they are 0 and 1 in bytes, and not the bits of float32."""
        return False

    @property
    def documents(self) -> int:
        """How many there are."""

    @property
    def tokens(self) -> int:
        """How many there are."""

    def read_chunks(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        """Reads many ranges of tokens at once.

        Range i has the tokens [starts[i], stops[i]), both [n] int64. Gives [tokens] int32, one range's after the other's.
        """

    def read_tokens(self, start: int, stop: int) -> np.ndarray:
        """The tokens [start, stop) of all documents back to back, [stop - start] int32."""
        return self.read_chunks(np.array([start]), np.array([stop]))

    def read_values(self, start: int, stop: int) -> np.ndarray:
        """The tokens [start, stop) as they lie in the files, whatever their dtype. They may be a view of a memory map."""

    def read_documents(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Some documents, in any order: [tokens] int32, document after document, and [n] int64, how many each has."""
        starts, stops = self.ranges_of(numbers)
        return self.read_chunks(starts, stops), stops - starts

    def read_each(self, numbers: np.ndarray) -> list[np.ndarray]:
        """All tokens of each of some documents, whatever their dtype."""
        return [self.read_values(start, stop) for start, stop in zip(*(ends.tolist() for ends in self.ranges_of(numbers)))]

    def document_lengths(self, first: int, stop: int) -> np.ndarray:
        """How many tokens each of the documents [first, stop) has, [stop - first] int64."""

    def documents_at(self, start: int, stop: int) -> tuple[int, int]:
        """The documents that have some of the tokens [start, stop), at least one token: the first, and the one after the last."""

    def ranges_of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The tokens [start, stop) of documents, [n] integers in any order, among those of all back to back, [n] int64 both."""

    def tokens_of(self, document: int) -> tuple[int, int]:
        """The same of one document."""
        if not 0 <= document < self.documents:
            raise IndexError(f"document must be from 0 to {self.documents - 1}, got {document}.")
        (start,), (stop,) = self.ranges_of(np.array([document]))
        return int(start), int(stop)


class MemoryStore(TokenStore):
    """Documents of tokens in memory: [tokens] int32, one document's after the other's, and [documents] int64, the lengths.

    No length is below 1.
    """

    provenance: Provenance | None = None

    def __init__(self, tokens: np.ndarray, lengths: np.ndarray):
        self._tokens, self._ends = np.ascontiguousarray(tokens), np.cumsum(lengths)
        self._lengths = np.diff(self._ends, prepend=0)
        self.borders = np.array([0, len(self._ends)])  # see `Store`, also for the methods

    @property
    def documents(self) -> int:
        return len(self._ends)

    @property
    def tokens(self) -> int:
        return len(self._tokens)

    def read_chunks(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        return read_joined([MemoryArray(self._tokens)], np.zeros_like(starts), starts, stops)

    def read_values(self, start: int, stop: int) -> np.ndarray:
        return self._tokens[start:stop]

    def documents_at(self, start: int, stop: int) -> tuple[int, int]:
        first, last = np.searchsorted(self._ends, [start, stop - 1], side="right").tolist()
        return first, last + 1

    def ranges_of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._ends[documents] - self._lengths[documents], self._ends[documents]

    def document_lengths(self, first: int, stop: int) -> np.ndarray:
        _check_documents(first, stop, self.documents)
        return self._lengths[first:stop]

    def pair_lengths(self, pair: int) -> np.ndarray:
        return self._lengths

    def values(self, pair: int) -> np.ndarray:
        return self._tokens

    def places(self, pair: int) -> np.ndarray:
        return self._places

    # Of all documents, so not made again for each batch.
    @cached_property
    def _places(self) -> np.ndarray:
        return (self._ends - self._lengths) * self._tokens.itemsize


class _Places(NamedTuple):
    """Where documents lie, [n] int64 each: the pair, their number in it, and their tokens [start, stop) in its file of tokens."""

    pairs: np.ndarray
    numbers: np.ndarray
    starts: np.ndarray
    stops: np.ndarray


class Store(TokenStore):
    """Tokenized documents in files. Opens no file yet; each is opened when something of it is read.

    Each prefix names a pair, PREFIX.bin and PREFIX.idx, or a file of another format; they are in the order of the documents.
    `documents` and `tokens` are how many each has. `provenance` says where they are from, if that is known. Where each document
    ends with the token `end`, documents are read without it; as a stream, with it, `whole` is read. Ids that are not below `ids`,
    if that is given, are refused where documents are read.
    """

    def __init__(
        self,
        prefixes: Sequence[str],
        documents: ArrayLike,
        tokens: ArrayLike,
        provenance: Provenance | None = None,
        *,
        end: int | None = None,
        ids: int | None = None,
        format: TokenFormat = MEGATRON,
    ):
        self.prefixes = tuple(prefixes)
        self.borders = np.concatenate([[0], np.cumsum(np.asarray(documents, np.int64))])
        """The first document of each pair, and at the end how many there are, [pairs + 1] int64."""
        self._token_starts = np.concatenate([[0], np.cumsum(np.asarray(tokens, np.int64))])
        self.provenance, self.end, self.ids, self.format = provenance, end, ids, format
        self._values: dict[int, Array] = {}
        self._pairs: dict[int, np.ndarray] = {}
        self._indexes: dict[int, Index] = {}
        self._ref = weakref.ref(self)

    @classmethod
    def open(cls, prefixes: Sequence[str], format: TokenFormat = MEGATRON) -> Store:
        """Of files whose counts are not known, and that others may have written: reads the index of each, and checks it."""
        found = _of_pairs(functools.partial(_counts, format=format), prefixes, prefixes)
        for (_, _, file, path, expected), present in zip(found, sizes([each[2] for each in found])):
            _check_size(file, path, expected, present)
        counts = [each[:2] for each in found]
        documents = [documents for documents, _ in counts]
        provenance = provenance_of_pairs(prefixes, documents)
        return cls(prefixes, documents, [tokens for _, tokens in counts], provenance, format=format)

    def __reduce__(self) -> tuple:
        """For another process, which opens the files again, and refuses those with other numbers of documents or tokens."""
        prefixes = [os.path.abspath(prefix) if is_local(prefix) else prefix for prefix in self.prefixes]
        counts = np.diff(self.borders), np.diff(self._token_starts)
        made = functools.partial(Store, end=self.end, ids=self.ids, format=self.format)
        return made, (prefixes, *counts, self.provenance)

    @cached_property
    def whole(self) -> Store:
        """The same documents with their ends."""
        return self.ending_with(None)

    def ending_with(self, end: int | None, ids: int | None = None) -> Store:
        """The same documents without their ends, which are all `end` unless that is None; one that has others is refused."""
        counts = np.diff(self.borders), np.diff(self._token_starts)
        ids = self.ids if ids is None else ids
        return Store(self.prefixes, *counts, self.provenance, end=end, ids=ids, format=self.format)

    @property
    def documents(self) -> int:
        return int(self.borders[-1])

    @property
    def tokens(self) -> int:
        return int(self._token_starts[-1])

    @property
    def is_mask(self) -> bool:
        return self.dtype.itemsize == 1

    @property
    def dtype(self) -> np.dtype:
        """That of the first pair's tokens."""
        return self._index(0).dtype

    def pair_lengths(self, pair: int) -> np.ndarray:
        """How many tokens each document of a pair has in its file, [documents] integers, as its index says; no token is read."""
        return self._index(pair).lengths

    @cached_property
    def contents(self) -> str:
        """What the files hold, in few words: how much each, and a hash of some two thousand blocks of all, see `sampled_hash`."""
        counts = zip(np.diff(self.borders).tolist(), np.diff(self._token_starts).tolist())
        files = [[prefix + ending for ending in self.format.files] for prefix in self.prefixes]
        told = hashlib.sha256(repr([*counts, sampled_hash(files)]).encode()).hexdigest()[:16]
        return f"{len(self.prefixes)} pairs, {self.documents} documents, {self.tokens} tokens, sha256 of samples {told}"

    def read_documents(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Reads some documents, without their ends.

        `numbers` are [n] integers in any order. Gives [tokens] int32, document after document, and [n] int64, how many each has.
        """
        places = self._places(numbers)
        tokens = read_joined(*self._files(places.pairs), places.starts, places.stops)
        lengths = places.stops - places.starts
        lasts, names = np.cumsum(lengths) - 1, zip(places.numbers.tolist(), places.pairs.tolist())
        if self.ids is not None and (wrong := np.flatnonzero(tokens.view(np.uint32) >= self.ids)).size:  # negative ones are large
            number, pair = [*names][np.searchsorted(lasts, wrong[0])]
            made_with = self._index(pair).made_with or "another vocabulary"
            raise ValueError(
                f"document {number} of {self.prefixes[pair]} must have the tokenizer's ids 0 to {self.ids - 1}, got"
                f" {tokens[wrong[0]]}. Register it with the vocabulary that tokenized it, {made_with}."
            )
        if self.end is None:
            return tokens, lengths
        have_end = lengths > 0
        have_end[have_end] = tokens[lasts[have_end]] == self.end
        if not (have_end.all() or self.format.cuts_documents):
            number, pair = [*names][np.argmin(have_end)]
            raise ValueError(
                f"document {number} of {self.prefixes[pair]} must end with {self.end}, as others do, but ends with another id."
            )
        return np.delete(tokens, lasts[have_end]), lengths - have_end

    def read_each(self, numbers: np.ndarray) -> list[np.ndarray]:
        """Reads some documents: all tokens of each, as they lie in the files, whatever their dtype."""
        places = self._places(numbers)
        return read_ranges(*self._files(places.pairs), places.starts, places.stops)

    def read_values(self, start: int, stop: int) -> np.ndarray:
        _, pairs, starts, stops = by_pair(self._token_starts, np.array([start]), np.array([stop]))
        found = read_ranges(*self._files(pairs), starts, stops)
        return found[0] if len(found) == 1 else np.concatenate(found)

    def read_chunks(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        _, pairs, starts, stops = by_pair(self._token_starts, starts, stops)
        return read_joined(*self._files(pairs), starts, stops)

    def documents_at(self, start: int, stop: int) -> tuple[int, int]:
        return self._document_at(start), self._document_at(stop - 1) + 1

    def document_lengths(self, first: int, stop: int) -> np.ndarray:
        _check_documents(first, stop, self.documents)
        _, pairs, starts, stops = by_pair(self.borders, np.array([first]), np.array([stop]))
        parts = zip(pairs.tolist(), starts.tolist(), stops.tolist())
        return np.concatenate([np.zeros([0], np.int64), *(self.pair_lengths(pair)[slice(*part)] for pair, *part in parts)])

    def places(self, pair: int) -> np.ndarray:
        """At which byte of its `.bin` file each document of a pair begins, [documents] int64."""
        return self._index(pair).pointers

    def values(self, pair: int) -> np.ndarray:
        """All values of a pair: memory-mapped, or where its `.bin` file is not mapped, read once, and kept."""
        if pair not in self._pairs:
            (array,), _ = self._files(np.array([pair]))
            (self._pairs[pair],) = read_ranges([array], *np.array([[0], [0], [len(array)]]))
        return self._pairs[pair]

    def ranges_of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        places = self._places(documents)
        before = self._token_starts[places.pairs]
        return before + places.starts, before + places.stops

    def _document_at(self, token: int) -> int:
        pair = int(np.searchsorted(self._token_starts, token, side="right")) - 1
        index = self._index(pair)
        place = (token - int(self._token_starts[pair])) * index.dtype.itemsize
        # NumPy's own search would first copy an array that is not aligned, as these are.
        return int(self.borders[pair]) + bisect.bisect_right(index.pointers, place) - 1

    def _places(self, numbers: np.ndarray) -> _Places:
        numbers = np.asarray(numbers, np.int64)
        pairs = np.searchsorted(self.borders, numbers, side="right") - 1
        of_pairs = numbers - self.borders[pairs]
        starts, stops = np.zeros([2, len(numbers)], np.int64)
        by_pairs = np.argsort(pairs, kind="stable")
        borders = np.flatnonzero(np.diff(pairs[by_pairs], prepend=-1, append=-1))
        for places in map(by_pairs.__getitem__, map(slice, borders, borders[1:])):
            starts[places], stops[places] = self._index(int(pairs[places[0]])).places_of(of_pairs[places])
        return _Places(pairs, of_pairs, starts, stops)

    def _opened(self, pairs: Sequence[int]) -> list[Array]:
        """The tokens of pairs, which may have been written anew since this store was made."""
        indexes = _of_pairs(self._index, pairs, [self.prefixes[pair] for pair in pairs])
        for pair, index in zip(pairs, indexes):
            got = [index.documents, index.tokens]
            expected = [int(np.diff(borders[pair : pair + 2])[0]) for borders in (self.borders, self._token_starts)]
            if got != expected:
                raise ValueError(
                    f"{self.prefixes[pair]} must have {expected[0]} documents and {expected[1]} tokens, as when its dataset was"
                    f" made, got {got[0]} and {got[1]}. Make the dataset again, because the file was rewritten."
                )
        return list(map(_open_tokens, indexes))

    def _index(self, pair: int) -> Index:
        """The index of a pair. Of all stores of this process, those that were used last stay open, within their share of files."""
        with _lock:
            if pair in self._indexes:
                _used.move_to_end((self._ref, pair))
                return self._indexes[pair]
        index = self.format.read(self.prefixes[pair])
        with _lock:
            self._indexes[pair], _used[self._ref, pair] = index, None
            while len(_used) > max(1, min(_MOST_INDEXES, most_open(8))):
                (reference, oldest), _ = _used.popitem(last=False)
                if store := reference():
                    del store._indexes[oldest]
        return index

    def _files(self, pairs: np.ndarray) -> tuple[list[Array], np.ndarray]:
        """The files of tokens of these pairs, each once, and which of them is each pair's."""
        if len(pairs) and (pairs == pairs[0]).all():
            chosen, numbers = pairs[:1], np.zeros_like(pairs)
        else:
            chosen, numbers = np.unique(pairs, return_inverse=True)
        new = [pair for pair in chosen.tolist() if pair not in self._values]
        if new:
            self._values |= zip(new, self._opened(new))
        return [self._values[pair] for pair in chosen.tolist()], numbers


def _check_documents(first: int, stop: int, documents: int) -> None:
    if not 0 <= first <= stop <= documents:
        raise IndexError(f"documents must be a range from 0 to {documents}, got {first} to {stop}.")


def by_pair(borders: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Ranges cut at the borders of pairs.

    The borders, [pairs + 1] int64, are where each pair begins; at the end, where the last ends. `starts` and `stops` are [n] int64.
    Gives for each part, in order, which range it is of, its pair, and where it starts and stops there, [parts] int64 each.

    >>> [column.tolist() for column in by_pair(np.array([0, 10, 20]), np.array([3, 8]), np.array([5, 12]))]
    [[0, 1, 1], [0, 0, 1], [3, 8, 0], [5, 10, 2]]
    """
    first = np.searchsorted(borders, starts, side="right") - 1
    if len(starts) and (stops > starts).all() and (stops <= borders[first + 1]).all():
        before = borders[first]
        return np.arange(len(starts)), first, starts - before, stops - before
    parts = np.where(stops > starts, np.searchsorted(borders, stops, side="left") - first, 0)
    ranges, pairs = expanded(np.arange(len(parts)), first, first + parts)
    before = borders[pairs]
    return ranges, pairs, np.maximum(starts[ranges], before) - before, np.minimum(stops[ranges], borders[pairs + 1]) - before


def _unlock() -> None:
    """In a process that was forked, in which the thread that has the lock is not there."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_unlock)


def _of_pairs(function: Callable[[_Pair], _Of], pairs: Sequence[_Pair], prefixes: Sequence[str]) -> list[_Of]:
    """The function of each pair. Those of other file systems are opened side by side."""
    return list(map(function, pairs)) if all(map(is_local, prefixes)) else parallel_map(function, pairs)


def _counts(prefix: str, format: TokenFormat) -> tuple[int, int, str, str, int]:
    """How many documents and tokens a pair has, the file of the tokens, that of its index, and the bytes that this says."""
    index = format.read(prefix)
    index.check()
    return index.documents, index.tokens, index.file, index.path, _bytes_of(index)


def _open_tokens(index: Index) -> Array:
    """The tokens of a pair. The size of a remote file is not asked for again: a read of what it has not fails."""
    if is_local(index.file):
        _check_size(index.file, index.path, _bytes_of(index), size(index.file))
    return open_array(index.file, index.dtype, index.tokens, index.begin)


def _bytes_of(index: Index) -> int:
    return index.begin + index.tokens * index.dtype.itemsize


def _check_size(file: str, index: str, expected: int, present: int) -> None:
    """Raises a ValueError where a file of tokens has another size than its index says."""
    if present != expected:
        raise ValueError(f"{file} must have {expected} bytes, as its index {index} says, got {present}. Write or copy both again.")
