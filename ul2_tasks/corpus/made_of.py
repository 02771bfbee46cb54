"""What a cache or an export was made of, and whether it still is that: the same source, however spelled, and files as they were.

`identity` says what a source is, as it was written down. Here are the files that it leads to, each with its size and time: those
of each shard, in the order of shards, so that one that was changed costs its shards alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ul2_tasks.files.listing import real_path
from ul2_tasks.files.retries import ReadError
from ul2_tasks.sources.base import RecordSource
from ul2_tasks.sources.files import Shard

if TYPE_CHECKING:
    from ul2_tasks.corpus.corpus import Corpus

_TOLD = 3  # changes that are told one by one
Reads = Mapping[str, Sequence[Sequence[str]]]  # of each shard of each split a part of a file, and the file's size and time


def reads_of(source: RecordSource) -> dict[str, list[list[str]]]:
    """What each shard of each split is made of now; two empty texts where the source does not tell."""
    found: dict[str, list[list[str]]] = {}
    for splits in source.groups:
        shards, stamps = source.shards(splits[0]), source.stamps(splits[0])
        if stamps:
            parts = [[_part(shard), stamps[shard.path]] for shard in shards]
        else:
            more = source.contents(splits[0])
            parts = [[f"{splits[0]}, shard {number}" if more else "", more] for number in range(len(shards))]
        found |= dict.fromkeys(splits, parts)
    return found


def files_of(source: RecordSource, split: str) -> dict[str, str]:
    """What a split is made of as a whole: each file with its size and time."""
    if stamps := source.stamps(split):
        return {real_path(path): stamp for path, stamp in sorted(stamps.items())}
    return {"files": found} if (found := source.contents(split)) else {}


def _part(shard: Shard) -> str:
    """The part of a file that a shard is, by what its path leads to."""
    return str(dataclasses.replace(shard, path=real_path(shard.path)))


def is_same_source(before: Mapping, before_reads: Reads, source: RecordSource) -> bool:
    """Whether a source is that of an earlier job, spelled otherwise: it reads the same files, in the same order, as that did.

    `before` is what the earlier job wrote down, with "read_as"; `before_reads` is what its shards were made of.
    """
    if before["read_as"] != source.read_as or not _tells(before_reads):
        return False
    try:
        return _parts(before_reads) == _parts(reads_of(source))
    except (OSError, ValueError) as error:
        if isinstance(error, ReadError):
            raise
        return False  # the files are not here


def has_settings(before: Mapping, before_reads: Reads, corpus: Corpus, settings: Mapping[str, str]) -> bool:
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
        of_now = now.get(split, [])
        parts_were, parts_are = ([part for part, _ in one] for one in (was, of_now))
        if not any(parts_were):
            continue
        if parts_were == parts_are:
            stamps = ((part, one, other) for (part, one), (_, other) in zip(was, of_now) if one != other)
            told += [f"{part} was {one!r}, and is now {other!r}" for part, one, other in stamps]
        else:
            are_same_parts = False
            gone = [part for part in parts_were if part not in parts_are]
            new = [part for part in parts_are if part not in parts_were]
            told += [f"{part} is gone" for part in gone] + [f"{part} is new" for part in new]
            told += [] if gone or new else [f"the files of {split!r} come in another order"]
    told = list(dict.fromkeys(told))
    more = f"; and {len(told) - _TOLD} more" if len(told) > _TOLD else ""
    return "; ".join(told[:_TOLD]) + more, are_same_parts


def _tells(reads: Reads) -> bool:
    return any(part for of_split in reads.values() for part, _ in of_split)


def _parts(reads: Reads) -> dict[str, list[str]]:
    return {split: [part for part, _ in of_split] for split, of_split in reads.items()}
