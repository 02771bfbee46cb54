"""Files of Parquet and Arrow, in parts: row groups and record batches. These and their rows are counted from 0, as Arrow does."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ul2_tasks.files.opening import CorruptFileError, is_unreachable, open_file
from ul2_tasks.sources.columns import columns_read, is_ids
from ul2_tasks.sources.files import Layout, Rows, Shard

_ROWS_AT_A_TIME, _WHOLE_ROWS_AT_A_TIME = 128, 16
_AS_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"  # of Arrow, which takes the end of a file for it, too


class _Row(NamedTuple):
    """Where a row of Parquet or Arrow is: its part of the file in words, its number in it, and its row in the file or shard."""

    part: str
    number: int
    row: int

    def __str__(self) -> str:
        return f"{self.part}, row {self.number}"


def schema_of(path: str, format: str | None) -> pa.Schema | None:
    """The schema of a Parquet or Arrow file; None of one of another format."""
    if format not in ("parquet", "arrow"):
        return None
    with open_file(path) as file:
        return pq.ParquetFile(file).schema_arrow if format == "parquet" else _open_arrow(file).schema


def parquet_groups(path: str, size: int, length: int) -> list[Shard]:
    """A shard for each row group."""
    with open_file(path) as file:
        metadata = pq.ParquetFile(file).metadata
        rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    befores = itertools.accumulate(rows, initial=0)
    return [Shard(path, group, group + 1, before) for group, (before, _) in enumerate(zip(befores, rows))]


def arrow_batches(path: str, size: int, length: int) -> list[Shard]:
    """A shard for each record batch. A stream, which does not say how many it has, raises an ArrowInvalid."""
    with open_file(path) as file:
        count = pa.ipc.open_file(file).num_record_batches
    return [Shard(path, batch, batch + 1, 0 if count == 1 else None) for batch in range(count)]


def parquet_rows(file: BinaryIO, shard: Shard, layout: Layout) -> Rows:
    """The rows of row groups."""
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
        except Exception as error:  # not GeneratorExit, as in `formats.rows`; OSError is pyarrow's for a page that it cannot read
            if not isinstance(error, pa.ArrowException | OSError) or is_unreachable(error):
                raise
            lost = f"{type(error).__name__}: {error}"
        for number in range(row, count):
            yield _Row(part, number, before + number), ValueError(f"is lost, as its row group is corrupt: {lost}")
        if row > count:
            yield part, ValueError(f"is corrupt: {lost}")
        before += count


def arrow_rows(file: BinaryIO, shard: Shard, layout: Layout) -> Rows:
    """The rows of record batches."""
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
        values = zip(*(_values(column, layout) for column in batch.columns))
        found: list[Any] = [dict(zip(batch.schema.names, each)) for each in values]
    except (ValueError, OverflowError, pa.ArrowException):  # a text that is not UTF-8, or a time that Python does not have
        found = [_alone(batch.slice(row, 1), layout) for row in range(len(batch))]
    return ((_Row(part, number, before + number), row) for number, row in enumerate(found, first))


def _values(column: pa.Array, layout: Layout) -> list[Any]:
    """The same as `to_pylist`, which takes several times as long for texts; lists of ids are views of one array."""
    if column.type in (pa.string(), pa.large_string()):
        return column.to_numpy(zero_copy_only=False).tolist()
    if layout.as_json or not is_ids(column.type):
        return column.to_pylist()
    ends = np.cumsum(column.value_lengths().fill_null(0).to_numpy())
    values = np.split(column.flatten().to_numpy(zero_copy_only=False), ends[:-1])
    return [value if is_valid else None for value, is_valid in zip(values, column.is_valid().to_pylist())]


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
