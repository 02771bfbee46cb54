"""What an export of conversations is: its task, its shards, its arguments, and what it is made of."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

import seqio

from ul2_tasks.chat.objective import CHAT
from ul2_tasks.corpus.conversations import stored_hashes
from ul2_tasks.corpus.corpus import corpus_settings
from ul2_tasks.corpus.made_of import files_of
from ul2_tasks.export.conversations_folder import COLUMNS, LEFT_OUT, folder_of, table_of
from ul2_tasks.files.listing import real_path
from ul2_tasks.files.systems import place
from ul2_tasks.jobs.shards import JobShard
from ul2_tasks.jobs.trial import share
from ul2_tasks.sources.base import RecordSource
from ul2_tasks.tasks.chat import ChatTask

RECORDS = "_parts"


@dataclasses.dataclass(frozen=True)
class ConversationShard(JobShard):
    """A file or shard of the source, and the files that one of its splits becomes.

    `segments` are the indices of the source's shards that are parts of the file, `max_tokens` is the
    most to write, and `cache_dirs` are SeqIO's cache directories, if the cache is read.
    """

    task: str
    split: str
    source: str
    segments: tuple[int, ...]
    max_tokens: int | None
    cache_dirs: tuple[str, ...] | None


def reads_now(task: ChatTask, use_cached: bool) -> dict[str, list[list[str]]]:
    """What each shard of each split is made of, see `made_of`."""
    return {split: _reads(task, split, _files(task.corpus.reader, split), use_cached) for split in task.splits}


def chat_task(name: str) -> ChatTask:
    """The task of this name, if it is one of conversations for a decoder."""
    chats = [each for each in seqio.TaskRegistry.names() if isinstance(seqio.TaskRegistry.get(each), ChatTask)]
    if name not in chats:
        raise ValueError(f"name must be a registered chat task, one of {sorted(chats)}, got {name!r}. Register it first.")
    task = seqio.TaskRegistry.get(name)
    if task.format != CHAT:
        chat = f"{task.corpus.name.removesuffix('_corpus')}_{CHAT}"
        raise ValueError(
            f"name must be a task with one sequence of tokens, got {name!r}, which has inputs and targets. Export {chat!r}."
        )
    return task


def shards_of(
    task: ChatTask, folder: str, records: str, most: Mapping[str, int | None], use_cached: bool
) -> Iterator[ConversationShard]:
    """A shard for each file of each split. Raises a ValueError where two splits would have one folder."""
    by_folder = {folder_of(split): split for split in task.splits}
    if both := [sorted((split, by_folder[folder_of(split)])) for split in task.splits if by_folder[folder_of(split)] != split]:
        raise ValueError(
            f"splits must have a folder each, got {both[0]} of {task.name!r}, which both are {folder_of(both[0][0])!r}. Register"
            " the source without one of them, or under another name."
        )
    for split in task.splits:
        groups = _files(task.corpus.reader, split)
        reads = _reads(task, split, groups, use_cached)
        digits = max(2, len(str(len(groups) - 1)))
        for number, (source, segments) in enumerate(groups):
            stem = f"shard_{number:0{digits}d}"
            yield ConversationShard(
                name=f"{folder_of(split)}-{stem}",
                files=(
                    *(f"{stem}_{column}.{suffix}" for column in COLUMNS for suffix in ("bin", "idx")),
                    table_of(stem),
                    f"{stem}.{LEFT_OUT}",
                ),
                folder=place(folder, folder_of(split)),
                records=records,
                reads=reads[number],
                task=task.name,
                split=split,
                source=source,
                segments=segments,
                **{name: share(name, all_of_it, number, len(groups)) for name, all_of_it in most.items()},
                cache_dirs=tuple(seqio.get_global_cache_dirs()) if use_cached else None,
            )


def _reads(task: ChatTask, split: str, groups: Sequence[tuple[str, tuple[int, ...]]], use_cached: bool) -> list[list[str]]:
    """What each group of shards is made of, see `made_of`: a file, and its size and time, or what the cache has of it."""
    if use_cached:
        hashes = stored_hashes(task.corpus, split)
        return [[f"{path}, of the cache", " ".join(hashes[number] for number in numbers)] for path, numbers in groups]
    found = files_of(task.corpus.source, split)
    told = ((path, found.get(path, found.get("files", ""))) for path in (real_path(path) for path, _ in groups))
    return [[path if stamp else "", stamp] for path, stamp in told]


def _files(reader: RecordSource, split: str) -> list[tuple[str, tuple[int, ...]]]:
    """The files of a split with the numbers of their shards; of a source without files its shards."""
    has_files = bool(reader.files(split))
    paths = [shard.path if has_files else str(shard) for shard in reader.shards(split)]
    return [
        (path, tuple(number for number, _ in numbers))
        for path, numbers in itertools.groupby(enumerate(paths), key=lambda item: item[1])
    ]


def arguments_of(task: ChatTask, most: Mapping[str, int | None], use_cached: bool) -> dict[str, object]:
    """The arguments of an export, as JSON has them."""
    corpus = task.corpus
    return {
        "task": task.name,
        "corpus": corpus_settings(corpus),
        "supervision": dataclasses.asdict(task.supervision),
        "read": "the cache" if use_cached else "the text",
        **most,
    }
