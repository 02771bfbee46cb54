"""The records of one shard of any source, without a tf.data element for each where Python reads the source anyway."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ul2_tasks.files.listing import real_path
from ul2_tasks.files.listing import stamps as stamps_of
from ul2_tasks.imported import is_seqio
from ul2_tasks.sources.base import RecordSource
from ul2_tasks.sources.dataset_objects import DatasetSource
from ul2_tasks.sources.file_source import FileSource
from ul2_tasks.sources.image_text import ImageTextSource
from ul2_tasks.sources.memory import MemoryDataSource, in_memory
from ul2_tasks.sources.records import Record, lines_of
from ul2_tasks.sources.splits import HashSplit

if TYPE_CHECKING:
    import seqio


def split_groups(source: seqio.DataSource) -> list[tuple[str, ...]]:
    """Groups of splits that one reading gives: both splits of a `HashSplit`; of another source each split on its own."""
    return [tuple(source.splits)] if isinstance(source, HashSplit) else [(split,) for split in source.splits]


def shard_records(
    source: seqio.DataSource, splits: Sequence[str], shard: int, num_shards: int, text_key: str
) -> Iterator[tuple[str, Record]]:
    """Yields the records of a shard, in the order of the corpus, each with its split.

    `splits` is one of `split_groups`. The records are those of `source.get_dataset(split, shuffle=False, shard_info=..)`.
    """
    if isinstance(source, HashSplit):
        source.check_splits()
        records = _records(source.source, "train", shard, num_shards, source.text_key, source.id_key)
        return map(source.assign, records)
    id_key = source.id_key if isinstance(source, RecordSource) else None
    return ((splits[0], record) for record in _records(source, splits[0], shard, num_shards, text_key, id_key))


def file_of(source: seqio.DataSource, split: str, shard: int) -> tuple[str, bool]:
    """What a shard is read from: the path of a file, or the name of the shard, or nothing of records in memory.

    And whether rows count from the beginning of the shard, which is a part of the file.
    """
    source, split = _inner(source, split)
    if isinstance(source, MemoryDataSource) or (isinstance(source, ImageTextSource) and not source.files(split)):
        return "", False
    if isinstance(source, DatasetSource) and (name := source.rows_from(split)):
        return name, False
    paths = _shard_files(source, split)
    if not paths:
        return source.list_shards(split)[shard], False
    is_counted = isinstance(source, FileSource) and source.layout(split).format != "parquet" and paths.count(paths[shard]) > 1
    return paths[shard], is_counted


def rows_of(source: seqio.DataSource, split: str, shard: int, records: int, last: object) -> int:
    """How many rows a shard of a file has, all of which were read: `records` of them, and `last` is where a late one is."""
    source, split = _inner(source, split)
    assert isinstance(source, FileSource)
    return records if source.layout(split).format == "arrow" else lines_of(source.segments(split)[shard], last)


def _inner(source: seqio.DataSource, split: str) -> tuple[seqio.DataSource, str]:
    """The source that a `HashSplit` splits, and its split."""
    while isinstance(source, HashSplit):
        source, split = source.source, "train"
    return source, split


def reads(source: seqio.DataSource, split: str) -> list[str]:
    """What each shard of a split is made of: the part of a file, by what its path leads to, with its size and time, see `stamp`.

    Empty texts where the source reads no files of its own. What else a source is, its identity says.
    """
    source, split = _inner(source, split)
    names, paths = list(source.list_shards(split)), _shard_files(source, split)
    each = list(dict.fromkeys(paths))
    stamped = dict(zip(each, stamps_of(each)))
    return [f"{name.replace(path, real_path(path), 1)}: {stamped[path]}" for name, path in zip(names, paths)] or [""] * len(names)


def file_stamps(source: seqio.DataSource, split: str) -> dict[str, str]:
    """The files that a split is read from, by what their paths lead to, with their size and time, see `stamp`."""
    source, split = _inner(source, split)
    paths = sorted(set(_shard_files(source, split)))
    return dict(zip(map(real_path, paths), stamps_of(paths)))


def _shard_files(source: seqio.DataSource, split: str) -> list[str]:
    """The file of each shard; none of a source that reads no files of its own."""
    if is_seqio(source, "FileDataSource"):
        return list(source.list_shards(split))
    return source.shard_files(split) if isinstance(source, FileSource | ImageTextSource) else []


def _records(
    source: seqio.DataSource, split: str, shard: int, num_shards: int, text_key: str, id_key: str | None
) -> Iterator[Record]:
    if isinstance(source, MemoryDataSource) and id_key is None:
        texts = enumerate(source.documents(split)[shard::num_shards])
        return (in_memory(text, shard + number * num_shards, split) for number, text in texts)
    if isinstance(source, RecordSource):
        return source.records(split, shard)
    from ul2_tasks.sources.dataset_records import shard_of_dataset

    return shard_of_dataset(source, split, shard, num_shards, text_key, id_key)
