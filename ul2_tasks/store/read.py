"""`Store`: pairs of `.bin` and `.idx` files as one long list of documents, and as one long stream of tokens."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from ul2_tasks.store.arrays import Array, open_array, size
from ul2_tasks.store.index import Index, read_index


class TokenStore(Protocol):
    """Documents of tokens that can be read at any place: a `Store`, or a `MemoryStore`."""

    @property
    def documents(self) -> int: ...

    @property
    def tokens(self) -> int: ...

    def read_tokens(self, start: int, stop: int) -> np.ndarray: ...

    def read_chunks(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray: ...

    def documents_at(self, start: int, stop: int) -> tuple[int, int]: ...

    def tokens_of(self, document: int) -> tuple[int, int]: ...


class MemoryStore:
    """Documents of tokens in memory.

    Args:
        tokens: [tokens] int32, one document's after the other's.
        lengths: [documents] int64, how many tokens each has, at least 1.
    """

    def __init__(self, tokens: np.ndarray, lengths: np.ndarray):
        self._tokens, self._ends = tokens, np.cumsum(lengths)

    @property
    def documents(self) -> int:
        return len(self._ends)

    @property
    def tokens(self) -> int:
        return len(self._tokens)

    def read_tokens(self, start: int, stop: int) -> np.ndarray:
        """See `Store`, also for the other methods."""
        return self._tokens[start:stop]

    def read_chunks(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        return _as_int32([self._tokens[start:stop] for start, stop in zip(starts.tolist(), stops.tolist())])

    def documents_at(self, start: int, stop: int) -> tuple[int, int]:
        first, last = np.searchsorted(self._ends, [start, stop - 1], side="right").tolist()
        return first, last + 1

    def tokens_of(self, document: int) -> tuple[int, int]:
        if not 0 <= document < self.documents:
            raise IndexError(f"there is no document {document}, only 0 to {self.documents - 1}")
        return int(self._ends[document - 1]) if document else 0, int(self._ends[document])


class Store:
    """Tokenized documents in pairs of files. Opens no file yet; each pair is opened when something of it is read.

    Args:
        prefixes: of the pairs, PREFIX.bin and PREFIX.idx, in the order of the documents.
        documents: [pairs], how many documents each has.
        tokens: [pairs], how many tokens each has.
    """

    def __init__(self, prefixes: Sequence[str], documents: ArrayLike, tokens: ArrayLike):
        self.prefixes = tuple(prefixes)
        self._document_ends = np.cumsum(np.asarray(documents, np.int64))
        self._token_ends = np.cumsum(np.asarray(tokens, np.int64))
        self._end: int | None = None
        self._pairs: dict[int, tuple[Index, Array]] = {}
        self._lock = threading.Lock()

    @classmethod
    def open(cls, prefixes: Sequence[str]) -> Store:
        """Of pairs whose counts are not known: reads the index of each.

        Raises:
            ValueError: see `open_pair`.
        """
        indexes = [open_pair(prefix)[0] for prefix in prefixes]
        return cls(prefixes, [len(index.documents) - 1 for index in indexes], [index.tokens for index in indexes])

    @property
    def has_ends(self) -> bool:
        """Whether each document has a last token that `read_documents` leaves out, and `read_tokens` does not."""
        return self._end is not None

    def without_last(self, end: int) -> Store:
        """The same documents, each without its last token, which is always `end`; a document that has another one is refused."""
        tokens = np.diff(self._token_ends, prepend=0) - np.diff(self._document_ends, prepend=0)
        changed = Store(self.prefixes, np.diff(self._document_ends, prepend=0), tokens)
        changed._end = end
        return changed

    @property
    def documents(self) -> int:
        """How many there are."""
        return int(self._document_ends[-1]) if self.prefixes else 0

    @property
    def tokens(self) -> int:
        """How many there are."""
        return int(self._token_ends[-1]) if self.prefixes else 0

    def read_documents(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Reads some documents.

        Args:
            numbers: [n] integers, which ones, in any order.

        Returns:
            [tokens] int32, one document's after the other's, and [n] int64, how many tokens each has.
        """
        pairs = np.searchsorted(self._document_ends, numbers, side="right")
        found, lengths = [], np.zeros(len(numbers), np.int64)
        for place, (number, pair) in enumerate(zip(np.asarray(numbers).tolist(), pairs.tolist())):
            index, values = self._pair(pair)
            first = number - (int(self._document_ends[pair - 1]) if pair else 0)
            start, stop = _token_range(index, first, first + 1)
            if not 0 <= start <= stop <= len(values):
                where = f"document {first} would be the tokens {start} to {stop} of {len(values)}"
                raise ValueError(f"{self.prefixes[pair]}.idx is corrupt: {where}; write or copy it again")
            if self._end is not None:
                stop -= 1
                if stop < start or int(values[stop : stop + 1][0]) != self._end:
                    raise ValueError(f"document {first} of {self.prefixes[pair]} does not end with {self._end}, as others do")
            found.append(values[start:stop])
            lengths[place] = stop - start
        return _as_int32(found), lengths

    def read_tokens(self, start: int, stop: int) -> np.ndarray:
        """The tokens [start, stop) of all documents back to back, [stop - start] int32."""
        found = []
        for pair in range(int(np.searchsorted(self._token_ends, start, side="right")), len(self.prefixes)):
            before = int(self._token_ends[pair - 1]) if pair else 0
            if before >= stop:
                break
            found.append(self._pair(pair)[1][max(start - before, 0) : stop - before])
        return _as_int32(found)

    def read_chunks(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        """Reads many ranges of tokens at once.

        Args:
            starts: [n] int64, the first token of each.
            stops: [n] int64, the token after the last of each, above its start.

        Returns:
            [tokens] int32, one range's after the other's.
        """
        return _as_int32([self.read_tokens(start, stop) for start, stop in zip(starts.tolist(), stops.tolist())])

    def documents_at(self, start: int, stop: int) -> tuple[int, int]:
        """The documents that have some of the tokens [start, stop), at least one token: the first, and the one after the last."""
        return self._document_at(start), self._document_at(stop - 1) + 1

    def tokens_of(self, document: int) -> tuple[int, int]:
        """The tokens [start, stop) of a document among those of all documents back to back."""
        pair = int(np.searchsorted(self._document_ends, document, side="right"))
        if not 0 <= document < self.documents:
            raise IndexError(f"there is no document {document}, only 0 to {self.documents - 1}")
        first = document - (int(self._document_ends[pair - 1]) if pair else 0)
        before = int(self._token_ends[pair - 1]) if pair else 0
        start, stop = _token_range(self._pair(pair)[0], first, first + 1)
        return before + start, before + stop

    def _document_at(self, token: int) -> int:
        pair = int(np.searchsorted(self._token_ends, token, side="right"))
        index, _ = self._pair(pair)
        place = (token - (int(self._token_ends[pair - 1]) if pair else 0)) * index.dtype.itemsize
        sequence = int(np.searchsorted(index.pointers, place, side="right")) - 1
        in_pair = int(np.searchsorted(index.documents, sequence, side="right")) - 1
        return (int(self._document_ends[pair - 1]) if pair else 0) + in_pair

    def _pair(self, number: int) -> tuple[Index, Array]:
        pair = self._pairs.get(number)
        if pair is None:
            with self._lock:
                pair = self._pairs[number] = self._pairs.get(number) or open_pair(self.prefixes[number])
        return pair


def open_pair(prefix: str) -> tuple[Index, Array]:
    """The index and the tokens of PREFIX.idx and PREFIX.bin.

    Raises:
        ValueError: see `read_index`; or the `.bin` file has another size than its index says.
    """
    index = read_index(f"{prefix}.idx")
    expected, present = index.tokens * index.dtype.itemsize, size(f"{prefix}.bin")
    if present != expected:
        raise ValueError(
            f"{prefix}.bin has {present} bytes, but its index, {prefix}.idx, is of one with {expected}: it is truncated, or they do"
            " not belong together; write or copy both again"
        )
    return index, open_array(f"{prefix}.bin", index.dtype.newbyteorder("<"))


def _as_int32(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The parts back to back. Raises a ValueError where a wider dtype holds what is no id."""
    tokens = np.concatenate([np.zeros([0], np.int32), *parts])
    if tokens.dtype.itemsize > 4 and len(tokens) and not (tokens.min() >= 0 and tokens.max() < 1 << 31):
        raise ValueError(f"there are tokens from {tokens.min()} to {tokens.max()}, expected ids, from 0 to 2**31 - 1")
    return tokens.astype(np.int32, copy=False)


def _token_range(index: Index, first: int, end: int) -> tuple[int, int]:
    """The tokens of the documents [first, end), as a range of the `.bin` file's."""
    begin, stop = int(index.documents[first]), int(index.documents[end])
    if begin == stop:
        return 0, 0
    width = index.dtype.itemsize
    return int(index.pointers[begin]) // width, int(index.pointers[stop - 1]) // width + int(index.lengths[stop - 1])
