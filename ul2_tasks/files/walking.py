"""What is below a folder, or matches a glob. A folder that cannot be listed is an error; fsspec's own ways take it for empty."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem
from fsspec.utils import glob_translate

from ul2_tasks.files.retries import retried

_MAGIC = re.compile(r"[*?[]")


def below(system: AbstractFileSystem, folder: str) -> dict[str, dict[str, Any]]:
    """What the file system says of each file below a folder, by name."""
    if not _is_of_fsspec(system, "find"):
        return retried(lambda: system.find(folder, detail=True), folder)
    return {each["name"]: each for each in _walk(system, folder, None) if each["type"] != "directory"}


def matching(system: AbstractFileSystem, pattern: str) -> dict[str, dict[str, Any]]:
    """What the file system says of each file and folder that matches a glob, by name."""
    if (magic := _MAGIC.search(pattern)) is None:
        return {}
    start = pattern.rfind("/", 0, magic.start()) + 1
    depth = None if "**" in pattern else pattern.count("/", start) + 1
    found: Iterable[dict[str, Any]]
    if not _is_of_fsspec(system, "find") and depth != 1:  # a list of all below takes fewer requests than one of each folder
        found = below(system, pattern[:start]).values()
    elif not _is_of_fsspec(system, "glob"):
        return retried(lambda: system.glob(pattern, detail=True), pattern)
    else:
        found = _walk(system, pattern[:start], depth)
    matches = re.compile(glob_translate(pattern)).match
    return {each["name"]: each for each in found if matches(each["name"])}


def _walk(system: AbstractFileSystem, folder: str, depth: int | None) -> Iterator[dict[str, Any]]:
    """Links to folders are not followed."""
    try:
        listed = retried(lambda: system.ls(folder, detail=True), folder)
    except (FileNotFoundError, NotADirectoryError):  # it was removed meanwhile, or there is none
        return
    for each in listed:
        if each["name"].rstrip("/") == folder.rstrip("/"):  # an object store may list the folder, too
            continue
        yield each
        if each["type"] == "directory" and depth != 1:
            yield from _walk(system, each["name"], depth and depth - 1)


def _is_of_fsspec(system: AbstractFileSystem, name: str) -> bool:
    """Whether a file system has fsspec's own method, and none that asks its server for all names at once."""
    if isinstance(system, AsyncFileSystem):
        return getattr(type(system), f"_{name}") is getattr(AsyncFileSystem, f"_{name}")
    return getattr(type(system), name) is getattr(AbstractFileSystem, name)
