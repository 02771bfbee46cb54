"""Where documents of tokens lie in a file: `Index`, and `MegatronIndex`, which the `.idx` file of a pair is.

The format of a pair is Megatron's IndexedDataset's (megatron-core, `megatron/core/datasets/indexed_dataset.py`). A `.bin` file has
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

A sequence is a document here. Megatron's tools leave documents without a sequence where a text is empty, which are none here, and
with --split-sentences documents of several, which are refused.
"""

from __future__ import annotations

import dataclasses
import struct

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.files.systems import is_local, read, size
from ul2_tasks.store.arrays import Reader, open_reader

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
DTYPES = {1: np.uint8, 4: np.int32, 8: np.uint16}  # Megatron's for ids are the last two
MAX_DOCUMENT = np.iinfo(np.int32).max  # tokens
_CHECKED_AT_ONCE = 1 << 20
_BEGINNING = 1 << 16  # bytes of a remote file, with which five thousand documents take one request
_HEADER = struct.Struct("<9sQBQQ")
_NO_ENDS = np.zeros(0, np.int64)


@dataclasses.dataclass(frozen=True)
class Index:
    """Where the documents of a file lie, back to back.

    Attributes:
        path: what errors name: the file that says where they lie.
        file: the file of the tokens, which begin at the byte `begin`.
        ends: [documents] int64, where each ends, counted in tokens.
        made_with: the tokenizer, if that is said.
    """

    path: str
    file: str
    dtype: np.dtype
    documents: int
    ends: np.ndarray
    begin: int = dataclasses.field(default=0, kw_only=True)
    made_with: str = dataclasses.field(default="", kw_only=True)

    @cached_property
    def lengths(self) -> np.ndarray:
        """How many tokens each document has, [documents] integers."""
        return np.diff(self.ends, prepend=0)

    @cached_property
    def pointers(self) -> np.ndarray:
        """At which byte of all tokens each document begins, [documents] int64."""
        return (self.ends - self.lengths) * self.dtype.itemsize

    @cached_property
    def tokens(self) -> int:
        """How many tokens the file has."""
        return int(self.ends[-1:].sum())

    def check(self) -> None:
        """Raises a ValueError unless documents lie back to back, in order."""
        if (wrong := np.flatnonzero(self.lengths < 0)).size:
            raise self._corrupt(f"document {wrong[0]} ends before it begins")

    def places_of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The tokens [start, stop) of documents, [n] int64 in any order, among those of the file, [n] int64 each.

        A file without them raises a ValueError.
        """
        if len(documents) and (most := int(documents.max())) >= self.documents:
            raise self._corrupt(f"it has {self.documents} documents, and no document {most}")
        starts = self.pointers[documents] // self.dtype.itemsize
        stops = starts + self.lengths[documents]
        if (wrong := (starts < 0) | (stops < starts) | (stops > self.tokens)).any():
            number = int(wrong.argmax())
            tokens = f"{starts[number]} to {stops[number]} of {self.tokens}"
            raise self._corrupt(f"document {documents[number]} would be the tokens {tokens}")
        return starts, stops

    def _corrupt(self, reason: str) -> ValueError:
        return ValueError(f"{self.path} is corrupt: {reason}. Write or copy it again.")


@dataclasses.dataclass(frozen=True)
class MegatronIndex(Index):
    """What an `.idx` file says. Nothing is read of its arrays until they are asked for; those of a local file are memory-mapped.

    `documents` is S, how many sequences there are, and `entries` D + 1, how many numbers the last array has.
    """

    entries: int
    _read: Reader

    @cached_property
    def lengths(self) -> np.ndarray:
        return self._read("<i4", _HEADER.size, self.documents)

    @cached_property
    def pointers(self) -> np.ndarray:
        return self._read("<i8", _HEADER.size + 4 * self.documents, self.documents)

    @cached_property
    def tokens(self) -> int:
        if not self.documents:
            return 0
        length = self._read("<i4", _HEADER.size + 4 * (self.documents - 1), 1)
        pointer = self._read("<i8", _HEADER.size + 12 * self.documents - 8, 1)
        return int(pointer[0]) // self.dtype.itemsize + int(length[0])

    def check(self) -> None:
        """Raises a ValueError unless all sequences lie back to back, and each is one document, in order.

        So do what Megatron's tools write, and then its reader, which goes by each sequence's pointer, reads what is read here.
        """
        expected = before = 0
        for start in range(0, self.documents, _CHECKED_AT_ONCE):
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
            firsts = self._read("<i8", _HEADER.size + 12 * self.documents + 8 * start, min(_CHECKED_AT_ONCE, self.entries - start))
            steps = np.diff(firsts, prepend=before)
            if (steps < 0).any() or (not start and firsts[0]):
                raise self._corrupt(f"its documents begin at sequences such as {firsts[int(steps.argmin())]}, not in order")
            if (steps > 1).any():
                raise ValueError(
                    f"{self.path} must have one sequence for each document, got {steps.max()} for one, as --split-sentences makes."
                    " Write it without."
                )
            before = int(firsts[-1])
        if before != self.documents:
            raise self._corrupt(f"its documents end at sequence {before} of {self.documents}")


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


def read_index(path: str) -> MegatronIndex:
    """Reads an `.idx` file; of a remote one its first bytes at once, which are all of a small one.

    Raises a ValueError where it is no such file, is truncated, or is of data that is no text: it has another dtype, or modes.
    """
    beginning = b"" if is_local(path) else read(path, _BEGINNING)
    is_whole = beginning and len(beginning) < _BEGINNING
    present = len(beginning) if is_whole else size(path)
    values = open_reader(path, beginning) if present >= _HEADER.size else lambda dtype, start, count: np.zeros(count, dtype)
    magic, version, code, sequences, documents = _HEADER.unpack(values(np.uint8, 0, _HEADER.size).tobytes())
    if magic != MAGIC or version != VERSION:
        raise ValueError(
            f"{path} must be a Megatron index PREFIX.idx, which begins with {MAGIC!r} and version {VERSION}, but begins with"
            " other bytes."
        )
    if (dtype := DTYPES.get(code)) is None:
        raise ValueError(f"{path} must hold tokens of a dtype of {[*DTYPES]}, uint8, int32 or uint16, got code {code}.")
    end = _HEADER.size + 12 * sequences + 8 * documents
    if present == end + sequences and sequences:
        raise ValueError(f"{path} must be of text alone, got multi-modal data, which has a mode for each sequence.")
    if present != end:
        kind = "truncated" if present < end else "too long"
        raise ValueError(f"{path} is {kind}: it has {present} bytes, and {end} by its header. Write or copy it again.")
    return MegatronIndex(
        path, f"{path.removesuffix('.idx')}.bin", np.dtype(dtype).newbyteorder("<"), sequences, _NO_ENDS, documents, values
    )
