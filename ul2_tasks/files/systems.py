"""File systems, by fsspec: what is in a folder, and files that are made, read, moved and removed.

A path without `://` is local. One such as gs:// is opened by fsspec's package for it.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import hashlib
import io
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any, BinaryIO, TypeVar

import fsspec
from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFile

from ul2_tasks.files.retried_file import RetriedFile
from ul2_tasks.files.retries import retried, wait_after


class _LocalFiles(LocalFileSystem):
    """Local files by their paths as they are spelled: no `~` is expanded, and "" is no folder."""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path


_LOCAL = _LocalFiles()
_BLOCK = 1 << 22  # bytes that are read at once
_THREADS = 32
_AT_ONCE = 256  # local files that a thread asks for: the handing over takes longer than one
_MANY = 4  # files of a folder, from which on a listing takes less time than a request for each
_OBJECT_STORES = frozenset("s3 s3a gs gcs abfs abfss az adl oci oss obs cos cosn tos r2 b2".split())  # noqa: SIM905
_Found = TypeVar("_Found")


def is_local(path: str) -> bool:
    """Whether a path is that of a file of this machine, and no URL."""
    return "://" not in path


def is_of_object_store(path: str) -> bool:
    """Whether a path begins with a bucket: there folders are but beginnings of names, and a file is whole or not there."""
    return path.partition("://")[0] in _OBJECT_STORES


def file_system(path: str) -> tuple[AbstractFileSystem, str]:
    """The file system of a path, and the name of the path there.

    Raises:
        ValueError: no package for the path's protocol is installed.
    """
    if is_local(path):
        return _LOCAL, path
    scheme = path.partition("://")[0].rpartition("::")[2]  # of `simplecache::s3://..` s3
    try:
        fsspec.get_filesystem_class(scheme)  # whose error names the package
    except (ImportError, ValueError) as error:
        raise ValueError(
            f"{scheme}:// must have a file system that is installed ({error}). Install its package for fsspec."
        ) from error
    return fsspec.core.url_to_fs(path)


def absolute(path: str) -> str:
    """The same path for workers, whose current folder may be another one."""
    return os.path.abspath(path) if is_local(path) else path


def place(folder: str, name: str) -> str:
    """The path of a file in a folder."""
    return f"{folder.rstrip('/')}/{name}"


def info(path: str) -> dict[str, Any] | None:
    """What the file system says of a file or a folder now; None where there is neither.

    Raises:
        OSError: the file system cannot be asked.
    """
    system, name = _fresh(path)
    try:
        return _asked(lambda: system.info(name), path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def infos(paths: Sequence[str]) -> list[dict[str, Any]]:
    """`info` of each file.

    Raises:
        OSError: a file is not there, or its file system cannot be asked.
    """
    found = infos_of_present(paths)
    if None in found:
        path = paths[found.index(None)]
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return [each for each in found if each is not None]


def infos_of_present(paths: Sequence[str]) -> list[dict[str, Any] | None]:
    """`info` of each path. Those in one folder of an object store are listed, where they are many."""
    folders = collections.Counter(path.rpartition("/")[0] for path in paths if is_of_object_store(path))
    many = {folder for folder, count in folders.items() if count >= _MANY}
    listed = {f"{folder}/{found['name'].rpartition('/')[2]}": found for folder in many for found in _listed(folder)}
    others = [path for path in paths if path.rpartition("/")[0] not in many]
    at_once = _AT_ONCE if all(map(is_local, others)) else 1
    parts = parallel_map(lambda first: list(map(info, others[first : first + at_once])), range(0, len(others), at_once))
    rest = dict(zip(others, itertools.chain.from_iterable(parts)))
    return [rest[path] if path in rest else listed.get(path) for path in paths]


def _listed(folder: str) -> list[dict[str, Any]]:
    """What is in a folder, by one listing, made now; nothing where there is no folder."""
    system, name = _fresh(folder)
    try:
        return _asked(lambda: system.ls(name, detail=True), folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def exists(path: str) -> bool:
    """Whether there is a file or a folder."""
    return info(path) is not None  # fsspec's own `exists` takes every error, and Ctrl-C, for a file that is not there


def is_folder(path: str) -> bool:
    """Whether there is a folder."""
    found, is_web = info(path), path.startswith(("http://", "https://"))  # there a folder is a page of links
    return found is not None and (found["type"] == "directory" or (is_web and bool(names_in(path))))


def names_in(folder: str) -> set[str]:
    """The names of the files and folders in a folder; none if there is no such folder."""
    path = file_system(folder)[1].rstrip("/")
    found = (each["name"].rstrip("/") for each in _listed(folder))
    return {name.rpartition("/")[2] for name in found if name != path}  # an object store may list the folder, too


def size(path: str) -> int:
    """The size of a file, in bytes."""
    return sizes([path])[0]


def sizes(paths: Sequence[str]) -> list[int]:
    """The sizes of files, in bytes."""
    return sizes_of(paths, infos(paths))


def sizes_of(paths: Sequence[str], found: Iterable[Mapping[str, Any]]) -> list[int]:
    """The sizes of files, of what their file system has said."""
    counts = [each.get("size") for each in found]
    if None in counts:
        raise OSError(f"{paths[counts.index(None)]} must have a size that its server says. Use one that says it in Content-Length.")
    return [int(each) for each in counts if each is not None]


def read(path: str, most: int | None = None) -> bytes:
    """All of a file, or so many bytes at most: of a remote one by a single request, where that does not fail."""
    system, name = file_system(path)
    if isinstance(system, AsyncFileSystem):
        with contextlib.suppress(Exception):  # which is raised, named, where the file is opened
            return system.cat_file(name, start=0, end=most)
    with open_to_read(path) as file:
        return file.read(-1 if most is None else most)


def sha256(path: str, most: int | None = None) -> str:
    """The SHA-256 of a file, in hexadecimal. A remote one of `most` bytes, if they are few, is read by a single request."""
    found = hashlib.sha256()
    if most is not None and most <= _BLOCK and not is_local(path):
        found.update(read(path))
        return found.hexdigest()
    with open_to_read(path) as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest()


def open_to_read(path: str) -> BinaryIO:
    """A file, as its bytes lie there. A read that fails is tried again, see `RetriedFile`."""
    system, name = file_system(path)

    def opened() -> Any:
        if isinstance(system, LocalFileSystem):
            return open(name, "rb", buffering=0)
        system.invalidate_cache()  # it may remember an earlier file of this name
        file: Any = system.open(name, mode="rb")
        # Of files in memory, fsspec gives all callers the same object, with a single position.
        return io.BytesIO(file.getvalue()) if isinstance(file, MemoryFile) else file

    return RetriedFile(opened, path)


def open_to_write(path: str) -> BinaryIO:
    """A new file, over what is there. In an object store it is there once it is closed, unless its `with` block raises anything."""
    system, name = file_system(path)
    if isinstance(system, LocalFileSystem):
        return open(name, "wb")
    written: Any = _Written(_asked(lambda: system.open(name, mode="wb"), path), path)
    return written


class _Written(io.RawIOBase):
    """A remote file that is written. What it raises names the path."""

    def __init__(self, file: Any, path: str):
        self._file, self._path = file, path

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with _naming(self._path):
            return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        if not self.closed:
            super().close()
            with _naming(self._path):
                self._file.close()

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is not None and is_of_object_store(self._path):
            with contextlib.suppress(Exception):  # of any file system; the first error says more
                self._file.discard()
            self._file.closed = True
        self.close()


def make_folders(path: str) -> None:
    """Makes a folder and those above it, as far as they are not there. An object store needs none, but a bucket that is there."""
    system, name = file_system(path)
    if is_of_object_store(path):
        check_bucket(path)
    else:
        system.makedirs(name, exist_ok=True)


def check_bucket(path: str) -> None:
    """Raises a ValueError where a path of an object store is in a bucket that is not there."""
    system, name = file_system(path)
    bucket = name.partition("/")[0]
    try:
        is_there = not is_of_object_store(path) or system.info(bucket)
    except FileNotFoundError:
        is_there = False
    except Exception:  # not everybody who may read and write in a bucket may ask for it
        is_there = True
    if not is_there:
        raise ValueError(f"{path} must be in a bucket that exists, got {bucket!r}. Make the bucket, or name another.")


def move(source: str, target: str, is_lasting: bool = True) -> None:
    """Renames a file, over what is there. Both are on one file system.

    A local file is on its disk then, where the machine stops, too; unless it need not last.
    """
    system, name = file_system(source)
    _, new_name = file_system(target)
    if isinstance(system, LocalFileSystem):
        _replace(name, new_name, is_lasting)
    elif isinstance(system, AsyncFileSystem) or type(system).mv is AbstractFileSystem.mv:  # which takes [brackets] for a glob
        _asked(lambda: system.cp_file(name, new_name), source)
        _asked(lambda: system.rm_file(name), source)
    else:
        system.mv(name, new_name)


def remove(path: str) -> None:
    """Removes a file."""
    system, name = file_system(path)
    _asked(lambda: system.rm_file(name), path)


def remove_tree(folder: str) -> None:
    """Removes a folder, with all that is in it."""
    system, name = file_system(folder)
    if isinstance(system, LocalFileSystem) or not set(name) & set("*?["):
        system.rm(name, recursive=True)
    else:  # fsspec's `rm` would take it for a glob
        found = system.find(name, withdirs=True, detail=True)
        for path in sorted(found, reverse=True):
            if found[path]["type"] == "file":
                system.rm_file(path)
            elif system.isdir(path):  # one of an object store has gone with its last file
                system.rmdir(path)


def parallel_map(function: Callable, values: Iterable) -> list:
    """Like `map`, in 32 threads: with a remote file system nearly all of the time is waiting."""
    if len(values := list(values)) < 2:
        return list(map(function, values))
    with futures.ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(function, values))


def _asked(request: Callable[[], _Found], path: str) -> _Found:
    """The answer to a request for a path; of a remote one see `retried`."""
    return request() if is_local(path) else retried(request, path)


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        wait_after(sys.maxsize, error, path)


def _fresh(path: str) -> tuple[AbstractFileSystem, str]:
    """The file system of a path, which asks anew: other processes write there, too, and some systems keep what they have listed."""
    system, name = file_system(path)
    system.invalidate_cache()
    return system, name


def _replace(source: str, target: str, is_lasting: bool) -> None:
    """Without the first, the name can be on the disk before the content; without the last, what is written next before the name."""
    if is_lasting:
        _sync(source)
    os.replace(source, target)
    if is_lasting:
        with contextlib.suppress(OSError):  # not every file system does it for a folder
            _sync(os.path.dirname(target) or ".")


def _sync(path: str) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
