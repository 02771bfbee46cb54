"""`Store`: pairs of `.bin` and `.idx` files as one long list of documents, and as one long stream of tokens."""

from __future__ import annotations

import bisect
import collections
import hashlib
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ul2_tasks.cached import cached_property
from ul2_tasks.files.systems import is_local, parallel_map, size
from ul2_tasks.order.epochs import expanded
from ul2_tasks.store.arrays import Array, MemoryArray, most_open, open_array, read_joined, read_ranges
from ul2_tasks.store.index import Index, read_index
from ul2_tasks.store.provenance import Provenance, provenance_of_pairs
from ul2_tasks.store.samples import sampled_hash

_MOST_INDEXES = 1 << 12  # of all stores, if a process may have so many open files
_indexes: collections.OrderedDict[tuple[int, int], Index] = (
    collections.OrderedDict()
)  # by store and pair; the last used is the last
_lock = threading.RLock()  # a store may go while its thread has the lock
_numbers = itertools.count()
_Of = TypeVar("_Of")


class TokenStore(Protocol):
    """Documents of tokens that can be read at any place: a `Store`, or a `MemoryStore`."""

    @property
    def documents(self) -> int: ...

    @property
    def tokens(self) -> int: ...

    @property
    def provenance(self) -> Provenance | None: ...

    def read_tokens(self, start: int, stop: int) -> np.ndarray: ...

    def read_chunks(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray: ...

    def documents_at(self, start: int, stop: int) -> tuple[int, int]: ...

    def tokens_of(self, document: int) -> tuple[int, int]: ...

    def ranges_of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...


class MemoryStore:
    """Documents of tokens in memory: [tokens] int32, one document's after the other's, and [documents] int64, the lengths.

    No length is below 1.
    """

    def __init__(self, tokens: np.ndarray, lengths: np.ndarray):
        self._tokens, self._ends = np.ascontiguousarray(tokens), np.cumsum(lengths)
        self.provenance: Provenance | None = None

    @property
    def documents(self) -> int:
        return len(self._ends)

    def pair_lengths(self, pair: int) -> np.ndarray:
        return self._lengths

    @property
    def tokens(self) -> int:
        return len(self._tokens)

    def read_tokens(self, start: int, stop: int) -> np.ndarray:
        """See `Store`, also for the other methods."""
        return self._tokens[start:stop]

    def read_chunks(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        return read_joined([MemoryArray(self._tokens)], np.zeros_like(starts), starts, stops)

    def documents_at(self, start: int, stop: int) -> tuple[int, int]:
        first, last = np.searchsorted(self._ends, [start, stop - 1], side="right").tolist()
        return first, last + 1

    def tokens_of(self, document: int) -> tuple[int, int]:
        if not 0 <= document < self.documents:
            raise IndexError(f"document must be from 0 to {self.documents - 1}, got {document}.")
        return int(self._ends[document - 1]) if document else 0, int(self._ends[document])

    def document_lengths(self, first: int, stop: int) -> np.ndarray:
        _check_documents(first, stop, self.documents)
        return np.diff(self._ends[first:stop], prepend=self._ends[first - 1] if first else 0)

    @property
    def borders(self) -> np.ndarray:
        return np.array([0, self.documents])

    def places(self, pair: int) -> np.ndarray:
        return self._places

    def values(self, pair: int) -> np.ndarray:
        return self._tokens

    def read_pair(self, pair: int, start: int, stop: int) -> np.ndarray:
        return self._tokens[start:stop]

    def ranges_of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._ends[documents] - self._lengths[documents], self._ends[documents]

    # Of all documents, so not made again for each batch.
    @cached_property
    def _lengths(self) -> np.ndarray:
        return np.diff(self._ends, prepend=0)

    @cached_property
    def _places(self) -> np.ndarray:
        return (self._ends - self._lengths) * self._tokens.itemsize

    def ends_within(self, starts: np.ndarray, stops: np.ndarray) -> Ends:
        before, after = (np.searchsorted(self._ends_with_ends, places) for places in (starts, stops))
        _, documents = expanded(before, before, after)
        return Ends(before, after - before, self._ends_with_ends[documents])

    @cached_property
    def _ends_with_ends(self) -> np.ndarray:
        return self._ends + np.arange(len(self._ends))


class Ends(NamedTuple):
    """Where documents end in n ranges: how many before each, and how many in it, [n] int64; and where these do, [ends] int64."""

    before: np.ndarray
    counts: np.ndarray
    places: np.ndarray


class _Places(NamedTuple):
    """Where documents lie, [n] int64 each: the pair, their number in it, and their tokens [start, stop) in its `.bin` file."""

    pairs: np.ndarray
    numbers: np.ndarray
    starts: np.ndarray
    stops: np.ndarray


class Store:
    """Tokenized documents in pairs of files. Opens no file yet; each pair is opened when something of it is read.

    Each prefix is that of PREFIX.bin and PREFIX.idx; they are in the order of the documents. `documents` and `tokens` are how many
    each pair has. `provenance` says where they are from, if that is known.
    """

    def __init__(self, prefixes: Sequence[str], documents: ArrayLike, tokens: ArrayLike, provenance: Provenance | None = None):
        self.prefixes = tuple(prefixes)
        self._document_starts = np.concatenate([[0], np.cumsum(np.asarray(documents, np.int64))])
        self._token_starts = np.concatenate([[0], np.cumsum(np.asarray(tokens, np.int64))])
        self.provenance = provenance
        self._end: int | None = None
        self._values: dict[int, Array] = {}
        self._whole: dict[int, np.ndarray] = {}
        self._number = next(_numbers)
        weakref.finalize(self, _forget, self._number).atexit = False

    @classmethod
    def open(cls, prefixes: Sequence[str]) -> Store:
        """Of pairs whose counts are not known, and that others may have written: reads the index of each, and checks it."""
        counts = _of_pairs(_counts, prefixes)
        documents = [documents for documents, _ in counts]
        return cls(prefixes, documents, [tokens for _, tokens in counts], provenance_of_pairs(prefixes, documents))

    def __reduce__(self) -> tuple:
        """For another process, which opens the files again, and refuses those with other numbers of documents or tokens."""
        prefixes = [os.path.abspath(prefix) if is_local(prefix) else prefix for prefix in self.prefixes]
        return _of_counts, (prefixes, np.diff(self._document_starts), np.diff(self._token_starts), self._end, self.provenance)

    @property
    def has_ends(self) -> bool:
        """Whether each document has a last token that `read_documents` leaves out, and `read_tokens` does not."""
        return self._end is not None

    @property
    def end(self) -> int | None:
        """That last token, if there is one."""
        return self._end

    def with_last(self) -> Store:
        """The same documents with their last tokens: what `without_last` was called on."""
        documents = np.diff(self._document_starts)
        tokens = np.diff(self._token_starts) + (documents if self.has_ends else 0)
        return Store(self.prefixes, documents, tokens, self.provenance)

    def without_last(self, end: int) -> Store:
        """The same documents, each without its last token, which is always `end`; a document that has another one is refused."""
        documents = np.diff(self._document_starts)
        return _of_counts(self.prefixes, documents, np.diff(self._token_starts) - documents, end, self.provenance)

    @property
    def documents(self) -> int:
        """How many there are."""
        return int(self._document_starts[-1])

    @property
    def tokens(self) -> int:
        """How many there are."""
        return int(self._token_starts[-1])

    @property
    def dtype(self) -> np.dtype:
        """That of the first pair's tokens."""
        return self._index(0).dtype

    def pair_lengths(self, pair: int) -> np.ndarray:
        """How many tokens each document of a pair has in its file, [documents] integers, as its index says; no token is read."""
        return self._index(pair).document_lengths

    @cached_property
    def contents(self) -> str:
        """What the files hold, in few words: how much each, and a hash of some two thousand blocks of all, see `sampled_hash`."""
        counts = zip(np.diff(self._document_starts).tolist(), np.diff(self._token_starts).tolist())
        told = hashlib.sha256(repr([*counts, sampled_hash(self.prefixes)]).encode()).hexdigest()[:16]
        return f"{len(self.prefixes)} pairs, {self.documents} documents, {self.tokens} tokens, sha256 of samples {told}"

    def read_documents(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Reads some documents.

        `numbers` are [n] integers in any order. Gives [tokens] int32, document after document, and [n] int64, how many each has.
        """
        places = self._places(numbers)
        tokens = read_joined(*self._files(places.pairs), places.starts, places.stops)
        lengths = places.stops - places.starts
        if self._end is None:
            return tokens, lengths
        lasts = np.cumsum(lengths) - 1
        ends = np.zeros(len(lengths), bool)
        ends[lengths > 0] = tokens[lasts[lengths > 0]] == self._end
        self._check_ends(places, ends)
        return np.delete(tokens, lasts), lengths - 1

    def read_each(self, numbers: np.ndarray) -> list[np.ndarray]:
        """Reads some documents, see `read_documents`: the tokens of each, as they lie in the files, whatever their dtype."""
        places = self._places(numbers)
        found = read_ranges(*self._files(places.pairs), places.starts, places.stops)
        if self._end is None:
            return found
        self._check_ends(places, np.array([len(tokens) > 0 and tokens[-1] == self._end for tokens in found], bool))
        return [tokens[:-1] for tokens in found]

    def read_tokens(self, start: int, stop: int) -> np.ndarray:
        """The tokens [start, stop) of all documents back to back, [stop - start] int32."""
        return self.read_chunks(np.array([start]), np.array([stop]))

    def read_values(self, start: int, stop: int) -> np.ndarray:
        """The same tokens as they lie in the files, whatever their dtype."""
        _, pairs, starts, stops = by_pair(self._token_starts, np.array([start]), np.array([stop]))
        found = read_ranges(*self._files(pairs), starts, stops)
        return found[0] if len(found) == 1 else np.concatenate(found)

    def read_chunks(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        """Reads many ranges of tokens at once, in the order in which they lie in the files.

        Range i has the tokens [starts[i], stops[i]), both [n] int64. Gives [tokens] int32, one range's after the other's.
        """
        _, pairs, starts, stops = by_pair(self._token_starts, starts, stops)
        return read_joined(*self._files(pairs), starts, stops)

    def documents_at(self, start: int, stop: int) -> tuple[int, int]:
        """The documents that have some of the tokens [start, stop), at least one token: the first, and the one after the last."""
        return self._document_at(start), self._document_at(stop - 1) + 1

    def tokens_of(self, document: int) -> tuple[int, int]:
        """The tokens [start, stop) of a document among those of all documents back to back."""
        if not 0 <= document < self.documents:
            raise IndexError(f"document must be from 0 to {self.documents - 1}, got {document}.")
        pair = int(np.searchsorted(self._document_starts, document, side="right")) - 1
        start, stop = self._index(pair).tokens_of(document - int(self._document_starts[pair]))
        before = int(self._token_starts[pair])
        return before + start, before + stop

    def document_lengths(self, first: int, stop: int) -> np.ndarray:
        """How many tokens each of the documents [first, stop) has, [stop - first] int64, as `read_documents` gives them."""
        _check_documents(first, stop, self.documents)
        _, pairs, starts, stops = by_pair(self._document_starts, np.array([first]), np.array([stop]))
        parts = zip(pairs.tolist(), starts.tolist(), stops.tolist())
        lengths = np.concatenate([np.zeros([0], np.int64), *(self._index(pair).lengths_within(*part) for pair, *part in parts)])
        if self._end is None:
            return lengths
        if not lengths.all():
            places = self._places(np.arange(first, stop))
            self._check_ends(places, lengths > 0)
        return lengths - 1

    @property
    def borders(self) -> np.ndarray:
        """The first document of each pair, and at the end how many there are, [pairs + 1] int64."""
        return self._document_starts

    def places(self, pair: int) -> np.ndarray:
        """At which byte of its `.bin` file each document of a pair begins, [documents] int64; one that this package wrote."""
        return self._index(pair).pointers

    def values(self, pair: int) -> np.ndarray:
        """All values of a pair: memory-mapped, or where its `.bin` file is not mapped, read once, and kept."""
        if pair not in self._whole:
            (array,), _ = self._files(np.array([pair]))
            (self._whole[pair],) = read_ranges([array], *np.array([[0], [0], [len(array)]]))
        return self._whole[pair]

    def read_pair(self, pair: int, start: int, stop: int) -> np.ndarray:
        """The values [start, stop) of the `.bin` file of a pair, whatever their dtype. They may be views of a memory map."""
        return read_ranges(*self._files(np.array([pair])), np.array([start]), np.array([stop]))[0]

    def ranges_of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`tokens_of` of many documents, [n] integers in any order: their starts and their stops, [n] int64 each."""
        places = self._places(documents)
        before = self._token_starts[places.pairs]
        return before + places.starts, before + places.stops

    def ends_within(self, starts: np.ndarray, stops: np.ndarray) -> Ends:
        """Where documents end in ranges of the stream in which one more token follows each document, see `WithEnds`.

        Range i has the tokens [starts[i], stops[i]) of that stream, both [n] int64, and at least one.
        """
        borders = self._token_starts + self._document_starts
        ranges, pairs, starts, stops = by_pair(borders, starts, stops)
        found = [
            self._index(pair).ends_within(start, stop) for pair, start, stop in zip(pairs.tolist(), starts.tolist(), stops.tolist())
        ]
        counts = np.array([len(ends) for _, ends in found], np.int64)
        before = np.array([first for first, _ in found], np.int64) + self._document_starts[pairs]
        places = np.concatenate([np.zeros([0], np.int64), *(ends for _, ends in found)]) + np.repeat(borders[pairs], counts)
        _, firsts = np.unique(ranges, return_index=True)
        return Ends(before[firsts], np.add.reduceat(counts, firsts) if len(firsts) else counts, places)

    def _document_at(self, token: int) -> int:
        pair = int(np.searchsorted(self._token_starts, token, side="right")) - 1
        index = self._index(pair)
        place = (token - int(self._token_starts[pair])) * index.dtype.itemsize
        # NumPy's own search would first copy an array that is not aligned, as these are.
        sequence = bisect.bisect_right(index.pointers, place) - 1
        return int(self._document_starts[pair]) + bisect.bisect_right(index.documents, sequence) - 1

    def _places(self, numbers: np.ndarray) -> _Places:
        numbers = np.asarray(numbers, np.int64)
        pairs = np.searchsorted(self._document_starts, numbers, side="right") - 1
        of_pairs = numbers - self._document_starts[pairs]
        starts, stops = np.zeros([2, len(numbers)], np.int64)
        by_pairs = np.argsort(pairs, kind="stable")
        borders = np.flatnonzero(np.diff(pairs[by_pairs], prepend=-1, append=-1))
        for places in map(by_pairs.__getitem__, map(slice, borders, borders[1:])):
            starts[places], stops[places] = self._index(int(pairs[places[0]])).places_of(of_pairs[places])
        return _Places(pairs, of_pairs, starts, stops)

    def _check_ends(self, places: _Places, are_right: np.ndarray) -> None:
        if not are_right.all():
            first = int(np.argmin(are_right))
            number, prefix = places.numbers[first], self.prefixes[places.pairs[first]]
            raise ValueError(f"document {number} of {prefix} must end with {self._end}, as others do, but ends with another id.")

    def _opened(self, pairs: Sequence[int]) -> list[Array]:
        """The `.bin` files of pairs, which may have been written anew since this store was made."""
        found = _of_pairs(_counted, [self.prefixes[pair] for pair in pairs])
        ends = np.diff(self._document_starts) if self.has_ends else np.zeros(len(self.prefixes), np.int64)
        expected = np.stack([np.diff(self._document_starts), np.diff(self._token_starts) + ends], axis=1)[list(pairs)].tolist()
        for pair, (documents, tokens, _), counts in zip(pairs, found, expected):
            if [documents, tokens] != counts:
                raise ValueError(
                    f"{self.prefixes[pair]} must have {counts[0]} documents and {counts[1]} tokens, as when its dataset was made,"
                    f" got {documents} and {tokens}. Make the dataset again, because the file was rewritten."
                )
        return [array for _, _, array in found]

    def _index(self, pair: int) -> Index:
        """The index of a pair. Of all stores of this process, those that were used last stay open, within their share of files."""
        key = self._number, pair
        with _lock:
            if key in _indexes:
                _indexes.move_to_end(key)
                return _indexes[key]
        index = read_index(f"{self.prefixes[pair]}.idx")
        with _lock:
            _indexes[key] = index
            while len(_indexes) > max(1, min(_MOST_INDEXES, most_open(8))):
                _indexes.popitem(last=False)
        return index

    def _files(self, pairs: np.ndarray) -> tuple[list[Array], np.ndarray]:
        """The `.bin` files of these pairs, each once, and which of them is each pair's."""
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


def _of_counts(
    prefixes: Sequence[str], documents: ArrayLike, tokens: ArrayLike, end: int | None, provenance: Provenance | None
) -> Store:
    """A store whose documents are without their last token, `end`, if it is not None."""
    store = Store(prefixes, documents, tokens, provenance)
    store._end = end
    return store


def _forget(number: int) -> None:
    """Closes the indexes of a store that is gone."""
    with _lock:
        for key in [key for key in list(_indexes) if key[0] == number]:
            _indexes.pop(key, None)


def _unlock() -> None:
    """In a process that was forked, in which the thread that has the lock is not there."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_unlock)


def _of_pairs(function: Callable[[str], _Of], prefixes: Sequence[str]) -> list[_Of]:
    """The function of each pair. Those of other file systems are opened side by side."""
    return list(map(function, prefixes)) if all(map(is_local, prefixes)) else parallel_map(function, prefixes)


def _counted(prefix: str) -> tuple[int, int, Array]:
    """How many documents and tokens a pair has, and the tokens; see `open_pair`. Its index is closed."""
    index, array = open_pair(prefix)
    return index.entries - 1, index.tokens, array


def _counts(prefix: str) -> tuple[int, int]:
    index, _ = open_pair(prefix)
    index.check()
    return index.entries - 1, index.tokens


def open_pair(prefix: str) -> tuple[Index, Array]:
    """The index and the tokens of PREFIX.idx and PREFIX.bin. A `.bin` file of another size than its index says is refused."""
    index = read_index(f"{prefix}.idx")
    expected, present = index.tokens * index.dtype.itemsize, size(f"{prefix}.bin")
    if present != expected:
        raise ValueError(
            f"{prefix}.bin must have {expected} bytes, as its index {prefix}.idx says, got {present}. Write or copy both again."
        )
    return index, open_array(f"{prefix}.bin", index.dtype.newbyteorder("<"))
