"""Writes a pair of files, `.bin` and `.idx`, and hashes them as they are written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from ul2_tasks.files.systems import open_to_write
from ul2_tasks.store.index import MAX_DOCUMENT, serialize

REPEATED = -1


def with_ends(values: np.ndarray, lengths: np.ndarray, end: int, of_all: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Documents, see `PairWriter.add`, each with an end, or those that are not empty; `REPEATED` is the last value once more."""
    is_ended = (lengths > 0) | (of_all and end != REPEATED)
    ends = np.cumsum(lengths)[is_ended]
    return np.insert(values, ends, values[ends - 1] if end == REPEATED else end), lengths + is_ended


class PairWriter:
    """Writes documents, which may be more than memory holds; only their lengths are kept in it.

    There are no files where there is no document: Megatron opens no empty pair.

        with PairWriter(bin_path, idx_path, np.dtype(np.uint16)) as pair:
            pair.add(np.array([5, 6, 7, 8, 9]), np.array([3, 2]))
        entries = pair.entries

    With `end` this token is written after each document, and belongs to it, see `with_ends`. At the end of the block `entries` has
    "bin" and "idx", the "bytes" and "sha256" of each; nothing where there is no document.
    """

    def __init__(self, bin_path: str, idx_path: str, dtype: np.dtype, end: int | None = None):
        self._bin_path, self._idx_path, self._dtype, self._end = bin_path, idx_path, dtype, end
        self._lengths: list[np.ndarray] = []
        self._file: HashedFile | None = None
        self.documents = self.tokens = 0
        self.entries: dict[str, dict[str, int | str]] = {}

    def add(self, tokens: np.ndarray, lengths: np.ndarray) -> None:
        """Adds documents: [tokens] integers, document after document, and [documents] integers, how many tokens each has."""
        if not len(lengths):
            return
        if self._end is not None:
            tokens, lengths = with_ends(tokens, lengths, self._end)
        limits = np.iinfo(self._dtype)
        if len(tokens) and not (limits.min <= tokens.min() and tokens.max() <= limits.max):
            raise ValueError(
                f"ids must fit {self._dtype}, got {tokens.min()} to {tokens.max()}. Pass the vocabulary that has them."
            )
        if lengths.max() > MAX_DOCUMENT:
            raise ValueError(
                f"a document must have at most {MAX_DOCUMENT} tokens, the limit of an .idx, got {lengths.max()}. Split it."
            )
        self._file = self._file or HashedFile(self._bin_path)
        self._file.write(np.ascontiguousarray(tokens, self._dtype.newbyteorder("<")).view(np.uint8).data)
        self._lengths.append(lengths.astype(np.int32))
        self.documents += len(lengths)
        self.tokens += len(tokens)

    def __enter__(self) -> PairWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self._file is None:
            return
        self._file.__exit__(kind, *error)
        if kind is None:
            with HashedFile(self._idx_path) as index:
                index.write(serialize(np.concatenate(self._lengths), self._dtype))
            self.entries = {"bin": self._file.entry, "idx": index.entry}


class LinesWriter:
    """Writes objects as JSON Lines. There is no file where there is no object.

    At the end of the block `entry` has the "bytes" and "sha256"; it is None where there is no object.
    """

    def __init__(self, path: str):
        self._path = path
        self._file: HashedFile | None = None
        self.entry: dict[str, int | str] | None = None

    def add(self, value: Mapping) -> None:
        self._file = self._file or HashedFile(self._path)
        self._file.write(f"{json.dumps(value)}\n".encode())

    def __enter__(self) -> LinesWriter:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.__exit__(*error)
            self.entry = self._file.entry


class HashedFile:
    """A file that is written from its beginning to its end, with its size and SHA-256; pyarrow writes into it, too.

    For a `with` block that raises anything see `open_to_write`.
    """

    def __init__(self, path: str):
        self._file, self._hash, self._bytes = open_to_write(path), hashlib.sha256(), 0

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._hash.update(data)
        self._bytes += len(data)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> HashedFile:
        return self

    def __exit__(self, *error: Any) -> None:
        self._file.__exit__(*error)

    @property
    def closed(self) -> bool:
        return self._file.closed

    @property
    def entry(self) -> dict[str, int | str]:
        return {"bytes": self._bytes, "sha256": self._hash.hexdigest()}
