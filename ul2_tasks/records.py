"""What is in a file: the documents of a piece, in each format, one after the other.

What is wrong with one record, or with the rest of a file, is a record too, whose `problem` tells it. Whether that ends the
job or is counted is decided in one place, `tokenization.read_text`.
"""

from __future__ import annotations

import codecs
import functools
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ul2_tasks.files import CORRUPT, Layout, Piece, open_file

PROBLEM = "problem"  # the feature that tells it in a dataset
_ROWS_AT_A_TIME = 128
_ROWS_LOOKED_AT = 1000  # to know the fields of JSON Lines
_MAX_COUNTED = 1 << 30  # bytes that are read to know the number of a line


class Record(NamedTuple):
    """A document; or, with a `problem`, what is wrong where one should be."""

    text: bytes = b""
    id: bytes = b""
    problem: str = ""


def read(piece: Piece, layout: Layout) -> Iterator[Record]:
    """The records of a piece of a file, one after the other, whatever its size; of every format but TFRecord.

    Raises:
        OSError: the file cannot be reached.
    """
    try:
        yield from _READERS[layout.documents if layout.format == "text" else layout.format](piece, layout)
    except CORRUPT as error:
        yield Record(problem=f"{piece.path}: is corrupt, all from here on is lost: {type(error).__name__}: {error}")
    except OSError as error:
        if error.errno is not None:
            raise
        yield Record(problem=f"{piece.path}: is corrupt, all from here on is lost: {error}")


def document_of(row: Mapping[str, object], where: object, layout: Layout) -> Record:
    """The document of a row of fields; `where` says which row it is, as `str(where)`."""
    for key in filter(None, (layout.text_key, layout.id_key)):
        if key not in row:
            return Record(problem=f"{where}: has no field {key!r}, it has {sorted(row)}")
    text = row[layout.text_key]
    if not isinstance(text, str):
        return Record(problem=f"{where}: {layout.text_key!r} is of type {type(text).__name__}, expected a text")
    try:
        return _with_id(Record(text.encode()), row, where, layout)
    except UnicodeEncodeError as error:
        return Record(problem=f"{where}: {layout.text_key!r} is not Unicode, {error.reason}")


def fields(piece: Piece, layout: Layout) -> list[str] | None:
    """The fields of Parquet and Arrow files, or those of the first records of JSON Lines; None, where that does not tell them."""
    try:
        with open_file(piece.path) as file:
            if layout.format == "parquet":
                return pq.ParquetFile(file).schema_arrow.names
            if layout.format == "arrow":
                return _open_arrow(file).schema.names
        rows = (_parsed(line) for _, line in itertools.islice(_lines(piece), _ROWS_LOOKED_AT))
        return sorted({key for row in rows if isinstance(row, dict) for key in row}) or None
    except CORRUPT:
        return None
    except OSError as error:
        if error.errno is not None:
            raise
        return None


def _with_id(record: Record, row: Mapping[str, object], where: object, layout: Layout) -> Record:
    """The record with its id, if one is wanted: a text, the same one as UTF-8, or an integer, in digits."""
    if not layout.id_key or record.problem:
        return record
    id = row[layout.id_key]
    if id is None or id in ("", b""):
        return Record(problem=f"{where}: {layout.id_key!r} is {'null' if id is None else 'empty'}, expected an id")
    if isinstance(id, bool) or not isinstance(id, str | bytes | int):
        kind = type(id).__name__
        return Record(problem=f"{where}: {layout.id_key!r} is of type {kind}, expected a text, bytes or an integer as the id")
    return record._replace(id=id if isinstance(id, bytes) else str(id).encode())


class _Line(NamedTuple):
    """Where a line is: of its piece the number, and the byte at which it begins in its file."""

    piece: Piece
    number: int
    byte: int

    def __str__(self) -> str:
        """By its number in the file, for which what is before the piece is counted, unless that is too much."""
        if not self.piece.start:
            return f"{self.piece.path}, line {self.number}"
        if self.piece.start > _MAX_COUNTED:
            return f"{self.piece.path}, the line at byte {self.byte}"
        return f"{self.piece.path}, line {_lines_before(self.piece.path, self.piece.start) + self.number}"


@functools.lru_cache(maxsize=1024)
def _lines_before(path: str, start: int) -> int:
    """How many lines of a file begin before a byte."""
    with open_file(path) as file:
        ends, left = 0, start - 1  # a line end in the last byte ends one, and begins what is at `start`
        while left > 0 and (block := file.read(min(left, 1 << 22))):
            ends, left = ends + block.count(b"\n"), left - len(block)
    return ends + 1


def _read_lines(piece: Piece, layout: Layout) -> Iterator[Record]:
    return (_document(line, where) for where, line in _lines(piece))


def _read_file(piece: Piece, layout: Layout) -> Iterator[Record]:
    with open_file(piece.path) as file:
        yield _document(file.read().removeprefix(codecs.BOM_UTF8), piece.path)


def _read_paragraphs(piece: Piece, layout: Layout) -> Iterator[Record]:
    for is_blank, lines in itertools.groupby(_lines(piece), key=lambda line: not line[1].strip()):
        if not is_blank:
            wheres, texts = zip(*lines)
            yield _document(b"\n".join(texts), f"{piece.path}, the paragraph at line {wheres[0].number}")


def _read_json(piece: Piece, layout: Layout) -> Iterator[Record]:
    for where, line in _lines(piece):
        if line.strip():
            yield _json_document(line, where, layout)


def _read_parquet(piece: Piece, layout: Layout) -> Iterator[Record]:
    with open_file(piece.path) as file:
        # As a stream of pages: a row group may be larger than memory, and several files are read at a time.
        parquet = pq.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20)
        if problem := _schema_problem(parquet.schema_arrow, layout):
            yield Record(problem=f"{piece.path}: {problem}")
            return
        names = [layout.text_key, *([layout.id_key] if layout.id_key else [])]
        for group in range(piece.start, parquet.num_row_groups if piece.stop is None else piece.stop):
            where = f"{piece.path}, row group {group}"
            try:
                row = 1
                for batch in parquet.iter_batches(batch_size=_ROWS_AT_A_TIME, row_groups=[group], columns=names):
                    yield from _rows(batch, where, row, layout)
                    row += len(batch)
            except (pa.ArrowException, OSError) as error:  # pyarrow has OSError for a page that it cannot read
                yield Record(problem=f"{where}: is corrupt, the rest of it is lost: {type(error).__name__}: {error}")


def _read_arrow(piece: Piece, layout: Layout) -> Iterator[Record]:
    with open_file(piece.path) as file:
        arrow = _open_arrow(file)
        if problem := _schema_problem(arrow.schema, layout):
            yield Record(problem=f"{piece.path}: {problem}")
            return
        if isinstance(arrow, pa.RecordBatchFileReader):
            stop = arrow.num_record_batches if piece.stop is None else piece.stop
            batches: Iterable[pa.RecordBatch] = (arrow.get_batch(index) for index in range(piece.start, stop))
        else:
            batches = arrow
        for index, batch in enumerate(batches, piece.start):
            yield from _rows(batch, f"{piece.path}, record batch {index}", 1, layout)


_READERS = {
    "line": _read_lines,
    "file": _read_file,
    "paragraph": _read_paragraphs,
    "jsonl": _read_json,
    "parquet": _read_parquet,
    "arrow": _read_arrow,
}


def _lines(piece: Piece) -> Iterator[tuple[_Line, bytes]]:
    """The lines that begin in a piece, without their ends and without a byte order mark."""
    with open_file(piece.path) as file:
        position = piece.start
        if position:
            file.seek(position - 1)
            position += len(file.readline()) - 1  # the rest of a line that began before, or "\n" if one begins here
        number = 0
        while piece.stop is None or position < piece.stop:
            line = file.readline()
            if not line:
                return
            number += 1
            text = line if position else line.removeprefix(codecs.BOM_UTF8)
            yield _Line(piece, number, position), text.removesuffix(b"\n").removesuffix(b"\r")
            position += len(line)


def _document(text: bytes, where: object) -> Record:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return Record(problem=f"{where}: is not UTF-8, {error.reason} at byte {error.start}")
    return Record(text)


def _json_document(line: bytes, where: _Line, layout: Layout) -> Record:
    value = _parsed(line)
    if isinstance(value, UnicodeDecodeError):
        return Record(problem=f"{where}: is not UTF-8, {value.reason} at byte {value.start}")
    if isinstance(value, Exception):
        return Record(problem=f"{where}: is not JSON, {value}; it begins with {line[:40].decode(errors='replace')!r}")
    if not isinstance(value, dict):
        return Record(problem=f"{where}: is of type {type(value).__name__}, expected an object with the field {layout.text_key!r}")
    return document_of(value, where, layout)


def _parsed(line: bytes) -> object:
    """What a line of JSON says, or the error that it is none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return error


def _open_arrow(file: BinaryIO) -> pa.RecordBatchFileReader | pa.RecordBatchStreamReader:
    """Arrow has a format for files, and one for streams, which Hugging Face's `datasets` writes."""
    try:
        return pa.ipc.open_file(file)
    except pa.ArrowInvalid:
        file.seek(0)
        return pa.ipc.open_stream(file)


def _schema_problem(schema: pa.Schema, layout: Layout) -> str | None:
    for key in filter(None, (layout.text_key, layout.id_key)):
        if key not in schema.names:
            return f"has no column {key!r}, it has {schema.names}"
    kind = schema.field(layout.text_key).type
    text_kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_binary)
    if not any(is_kind(kind) for is_kind in text_kinds):
        return f"column {layout.text_key!r} is of type {kind}, expected a text"
    return None


def _rows(batch: pa.RecordBatch, where: str, first: int, layout: Layout) -> Iterator[Record]:
    texts = batch.column(layout.text_key).cast(pa.large_binary()).to_pylist()
    ids = batch.column(layout.id_key).to_pylist() if layout.id_key else itertools.repeat(None)
    for row, (text, id) in enumerate(zip(texts, ids), first):
        at = f"{where}, row {row}"
        if text is None:
            yield Record(problem=f"{at}: {layout.text_key!r} is null, expected a text")
        else:
            yield _with_id(_document(text, at), {layout.id_key: id}, at, layout)
