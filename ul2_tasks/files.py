"""Which files a corpus has, how they are cut into pieces that can be read side by side, and how they are opened."""

from __future__ import annotations

import bz2
import dataclasses
import fnmatch
import functools
import gzip
import io
import itertools
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent import futures
from typing import BinaryIO

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf
from backports import zstd
from fsspec.implementations.memory import MemoryFile

FORMATS = {
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".tfrecord": "tfrecord",
    ".tfrecords": "tfrecord",
}
COMPRESSIONS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": zstd.open}
DOCUMENTS = ("line", "paragraph", "file")
# What a file raises that is not what its name says, as against one that cannot be reached. (bz2 raises a bare OSError.)
CORRUPT = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstd.ZstdError, pa.ArrowException)

MAX_PIECES = 64  # fewer files than this are cut, so that hosts, workers and denoisers find enough to share out
_MIN_PIECE, _MAX_PIECE = 1 << 16, 1 << 30  # bytes
_THREADS = 16
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(:[\w.-]+)?")  # OWNER/NAME, OWNER/NAME:CONFIG


@dataclasses.dataclass(frozen=True)
class Layout:
    """How documents lie in files.

    Attributes:
        format: "text", "jsonl", "parquet", "arrow" or "tfrecord".
        documents: what a document is in text files: a "line", a "file", or a "paragraph", which blank lines separate; else None.
        text_key: the field, column or feature of the text.
        id_key: that of the document's id, where it is wanted.
    """

    format: str | None
    documents: str | None = None
    text_key: str = "text"
    id_key: str | None = None


@dataclasses.dataclass(frozen=True)
class Piece:
    """A file; or what begins in a range of it: in bytes [start, stop), or row groups, or record batches."""

    path: str
    start: int = 0
    stop: int | None = None

    def __str__(self) -> str:
        return self.path if self.stop is None else f"{self.path}[{self.start}:{self.stop}]"


def list_files(patterns: str | os.PathLike | Sequence[str | os.PathLike]) -> list[str]:
    """The files that paths, globs and folders (all files in and below them) name, each once, those of a pattern sorted.

    Files and folders whose names begin with "." or "_" are left out, as other tools do, unless the pattern spells them.

    Raises:
        ValueError: one of the patterns names no file, or hidden ones alone; a link to a folder is below a folder; no file system
            for it is installed.
    """
    found: dict[str, str] = {}
    for pattern in [patterns] if isinstance(patterns, str | os.PathLike) else patterns:
        pattern = os.path.expanduser(os.fspath(pattern))
        names = _expand(pattern)
        if not names:
            raise ValueError(_no_match(pattern))
        for name in sorted(names):
            found.setdefault(name if "://" in name else os.path.normpath(name), name)
    return list(found.values())


def told_format(path: str) -> str | None:
    """The format that the name of a file or a glob tells, before the ending of a compression; None where it tells none."""
    name, suffix = os.path.splitext(path)
    return FORMATS.get((os.path.splitext(name)[1] if suffix in COMPRESSIONS else suffix).lower())


def format_of(paths: Iterable[str]) -> str:
    """The format that the files' names tell.

    Raises:
        ValueError: a name tells none, or they tell several.
    """
    formats: dict[str | None, str] = {}
    for path in paths:
        formats.setdefault(told_format(path), path)
    if None in formats:
        raise ValueError(
            f"the name of {formats[None]!r} does not tell its format, expected one of {' '.join(FORMATS)}, also compressed"
            f" ({' '.join(COMPRESSIONS)}); give format, one of {sorted(set(FORMATS.values()))}"
        )
    if len(formats) > 1:
        raise ValueError(f"the files have several formats, such as {formats}; register each on its own, and mix them")
    return next(iter(formats))


def cut(paths: Sequence[str], layout: Layout) -> list[Piece]:
    """The pieces of files: each a file; or parts of files, where there are few and they can be read from the middle.

    Raises:
        ValueError: all files are empty, or no file has a row.
        OSError: a file cannot be reached.
    """
    sizes = parallel_map(_size, paths)
    if not any(sizes):
        raise ValueError(f"there is no document: each of the {len(paths)} files is empty, the first is {paths[0]!r}")
    if len(paths) >= MAX_PIECES or layout.format == "tfrecord" or (layout.format == "text" and layout.documents != "line"):
        return [Piece(path) for path in paths]
    if layout.format in ("parquet", "arrow"):
        groups = list(itertools.chain(*parallel_map(functools.partial(_groups, format=layout.format), paths)))
        if not groups:
            raise ValueError(f"there is no document: none of the {len(paths)} files has a row, the first is {paths[0]!r}")
        return groups
    length = min(max(-(-sum(sizes) // MAX_PIECES), _MIN_PIECE), _MAX_PIECE)
    return list(itertools.chain(*(_ranges(path, size, length) for path, size in zip(paths, sizes))))


def open_file(path: str) -> BinaryIO:
    """Opens a file of any file system that fsspec or TensorFlow has, decompressed as its name says."""
    file = io.BufferedReader(_TensorFlowFile(path), 1 << 20) if _by_tensorflow(path) else fsspec.open(path, "rb").open()
    if isinstance(file, MemoryFile):  # one object, with one position, for all who open it
        file = io.BytesIO(file.getvalue())
    decompress = COMPRESSIONS.get(os.path.splitext(path)[1])
    return decompress(file) if decompress else file


def parallel_map(function: Callable, values: Iterable) -> list:
    """Like map, sixteen at a time: what a remote file system takes is waiting."""
    with futures.ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(function, values))


def _expand(pattern: str) -> list[str]:
    if _by_tensorflow(pattern):
        gfile = tf.io.gfile
        if gfile.isdir(pattern):
            names = [f"{folder.rstrip('/')}/{name}" for folder, _, names in gfile.walk(pattern) for name in names]
        else:
            names = [path for path in gfile.glob(pattern) if not gfile.isdir(path)]
        return _visible(names, pattern)
    file_system, path = fsspec.core.url_to_fs(pattern)
    if file_system.isfile(path):  # first of all, because names may have [brackets]
        names = [path]
    elif file_system.isdir(path):
        found = file_system.find(path, detail=True)
        names = _visible(list(found), path)
        links = [name for name in names if found[name].get("islink") and file_system.isdir(name)]
        if links:
            raise ValueError(f"{links[0]!r} is a link to a folder, which is not followed; name the folders, as a list")
    else:
        names = _visible(list(filter(file_system.isfile, file_system.glob(path))), path)
    return [file_system.unstrip_protocol(name) for name in names] if "://" in pattern else names


def _visible(paths: Sequence[str], pattern: str) -> list[str]:
    """Those in whose names, below what they share with the pattern, nothing begins with "." or "_", unless the pattern spells it.

    Raises:
        ValueError: there are paths, but none of these.
    """
    visible = [path for path in paths if _is_visible(path.split("/"), pattern.split("/"))]
    if paths and not visible:
        raise ValueError(
            f"all files that match {pattern!r} are hidden, such as {min(paths)!r}: below it a name begins with '.' or '_'; expected"
            " other files, or name these one by one"
        )
    return visible


def _is_visible(names: list[str], spelled: list[str]) -> bool:
    shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(names, spelled)))
    hidden, own = ([name for name in some[shared:] if name.startswith((".", "_"))] for some in (names, spelled))
    return all(any(fnmatch.fnmatchcase(name, pattern) for pattern in own) for name in hidden)


def _no_match(pattern: str) -> str:
    if os.path.isdir(pattern):
        return f"there is no file in the folder {pattern!r}, nor below it; expected a file, a folder or a glob"
    where = "" if "://" in pattern or os.path.isabs(pattern) else f" in the folder {os.getcwd()}"
    if _HUB_ID.fullmatch(pattern) and told_format(pattern) is None:
        what = f"; of a dataset of Hugging Face's hub give 'hf:{pattern}'"
    else:
        what = ", such as 'corpus/*.jsonl.gz'"
    return f"no file matches {pattern!r}{where}; expected a file, a folder or a glob{what}"


def _by_tensorflow(path: str) -> bool:
    return "://" in path and _protocol_by_tensorflow(path.partition("://")[0])


@functools.lru_cache
def _protocol_by_tensorflow(protocol: str) -> bool:
    """gs:// and the like, where the package that fsspec wants for it is not installed, are TensorFlow's."""
    try:
        fsspec.get_filesystem_class(protocol)
        return False
    except (ImportError, ValueError) as error:
        if protocol in tf.io.gfile.get_registered_schemes():
            return True
        raise ValueError(f"no file system for {protocol}:// is installed: {error}") from error


class _TensorFlowFile(io.RawIOBase):
    """A file of TensorFlow's file systems, as Python's libraries want files."""

    def __init__(self, path: str):
        self._file = tf.io.gfile.GFile(path, "rb")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return self._file.tell()

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        super().close()


def _size(path: str) -> int:
    if _by_tensorflow(path):
        return tf.io.gfile.stat(path).length
    file_system, name = fsspec.core.url_to_fs(path)
    return file_system.size(name)


def _ranges(path: str, size: int, length: int) -> list[Piece]:
    """Ranges of bytes. What is compressed can only be read from its start."""
    if size <= length or os.path.splitext(path)[1] in COMPRESSIONS:
        return [Piece(path)]
    count = -(-size // length)
    bounds = [size * index // count for index in range(count + 1)]
    return [Piece(path, start, stop) for start, stop in itertools.pairwise(bounds)]


def _groups(path: str, format: str) -> list[Piece]:
    """A piece for each row group or record batch; one for all, where only reading the file tells how many there are."""
    try:
        with open_file(path) as file:
            count = pq.ParquetFile(file).num_row_groups if format == "parquet" else pa.ipc.open_file(file).num_record_batches
    except CORRUPT:
        return [Piece(path)]
    return [Piece(path, group, group + 1) for group in range(count)]
