"""The `.idx` file of a pair: where the documents lie in the `.bin` file beside it.

The format is that of Megatron's IndexedDataset (megatron-core, `megatron/core/datasets/indexed_dataset.py`). A `.bin` file has
the tokens of all sequences back to back. The `.idx` file, little-endian, of a `.bin` with the sequences [5 6 7] and [8 9]:

    bytes        type      what                                                        here, as uint16
    0            9 bytes   MMIDIDX and two zeros
    9            uint64    version                                                     1
    17           uint8     the code of the tokens' dtype, see `DTYPES`                 8
    18           uint64    S, how many sequences                                       2
    26           uint64    D + 1, where D is how many documents                        3
    34           int32     [S] how many tokens each sequence has                       3 2
    34 + 4 S     int64     [S] at which byte of the `.bin` file each begins            0 6
    34 + 12 S    int64     [D + 1] the first sequence of each document, and S          0 1 2
    ..           int8      [S] modes, in the indexes of multi-modal data alone

What this package writes has one sequence for each document.
"""

from __future__ import annotations

import bisect
import dataclasses
import struct

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.files.systems import size
from ul2_tasks.store.arrays import Reader, open_reader

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
DTYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 6: np.float64, 7: np.float32, 8: np.uint16}
MAX_DOCUMENT = np.iinfo(np.int32).max  # tokens
_ENDS_AT_ONCE = 16
_CHECKED_AT_ONCE = 1 << 20
_FEW = 8  # documents, which are looked up faster one by one
_HEADER = struct.Struct("<9sQBQQ")
_INTEGERS = (np.uint8, np.int8, np.int16, np.int32, np.int64, np.uint16)


@dataclasses.dataclass(frozen=True)
class Index:
    """What an `.idx` file says. Nothing is read of its arrays until they are asked for; those of a local file are memory-mapped.

    `sequences` is S, how many sequences there are, and `entries` D + 1, how many numbers `documents` has.
    """

    path: str
    dtype: np.dtype
    sequences: int
    entries: int
    _read: Reader

    @cached_property
    def lengths(self) -> np.ndarray:
        """[S] int32, how many tokens each sequence has."""
        return self._read("<i4", _HEADER.size, self.sequences)

    @cached_property
    def pointers(self) -> np.ndarray:
        """[S] int64, at which byte of the `.bin` file each sequence begins."""
        return self._read("<i8", _HEADER.size + 4 * self.sequences, self.sequences)

    @cached_property
    def documents(self) -> np.ndarray:
        """[D + 1] int64, the first sequence of each document; at the end S."""
        return self._read("<i8", _HEADER.size + 12 * self.sequences, self.entries)

    @cached_property
    def document_lengths(self) -> np.ndarray:
        """[D] integers, how many tokens each document has."""
        is_one_each = self.entries == self.sequences + 1 and self.documents[0] == 0 and (np.diff(self.documents) == 1).all()
        return self.lengths if is_one_each else self.lengths_within(0, self.entries - 1)

    @cached_property
    def tokens(self) -> int:
        """How many tokens the `.bin` file has; sequences lie in it back to back."""
        if not self.sequences:
            return 0
        length = self._read("<i4", _HEADER.size + 4 * (self.sequences - 1), 1)
        pointer = self._read("<i8", _HEADER.size + 12 * self.sequences - 8, 1)
        return int(pointer[0]) // self.dtype.itemsize + int(length[0])

    def check(self) -> None:
        """Raises a ValueError unless all sequences lie back to back, and the documents are all of them, in order.

        So do what Megatron's tools write, and then its reader, which goes by each sequence's pointer, reads what is read here.
        """
        expected, before = 0, 0
        for start in range(0, self.sequences, _CHECKED_AT_ONCE):
            some = slice(start, start + _CHECKED_AT_ONCE)
            lengths = self.lengths[some].astype(np.int64)
            begins = expected + np.cumsum(lengths * self.dtype.itemsize) - lengths * self.dtype.itemsize
            wrong = (lengths < 0) | (self.pointers[some] != begins)
            if wrong.any():
                number = int(wrong.argmax())
                has, at = int(lengths[number]), int(self.pointers[start + number])
                raise self._corrupt(f"sequence {start + number}, of {has} tokens at byte {at}, does not follow the one before it")
            expected = int(begins[-1] + lengths[-1] * self.dtype.itemsize)
        for start in range(0, self.entries, _CHECKED_AT_ONCE):
            firsts = self.documents[start : start + _CHECKED_AT_ONCE]
            wrong = np.diff(firsts, prepend=before) < 0
            if wrong.any() or (not start and firsts[0]):
                number = int(wrong.argmax())
                raise self._corrupt(
                    f"document {start + number} begins at sequence {firsts[number]}, and not where the last one ends"
                )
            before = int(firsts[-1])
        if before != self.sequences:
            raise self._corrupt(f"its documents end at sequence {before} of {self.sequences}")

    def tokens_of(self, document: int) -> tuple[int, int]:
        """The tokens [start, stop) of a document among those of the `.bin` file. A file without them raises a ValueError."""
        first, end = int(self.documents[document]), int(self.documents[document + 1])
        if not 0 <= first <= end <= self.sequences:
            raise self._corrupt(f"document {document} would be the sequences {first} to {end} of {self.sequences}")
        start = self._place(first) if first < self.sequences else self.tokens
        stop = start if first == end else self._place(end - 1) + int(self.lengths[end - 1])
        if not 0 <= start <= stop <= self.tokens:
            raise self._corrupt(f"document {document} would be the tokens {start} to {stop} of {self.tokens}")
        return start, stop

    def places_of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`tokens_of` of many documents, [n] int64 in any order: their starts and their stops, [n] int64 each."""
        if len(documents) < _FEW:
            few = np.array([self.tokens_of(document) for document in documents.tolist()], np.int64).reshape(-1, 2)
            return few[:, 0], few[:, 1]
        firsts, ends = self.documents[documents], self.documents[documents + 1]
        is_one = ends - firsts == 1  # sequence, as in what this package writes
        if not (is_one.all() and firsts.min() >= 0 and ends.max() <= self.sequences):
            every = np.array([self.tokens_of(document) for document in documents.tolist()], np.int64)
            return every[:, 0], every[:, 1]
        starts = self.pointers[firsts] // self.dtype.itemsize
        lengths = self.lengths[firsts]
        stops = starts + lengths
        if (wrong := (starts < 0) | (lengths < 0) | (stops > self.tokens)).any():
            self.tokens_of(int(documents[wrong.argmax()]))
        return starts, stops

    def lengths_within(self, first: int, stop: int) -> np.ndarray:
        """How many tokens each of the documents [first, stop) has, [stop - first] int64."""
        starts = self.documents[first : stop + 1]
        begin = int(starts[0])
        if (np.diff(starts) == 1).all() and begin >= 0 and begin + stop - first <= self.sequences:
            lengths = self.lengths[begin : begin + stop - first]
            if not len(lengths) or lengths.min() >= 0:
                return lengths.astype(np.int64)
        starts, stops = self.places_of(np.arange(first, stop))
        return stops - starts

    def ends_within(self, start: int, stop: int) -> tuple[int, np.ndarray]:
        """Where documents end in a range of the tokens, if one more token follows each document.

        Gives how many documents end before the range, and at which places in it documents end, [ends] int64.
        """
        documents = self.entries - 1
        first = bisect.bisect_left(range(documents), start, key=lambda document: int(self._ends(document, document + 1)[0]))
        last = min(first + _ENDS_AT_ONCE, documents)
        while len(ends := self._ends(first, last)) and ends[-1] < stop and last < documents:
            last = min(2 * last - first, documents)
        return first, ends[: np.searchsorted(ends, stop)]

    def _ends(self, first: int, last: int) -> np.ndarray:
        """The place of the token after each of the documents [first, last), [documents] int64."""
        next_ones = self.documents[first + 1 : last + 1]
        if len(next_ones) and next_ones.min() < 0:
            raise self._corrupt(f"a document would begin at sequence {next_ones.min()}")
        ends = np.full(len(next_ones), self.tokens)
        is_followed = next_ones < self.sequences
        ends[is_followed] = self.pointers[next_ones[is_followed]] // self.dtype.itemsize
        return ends + np.arange(first, last)

    def _place(self, sequence: int) -> int:
        """The first token of a sequence."""
        return int(self.pointers[sequence]) // self.dtype.itemsize

    def _corrupt(self, reason: str) -> ValueError:
        return ValueError(f"{self.path} is corrupt: {reason}. Write or copy it again.")


def dtype_of(ids: int) -> np.dtype:
    """The dtype in which a vocabulary of so many ids is stored. Megatron's rule: uint16 below 65,500 ids, else int32.

    >>> dtype_of(32128), dtype_of(262144)
    (dtype('uint16'), dtype('int32'))
    """
    return np.dtype(np.uint16 if ids < 65500 else np.int32)


def serialize(lengths: np.ndarray, dtype: np.dtype) -> bytes:
    """The `.idx` file of documents of these lengths, [documents] integers, each a sequence of its own.

    Equal, byte for byte, to what megatron-core's `IndexedDatasetBuilder` writes for them.
    """
    lengths = np.asarray(lengths, "<i4")
    pointers = np.zeros(len(lengths), "<i8")
    np.cumsum(lengths[:-1], dtype=np.int64, out=pointers[1:])
    code = next(code for code, known in DTYPES.items() if known == dtype.type)
    header = _HEADER.pack(MAGIC, VERSION, code, len(lengths), len(lengths) + 1)
    documents = np.arange(len(lengths) + 1, dtype="<i8")
    return b"".join([header, lengths.tobytes(), (pointers * dtype.itemsize).tobytes(), documents.tobytes()])


def read_index(path: str) -> Index:
    """Reads an `.idx` file.

    Raises a ValueError where it is no such file, is truncated, or is of data that is no text: its dtype is no integer, or it has
    modes.
    """
    present = size(path)
    read = open_reader(path) if present >= _HEADER.size else lambda dtype, start, count: np.zeros(count, dtype)
    magic, version, code, sequences, documents = _HEADER.unpack(read(np.uint8, 0, _HEADER.size).tobytes())
    if magic != MAGIC or version != VERSION:
        raise ValueError(
            f"{path} must be a Megatron index PREFIX.idx, which begins with {MAGIC!r} and version {VERSION}, but begins with"
            " other bytes."
        )
    dtype = DTYPES.get(code)
    if dtype not in _INTEGERS:
        kind = "unknown" if dtype is None else np.dtype(dtype).name
        raise ValueError(f"{path} must hold tokens, which are integers, got values of type {kind} (code {code}).")
    end = _HEADER.size + 12 * sequences + 8 * documents
    if present == end + sequences and sequences:
        raise ValueError(f"{path} must be of text alone, got multi-modal data, which has a mode for each sequence.")
    if present != end:
        kind = "truncated" if present < end else "too long"
        raise ValueError(f"{path} is {kind}: it has {present} bytes, and {end} by its header. Write or copy it again.")
    return Index(path, np.dtype(dtype), sequences, documents, read)
