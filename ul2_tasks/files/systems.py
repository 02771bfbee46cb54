"""File systems, by fsspec: what is in a folder, and files that are made, read, moved and removed.

A path without `://` is local. One such as gs:// is opened by fsspec's package for it, or by TensorFlow where only that is
installed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import shutil
from collections.abc import Callable, Iterable
from concurrent import futures
from typing import Any, BinaryIO

import fsspec
from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFile

from ul2_tasks.files.retried_file import RetriedFile
from ul2_tasks.files.retries import retried


class _LocalFiles(LocalFileSystem):
    """Local files by their paths as they are spelled: no `~` is expanded, and "" is no folder."""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path


_LOCAL = _LocalFiles()
_BLOCK = 1 << 22  # bytes that are read at once
_THREADS = 16


def is_local(path: str) -> bool:
    """Whether a path is that of a file of this machine, and no URL."""
    return "://" not in path


def file_system(path: str) -> tuple[AbstractFileSystem, str]:
    """The file system of a path, and the name of the path there.

    Raises:
        ValueError: no package for the path's protocol is installed.
    """
    if is_local(path):
        return _LOCAL, path
    scheme = path.partition("://")[0].rpartition("::")[2]  # of `simplecache::s3://..` s3
    return (_tensorflow_system(scheme), path) if _by_tensorflow(scheme) else fsspec.core.url_to_fs(path)


def absolute(path: str) -> str:
    """The same path for workers, whose current folder may be another one."""
    return os.path.abspath(path) if is_local(path) else path


def place(folder: str, name: str) -> str:
    """The path of a file in a folder."""
    return f"{folder.rstrip('/')}/{name}"


def exists(path: str) -> bool:
    """Whether there is a file or a folder."""
    system, name = _fresh(path)
    try:
        system.info(name)  # fsspec's own `exists` takes every error, and Ctrl-C, for a file that is not there
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def is_folder(path: str) -> bool:
    """Whether there is a folder."""
    system, name = _fresh(path)
    return system.isdir(name)


def names_in(folder: str) -> set[str]:
    """The names of the files and folders in a folder; none if there is no such folder."""
    system, path = _fresh(folder)
    if not system.isdir(path):
        return set()
    found = (name.rstrip("/") for name in system.ls(path, detail=False))
    return {name.rpartition("/")[2] for name in found if name != path.rstrip("/")}  # an object store may list the folder, too


def size(path: str) -> int:
    """The size of a file, in bytes."""
    system, name = file_system(path)
    return system.size(name) if is_local(path) else retried(lambda: system.size(name), path)


def read(path: str) -> bytes:
    """All of a file."""
    with open_to_read(path) as file:
        return file.read()


def sha256(path: str) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    found = hashlib.sha256()
    with open_to_read(path) as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest()


def open_to_read(path: str) -> BinaryIO:
    """A file, as its bytes lie there. A read that fails is tried again, see `RetriedFile`."""
    system, name = file_system(path)

    def opened() -> Any:
        is_local = isinstance(system, LocalFileSystem)
        file: Any = open(name, "rb", buffering=0) if is_local else system.open(name, "rb")  # noqa: SIM115 - it is returned
        # Of files in memory, fsspec gives all callers the same object, with a single position.
        return io.BytesIO(file.getvalue()) if isinstance(file, MemoryFile) else file

    return RetriedFile(opened, path)


def open_to_write(path: str) -> BinaryIO:
    """A new file, over what is there."""
    system, name = file_system(path)
    return open(name, "wb") if isinstance(system, LocalFileSystem) else system.open(name, "wb")


def make_folders(path: str) -> None:
    """Makes a folder and those above it, as far as they are not there."""
    system, name = file_system(path)
    system.makedirs(name, exist_ok=True)


def copy(source: str, target: str) -> None:
    """Copies a file, from one file system to another, too."""
    with open_to_read(source) as read_from, open_to_write(target) as written:
        shutil.copyfileobj(read_from, written, _BLOCK)


def move(source: str, target: str, is_lasting: bool = True) -> None:
    """Renames a file, over what is there. Both are on one file system.

    A local file is on its disk then, where the machine stops, too; unless it need not last.
    """
    system, name = file_system(source)
    _, new_name = file_system(target)
    if isinstance(system, LocalFileSystem):
        _replace(name, new_name, is_lasting)
    elif isinstance(system, AsyncFileSystem) or type(system).mv is AbstractFileSystem.mv:  # which takes [brackets] for a glob
        system.cp_file(name, new_name)
        system.rm_file(name)
    else:
        system.mv(name, new_name)


def remove(path: str) -> None:
    """Removes a file."""
    system, name = file_system(path)
    system.rm_file(name)


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
    """Like `map`, in 16 threads: with a remote file system nearly all of the time is waiting."""
    if len(values := list(values)) < 2:
        return list(map(function, values))
    with futures.ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(function, values))


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


@functools.lru_cache
def _by_tensorflow(scheme: str) -> bool:
    """Whether TensorFlow opens paths such as gs://: it does where fsspec lacks the package for them."""
    try:
        fsspec.get_filesystem_class(scheme)
        return False
    except (ImportError, ValueError) as error:
        if scheme in _schemes_of_tensorflow():
            return True
        raise ValueError(
            f"{scheme}:// must have a file system that is installed ({error}). Install its package for fsspec."
        ) from error


def _schemes_of_tensorflow() -> list[str]:
    try:
        import tensorflow as tf
    except ImportError:
        return []
    return tf.io.gfile.get_registered_schemes()


@functools.lru_cache
def _tensorflow_system(scheme: str) -> AbstractFileSystem:
    from ul2_tasks.files.tensorflow_system import TensorFlowFileSystem

    return TensorFlowFileSystem(scheme)
