"""A file of any file system whose failed reads are tried again, so that none is taken for its end or for what it holds."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from typing import Any, TypeVar

from ul2_tasks.files.retries import ShortReadError, named, retried

_BLOCK = 1 << 22  # bytes of a whole file that are read at once
_BUFFER = 1 << 18  # bytes; of remote files, fsspec keeps more
_Found = TypeVar("_Found")


class RetriedFile(io.BufferedReader):
    """A file that `open` opens anew after a read of it has failed, and that is read on at the same place.

    What fails for good is a `ReadError` that names the path, whatever was raised, unless the file is not there or not allowed. An
    answer that ends before the file does is a failure, too. At the end of a `with` block the error is raised where a decoder took
    it for the end of the file, or for damage.
    """

    def __init__(self, open: Callable[[], Any], path: str):
        self._reads = _Reads(open, path)
        super().__init__(self._reads, _BUFFER)

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close()
        is_interrupt = isinstance(error, BaseException) and not isinstance(error, Exception)
        if self._reads.failure is not None and error is not self._reads.failure and not is_interrupt:
            raise self._reads.failure


class _Reads(io.RawIOBase):
    """The reads of a `RetriedFile`."""

    failure: OSError | None = None

    def __init__(self, open: Callable[[], Any], path: str):
        self._open, self._path, self._at, self._there = open, path, 0, 0  # where to read on, and where the file is
        self._file: Any = None
        self._size, self._is_seekable = self._try(lambda file: (_size_of(file), file.seekable()))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._is_seekable

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Goes nowhere before the next read: a damaged file may name a place that no file has."""
        before = {io.SEEK_SET: 0, io.SEEK_CUR: self._at}
        at = offset + (before[whence] if whence in before else self._end())
        if at < 0:
            raise ValueError(f"offset must lead to a byte of {self._path}, got {at}.")
        self._at = at
        return at

    def readinto(self, buffer: Any) -> int:
        found = self._try(lambda file: self._bytes(file, len(buffer)))
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)

    def readall(self) -> bytes:
        parts = []
        while part := self._try(lambda file: self._bytes(file, _BLOCK)):
            parts.append(part)
            self._at += len(part)
        return b"".join(parts)

    def close(self) -> None:
        if not self.closed:
            self._leave()
        super().close()

    def _end(self) -> int:
        if self._size is not None:
            return self._size
        self._there = self._try(lambda file: file.seek(0, io.SEEK_END))
        return self._there

    def _bytes(self, file: Any, count: int) -> bytes:
        if self._size is not None and self._at >= self._size:
            return b""
        if self._there != self._at:
            file.seek(self._at)
            self._there = self._at
        found = file.read(count)
        self._there += len(found)
        if not found and count and self._size is not None:
            raise ShortReadError(
                f"{self._path} ends {self._size - self._at} bytes too early, because it was cut while it was read. Write or copy it"
                " again."
            )
        return found

    def _try(self, request: Callable[[Any], _Found]) -> _Found:
        def ask() -> _Found:
            try:
                return request(self._opened())
            except Exception:
                self._leave()
                raise

        try:
            return retried(ask, self._path)
        except (MemoryError, ImportError):
            raise
        except Exception as error:  # of the file system: it says nothing of what the file holds
            self.failure = named(error, self._path)
        raise self.failure

    def _opened(self) -> Any:
        if self._file is None:
            self._file, self._there = self._open(), 0
            if self._at and (size := _size_of(self._file)) != self._size:
                raise ValueError(f"it was changed while it was read: it had {self._size} bytes, and has {size}")
        return self._file

    def _leave(self) -> None:
        file, self._file = self._file, None
        try:
            file.close()
        except Exception:  # nothing that was read depends on it; at exit there may be no `contextlib` left to say so
            return


def _size_of(file: Any) -> int | None:
    """How many bytes a file has; None where it does not say, or says none, as a pipe does."""
    if hasattr(file, "size"):
        return file.size if isinstance(file.size, int) and file.size else None
    with contextlib.suppress(OSError, AttributeError):
        return os.fstat(file.fileno()).st_size or None
    return None
