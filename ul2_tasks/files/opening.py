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
from ul2_tasks.imported import is_instance

# What these open are files, but share no type.
COMPRESSIONS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": zstd.open}
# These errors mean that a file is not what its name says, as does a plain OSError without a number, which bz2, pyarrow and Pillow
# raise; any other OSError means that it cannot be reached.
CORRUPT = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstd.ZstdError, pa.ArrowException, UnicodeDecodeError)


def open_file(path: str) -> BinaryIO:
    """Opens a file of any file system, and decompresses it as its name says."""
    file: Any = open_to_read(path)
    decompress = COMPRESSIONS.get(os.path.splitext(path)[1])
    return decompress(file) if decompress else file


# What code that others wrote raises for what a record holds. An EOFError is none of these, as a connection that is closed is one.
_OF_CONTENT = (
    *(kind for kind in CORRUPT if kind is not EOFError),
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)


def is_of_content(error: Exception) -> bool:
    """Whether an error says that what was read is wrong, or names a file that is not there; any other may be a read that failed."""
    is_absent = isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError)
    is_no_image = is_instance(error, "PIL", "UnidentifiedImageError")  # an OSError
    return is_absent or is_no_image or (isinstance(error, _OF_CONTENT) and not is_unreachable(error))


def is_unreachable(error: Exception) -> bool:
    """Whether an error, of `CORRUPT` or an OSError, says that a file cannot be reached, and not that it is corrupt."""
    is_plain = type(error) is OSError and error.errno is None
    return isinstance(error, OSError) and not is_plain and not isinstance(error, CORRUPT)
