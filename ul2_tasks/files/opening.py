"""Files that are opened to be read from, decompressed as their names say, and what tells a corrupt one from one out of reach."""

from __future__ import annotations

import bz2
import functools
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO

import pyarrow as pa
from backports import zstd

from ul2_tasks.files.systems import open_to_read

_BLOCK = 1 << 17  # bytes that are decompressed at once
_XZ_PADDING = 4  # bytes of zero, of which any number may follow a stream


class _Streams(io.RawIOBase):
    """The content of all streams of a .bz2, .xz or .zst file, of which Python's own readers end where they cannot read a stream.

    What follows a stream is padding, where the format has it, and then another stream; anything else raises an error.
    """

    def __init__(self, file: BinaryIO, decompressor: Callable[[], Any], padding: int = 0):
        self._file, self._decompressor, self._padding = file, decompressor, padding
        self._begin()

    def _begin(self) -> None:
        self._stream, self._position = self._decompressor(), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._file.seekable()

    def close(self) -> None:
        self._file.close()
        super().close()

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            while self.read(_BLOCK):
                pass
        target = offset if whence == io.SEEK_SET else self._position + offset
        if target < self._position:
            self._file.seek(0)
            self._begin()
        while self._position < target and self.read(min(target - self._position, _BLOCK)):
            pass
        return self._position

    def readinto(self, buffer: Any) -> int:
        while True:
            given = b""
            if self._stream.eof:
                if not (given := self._after_stream()):
                    return 0
                self._stream = self._decompressor()
            elif self._stream.needs_input and not (given := self._file.read(_BLOCK)):
                raise EOFError("it ends within a compressed stream")
            if found := self._stream.decompress(given, max_length=len(buffer)):
                buffer[: len(found)] = found
                self._position += len(found)
                return len(found)

    def _after_stream(self) -> bytes:
        """The beginning of what follows a stream and its padding; nothing at the end of the file."""
        rest, zeros = self._stream.unused_data or self._file.read(_BLOCK), 0
        while rest:
            behind = rest.lstrip(b"\0") if self._padding else rest
            zeros += len(rest) - len(behind)
            if behind:
                break
            rest = self._file.read(_BLOCK)
        if zeros and zeros % self._padding:
            raise CorruptFileError(f"the padding of a stream must be a multiple of {self._padding} bytes, got {zeros}")
        return behind if rest else b""


def _by_streams(file: BinaryIO, decompressor: Callable[[], Any], padding: int = 0) -> BinaryIO:
    return io.BufferedReader(_Streams(file, decompressor, padding), _BLOCK)


# What these open are files, but share no type.
COMPRESSIONS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".bz2": functools.partial(_by_streams, decompressor=bz2.BZ2Decompressor),
    ".xz": functools.partial(_by_streams, decompressor=lzma.LZMADecompressor, padding=_XZ_PADDING),
    # Windows of any size, as `zstd --long=31` writes them, and not only of up to 128 MB.
    ".zst": (
        _zstd := functools.partial(
            _by_streams,
            decompressor=functools.partial(zstd.ZstdDecompressor, options={zstd.DecompressionParameter.window_log_max: 31}),
        )
    ),
    ".zstd": _zstd,
}


class CorruptFileError(ValueError):
    """A file is not what its name says, or what its own checksums say."""


# These errors mean that a file is not what its name says, as does a plain OSError without a number, which bz2, pyarrow and Pillow
# raise; any other OSError means that it cannot be reached.
CORRUPT = (
    CorruptFileError,
    EOFError,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    zstd.ZstdError,
    pa.ArrowException,
    UnicodeDecodeError,
)


def open_file(path: str) -> BinaryIO:
    """Opens a file of any file system, and decompresses it as its name says."""
    file: Any = open_to_read(path)
    decompress = COMPRESSIONS.get(os.path.splitext(path)[1])
    if decompress is None:
        return file
    if not file.read(1):  # gzip takes it for the file of no content, which has a header
        raise EOFError("it has no bytes, and no compressed stream")
    file.seek(0)
    return decompress(file)


def is_unreachable(error: Exception) -> bool:
    """Whether an error, of `CORRUPT` or an OSError, says that a file cannot be reached, and not that it is corrupt."""
    is_plain = type(error) is OSError and error.errno is None
    return isinstance(error, OSError) and not is_plain and not isinstance(error, CORRUPT)
