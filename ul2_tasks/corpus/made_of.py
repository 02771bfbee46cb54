"""What a cache or an export was made of, and whether it still is that: the same source, however spelled, and files as they were.

`identity` says what a source is, as it was written down. Here are the files that it leads to, each with its size and time: those
of each shard, in the order of shards, so that one that was changed costs its shards alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ul2_tasks.corpus.identity import contents, source_identity
from ul2_tasks.files.retries import ReadError
from ul2_tasks.imported import failures
from ul2_tasks.sources.file_source import FileSource
from ul2_tasks.sources.shard_records import file_stamps, reads, split_groups
from ul2_tasks.sources.splits import HashSplit

if TYPE_CHECKING:
    import seqio

_TOLD = 3  # changes that are told one by one
Reads = Mapping[str, Sequence[str]]  # what each shard of each split is made of, see `shard_records.reads`


def reads_of(source: seqio.DataSource) -> dict[str, list[str]]:
    """What each shard of each split is made of now."""
    found: dict[str, list[str]] = {}
    for splits in split_groups(source):
        of_group = reads(source, splits[0])
        if not any(of_group) and (more := contents(source, splits[0])):
            of_group = [f"{splits[0]}, shard {number}: {more}" for number in range(len(of_group))]
        found |= dict.fromkeys(splits, of_group)
    return found


def files_of(source: seqio.DataSource, split: str) -> dict[str, str]:
    """What a split is made of as a whole: each file with its size and time."""
    if stamps := file_stamps(source, split):
        return stamps
    return {"files": found} if (found := contents(source, split)) else {}


def read_as(source: seqio.DataSource) -> str | None:
    """The identity of a source without the spelling of its files; None where it cannot tell it."""
    inner = source
    while isinstance(inner, HashSplit):
        inner = inner.source
    words = source_identity(source)
    return words.replace(repr(inner), inner.read_as) if words is not None and isinstance(inner, FileSource) else words


def is_same_source(before: Mapping, before_reads: Reads, source: seqio.DataSource) -> bool:
    """Whether a source is that of an earlier job, spelled otherwise: it reads the same files, in the same order, as that did.

    `before` is what the earlier job wrote down, with "read_as"; `before_reads` is what its shards were made of.
    """
    if before["read_as"] != read_as(source) or not any(map(any, before_reads.values())):
        return False
    try:
        return _parts(before_reads) == _parts(reads_of(source))
    except failures(ValueError) as error:
        if isinstance(error, ReadError):
            raise
        return False  # the files are not here


def has_settings(before: Mapping, before_reads: Reads, corpus: seqio.Task, settings: Mapping[str, str]) -> bool:
    """Whether an earlier job had these settings of a corpus, but for how its files are spelled; see `is_same_source`."""
    there, here = dict(before["settings"]), dict(settings)
    if there == here:
        return True
    there.pop("source", None), here.pop("source", None)
    return there == here and is_same_source(before, before_reads, corpus.source)


def changes(before: Reads, now: Reads) -> tuple[str, bool]:
    """What has changed, in words, of which there are none where nothing has; and whether the shards are of the same parts of files.

    What a source does not tell is as it was.
    """
    told, are_same_parts = [], True
    for split, was in before.items():
        of_now = list(now.get(split, []))
        if not any(was) or list(was) == of_now:
            continue
        if _parts({split: was}) == _parts({split: of_now}):
            differing = [(_part(one), one, other) for one, other in zip(was, of_now) if one != other]
            told += [f"{part} was {_stamp(one)!r}, and is now {_stamp(other)!r}" for part, one, other in differing]
        else:
            are_same_parts = False
            parts = [list(map(_part, one)) for one in (was, of_now)]
            gone, new = ([part for part in one if part not in other] for one, other in (parts, parts[::-1]))
            told += [f"{part} is gone" for part in gone] + [f"{part} is new" for part in new]
            told += [] if gone or new else [f"the files of {split!r} come in another order"]
    told = list(dict.fromkeys(told))
    more = f"; and {len(told) - _TOLD} more" if len(told) > _TOLD else ""
    return "; ".join(told[:_TOLD]) + more, are_same_parts


def _parts(reads: Reads) -> dict[str, list[str]]:
    return {split: list(map(_part, of_split)) for split, of_split in reads.items()}


def _part(read: str) -> str:
    return read.rpartition(": ")[0]


def _stamp(read: str) -> str:
    return read.rpartition(": ")[2]
