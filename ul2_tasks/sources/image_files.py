"""How records lie in files of each format: the pieces that can be read from their beginnings, and the reading of one.

    .parquet        a piece is a row group, a record a row
    .jsonl .ndjson  a piece is 256 lines, a record a line
    .tar            a piece is 64 samples, a record the files whose names are equal up to the first stop, as WebDataset has it

A compressed file of lines or samples is one piece, because it cannot be read from the middle.
A piece is read from any of its records on, record by record. Each comes with its name, which is its own and stays the same. In the
place of a record that is wrong there is a ValueError.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import tarfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from ul2_tasks.files.opening import COMPRESSIONS, CORRUPT, is_unreachable, open_file
from ul2_tasks.sources.files import Shard
from ul2_tasks.sources.records import lines_in, parsed_json

_logger = logging.getLogger(__name__)
_BLOCK = 1 << 16  # bytes
_LINES, _SAMPLES, _ROWS = 256, 64, 16  # of a piece; of a batch that is read at once
_IMAGES = {"jpg", "jpeg", "png", "webp", "gif", "bmp"}
_VIDEOS = {"mp4", "webm", "mov", "mkv", "avi"}

Named: TypeAlias = tuple[str, dict[str, Any] | ValueError]


class Piece(NamedTuple):
    """A part of a file that can be read from its beginning.

    `start` is the number of a row group, or the byte at which the piece begins. `first` is the number in the file of the piece's
    first line or sample; 0 for a row group.
    """

    path: str
    start: int
    first: int
    records: int


def may_hold(piece: Piece, name: str) -> bool:
    """Whether a piece is of the file of a record's name, and does not begin after it.

    >>> [may_hold(Piece("a.jsonl", start, first, 256), "a.jsonl, line 257") for start, first in ((0, 0), (7000, 256), (9000, 512))]
    [True, True, False]
    """
    path = _name(piece, "")
    place = re.match(r"(row group|line|sample|record) (\d+)", name[len(path) :]) if name.startswith(path) else None
    if place is None:
        return False
    number = int(place[2]) - (place[1] == "line")
    return piece.start == number if place[1] == "row group" else piece.first <= number


def row_of(piece: Piece, name: str) -> int:
    """The number of a record in its file, or in its row group, by its name.

    >>> [row_of(Piece("a", 3, 0, 9), name) for name in ("a, line 257", "a, row group 3, row 8", "a, sample 5 (cat)", "a, record 2")]
    [257, 8, 5, 2]
    """
    found = re.match(r"(?:row group \d+, row|line|sample|record) (\d+)", name[len(_name(piece, "")) :])
    return int(found[1]) if found else 0


def parquet_pieces(path: str) -> list[Piece]:
    """The row groups that are not empty."""
    with open_file(path) as file:
        metadata = pq.ParquetFile(file).metadata
        groups = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    return [Piece(path, group, 0, rows) for group, rows in enumerate(groups) if rows]


def read_parquet(piece: Piece, start: int) -> Iterator[Named]:
    """The rows of a row group from row `start` on."""
    given = start
    unreadable = (*CORRUPT, OSError)  # an iterator that is left behind ends after pyarrow, of which nothing is there then
    try:
        with open_file(piece.path) as file:
            found = pq.ParquetFile(file, buffer_size=1 << 20)  # without it the whole row group would be read at once
            first = 0
            for batch in found.iter_batches(_ROWS, row_groups=[piece.start], use_threads=False):
                for record in _objects(batch.slice(max(0, start - first))):
                    yield _row(piece, given), record
                    given += 1
                first += len(batch)
    except unreadable as error:
        if is_unreachable(error):
            raise
        for row in range(given, piece.records):
            yield _row(piece, row), ValueError(f"the row group cannot be read: {error}")


def jsonl_pieces(path: str) -> list[Piece]:
    """Stretches of lines. Those that are blank are no records."""
    pieces, offset = [], 0
    with open_file(path) as file:
        if _is_compressed(path):
            records = sum(1 for line in file if line.strip())
            return [Piece(path, 0, 0, records)] if records else []
        for number, lines in enumerate(iter(lambda: list(itertools.islice(file, _LINES)), [])):
            if records := sum(1 for line in lines if line.strip()):
                pieces.append(Piece(path, offset, number * _LINES, records))
            offset += sum(map(len, lines))
    return pieces


def read_jsonl(piece: Piece, start: int) -> Iterator[Named]:
    """The objects of the lines from the piece's record `start` on."""
    lines = ((piece.first + where.number, line) for where, line in lines_in(Shard(piece.path, piece.start)) if line.strip())
    for number, line in itertools.islice(lines, start, piece.records):
        yield _name(piece, f"line {number}"), _object(line, "the line")


def tar_pieces(path: str) -> list[Piece]:
    """Stretches of samples. The log tells how many files are of none."""
    starts: dict[str, int] = {}
    others: list[str] = []
    with open_file(path) as file, tarfile.open(fileobj=file, mode="r:") as tar:
        for key, members in _samples(tar, others):
            if key in starts:
                raise ValueError(
                    f"{path!r} must have the files of each sample side by side, got others between those of {key!r}. Pack it again"
                    " in the order of names, such as with tar --sort=name."
                )
            starts[key] = next(members).offset
    if others:
        _logger.warning("%s: left out %d files that are of no sample, such as %r", path, len(others), others[0])
    most = len(starts) if _is_compressed(path) else _SAMPLES
    return [
        Piece(path, start, number, min(most, len(starts) - number))
        for number, start in enumerate(starts.values())
        if number % most == 0
    ]


def read_tar(piece: Piece, start: int) -> Iterator[Named]:
    """The samples from the piece's record `start` on: `image`, `video`, `captions` of a .txt, the fields of a .json, and others.

    Others are there as bytes, by what follows the first stop of their names.
    """
    with open_file(piece.path) as file:
        file.seek(piece.start)
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for number, (key, members) in enumerate(itertools.islice(_samples(tar, []), piece.records)):
                if number >= start:
                    yield _name(piece, f"sample {piece.first + number} ({key})"), _sample(tar, members)


FORMATS: dict[str, tuple[Callable[[str], list[Piece]], Callable[[Piece, int], Iterator[Named]]]] = {
    ".parquet": (parquet_pieces, read_parquet),
    ".jsonl": (jsonl_pieces, read_jsonl),
    ".ndjson": (jsonl_pieces, read_jsonl),
    ".tar": (tar_pieces, read_tar),
}


def _is_compressed(path: str) -> bool:
    return os.path.splitext(path)[1] in COMPRESSIONS


def _row(piece: Piece, row: int) -> str:
    return _name(piece, f"row group {piece.start}, row {row}")


def _name(piece: Piece, place: str) -> str:
    """The name of a record. Names of files may be any bytes, which Python has as surrogates; those are no Unicode."""
    return f"{piece.path}, {place}".encode(errors="backslashreplace").decode()


def _objects(batch: pa.RecordBatch) -> list[dict[str, Any] | ValueError]:
    try:
        return batch.to_pylist()
    except (ValueError, OverflowError):  # a text that is no UTF-8, or a time that Python does not have
        return [_alone(batch.slice(row, 1)) for row in range(len(batch))]


def _alone(batch: pa.RecordBatch) -> dict[str, Any] | ValueError:
    try:
        return batch.to_pylist()[0]
    except (ValueError, OverflowError) as error:
        return ValueError(f"the row cannot be read: {error}")


def _object(content: bytes, what: str) -> dict[str, Any] | ValueError:
    value = parsed_json(content)
    if isinstance(value, Exception):
        return ValueError(f"{what} must be JSON: {value}.")
    return value if isinstance(value, dict) else ValueError(f"{what} must be an object, got a {type(value).__name__}.")


def _samples(tar: tarfile.TarFile, others: list[str]) -> Iterator[tuple[str, Iterator[tarfile.TarInfo]]]:
    return itertools.groupby(_members(tar, others), key=lambda member: _key_and_suffix(member)[0])


def _members(tar: tarfile.TarFile, others: list[str]) -> Iterator[tarfile.TarInfo]:
    """The members that are files of samples. The names of other files are added to `others`; folders are none."""
    while (member := tar.next()) is not None:
        tar.members.clear()  # type: ignore[attr-defined]  # which it would keep for all of the file
        if not 0 <= member.size < 1 << 60:
            raise tarfile.ReadError(f"{member.name!r} is of {member.size} bytes")  # the next one would stand before it, or nowhere
        if member.isdir():
            continue
        if _is_of_sample(member.name):
            yield member
        else:
            others.append(member.name)
    _check_end(tar)


def _check_end(tar: tarfile.TarFile) -> None:
    """Raises an error where a tar is cut off, or goes on after its end, or has a header that is none: `tarfile` ends there."""
    file = tar.fileobj
    assert file is not None, "it is open"
    file.seek(tar.offset)
    if len(block := file.read(_BLOCK)) < tarfile.BLOCKSIZE:
        raise tarfile.ReadError("it has no end, so it is cut off")
    while block:
        if block.strip(b"\0"):
            raise tarfile.ReadError(f"at byte {tar.offset} is neither a file nor the end. Pack it again, as one tar")
        block = file.read(_BLOCK)


def _is_of_sample(name: str) -> bool:
    """Whether a file belongs to a sample: it has a suffix, and is not hidden, as those that a Mac puts beside each file are.

    >>> [_is_of_sample(name) for name in ("./a/1.jpg", "a/._1.jpg", "__MACOSX/1.jpg", ".cache/1.jpg", "README")]
    [True, False, False, False, False]
    """
    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    return bool(parts) and not any(part.startswith(".") or part == "__MACOSX" for part in parts) and "." in parts[-1]


def _key_and_suffix(member: tarfile.TarInfo) -> tuple[str, str]:
    folder, name = os.path.split(member.name)
    key, _, suffix = name.partition(".")
    return os.path.join(folder, key), suffix.lower()


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    if not member.isfile() or member.issparse():  # tarfile takes a sparse one, which may be of any size, for a file
        raise ValueError(f"{member.name!r} must be a file with a content of its own, got a link, a device or a sparse one.")
    file = tar.extractfile(member)
    return file.read() if file else b""


def _sample(tar: tarfile.TarFile, members: Iterator[tarfile.TarInfo]) -> dict[str, Any] | ValueError:
    beside: dict[str, Any] = {}
    record: dict[str, Any] = {}
    names: dict[str, str] = {}  # the file of each field
    try:
        for member in members:
            name, suffix = os.path.basename(member.name), _key_and_suffix(member)[1]
            content = _content(tar, member)
            field = "image" if suffix in _IMAGES else "video" if suffix in _VIDEOS else "captions" if suffix == "txt" else suffix
            if field in names:
                return ValueError(f"the sample must have one {field}, got {names[field]!r} and {name!r}.")
            names[field] = name
            if field == "json":
                found = _object(content, "its .json")
                if isinstance(found, ValueError):
                    return found
                beside = found
            else:
                record[field] = content.decode() if field == "captions" else content
    except UnicodeDecodeError as error:
        return ValueError(f"its .txt must be UTF-8: {error}.")
    except (tarfile.TarError, ValueError) as error:
        return ValueError(f"the sample cannot be read: {error}")
    for field in beside.keys() & record.keys():
        named = beside[field]  # it may be the path of the file that stands beside the .json
        if named not in (None, record[field]) and not (isinstance(named, str) and os.path.basename(named) == names[field]):
            return ValueError(f"the sample must have one {field}, got {names[field]!r} and a field of its .json.")
    return beside | record
