"""Reads the rows of a shard of a file, in every format, one after the other.

Each row comes with where it is: as text its place, and as `row` its number. In place of one that cannot be read there is a
ValueError that says why; where the place has no `row`, all that follows in the file is lost. Lines and the records of a file are
counted from 1, as editors do; samples, row groups, record batches and the rows in them from 0, as tar and Arrow do.
"""

from __future__ import annotations

import codecs
import dataclasses
import functools
import io
import itertools
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from ul2_tasks.files.opening import CORRUPT, CorruptFileError, is_unreachable, open_file
from ul2_tasks.sources.columns import ColumnsError, check_kind, columns_read, no_texts
from ul2_tasks.sources.files import Layout, Shard
from ul2_tasks.sources.json_values import json_object, parsed_json
from ul2_tasks.sources.tar import samples_of
from ul2_tasks.sources.tfrecords import features_of, records_of, values_of

_ROWS_AT_A_TIME, _WHOLE_ROWS_AT_A_TIME = 128, 16
_ROWS_LOOKED_AT = 1000  # lines of JSON, to know the fields
_MAX_COUNTED = 1 << 30  # at most so many bytes are read to find the number of a line
_AS_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"  # of Arrow, which takes the end of a file for it, too

Rows: TypeAlias = Iterator[tuple[Any, dict[str, Any] | ValueError]]  # each with where it is


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


class Line(NamedTuple):
    """Where a line is: its number, from 1, within its shard; and the byte of the file at which it begins."""

    shard: Shard
    number: int
    byte: int

    @property
    def row(self) -> int:
        return self.number

    def __str__(self) -> str:
        """The line's number in the file. The lines before the shard are counted for it, unless that is too much to read."""
        return self._named(row_in_file(self))

    @property
    def brief(self) -> str:
        """The same, by its byte where lines would have to be counted."""
        is_known = not self.shard.start or self.shard.before is not None
        return self._named(row_in_file(self) if is_known else None)

    def _named(self, line: int | None) -> str:
        return f"{self.shard.path}, the line at byte {self.byte}" if line is None else f"{self.shard.path}, line {line}"


def rows(shard: Shard, layout: Layout) -> Rows:
    """Yields the rows of a shard, without holding it in memory: the fields that the layout reads, or all where it is `whole`."""
    try:
        format = layout.format_of(shard.path)
        yield from _READERS[layout.documents if format == "text" else format](shard, layout)
    except ColumnsError as error:
        yield shard.path, error
    except (*CORRUPT, tarfile.TarError, OSError) as error:
        if is_unreachable(error):
            raise
        yield shard.path, ValueError(f"is corrupt, so all from here on is lost: {_in_words(error)}")


def row_in_file(where: object) -> int | None:
    """The row of a record in its file; None where it is not known, or too much would have to be read to know it."""
    if isinstance(where, Line) and where.shard.start:
        if where.shard.before is not None:
            return where.shard.before + where.number
        if where.shard.start > _MAX_COUNTED:
            return None
        return _lines_before(where.shard.path, where.shard.start) + where.number
    return getattr(where, "row", None)


def rows_read(shard: Shard, layout: Layout, records: int, last: object) -> int:
    """How many rows a shard has, of which so many records were read, and one is known, such as the last; None knows none."""
    if layout.format_of(shard.path) not in ("jsonl", "text"):
        return records
    number, byte = (last.number - 1, last.byte) if isinstance(last, Line) else (0, shard.start)
    return number + sum(1 for _ in lines_in(dataclasses.replace(shard, start=byte)))


@functools.lru_cache(maxsize=1024)
def _lines_before(path: str, start: int) -> int:
    """How many lines of a file begin before the byte `start`."""
    with open_file(path) as file:
        ends, left = 0, start - 1  # the byte before `start` is left out: a line end there begins the line at `start`
        while left > 0 and (block := file.read(min(left, 1 << 22))):
            ends, left = ends + block.count(b"\n"), left - len(block)
    return ends + 1


def fields(shard: Shard, layout: Layout) -> list[str] | None:
    """The fields of a Parquet or Arrow file, or of the first records of JSON Lines; None where these are not known.

    Raises a ValueError where the field of the text is there and has values of another kind throughout.
    """
    if layout.format == "tar":  # whose samples may be large
        return None
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
        found = [row for row in parsed if isinstance(row, dict)]
        values = [row[layout.text_key] for row in found if row.get(layout.text_key) is not None]
        if values and not any(isinstance(value, (str, list, Mapping) if layout.as_json else str) for value in values):
            raise no_texts(shard.path, layout, f"a value of type {type(values[0]).__name__}")
        return sorted({key for row in found for key in row}) or None
    except (*CORRUPT, OSError) as error:
        if is_unreachable(error):
            raise
        return None


def lines_in(shard: Shard) -> Iterator[tuple[Line, bytes]]:
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
            yield Line(shard, number, position), text.removesuffix(b"\n").removesuffix(b"\r")
            position += len(line)


def _lines(shard: Shard, layout: Layout) -> Rows:
    return ((where, {layout.text_key: line}) for where, line in lines_in(shard))


def _file(shard: Shard, layout: Layout) -> Rows:
    with open_file(shard.path) as file:
        yield At(shard.path, 1), {layout.text_key: file.read().removeprefix(codecs.BOM_UTF8)}


def _paragraphs(shard: Shard, layout: Layout) -> Rows:
    for is_blank, lines in itertools.groupby(lines_in(shard), key=lambda line: not line[1].strip()):
        if not is_blank:
            wheres, texts = zip(*lines)
            first = wheres[0].number
            yield At(f"{shard.path}, the paragraph at line {first}", first), {layout.text_key: b"\n".join(texts)}


def _json(shard: Shard, layout: Layout) -> Rows:
    return ((where, json_object(line)) for where, line in lines_in(shard) if line.strip())


def _parquet(shard: Shard, layout: Layout) -> Rows:
    with open_file(shard.path) as file:
        # Pages are read one by one, because several files are open at a time, and one row group may be larger than memory.
        parquet = pq.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20)
        names, before = columns_read(shard.path, parquet.schema_arrow, layout), shard.before or 0
        most = _WHOLE_ROWS_AT_A_TIME if layout.whole else _ROWS_AT_A_TIME
        for group in range(shard.start, parquet.num_row_groups if shard.stop is None else shard.stop):
            part, count, row = f"{shard.path}, row group {group}", parquet.metadata.row_group(group).num_rows, 0
            lost = f"the group has other rows than the {count} of the file's footer"
            try:
                for batch in parquet.iter_batches(most, row_groups=[group], columns=names, use_threads=not layout.whole):
                    yield from _of_batch(batch, layout, part, row, before)
                    row += len(batch)
            except (pa.ArrowException, OSError) as error:  # pyarrow raises OSError for a page that it cannot read
                if is_unreachable(error):
                    raise
                lost = f"{type(error).__name__}: {error}"
            for number in range(row, count):
                yield _Row(part, number, before + number), ValueError(f"is lost, as its row group is corrupt: {lost}")
            if row > count:
                yield part, ValueError(f"is corrupt: {lost}")
            before += count


def _arrow(shard: Shard, layout: Layout) -> Rows:
    with open_file(shard.path) as file:
        arrow = _open_arrow(file)
        names = columns_read(shard.path, arrow.schema, layout)
        if isinstance(arrow, pa.RecordBatchFileReader):
            stop = arrow.num_record_batches if shard.stop is None else shard.stop
            batches: Iterable[pa.RecordBatch] = (arrow.get_batch(index) for index in range(shard.start, stop))
        else:
            batches = arrow
        before = 0
        for index, batch in enumerate(batches, shard.start):
            batch = batch if names is None else batch.select(names)
            _check_places(batch)
            yield from _of_batch(batch, layout, f"{shard.path}, record batch {index}", 0, before)
            before += len(batch)
        if not isinstance(arrow, pa.RecordBatchFileReader):
            file.seek(-len(_END_OF_STREAM), io.SEEK_CUR)
            if file.read() != _END_OF_STREAM:
                raise CorruptFileError("an Arrow stream must end with its mark, got other bytes")


def _tfrecord(shard: Shard, layout: Layout) -> Rows:
    with open_file(shard.path) as file:
        for number, record in enumerate(records_of(file), 1):
            row: dict[str, Any] | ValueError
            try:
                features = features_of(record).items()
                row = {name: _plain(values_of(feature)) if layout.wants(name) else None for name, feature in features}
            except ValueError as error:
                row = ValueError(f"is not a tf.Example: {error}")
            yield At(f"{shard.path}, record {number}", number), row


def _tar(shard: Shard, layout: Layout) -> Rows:
    with open_file(shard.path) as file:
        file.seek(shard.start)
        for number, (key, sample) in enumerate(samples_of(file, shard.path), shard.before or 0):
            yield At(f"{shard.path}, sample {number} ({key})", number), sample


_READERS: Mapping[str | None, Callable[[Shard, Layout], Rows]] = {
    "line": _lines,
    "file": _file,
    "paragraph": _paragraphs,
    "jsonl": _json,
    "parquet": _parquet,
    "arrow": _arrow,
    "tfrecord": _tfrecord,
    "tar": _tar,
}


def _open_arrow(file: BinaryIO) -> pa.RecordBatchFileReader | pa.RecordBatchStreamReader:
    """Opens either of Arrow's two formats: the one for files, or the one for streams, which Hugging Face's `datasets` writes."""
    try:
        return pa.ipc.open_file(file)
    except pa.ArrowInvalid:
        file.seek(0)
        return pa.ipc.open_stream(file)


def _check_places(batch: pa.RecordBatch) -> None:
    """Raises an ArrowInvalid where columns have places outside of the file, which would end the process.

    Texts are taken as bytes here: one that is not UTF-8 is the problem of its row alone.
    """
    for column in batch.columns:
        as_bytes = _AS_BYTES.get(column.type)
        (column if as_bytes is None else column.view(as_bytes)).validate(full=True)


def _of_batch(batch: pa.RecordBatch, layout: Layout, part: str, first: int, before: int) -> Rows:
    """The rows of a batch, of which the first has a number in its part of the file, and the part so many rows before it."""
    try:
        found = batch.to_pylist()
    except (ValueError, OverflowError):  # a text that is not UTF-8, or a time that Python does not have
        found = [_alone(batch.slice(row, 1), layout) for row in range(len(batch))]
    return ((_Row(part, number, before + number), row) for number, row in enumerate(found, first))


def _alone(batch: pa.RecordBatch, layout: Layout) -> dict[str, Any] | ValueError:
    """The row of a batch of one. A document that is not UTF-8 is there as bytes."""
    row: dict[str, Any] = {}
    for name, column in zip(batch.schema.names, batch.columns):
        try:
            row[name] = column.to_pylist()[0]
        except (ValueError, OverflowError) as error:
            if layout.whole or name != layout.text_key or not isinstance(error, UnicodeDecodeError):
                return ValueError(f"the row cannot be read: column {name!r}: {error}")
            plain = column.storage if isinstance(column, pa.ExtensionArray) else column
            plain = plain.dictionary_decode() if pa.types.is_dictionary(plain.type) else plain
            row[name] = plain.cast(pa.large_binary()).to_pylist()[0]
    return row


def _plain(values: list) -> object:
    """The value of a feature that has one; else all of them."""
    return values[0] if len(values) == 1 else [*map(as_text, values)]


def as_text(value: object) -> object:
    """Bytes as a text; anything else as it is."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _in_words(error: Exception) -> str:
    return str(error) if type(error) is OSError else f"{type(error).__name__}: {error}"
