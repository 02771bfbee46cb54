"""The shards of a job: how it begins, which it has written, how one is written, and what is left of a job that was killed.

The unit of work is a shard. A worker writes the files of a shard under temporary names, renames them, and then writes a record
of them. In an object store, where a file is whole or not there, they have their last names at once. Records have a folder of
their own, with `begun.json`, which says what was asked for:

    FOLDER/train-00000-of-00002.parquet           a shard that is written,
    FOLDER/_parts/train-00000-of-00002.json       and its record
    FOLDER/_parts/train-00001-of-00002.1f3a.tmp   a shard that a worker is writing
    FOLDER/_parts/begun.json
    FOLDER/_parts/running                         which process runs the job, and when it was seen last, see `claim`

So a job that was killed goes on where it stopped. When its manifest is written, a job removes the folder of records. A folder
that has records and no manifest is unfinished.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ul2_tasks.files.atomic import removed_on_failure
from ul2_tasks.files.systems import (
    exists,
    infos_of_present,
    is_of_object_store,
    make_folders,
    move,
    names_in,
    parallel_map,
    place,
    remove,
    size,
)
from ul2_tasks.jobs.claim import is_claim
from ul2_tasks.jobs.manifest import differences, load_object, load_written, write_manifest
from ul2_tasks.version import check_version

BEGUN = "begun.json"
_RECORDS = ("_parts", "parts")  # the folders of records: of an export; of a cache
_LAST = {"cache": {"COMPLETED"}, "export": {"_manifest.json"}}  # what a job writes last
_REMOVE = "Delete the folder, and start again."


@dataclasses.dataclass(frozen=True)
class JobShard:
    """What one worker of a job writes at a time.

    Its record, NAME.json in the folder `records`, also says what it `reads`: what it is made of, beside what is the same for all
    shards, see `made_of.reads_of`. Temporary files are beside the record.
    """

    name: str
    files: tuple[str, ...]
    folder: str
    records: str
    reads: Sequence[object]

    @property
    def record(self) -> str:
        """The path of the record, which says that the files are written, and what is in them."""
        return place(self.records, f"{self.name}.json")


AnyShard = TypeVar("AnyShard", bound=JobShard)


def finished_shards(shards: Sequence[JobShard], listed: Mapping[str, dict] | None = None) -> dict[str, dict]:
    """The shards whose files are all there, with the sizes that their records say, and are made of what is read now.

    Gives the record of each by its name: "files", with "file" and "bytes" of each, or for a shard of one file these two. `listed`
    is what is known of shards without a record, in the same form.
    """
    by_name = {shard.name: shard for shard in shards}
    recorded = names_in(shards[0].records)
    with_record = [shard for shard in shards if f"{shard.name}.json" in recorded]
    read = parallel_map(lambda shard: load_written(shard.record, _REMOVE), with_record)
    records = {**(listed or {}), **{shard.name: found for shard, found in zip(with_record, read)}}

    of_now = {
        name: {place(by_name[name].folder, file["file"]): file["bytes"] for file in record.get("files", [record])}
        for name, record in records.items()
        if name in by_name and record.get("reads", by_name[name].reads) == by_name[name].reads  # exports of examples do not say it
    }
    paths = [path for files in of_now.values() for path in files]
    present = {path: found["size"] for path, found in zip(paths, infos_of_present(paths)) if found}
    return {
        shard.name: records[shard.name]
        for shard in shards
        if shard.name in of_now and all(present.get(path) == size for path, size in of_now[shard.name].items())
    }


def all_shards(shards: Sequence[JobShard], listed: Mapping[str, dict] | None = None) -> list[dict]:
    """The records of all shards, in their order, at the end of a job; see `finished_shards`. Missing ones raise a RuntimeError."""
    finished = finished_shards(shards, listed)
    missing = [shard.name for shard in shards if shard.name not in finished]
    if missing:
        folder = shards[0].folder
        raise RuntimeError(f"{folder} lacks {missing}, which workers have written. Name a folder that all workers see.")
    return [finished[shard.name] for shard in shards]


def check_folder(folder: str, known: Sequence[str], begun: Mapping[str, object]) -> None:
    """Raises a ValueError unless a folder is empty, or has this export, finished or not.

    `known` are the paths of the manifest and of `BEGUN`, as far as they are there. `begun` is what is asked for, with
    "schema_version".
    """
    found = [load_object(path, _REMOVE) for path in known if exists(path)]
    others = sorted(names_in(folder) - {_RECORDS[0]})
    if others and not found:
        raise ValueError(
            f"the folder must be empty or new, got {folder} with files that do not belong to an export, such as {others[0]!r}."
            " Name another folder."
        )
    wanted = json.loads(json.dumps(begun))
    for before in found:
        check_version(f"the export in {folder}", before.get("schema_version"), wanted["schema_version"], "Delete it.")
        by_key = ("; ".join(differences(before.get(key), value, key)) for key, value in wanted.items())
        if changes := next(filter(None, by_key), ""):  # the first key says enough: the others may follow from it
            raise ValueError(f"{folder} has an export with other arguments: {changes}. Delete it, or name another folder.")


def begin(shards: Sequence[AnyShard], finished: Collection[str], begun: Mapping[str, object]) -> list[AnyShard]:
    """Makes the folders, and removes what an interrupted job left of these shards, except finished ones. The job has taken them.

    `finished` are the names of shards that are written. Returns the others.
    """
    records = shards[0].records
    waiting = [shard for shard in shards if shard.name not in finished]
    unfinished = {folder: set[str]() for folder in (*(shard.folder for shard in shards), records)}
    for shard in waiting:
        unfinished[shard.folder] |= set(shard.files)
        unfinished[records].add(f"{shard.name}.json")
    own = {file for shard in shards for file in shard.files}
    for where, wrong in unfinished.items():
        for name in names_in(where):
            if name in wrong or (name.endswith(".tmp") and name.rsplit(".", 2)[0] in own):
                remove(place(where, name))
    write_manifest(place(records, BEGUN), begun)  # before there is anything else: it says whose folder this is
    for where in unfinished:
        make_folders(where)
    return waiting


def write_shard(shard: JobShard, write: Callable[[], dict], where: Callable[[], str]) -> None:
    """Writes the files of a shard and then its record, unless there is one. Runs on a worker.

    `write` writes the files, see `temporary_files`, and returns what becomes the record, see `finished_shards`. What it says of
    files is compared with those that are there. Where something cannot be read or written, a RuntimeError says what, and why;
    `where` names the shard in it.
    """
    if exists(shard.record):
        return
    try:
        record: Any = {**write(), **({"reads": shard.reads} if any(shard.reads) else {})}
        for file in () if is_of_object_store(shard.folder) else record.get("files", [record]):
            _check_written(place(shard.folder, file["file"]), file["bytes"])
        write_manifest(shard.record, record)
    except OSError as error:
        raise RuntimeError(f"{where()}: {type(error).__name__}: {error}") from error


def _check_written(path: str, expected: int) -> None:
    """Raises an OSError unless a file is there with all its bytes. Its temporary file may have been removed by another job."""
    found = size(path) if exists(path) else None
    if found != expected:
        there = "it is gone" if found is None else f"it has {found}"
        raise OSError(
            f"{path} was written with {expected} bytes, and {there}. Look for what removes files there, and re-run the command."
        )


@contextlib.contextmanager
def temporary_files(shard: JobShard) -> Iterator[list[str]]:
    """Gives a temporary path for each file of a shard. At the end of the block those that were written are renamed to their places.

    If the block raises anything, they are removed. In an object store the paths are the last ones.
    """
    if is_of_object_store(shard.folder):
        yield [place(shard.folder, name) for name in shard.files]
        return
    paths = [place(shard.records, f"{name}.{uuid.uuid4().hex}.tmp") for name in shard.files]
    with removed_on_failure(*paths, where=shard.folder):
        yield paths
        for path, name in zip(paths, shard.files):
            if exists(path):
                move(path, place(shard.folder, name))


def remove_records(records: str) -> None:
    """Removes what is in the folder of records, but for the claims: the folder goes with the last of these, see `claim.taken`."""
    parallel_map(remove, (place(records, name) for name in names_in(records) if not is_claim(name)))


def unfinished(folder: str) -> str | None:
    """A sentence if a cache or an export was begun in the folder and is not finished; otherwise None."""
    present = names_in(folder)
    for records in (place(folder, name) for name in _RECORDS if name in present):
        if exists(place(records, BEGUN)):
            begun = load_written(place(records, BEGUN), _REMOVE)
            is_cache = "parts" in begun
            kind, shards = ("cache", begun["parts"]) if is_cache else ("export", begun["arguments"]["shards"])
            if present & _LAST[kind]:
                return None  # the job was killed before it removed the records
            finished = sum(name.endswith(".json") for name in names_in(records) - {BEGUN})
            return (
                f"{folder} is an unfinished {kind}, with {finished} of {shards} shards. Re-run the command that began it to finish"
                " it, or delete the folder."
            )
    return None
