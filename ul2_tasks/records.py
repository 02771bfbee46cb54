"""What is in a file: the documents of a piece, in each format, one after the other.

What is wrong with one record, or with the rest of a file, is a record too, whose `problem` tells it. Whether that ends the
job or is counted is decided in one place, `tokenization.read_text`.
"""

from __future__ import annotations

import codecs
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ul2_tasks.files import CORRUPT, Layout, Piece, open_file

PROBLEM = "problem"  # the feature that tells it in a dataset
_ROWS_AT_A_TIME = 128


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


def document_of(row: Mapping[str, object], where: str, layout: Layout) -> Record:
    """The document of a row of fields; `where` says which row it is."""
    for key in filter(None, (layout.text_key, layout.id_key)):
        if key not in row:
            return Record(problem=f"{where}: has no field {key!r}, it has {sorted(row)}")
    text = row[layout.text_key]
    if not isinstance(text, str):
        return Record(problem=f"{where}: {layout.text_key!r} is of type {type(text).__name__}, expected a text")
    try:
        return Record(text.encode(), str(row[layout.id_key]).encode() if layout.id_key else b"")
    except UnicodeEncodeError as error:
        return Record(problem=f"{where}: {layout.text_key!r} is not Unicode, {error.reason}")


def column_names(path: str, format: str) -> list[str] | None:
    """The columns of a Parquet or Arrow file, or None, where it is corrupt."""
    try:
        with open_file(path) as file:
            return (pq.ParquetFile(file).schema_arrow if format == "parquet" else _open_arrow(file).schema).names
    except CORRUPT:
        return None


def _read_lines(piece: Piece, layout: Layout) -> Iterator[Record]:
    return (_document(line, f"{piece}, line {number}") for number, line in _lines(piece))


def _read_file(piece: Piece, layout: Layout) -> Iterator[Record]:
    with open_file(piece.path) as file:
        yield _document(file.read().removeprefix(codecs.BOM_UTF8), piece.path)


def _read_paragraphs(piece: Piece, layout: Layout) -> Iterator[Record]:
    for is_blank, lines in itertools.groupby(_lines(piece), key=lambda line: not line[1].strip()):
        if not is_blank:
            numbers, texts = zip(*lines)
            yield _document(b"\n".join(texts), f"{piece.path}, the paragraph at line {numbers[0]}")


def _read_json(piece: Piece, layout: Layout) -> Iterator[Record]:
    for number, line in _lines(piece):
        if line.strip():
            yield _json_document(line, f"{piece}, line {number}", layout)


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
                for batch in parquet.iter_batches(batch_size=_ROWS_AT_A_TIME, row_groups=[group], columns=names):
                    yield from _rows(batch, where, layout)
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
            yield from _rows(batch, f"{piece.path}, record batch {index}", layout)


_READERS = {
    "line": _read_lines,
    "file": _read_file,
    "paragraph": _read_paragraphs,
    "jsonl": _read_json,
    "parquet": _read_parquet,
    "arrow": _read_arrow,
}


def _lines(piece: Piece) -> Iterator[tuple[int, bytes]]:
    """The lines that begin in a piece, without their ends and without a byte order mark, numbered from its start from 1."""
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
            yield number, text.removesuffix(b"\n").removesuffix(b"\r")
            position += len(line)


def _document(text: bytes, where: str) -> Record:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return Record(problem=f"{where}: is not UTF-8, {error.reason} at byte {error.start}")
    return Record(text)


def _json_document(line: bytes, where: str, layout: Layout) -> Record:
    try:
        value = json.loads(line)
    except UnicodeDecodeError as error:
        return Record(problem=f"{where}: is not UTF-8, {error.reason} at byte {error.start}")
    except (ValueError, RecursionError) as error:
        return Record(problem=f"{where}: is not JSON, {error}; it begins with {line[:40].decode(errors='replace')!r}")
    if not isinstance(value, dict):
        return Record(problem=f"{where}: is of type {type(value).__name__}, expected an object with the field {layout.text_key!r}")
    return document_of(value, where, layout)


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


def _rows(batch: pa.RecordBatch, where: str, layout: Layout) -> Iterator[Record]:
    texts = batch.column(layout.text_key).cast(pa.large_binary()).to_pylist()
    ids = batch.column(layout.id_key).to_pylist() if layout.id_key else itertools.repeat("")
    for text, id in zip(texts, ids):
        if text is None:
            yield Record(problem=f"{where}: {layout.text_key!r} is null, expected a text")
        else:
            yield _document(text, where)._replace(id=str(id).encode())
