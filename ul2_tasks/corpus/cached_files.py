"""Which files a cache has, as SeqIO names them."""

from __future__ import annotations

import os

from ul2_tasks.files.systems import exists, names_in, place
from ul2_tasks.jobs.manifest import load_object

COMPLETED = "COMPLETED"  # a file that is written last
COUNTED = ("documents", "tokens", "empty", "skipped")


def folder_of(cache_dir: str, task: str) -> str:
    """The folder of a task's cache in one of SeqIO's cache directories."""
    return os.path.join(cache_dir, *task.split(":"))


def is_cache(folder: str) -> bool:
    """Whether a folder is that of a complete cache."""
    return exists(place(folder, COMPLETED))


def info_path(cache_dir: str, split: str) -> str:
    """The file that says how many shards a split has."""
    return os.path.join(cache_dir, f"info.{split}.json")


def stats_path(cache_dir: str, split: str) -> str:
    """The file that says how many documents and tokens a split has."""
    return os.path.join(cache_dir, f"stats.{split}.json")


def expected_files(cache_dir: str, split: str) -> list[str]:
    """The names of the files of a split. Raises a ValueError if a file is missing, or if there are others."""
    present = {name for name in names_in(cache_dir) if name.startswith(f"{split}.tfrecord-")}
    path = info_path(cache_dir, split)
    count = load_object(path, "Write the cache again.").get("num_shards", len(present))
    names = [f"{split}.tfrecord-{shard:05d}-of-{count:05d}" for shard in range(count)]
    wrong = [f"{name} is missing" for name in names if name not in present] + [
        f"{name} does not belong to it" for name in present - set(names)
    ]
    if wrong:
        raise ValueError(
            f"the cache {cache_dir} must have {count} files of split {split!r}: {'; '.join(sorted(wrong))}. Write it again."
        )
    return names
