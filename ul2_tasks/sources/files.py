"""Which files a corpus has, how they are split into segments that can be read side by side, and how they are opened."""

from __future__ import annotations

import bz2
import dataclasses
import fnmatch
import functools
import gzip
import hashlib
import io
import itertools
import lzma
import os
import re
import zlib
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent import futures
from typing import Any, BinaryIO

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf
from backports import zstd
from fsspec.implementations.local import LocalFileSystem
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
# What these open are files, but share no type.
COMPRESSIONS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": zstd.open}
DOCUMENTS = ("line", "paragraph", "file")
METADATA = "metadata_json"  # a field of conversations, with JSON in which the id may be
MESSAGES_JSON, SYNTH_ID = "messages_json", "synth_id"  # fields that go together in data sets of conversations
INPUT_MANIFEST = "manifest.json"  # in a folder of conversations, which says what they are, and has none
# These errors mean that a file is not what its name says; any other OSError means that it cannot be reached. (bz2 raises a plain
# OSError, without a number.)
CORRUPT = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstd.ZstdError, pa.ArrowException, UnicodeDecodeError)


def is_unreachable(error: Exception) -> bool:
    """Whether an error, of `CORRUPT` or an OSError, says that a file cannot be reached, and not that it is corrupt."""
    return isinstance(error, OSError) and error.errno is not None and not isinstance(error, CORRUPT)


MAX_SEGMENTS = 64  # fewer files than this are split, so that hosts, workers and denoisers have enough segments to share
_MIN_SEGMENT, _MAX_SEGMENT = 1 << 16, 1 << 30  # bytes
_THREADS = 16
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(:[\w.-]+)?")  # OWNER/NAME, OWNER/NAME:CONFIG


@dataclasses.dataclass(frozen=True)
class Layout:
    """How documents lie in files.

    Attributes:
        format: "text", "jsonl", "parquet", "arrow" or "tfrecord".
        documents: what a document is in text files: a "line", a "file", or a "paragraph", which ends at blank lines; None for
            other formats.
        text_key: the field, column or feature that holds the text.
        id_key: the one that holds the document's id; None where no id is wanted.
        as_json: whether documents are conversations: a value that is no text, such as a list of messages, is taken, and the id
            may be in the JSON of `METADATA`, too.
    """

    format: str | None
    documents: str | None = None
    text_key: str = "text"
    id_key: str | None = None
    as_json: bool = False

    @property
    def own_id_key(self) -> str | None:
        """The field that holds the id, or of conversations may: there it is checked where it is not wanted, too."""
        return self.id_key or (SYNTH_ID if self.as_json and self.text_key == MESSAGES_JSON else None)

    @property
    def read(self) -> list[str]:
        """The fields that are read, if they are there; the text's first."""
        key = self.own_id_key
        return [self.text_key, *([key] if key else []), *([METADATA] if key and self.as_json else [])]

    def missing(self, present: Container[str]) -> str | None:
        """A field that is wanted and not among those that are there; None where none is missing."""
        if self.text_key not in present:
            return self.text_key
        has_id = not self.id_key or self.id_key in present or (self.as_json and METADATA in present)
        return None if has_id else self.id_key


@dataclasses.dataclass(frozen=True)
class Segment:
    """A part of a file that is read on its own: the whole file, or the documents that begin in a range of it.

    The range [start, stop) is in bytes for lines, in row groups for Parquet, in record batches for Arrow. A stop of None is the end
    of the file.
    """

    path: str
    start: int = 0
    stop: int | None = None

    def __str__(self) -> str:
        return self.path if self.stop is None else f"{self.path}[{self.start}:{self.stop}]"


def list_files(patterns: str | os.PathLike | Sequence[str | os.PathLike]) -> list[str]:
    """The files that paths, globs and folders name. A folder means all files in it and below it.

    Each file is listed once. The patterns keep their order, and the files of one pattern are sorted. Files and folders whose names
    begin with "." or "_" are left out, as other tools do, unless the pattern spells that beginning. A pattern that names no such
    file is refused, and so is a folder that contains a link to a folder.
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


def named_format(path: str) -> str | None:
    """The format that a file's or glob's name ends with; None where the name does not say.

    >>> named_format("corpus/*.jsonl.gz")
    'jsonl'
    """
    name, suffix = os.path.splitext(path)
    return FORMATS.get((os.path.splitext(name)[1] if suffix in COMPRESSIONS else suffix).lower())


def format_of(paths: Iterable[str]) -> str:
    """The one format that the names of all files end with. Names that say none, or several, are refused."""
    formats: dict[str, str] = {}
    for path in paths:
        format = named_format(path)
        if format is None:
            raise ValueError(
                f"the name of {path!r} does not tell its format, expected one of {' '.join(FORMATS)}, also compressed"
                f" ({' '.join(COMPRESSIONS)}); give format, one of {sorted(set(FORMATS.values()))}"
            )
        formats.setdefault(format, path)
    if len(formats) > 1:
        raise ValueError(f"the files have several formats, such as {formats}; register each on its own, and mix them")
    return next(iter(formats))


def segments(paths: Sequence[str], layout: Layout) -> list[Segment]:
    """The segments of files: one for each file, or several where there are few files and they can be read from the middle."""
    sizes = parallel_map(_size, paths)
    if not any(sizes):
        raise ValueError(f"there is no document: each of the {len(paths)} files is empty, the first is {paths[0]!r}")
    if len(paths) >= MAX_SEGMENTS or layout.format == "tfrecord" or (layout.format == "text" and layout.documents != "line"):
        return [Segment(path) for path in paths]
    if layout.format in ("parquet", "arrow"):
        groups = list(itertools.chain(*parallel_map(functools.partial(_groups, format=layout.format), paths)))
        if not groups:
            raise ValueError(f"there is no document: none of the {len(paths)} files has a row, the first is {paths[0]!r}")
        return groups
    length = min(max(-(-sum(sizes) // MAX_SEGMENTS), _MIN_SEGMENT), _MAX_SEGMENT)
    return list(itertools.chain(*(_ranges(path, size, length) for path, size in zip(paths, sizes))))


def open_file(path: str) -> BinaryIO:
    """Opens a file of any file system that fsspec or TensorFlow has; decompresses it as its name says."""
    file = io.BufferedReader(_TensorFlowFile(path), 1 << 20) if _by_tensorflow(path) else fsspec.open(path, "rb").open()
    if isinstance(file, MemoryFile):  # fsspec gives all callers the same object, with a single position
        file = io.BytesIO(file.getvalue())
    decompress = COMPRESSIONS.get(os.path.splitext(path)[1])
    return decompress(file) if decompress else file


def stamp(path: str) -> str:
    """The size of a file, and when it was last changed where the file system tells that: another text after each change."""
    if _by_tensorflow(path):
        found = tf.io.gfile.stat(path)
        return f"{found.length} bytes, {found.mtime_nsec}"
    file_system, name = fsspec.core.url_to_fs(path)
    try:
        return f"{file_system.size(name)} bytes, {file_system.modified(name).isoformat()}"
    except NotImplementedError:
        return f"{file_system.size(name)} bytes"


def contents(paths: Sequence[str]) -> str:
    """Files in few words, others once one of them is changed, or another: by what its path leads to, its size and its time."""
    told = list(map(_told, paths)) if not any("://" in path for path in paths) else parallel_map(_told, paths)
    return f"{len(paths)} files, sha256 {hashlib.sha256(repr(told).encode()).hexdigest()[:16]}"


def _told(path: str) -> tuple[str, str]:
    if "://" not in path:
        found = os.stat(path)
        return os.path.realpath(path), f"{found.st_size} bytes, {found.st_mtime_ns}"
    if _by_tensorflow(path):
        return path, stamp(path)
    file_system, name = fsspec.core.url_to_fs(path)
    return _told(name) if isinstance(file_system, LocalFileSystem) else (file_system.unstrip_protocol(name), stamp(path))


def real_path(path: str) -> str:
    """What a local path leads to, however it is spelled; of another one the path itself."""
    return path if "://" in path else os.path.realpath(path)


def parallel_map(function: Callable, values: Iterable) -> list:
    """Like `map`, in 16 threads: with a remote file system nearly all of the time is waiting."""
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
    if file_system.isfile(path):  # asked first, because a file's name may have [brackets], which a glob has too
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
    """The paths that are not hidden. Raises a ValueError if there are paths, and all of them are hidden."""
    visible = [path for path in paths if _is_visible(path.split("/"), pattern.split("/"))]
    if paths and not visible:
        raise ValueError(
            f"all files that match {pattern!r} are hidden, such as {min(paths)!r}: below it a name begins with '.' or '_'; expected"
            " other files, or name these one by one"
        )
    return visible


def _is_visible(names: list[str], spelled: list[str]) -> bool:
    """Whether no name of a path begins with "." or "_", except names that the pattern (`spelled`) has too."""
    shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(names, spelled)))
    hidden, own = ([name for name in some[shared:] if name.startswith((".", "_"))] for some in (names, spelled))
    return all(any(fnmatch.fnmatchcase(name, pattern) for pattern in own) for name in hidden)


def _no_match(pattern: str) -> str:
    if os.path.isdir(pattern):
        return f"there is no file in the folder {pattern!r}, nor below it; expected a file, a folder or a glob"
    where = "" if "://" in pattern or os.path.isabs(pattern) else f" in the folder {os.getcwd()}"
    if _HUB_ID.fullmatch(pattern) and named_format(pattern) is None:
        what = f"; of a dataset of Hugging Face's hub give 'hf:{pattern}'"
    else:
        what = ", such as 'corpus/*.jsonl.gz'"
    return f"no file matches {pattern!r}{where}; expected a file, a folder or a glob{what}"


def _by_tensorflow(path: str) -> bool:
    return "://" in path and _protocol_by_tensorflow(path.partition("://")[0])


@functools.lru_cache
def _protocol_by_tensorflow(protocol: str) -> bool:
    """Whether TensorFlow opens paths such as gs://: it does where fsspec lacks the package for the protocol."""
    try:
        fsspec.get_filesystem_class(protocol)
        return False
    except (ImportError, ValueError) as error:
        if protocol in tf.io.gfile.get_registered_schemes():
            return True
        raise ValueError(f"no file system for {protocol}:// is installed: {error}") from error


class _TensorFlowFile(io.RawIOBase):
    """A file of one of TensorFlow's file systems, with the methods that Python's libraries expect of a file."""

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


def _ranges(path: str, size: int, length: int) -> list[Segment]:
    """Segments of about equal size, at most `length` bytes each; a single one of a compressed file, which has no middle."""
    if size <= length or os.path.splitext(path)[1] in COMPRESSIONS:
        return [Segment(path)]
    count = -(-size // length)
    bounds = [size * index // count for index in range(count + 1)]
    return [Segment(path, start, stop) for start, stop in itertools.pairwise(bounds)]


def _groups(path: str, format: str) -> list[Segment]:
    """A segment for each row group or record batch; a single one where the file does not say how many it has."""
    try:
        with open_file(path) as file:
            count = pq.ParquetFile(file).num_row_groups if format == "parquet" else pa.ipc.open_file(file).num_record_batches
    except (*CORRUPT, OSError) as error:
        if is_unreachable(error):
            raise
        return [Segment(path)]
    return [Segment(path, group, group + 1) for group in range(count)]
