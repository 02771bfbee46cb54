"""Reads the documents of a file's shard, in every format, one after the other.

A record that cannot be read, or a file whose rest cannot, gives a record too, whose `problem` says what is wrong. Only
`check_texts.check_texts` decides whether a problem ends the job or is counted and skipped. Lines are counted from 1, as editors do;
row groups, record batches and the rows in them from 0, as Arrow does.
"""

from __future__ import annotations

import codecs
import dataclasses
import functools
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from ul2_tasks.example_features import TEMPLATE_FIELDS
from ul2_tasks.files.opening import CORRUPT, CorruptFileError, is_unreachable, open_file
from ul2_tasks.scalars import is_empty
from ul2_tasks.sources.files import ID, MESSAGES, METADATA, OF_TOKENS, Layout, Shard
from ul2_tasks.sources.tfrecords import features_of, records_of, values_of

PROBLEM = "problem"  # the name of this feature in a dataset

_ROWS_AT_A_TIME = 128
_ROWS_LOOKED_AT = 1000  # lines of JSON, to know the fields
_MAX_COUNTED = 1 << 30  # at most so many bytes are read to find the number of a line
_AS_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
_TEXT_KINDS = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null),
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary),
)

_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"  # of Arrow, which takes the end of a file for it, too

_decode_json = json.JSONDecoder().raw_decode

Item = TypeVar("Item")


class Record(NamedTuple):
    """A document; or, where `problem` is not empty, what is wrong at the place of one, and where that is.

    `id` is that of `Layout.own_id_key`, empty where there is none; `own_id` is the one that the record has, wanted or not.
    `str(where)` is the place of the document, if it is known, and `where.row` its row, see `At`. `value` is what JSON or Arrow has
    in place of a text, see `Layout.as_json`; `text` then is bytes of about its size.

    `unread` are the names of the fields of a conversation's record that nothing reads.
    """

    text: bytes = b""
    id: bytes = b""
    problem: str = ""
    where: object = ""
    value: object = None
    own_id: bytes = b""
    unread: tuple[str, ...] = ()

    @property
    def as_text(self) -> bytes:
        """The document as a text: where it has a value, that as JSON."""
        return self.text if self.value is None else json.dumps(self.value).encode()


class At(NamedTuple):
    """Where a record is: the place in words, and its row in the file or, see `Shard.before`, the shard."""

    words: str
    row: int

    def __str__(self) -> str:
        return self.words


class _Row(NamedTuple):
    """Where a row of Parquet or Arrow is: its part of the file in words, its number in it, and its row in the file or shard."""

    part: str
    number: int
    row: int

    def __str__(self) -> str:
        return f"{self.part}, row {self.number}"


def read(shard: Shard, layout: Layout) -> Iterator[Record]:
    """Yields the records of a shard, without holding it in memory."""
    try:
        yield from _READERS[layout.documents if layout.format == "text" else layout.format](shard, layout)
    except (*CORRUPT, OSError) as error:
        if is_unreachable(error):
            raise
        yield Record(problem=f"{shard.path}: is corrupt, so all from here on is lost: {_in_words(error)}")


def in_lists(items: Iterable[Item], most: int, most_bytes: int, bytes_of: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Lists of at most `most` items, or of fewer once they have so many bytes, so that a list fits into memory.

    >>> list(in_lists(["a", "b", "ccc", "d"], most=2, most_bytes=3, bytes_of=len))
    [['a', 'b'], ['ccc'], ['d']]
    """
    waiting: list[Item] = []
    size = 0
    for item in items:
        waiting.append(item)
        size += bytes_of(item)
        if len(waiting) == most or size >= most_bytes:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def document_of(row: Mapping[str, object], where: object, layout: Layout, line: bytes = b"") -> Record:
    """The document in a row of fields. `str(where)` says in error messages which row it is; `line` is what it was parsed from."""
    if missing := layout.missing(row):
        return Record(problem=f"{where}: has no field {missing!r}, only {sorted(row)}", where=where)
    text = row[layout.text_key]
    if layout.as_json and isinstance(text, list | Mapping):
        return _with_id(Record(line, where=where, value=text), row, layout)
    if isinstance(text, bytes):
        return _with_id(_document(text, where), row, layout)
    if not isinstance(text, str):
        problem = f"{where}: {layout.text_key!r} must be a text, got a value of type {type(text).__name__}"
        return _with_problem(problem, where, row, layout)
    try:
        if layout.own_id_key or layout.as_json:
            return _with_id(Record(text.encode(), where=where), row, layout)
        return Record(text.encode(), where=where, own_id=as_id(row[ID]) if ID in row else b"")
    except UnicodeEncodeError as error:
        problem = f"{where}: {layout.text_key!r} is not Unicode, {error.reason}"
        return _with_problem(problem, where, row, layout)


def fields(shard: Shard, layout: Layout) -> list[str] | None:
    """The fields of a Parquet or Arrow file, or of the first records of JSON Lines; None where these cannot be read.

    Raises a ValueError where the field of the text is there and has values of another kind throughout.
    """
    try:
        with open_file(shard.path) as file:
            if layout.format == "parquet":
                schema = pq.ParquetFile(file).schema_arrow
            elif layout.format == "arrow":
                schema = _open_arrow(file).schema
            else:
                schema = None
            if schema is not None:
                check_kind(shard.path, schema, layout)
                return schema.names
            if layout.format == "tfrecord":
                return next((sorted(features_of(record)) for record in records_of(file)), None)
        parsed = (parsed_json(line) for _, line in itertools.islice(lines_in(shard), _ROWS_LOOKED_AT))
        rows = [row for row in parsed if isinstance(row, dict)]
        values = [row[layout.text_key] for row in rows if row.get(layout.text_key) is not None]
        if values and not any(isinstance(value, (str, list, Mapping) if layout.as_json else str) for value in values):
            raise _not_text(shard.path, layout, f"a value of type {type(values[0]).__name__}")
        return sorted({key for row in rows for key in row}) or None
    except (*CORRUPT, OSError) as error:
        if is_unreachable(error):
            raise
        return None


def check_kind(where: str, schema: pa.Schema, layout: Layout) -> None:
    """Raises a ValueError where the column of the text is there, and no value of its type is a document."""
    if layout.text_key in schema.names and (kind := _other_kind(schema.field(layout.text_key).type, layout)):
        raise _not_text(where, layout, f"values of type {kind}")


def _not_text(where: str, layout: Layout, got: str) -> ValueError:
    option, of = ("messages_key", "messages") if layout.as_json else ("text_key", "texts")
    return ValueError(f"{option} must be a field of {of}, got {layout.text_key!r}, in {where} {got}. {OF_TOKENS}")


def check_fields(where: str, present: Sequence[str] | None, layout: Layout) -> None:
    """Raises a ValueError where `present`, the fields that are there, lacks one that is wanted. None is unknown, and passes."""
    if present is not None and (missing := layout.missing(present)):
        option = "id_key" if missing != layout.text_key else "messages_key" if layout.as_json else "text_key"
        raise ValueError(
            f"{where} has no field {missing!r}, only {list(present)}. Pass {option}, one of these. See"
            " docs/help/troubleshooting.md#a-field-is-missing."
        )


def _with_id(record: Record, row: Mapping[str, object], layout: Layout) -> Record:
    """The record with its id, if an id is wanted. A text becomes its UTF-8, bytes stay, and an integer becomes its digits.

    A record is a problem where its id is wrong, also if none is wanted; where there is none, if one is wanted. What is in the field
    "id" without anybody having said so is taken for what it is.
    """
    if layout.as_json:
        record = _with_beside(record, row, layout)
    key = layout.own_id_key
    if not key:
        return record._replace(own_id=as_id(row[ID])) if ID in row else record
    if record.problem:
        return record
    metadata = _metadata(row.get(METADATA)) if layout.as_json else {}
    found = {f"{key!r}": row[key]} if key in row else {}
    found |= {f"{key!r} in {METADATA!r}": metadata[key]} if key in metadata else {}
    if not found and not layout.id_key:
        return record
    if not found:
        return record._replace(problem=f"{record.where}: has no id: neither a field {key!r}, nor one in its {METADATA!r}")
    ids = {}
    for name, id in found.items():
        if id is None or id in ("", b""):
            return record._replace(problem=f"{record.where}: {name} must be an id, got {'null' if id is None else 'an empty one'}")
        if isinstance(id, bool) or not isinstance(id, str | bytes | int):
            kind = type(id).__name__
            return record._replace(
                problem=f"{record.where}: {name} must be a text, bytes or an integer, got a value of type {kind}"
            )
        ids[name] = as_id(id)
    if len({*ids.values()}) > 1:
        both = ", and ".join(f"{name} is {id.decode(errors='replace')!r}" for name, id in ids.items())
        return record._replace(problem=f"{record.where}: must have one id, but {both}")
    id = next(iter(ids.values()))
    return record._replace(id=id, own_id=id)


def _with_beside(record: Record, row: Mapping[str, object], layout: Layout) -> Record:
    """The record of a conversation with the fields that go with its messages, and the names of those that nothing reads."""
    read = layout.read
    unread = tuple(name for name in row if name not in read and not is_empty(row[name]))
    beside = {name: _as_text(row[name]) for name in layout.beside if not is_empty(row.get(name))}
    if not beside or record.problem:
        return record._replace(unread=unread)
    beside[MESSAGES] = record.text.decode() if record.value is None else record.value
    for key in (MESSAGES, *TEMPLATE_FIELDS):  # so that a conversation is the same in all formats
        if isinstance(text := beside.get(key), str) and not isinstance(parsed := parsed_json(text), Exception):
            beside[key] = parsed
    return record._replace(value=beside, unread=unread)


def _as_text(value: object) -> object:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _with_problem(problem: str, where: object, row: Mapping[str, object], layout: Layout) -> Record:
    """What is wrong with a record, and the id that it has."""
    return Record(problem=problem, where=where, own_id=_with_id(Record(), row, layout).own_id)


def as_id(value: object) -> bytes:
    """An id as bytes, see `_with_id`; none of a value that is no id.

    >>> as_id(17), as_id("a"), as_id(None), as_id(["a"])
    (b'17', b'a', b'', b'')
    """
    if isinstance(value, str):
        return value.encode(errors="backslashreplace")
    if isinstance(value, bool) or not isinstance(value, bytes | int):
        return b""
    return value if isinstance(value, bytes) else str(value).encode()


def _metadata(value: object) -> Mapping[str, object]:
    """The fields of a record's metadata: an object, or a text of JSON of one; none of anything else."""
    parsed = parsed_json(value) if isinstance(value, str | bytes) else value
    return parsed if isinstance(parsed, Mapping) else {}


class _Line(NamedTuple):
    """Where a line is: its number, from 1, within its shard; and the byte of the file at which it begins."""

    shard: Shard
    number: int
    byte: int

    @property
    def row(self) -> int:
        return self.number

    def __str__(self) -> str:
        """The line's number in the file. The lines before the shard are counted for it, unless that is too much to read."""
        if not self.shard.start:
            return f"{self.shard.path}, line {self.number}"
        line = row_in_file(self)
        return f"{self.shard.path}, the line at byte {self.byte}" if line is None else f"{self.shard.path}, line {line}"


def row_in_file(where: object) -> int | None:
    """The row of a record in its file; None where it is not known, or too much would have to be read to know it."""
    if isinstance(where, _Line) and where.shard.start:
        if where.shard.start > _MAX_COUNTED:
            return None
        return _lines_before(where.shard.path, where.shard.start) + where.number
    return getattr(where, "row", None)


def lines_of(shard: Shard, last: object) -> int:
    """How many lines begin in a shard, of which one that was read is known, such as the last; any other value is none of them."""
    number, byte = (last.number - 1, last.byte) if isinstance(last, _Line) else (0, shard.start)
    return number + sum(1 for _ in lines_in(dataclasses.replace(shard, start=byte)))


@functools.lru_cache(maxsize=1024)
def _lines_before(path: str, start: int) -> int:
    """How many lines of a file begin before the byte `start`."""
    with open_file(path) as file:
        ends, left = 0, start - 1  # the byte before `start` is left out: a line end there begins the line at `start`
        while left > 0 and (block := file.read(min(left, 1 << 22))):
            ends, left = ends + block.count(b"\n"), left - len(block)
    return ends + 1


def _read_lines(shard: Shard, layout: Layout) -> Iterator[Record]:
    return (_document(line, where) for where, line in lines_in(shard))


def _read_file(shard: Shard, layout: Layout) -> Iterator[Record]:
    with open_file(shard.path) as file:
        yield _document(file.read().removeprefix(codecs.BOM_UTF8), At(shard.path, 1))


def _read_paragraphs(shard: Shard, layout: Layout) -> Iterator[Record]:
    for is_blank, lines in itertools.groupby(lines_in(shard), key=lambda line: not line[1].strip()):
        if not is_blank:
            wheres, texts = zip(*lines)
            first = wheres[0].number
            yield _document(b"\n".join(texts), At(f"{shard.path}, the paragraph at line {first}", first))


def _read_json(shard: Shard, layout: Layout) -> Iterator[Record]:
    for where, line in lines_in(shard):
        if line.strip():
            yield _json_document(line, where, layout)


def _read_parquet(shard: Shard, layout: Layout) -> Iterator[Record]:
    with open_file(shard.path) as file:
        # Pages are read one by one, because several files are open at a time, and one row group may be larger than memory.
        parquet = pq.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20)
        if problem := _schema_problem(parquet.schema_arrow, layout):
            yield Record(problem=f"{shard.path}: {problem}")
            return
        names = [name for name in dict.fromkeys(layout.read) if name in parquet.schema_arrow.names]
        before = shard.before or 0
        for group in range(shard.start, parquet.num_row_groups if shard.stop is None else shard.stop):
            where, count = f"{shard.path}, row group {group}", parquet.metadata.row_group(group).num_rows
            try:
                row = 0
                for batch in parquet.iter_batches(batch_size=_ROWS_AT_A_TIME, row_groups=[group], columns=names):
                    yield from _rows(batch, where, row, before, layout, parquet.schema_arrow.names)
                    row += len(batch)
                if row != count:
                    yield Record(problem=f"{where}: is corrupt: it has {row} rows, and {count} by the file's footer")
            except (pa.ArrowException, OSError) as error:  # pyarrow raises OSError for a page that it cannot read
                if is_unreachable(error):
                    raise
                yield Record(problem=f"{where}: is corrupt, so the rest of it is lost: {type(error).__name__}: {error}")
            before += count


def _read_arrow(shard: Shard, layout: Layout) -> Iterator[Record]:
    with open_file(shard.path) as file:
        arrow = _open_arrow(file)
        if problem := _schema_problem(arrow.schema, layout):
            yield Record(problem=f"{shard.path}: {problem}")
            return
        if isinstance(arrow, pa.RecordBatchFileReader):
            stop = arrow.num_record_batches if shard.stop is None else shard.stop
            batches: Iterable[pa.RecordBatch] = (arrow.get_batch(index) for index in range(shard.start, stop))
        else:
            batches = arrow
        before = 0
        for index, batch in enumerate(batches, shard.start):
            _check_places(batch, layout)
            yield from _rows(batch, f"{shard.path}, record batch {index}", 0, before, layout, batch.schema.names)
            before += len(batch)
        if not isinstance(arrow, pa.RecordBatchFileReader):
            file.seek(-len(_END_OF_STREAM), io.SEEK_CUR)
            if file.read() != _END_OF_STREAM:
                raise CorruptFileError("an Arrow stream must end with its mark, got other bytes")


def _read_tfrecord(shard: Shard, layout: Layout) -> Iterator[Record]:
    with open_file(shard.path) as file:
        for number, record in enumerate(records_of(file), 1):
            at = At(f"{shard.path}, record {number}", number)
            try:
                features = features_of(record)
                found = {name: values_of(feature) for name, feature in features.items() if name in layout.read}
            except ValueError as error:
                yield Record(problem=f"{at}: is not a tf.Example: {error}", where=at)
                continue
            row = {name: values[0] for name, values in found.items() if len(values) == 1}
            text = row.get(layout.text_key)
            if isinstance(text, bytes) and not layout.missing(row):
                several = {name: list(map(_as_text, values)) for name, values in found.items() if len(values) > 1}
                unread = tuple(name for name in features if layout.as_json and name not in layout.read)
                yield _with_id(_document(text, at), {**several, **row}, layout)._replace(unread=unread)
            else:
                names = [key for key in (layout.text_key, layout.id_key) if key]
                yield _with_problem(f"{at}: has not exactly one value in each of its features {names}", at, row, layout)


_READERS: Mapping[str | None, Callable[[Shard, Layout], Iterator[Record]]] = {
    "line": _read_lines,
    "file": _read_file,
    "paragraph": _read_paragraphs,
    "jsonl": _read_json,
    "parquet": _read_parquet,
    "arrow": _read_arrow,
    "tfrecord": _read_tfrecord,
}


def lines_in(shard: Shard) -> Iterator[tuple[_Line, bytes]]:
    """Yields each line that begins in the shard, and where it is. Line ends and a byte order mark are removed."""
    with open_file(shard.path) as file:
        position = shard.start
        if position:
            file.seek(position - 1)
            position += len(file.readline()) - 1  # skips the end of a line that began before, or only "\n" where one begins here
        number = 0
        while shard.stop is None or position < shard.stop:
            line = file.readline()
            if not line:
                return
            number += 1
            text = line if position else line.removeprefix(codecs.BOM_UTF8)
            yield _Line(shard, number, position), text.removesuffix(b"\n").removesuffix(b"\r")
            position += len(line)


def _document(text: bytes, where: object) -> Record:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return Record(problem=f"{where}: is not UTF-8, {error.reason} at byte {error.start}", where=where)
    return Record(text, where=where)


def _json_document(line: bytes, where: _Line, layout: Layout) -> Record:
    value = parsed_json(line)
    if isinstance(value, UnicodeDecodeError):
        return Record(problem=f"{where}: is not UTF-8, {value.reason} at byte {value.start}", where=where)
    if isinstance(value, Exception):
        begins = line[:40].decode(errors="replace")
        return Record(problem=f"{where}: is not JSON, {value}; it begins with {begins!r}", where=where)
    if not isinstance(value, dict):
        kind = type(value).__name__
        return Record(
            problem=f"{where}: must be an object with the field {layout.text_key!r}, got a value of type {kind}", where=where
        )
    return document_of(value, where, layout, line)


def parsed_json(line: str | bytes) -> object:
    """The value of a line of JSON; or the error, where it is not JSON."""
    try:  # what json.loads does with most lines, at half its cost
        text = line.decode() if isinstance(line, bytes) else line
        value, end = _decode_json(text)
        if end == len(text):
            return value
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return error


def _open_arrow(file: BinaryIO) -> pa.RecordBatchFileReader | pa.RecordBatchStreamReader:
    """Opens either of Arrow's two formats: the one for files, or the one for streams, which Hugging Face's `datasets` writes."""
    try:
        return pa.ipc.open_file(file)
    except pa.ArrowInvalid:
        file.seek(0)
        return pa.ipc.open_stream(file)


def _check_places(batch: pa.RecordBatch, layout: Layout) -> None:
    """Raises an ArrowInvalid where the columns that are read have places outside of the file, which would end the process.

    Texts are taken as bytes here: one that is not UTF-8 is the problem of its row alone.
    """
    for name in dict.fromkeys(layout.read):
        if name in batch.schema.names:
            column = batch.column(name)
            as_bytes = _AS_BYTES.get(column.type)
            (column if as_bytes is None else column.view(as_bytes)).validate(full=True)


def _in_words(error: Exception) -> str:
    return str(error) if type(error) is OSError else f"{type(error).__name__}: {error}"


def _schema_problem(schema: pa.Schema, layout: Layout) -> str | None:
    if missing := layout.missing(schema.names):
        return f"has no column {missing!r}, only {schema.names}"
    kind = _other_kind(schema.field(layout.text_key).type, layout)
    return kind and f"column {layout.text_key!r} must be a text, got one of type {kind}"


def _other_kind(kind: pa.DataType, layout: Layout) -> str | None:
    """The type of a column in words, where its values are no documents."""
    kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_read = any(is_kind(kind) for is_kind in _TEXT_KINDS) or (layout.as_json and pa.types.is_nested(kind))
    return None if is_read else str(kind)


def _rows(batch: pa.RecordBatch, part: str, first: int, before: int, layout: Layout, columns: Sequence[str]) -> Iterator[Record]:
    """The rows of a batch, of which the first has a number in its part of the file, and the part so many rows before it.

    `columns` are those of the file.
    """
    column = batch.column(layout.text_key)
    is_value = layout.as_json and pa.types.is_nested(column.type)
    if isinstance(column, pa.ExtensionArray):  # JSON, for one
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    texts = (column if is_value else column.cast(pa.large_binary())).to_pylist()
    beside = [name for name in layout.read[1:] if name in batch.schema.names]
    of_ids = batch.select(beside).to_pylist() if beside else itertools.repeat({})
    unread = tuple(name for name in columns if layout.as_json and name not in layout.read)
    for row, (text, ids) in enumerate(zip(texts, of_ids), first):
        at = _Row(part, row, before + row)
        if text is None:
            problem = f"{at}: {layout.text_key!r} must be a text, got null"
            yield _with_problem(problem, at, ids, layout)
        else:
            record = _with_id(Record(where=at, value=text) if is_value else _document(text, at), ids, layout)
            yield record._replace(unread=unread) if unread else record
