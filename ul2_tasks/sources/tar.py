"""The samples of a tar, as WebDataset has it: files side by side whose names are equal up to the first stop."""

from __future__ import annotations

import itertools
import logging
import os
import tarfile
from collections.abc import Iterator
from typing import Any, BinaryIO

from ul2_tasks.sources.files import At, Layout, Rows, Shard
from ul2_tasks.sources.json_values import json_object

_logger = logging.getLogger(__name__)
_BLOCK = 1 << 16  # bytes
_IMAGES = {"jpg", "jpeg", "png", "webp", "gif", "bmp"}
_VIDEOS = {"mp4", "webm", "mov", "mkv", "avi"}


def tar_rows(file: BinaryIO, shard: Shard, layout: Layout) -> Rows:
    """The samples of a tar from the beginning of a shard on."""
    file.seek(shard.start)
    for number, (key, sample) in enumerate(_samples_of(file, shard.path), shard.before or 0):
        yield At(f"{shard.path}, sample {number} ({key})", number), sample


def _samples_of(file: BinaryIO, path: str) -> Iterator[tuple[str, dict[str, Any] | ValueError]]:
    """The name and the fields of each sample: `image`, `video`, `captions` of a .txt, the fields of a .json, and others.

    Others are there as bytes, by what follows the first stop of their names. A sample that is wrong is a ValueError.
    """
    with tarfile.open(fileobj=file, mode="r:") as tar:
        seen: set[str] = set()
        for key, members in _samples(tar, path):
            yield key, _torn(key) if key in seen else _sample(tar, members)
            seen.add(key)


def places_of(file: BinaryIO, path: str) -> list[int]:
    """The byte at which each sample begins. Raises a ValueError where its files are not side by side."""
    starts: dict[str, int] = {}
    with tarfile.open(fileobj=file, mode="r:") as tar:
        for key, members in _samples(tar, path):
            if key in starts:
                raise ValueError(f"{path!r} {_torn(key)}")
            starts[key] = next(members).offset
    return [*starts.values()]


def _torn(key: str) -> ValueError:
    return ValueError(
        f"must have the files of each sample side by side, got others between those of {key!r}. Pack it again in the order of"
        " names, such as with tar --sort=name."
    )


def _samples(tar: tarfile.TarFile, path: str) -> Iterator[tuple[str, Iterator[tarfile.TarInfo]]]:
    """The files of each sample. The log tells how many files are of none."""
    others: list[str] = []
    yield from itertools.groupby(_members(tar, others), key=lambda member: _key_and_suffix(member)[0])
    if others:
        _logger.warning("%s: left out %d files that are of no sample, such as %r", path, len(others), others[0])


def _members(tar: tarfile.TarFile, others: list[str]) -> Iterator[tarfile.TarInfo]:
    """The members that are files of samples. The names of other files are added to `others`; folders are none."""
    while (member := tar.next()) is not None:
        tar.members.clear()  # type: ignore[attr-defined]  # which it would keep for all of the file
        if not 0 <= member.size < 1 << 60:
            raise tarfile.ReadError(f"{member.name!r} is of {member.size} bytes")  # the next one would stand before it, or nowhere
        if member.isdir():
            continue
        if _is_of_sample(member.name):
            yield member
        else:
            others.append(member.name)
    _check_end(tar)


def _check_end(tar: tarfile.TarFile) -> None:
    """Raises an error where a tar is cut off, or goes on after its end, or has a header that is none: `tarfile` ends there."""
    file = tar.fileobj
    assert file is not None, "it is open"
    file.seek(tar.offset)
    if len(block := file.read(_BLOCK)) < tarfile.BLOCKSIZE:
        raise tarfile.ReadError("it has no end, so it is cut off")
    while block:
        if block.strip(b"\0"):
            raise tarfile.ReadError(f"at byte {tar.offset} is neither a file nor the end. Pack it again, as one tar")
        block = file.read(_BLOCK)


def _is_of_sample(name: str) -> bool:
    """Whether a file belongs to a sample: it has a suffix, and is not hidden, as those that a Mac puts beside each file are.

    >>> [_is_of_sample(name) for name in ("./a/1.jpg", "a/._1.jpg", "__MACOSX/1.jpg", ".cache/1.jpg", "README")]
    [True, False, False, False, False]
    """
    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    return bool(parts) and not any(part.startswith(".") or part == "__MACOSX" for part in parts) and "." in parts[-1]


def _key_and_suffix(member: tarfile.TarInfo) -> tuple[str, str]:
    folder, name = os.path.split(member.name)
    key, _, suffix = name.partition(".")
    return os.path.join(folder, key), suffix.lower()


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    if not member.isfile() or member.issparse():  # tarfile takes a sparse one, which may be of any size, for a file
        raise ValueError(f"{member.name!r} must be a file with a content of its own, got a link, a device or a sparse one.")
    file = tar.extractfile(member)
    return file.read() if file else b""


def _sample(tar: tarfile.TarFile, members: Iterator[tarfile.TarInfo]) -> dict[str, Any] | ValueError:
    beside: dict[str, Any] = {}
    record: dict[str, Any] = {}
    names: dict[str, str] = {}  # the file of each field
    try:
        for member in members:
            name, suffix = os.path.basename(member.name), _key_and_suffix(member)[1]
            content = _content(tar, member)
            field = "image" if suffix in _IMAGES else "video" if suffix in _VIDEOS else "captions" if suffix == "txt" else suffix
            if field in names:
                return ValueError(f"the sample must have one {field}, got {names[field]!r} and {name!r}.")
            names[field] = name
            if field == "json":
                found = json_object(content)
                if isinstance(found, ValueError):
                    return ValueError(f"its .json {found}")
                beside = found
            else:
                record[field] = content.decode() if field == "captions" else content
    except UnicodeDecodeError as error:
        return ValueError(f"its .txt must be UTF-8: {error}.")
    except (tarfile.TarError, ValueError) as error:
        return ValueError(f"the sample cannot be read: {error}")
    for field in beside.keys() & record.keys():
        named = beside[field]  # it may be the path of the file that stands beside the .json
        if named not in (None, record[field]) and not (isinstance(named, str) and os.path.basename(named) == names[field]):
            return ValueError(f"the sample must have one {field}, got {names[field]!r} and a field of its .json.")
    return beside | record
