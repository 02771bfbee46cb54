"""Which files paths, globs and folders name, and what tells a file that was changed."""

from __future__ import annotations

import datetime
import fnmatch
import functools
import hashlib
import itertools
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from ul2_tasks.files.systems import check_bucket, file_system, info, infos, is_local, read
from ul2_tasks.files.walking import below, matching

# What tells two contents of a file apart, as file systems name it: the surest first, and last when it was changed.
_MARKS = (
    *("generation", "ETag", "etag", "blob_id", "sha", "Content-MD5", "Digest", "mtime_nsec", "LastModified", "Last-Modified"),
    *("last_modified", "updated", "mtime", "modified", "modify", "last_write_time", "created"),
)
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(:[\w.-]+)?")  # OWNER/NAME, OWNER/NAME:CONFIG
_ENDING = re.compile(r"\.[a-z]+$")  # of a file's name


def list_files(patterns: str | os.PathLike | Sequence[str | os.PathLike]) -> list[str]:
    """The files that paths, globs and folders name, see `listed`."""
    return list(listed(patterns))


def listed(patterns: str | os.PathLike | Sequence[str | os.PathLike]) -> dict[str, dict[str, Any]]:
    """What the file system says of each file that paths, globs and folders name. A folder means all files in it and below it.

    Each file is listed once. The patterns keep their order, and the files of one pattern are sorted. Files and folders whose
    names begin with "." or "_" are left out, as other tools do, unless the pattern spells that beginning.

    Raises:
        ValueError: a pattern names no file, or only hidden ones; a folder contains a link to a folder; no file system is
            installed for the pattern's protocol.
    """
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for pattern in [patterns] if isinstance(patterns, str | os.PathLike) else patterns:
        pattern = os.path.expanduser(os.fspath(pattern))
        names = _expand(pattern)
        if not names:
            check_bucket(pattern)
            raise ValueError(_no_match(pattern))
        for name in sorted(names):
            found.setdefault(os.path.normpath(name) if is_local(name) else name, (name, names[name]))
    files = dict(found.values())
    unsaid = [name for name in files if files[name].get("size") is None]  # in a web server's list
    return files | dict(zip(unsaid, infos(unsaid)))


def stamps(paths: Sequence[str]) -> list[str]:
    """`stamp` of each file."""
    return list(map(stamp, infos(paths)))


def stamp(found: Mapping[str, Any]) -> str:
    """The size of a file, and what else tells that it was changed: another text after each change."""
    return ", ".join(filter(None, [f"{found['size']} bytes", mark(found)]))


def mark(found: Mapping[str, Any]) -> str:
    """What another content of a file would not have, of what its file system says, see `systems.info`; "" where it says nothing.

    It is the same of a file that is listed and of one that is asked for alone: S3 has milliseconds in a listing, else seconds.
    """
    value = next((found[key] for key in _MARKS if found.get(key)), "")
    if isinstance(value, float):
        value = datetime.datetime.fromtimestamp(value, datetime.timezone.utc)
    return value.isoformat() if isinstance(value, datetime.datetime) else str(value)


def read_as_it_is(path: str) -> bytes:
    """All of a small file. A remote one that was read before is read again only where its stamp is another one."""
    return read(path) if is_local(path) else _read_once(path, stamps([path])[0])


@functools.lru_cache(maxsize=64)
def _read_once(path: str, _: str) -> bytes:
    return read(path)


def contents(paths: Sequence[str], known: Mapping[str, str] | None = None) -> str:
    """Files in few words, others once one of them is changed, or another: by what its path leads to, its size and its time.

    `known` are the stamps of remote files; they are asked for where it is left out.
    """
    paths = list(map(local_path, paths))
    remote = [path for path in paths if not is_local(path)]
    stamped = dict(zip(remote, stamps(remote))) if known is None else {path: known[path] for path in remote}
    told = [(_unstripped(path), stamped[path]) if path in stamped else _told(path) for path in paths]
    return f"{len(paths)} files, sha256 {hashlib.sha256(repr(told).encode()).hexdigest()[:16]}"


def _unstripped(path: str) -> str:
    system, name = file_system(path)
    return system.unstrip_protocol(name)


def _told(path: str) -> tuple[str, str]:
    found = os.stat(path)
    return real_path(path), f"{found.st_size} bytes, {found.st_mtime_ns}"


def local_path(path: str) -> str:
    """The path that a `file://` address has on this machine; any other as it is."""
    system, name = file_system(path)
    return name if isinstance(system, LocalFileSystem) else path


def real_path(path: str) -> str:
    """What a local path leads to, however it is spelled; of another one the path itself."""
    return os.path.realpath(path) if is_local(path) else path


def _expand(pattern: str) -> dict[str, dict[str, Any]]:
    """The files that a pattern names, by one listing of what may match; a file system can be slow to answer for each."""
    system, path = fsspec.core.url_to_fs(pattern) if is_local(pattern) else file_system(pattern)  # the first makes it absolute
    found = info(path if is_local(pattern) else pattern)  # asked first: a file's name may have [brackets], which a glob has too
    if found is not None and found["type"] != "directory":
        names, listed = [path], {path: found}
    elif found is not None:
        listed = below(system, path)
        names = _visible(list(listed), path)
        links = [name for name in names if listed[name].get("islink") and system.isdir(name)]
        if links:
            raise ValueError(f"{links[0]!r} is a link to a folder, which is not followed. Name the folders, as a list.")
    else:
        listed = matching(system, path)
        is_file = os.path.isfile if is_local(pattern) else lambda name: listed[name]["type"] == "file"
        names = _visible(list(filter(is_file, listed)), path)
    return {name if is_local(pattern) else system.unstrip_protocol(name): listed[name] for name in names}


def _visible(paths: Sequence[str], pattern: str) -> list[str]:
    """The paths that are not hidden.

    Raises:
        ValueError: there are paths, and all of them are hidden.
    """
    visible = [path for path in paths if _is_visible(path.split("/"), pattern.split("/"))]
    if paths and not visible:
        raise ValueError(
            f"all files that match {pattern!r} are hidden, such as {min(paths)!r}: a name below it begins with '.' or '_'. Choose"
            " other files, or name these one by one."
        )
    return visible


def _is_visible(names: list[str], spelled: list[str]) -> bool:
    """Whether no name of a path begins with "." or "_", except names that the pattern (`spelled`) has too."""
    shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(names, spelled)))
    hidden, own = ([name for name in some[shared:] if name.startswith((".", "_"))] for some in (names, spelled))
    return all(any(fnmatch.fnmatchcase(name, pattern) for pattern in own) for name in hidden)


def _no_match(pattern: str) -> str:
    if os.path.isdir(pattern):
        return f"no file is in the folder {pattern!r}, nor below it. Pass a file, a folder or a glob."
    where = "" if not is_local(pattern) or os.path.isabs(pattern) else f" in the folder {os.getcwd()}"
    if _HUB_ID.fullmatch(pattern) and not _ENDING.search(pattern):
        what = f", or, for a dataset of Hugging Face's hub, 'hf:{pattern}'"
    else:
        what = ", such as 'corpus/*.jsonl.gz'"
    return f"no file matches {pattern!r}{where}. Pass a file, a folder or a glob{what}."
