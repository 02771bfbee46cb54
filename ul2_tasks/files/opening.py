"""Files that are opened to be read from, decompressed as their names say, and what tells a corrupt one from one out of reach."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO

import pyarrow as pa
from backports import zstd

from ul2_tasks.files.systems import open_to_read

# What these open are files, but share no type.
COMPRESSIONS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": zstd.open}
# These errors mean that a file is not what its name says; any other OSError means that it cannot be reached. (bz2 raises a plain
# OSError, without a number.)
CORRUPT = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstd.ZstdError, pa.ArrowException, UnicodeDecodeError)


def open_file(path: str) -> BinaryIO:
    """Opens a file of any file system, and decompresses it as its name says."""
    file: Any = open_to_read(path)
    decompress = COMPRESSIONS.get(os.path.splitext(path)[1])
    return decompress(file) if decompress else file


def is_unreachable(error: Exception) -> bool:
    """Whether an error, of `CORRUPT` or an OSError, says that a file cannot be reached, and not that it is corrupt."""
    return isinstance(error, OSError) and error.errno is not None and not isinstance(error, CORRUPT)
