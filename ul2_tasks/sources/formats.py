"""The formats of files, and how the documents of each are read. To add one is to write a function and name it here.

The function gets a file that is open, decompressed and at its beginning, and yields its records, each a dictionary of fields; in
place of one that is wrong a ValueError that says why. It is called once for each file, and knows no splits, shards or hosts: which
files are read, how they are shared out, and how records are counted, named and checked is the same for all formats. This is all of
`csv_files.py`:

    def csv_records(file: BinaryIO) -> Iterator[dict | ValueError]:
        for record in csv.DictReader(io.TextIOWrapper(file, "utf-8-sig", newline="")):
            yield ValueError("has more values than the first line has names") if None in record else record

Its line in `FORMATS` has how names of such files end: `"csv": read_whole((".csv",), csv_records)`; and its test is a line in
`CASES` of tests/sources/test_sources.py, where each format gives the same documents, each once. An error of a package of its own
that says that a file is damaged is named in `_DAMAGED`.

Only where a part of a file can be read by itself, such as a row group, does a format say so: `shards` cuts a file of a size into
`Shard`s, of at most so many bytes, and `rows` gets one of them, and how the documents lie in it.
"""

from __future__ import annotations

import csv
import dataclasses
import itertools
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ul2_tasks.files.opening import COMPRESSIONS, CORRUPT, is_unreachable, open_file
from ul2_tasks.files.systems import parallel_map
from ul2_tasks.sources.arrow import arrow_batches, arrow_rows, parquet_groups, parquet_rows, schema_of
from ul2_tasks.sources.columns import ColumnsError, check_kind, no_texts
from ul2_tasks.sources.csv_files import csv_records
from ul2_tasks.sources.files import MAX_SHARDS, OF_TOKENS, At, Layout, Rows, Shard
from ul2_tasks.sources.lines import Line, json_rows, lines_in, ranges, text_rows
from ul2_tasks.sources.mds import mds_rows
from ul2_tasks.sources.tar import tar_rows
from ul2_tasks.sources.tfrecords import tfrecord_rows

_MIN_SHARD, _MAX_SHARD = 1 << 16, 1 << 30  # bytes
_DAMAGED = (*CORRUPT, tarfile.TarError, csv.Error, OSError)


class Format(NamedTuple):
    """A format of files.

    Attributes:
        endings: of the names of such files.
        rows: yields the rows of a shard of an open file, each with where it is; of the fields at least those that the layout reads.
        shards: cuts a file of a size into shards, of at most so many bytes; a file of other formats is one.
        looked_at: how many of the first rows tell the fields; 0 where it is not known, or the schema tells them.
    """

    endings: tuple[str, ...]
    rows: Callable[[BinaryIO, Shard, Layout], Rows]
    shards: Callable[[str, int, int], list[Shard]] | None = None
    looked_at: int = 1


def read_whole(endings: tuple[str, ...], records: Callable[[BinaryIO], Iterator[dict | ValueError]]) -> Format:
    """A format of files that are read from their beginning to their end, by a function that yields the records of an open file."""

    def rows_of_file(file: BinaryIO, shard: Shard, layout: Layout) -> Rows:
        for number, record in enumerate(records(file), 1):
            yield At(f"{shard.path}, record {number}", number), record

    return Format(endings, rows_of_file)


FORMATS: Mapping[str, Format] = {
    "text": Format((".txt", ".text", ".md"), text_rows, ranges, looked_at=0),
    "jsonl": Format((".jsonl", ".ndjson", ".json"), json_rows, ranges, looked_at=1000),
    "parquet": Format((".parquet",), parquet_rows, parquet_groups, looked_at=0),
    "arrow": Format((".arrow", ".feather"), arrow_rows, arrow_batches, looked_at=0),
    "tfrecord": Format((".tfrecord", ".tfrecords"), tfrecord_rows),
    "tar": Format((".tar",), tar_rows, looked_at=0),
    "csv": read_whole((".csv",), csv_records),
    "mds": Format((".mds",), mds_rows),
}
_FORMAT_OF = {ending: name for name, format in FORMATS.items() for ending in format.endings}


def named_format(path: str) -> str | None:
    """The format that a file's or glob's name ends with; None where the name does not say.

    >>> named_format("corpus/*.jsonl.gz")
    'jsonl'
    """
    name, suffix = os.path.splitext(path)
    return _FORMAT_OF.get((os.path.splitext(name)[1] if suffix in COMPRESSIONS else suffix).lower())


def format_of(paths: Iterable[str]) -> str:
    """The one format that the names of all files end with. Names that say none, or several, are refused."""
    formats: dict[str, str] = {}
    for path in paths:
        format = named_format(path)
        if format is None:
            raise ValueError(
                f"{path!r} must have a name that ends in one of {' '.join(_FORMAT_OF)}, also compressed ({' '.join(COMPRESSIONS)})."
                f" Pass format, one of {sorted(FORMATS)}. {OF_TOKENS}"
            )
        formats.setdefault(format, path)
    if len(formats) > 1:
        raise ValueError(
            f"files must be of one format, got several, such as {formats}. Register those of each format separately, and mix them."
        )
    return next(iter(formats))


def rows(shard: Shard, layout: Layout) -> Rows:
    """Yields the rows of a shard, without holding it in memory, each with where it is: as text its place, as `row` its number.

    A row that cannot be read is a ValueError; where its place has no `row`, all that follows in the file is lost, too.
    """
    try:
        with open_file(shard.path) as file:
            yield from _format(shard.path, layout).rows(file, shard, layout)
    except Exception as error:  # a program's end closes it with GeneratorExit, when the names below may be gone
        if isinstance(error, ColumnsError):
            yield shard.path, error
        elif not isinstance(error, _DAMAGED) or is_unreachable(error):
            raise
        else:
            words = str(error) if type(error) is OSError else f"{type(error).__name__}: {error}"
            yield shard.path, ValueError(f"is corrupt, so all from here on is lost: {words}")


def rows_read(shard: Shard, layout: Layout, records: int, last: object) -> int:
    """How many rows a shard has, of which so many records were read, and one is known, such as the last; None knows none."""
    if _format(shard.path, layout).shards is not ranges:
        return records
    number, byte = (last.number - 1, last.byte) if isinstance(last, Line) else (0, shard.start)
    with open_file(shard.path) as file:
        return number + sum(1 for _ in lines_in(file, dataclasses.replace(shard, start=byte)))


def fields(shard: Shard, layout: Layout) -> list[str] | None:
    """The fields of a file, by its schema or its first records; None where these are not known.

    Raises a ColumnsError where the field of the text is there and has values of another kind throughout.
    """
    try:
        if (schema := schema_of(shard.path, layout.format)) is not None:
            check_kind(shard.path, schema, layout)
            return schema.names
    except _DAMAGED as error:
        if is_unreachable(error):
            raise
        return None
    looked_at = _format(shard.path, layout).looked_at
    read = itertools.islice(rows(shard, dataclasses.replace(layout, whole=True)), looked_at)
    found: list[dict[str, Any]] = [row for _, row in read if isinstance(row, dict)]
    values = [row[layout.text_key] for row in found if row.get(layout.text_key) is not None]
    kinds = (str, bytes, list, Mapping) if layout.as_json else (str, bytes, list, np.ndarray)
    if values and not any(isinstance(value, kinds) for value in values):
        raise no_texts(shard.path, layout, f"a value of type {type(values[0]).__name__}")
    return sorted({key for row in found for key in row}) or None


def shards_of(paths: Sequence[str], layout: Layout, lengths: Sequence[int]) -> list[Shard]:
    """The shards of files of so many bytes: one for each, or several where there are few that can be read from the middle.

    Raises a ValueError where all files are empty, or no file has a row.
    """
    if not any(lengths):
        raise ValueError(f"files must hold a document, but each of the {len(paths)} files is empty, the first is {paths[0]!r}.")
    if len(paths) >= MAX_SHARDS:
        return [Shard(path) for path in paths]
    length = min(max(-(-sum(lengths) // MAX_SHARDS), _MIN_SHARD), _MAX_SHARD)

    def cut(path: str, size: int) -> list[Shard]:
        format = _format(path, layout)
        if format.shards is None or layout.documents in ("paragraph", "file") or layout.group_by:
            return [Shard(path)]
        try:
            return format.shards(path, size, length)
        except _DAMAGED as error:
            if is_unreachable(error):
                raise
            return [Shard(path)]

    if found := list(itertools.chain(*parallel_map(lambda each: cut(*each), zip(paths, lengths)))):
        return found
    raise ValueError(f"files must hold a document, but none of the {len(paths)} files has a row, the first is {paths[0]!r}.")


def _format(path: str, layout: Layout) -> Format:
    return FORMATS[layout.format or named_format(path) or ""]
