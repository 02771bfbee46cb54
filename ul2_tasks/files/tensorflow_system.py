"""TensorFlow's file systems as one of fsspec's, for protocols of which fsspec lacks the package."""

from __future__ import annotations

import contextlib
import errno
import io
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from fsspec import AbstractFileSystem


class TensorFlowFileSystem(AbstractFileSystem):
    """The file system of one scheme, such as "ram". A name there is the whole path, with the scheme."""

    def __init__(self, scheme: str, **options: Any):
        super().__init__(**options)
        self.protocol = scheme

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        """The size and the time of a file; that a folder is one."""
        with _os_errors(path):
            if tf.io.gfile.isdir(path):
                return {"name": path, "type": "directory", "size": 0}
            found = tf.io.gfile.stat(path)
        return {"name": path, "type": "file", "size": found.length, "mtime_nsec": found.mtime_nsec}

    def exists(self, path: str, **options: Any) -> bool:
        """Whether there is a file or a folder."""
        with _os_errors(path):
            return tf.io.gfile.exists(path)

    def ls(self, path: str, detail: bool = True, **options: Any) -> list:
        """What is in a folder."""
        with _os_errors(path):
            names = [f"{path.rstrip('/')}/{name.rstrip('/')}" for name in tf.io.gfile.listdir(path)]
        return [self.info(name) for name in names] if detail else names

    def glob(self, path: str, maxdepth: int | None = None, detail: bool = False, **options: Any) -> Any:
        """The files and folders that match; with `detail` what `info` says of each."""
        with _os_errors(path):
            names = tf.io.gfile.glob(path)
        return {name: self.info(name) for name in names} if detail else names

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Makes a folder and those above it."""
        with _os_errors(path):
            tf.io.gfile.makedirs(path)

    def rm_file(self, path: str) -> None:
        """Removes a file."""
        with _os_errors(path):
            tf.io.gfile.remove(path)

    def rmdir(self, path: str) -> None:
        """Removes a folder."""
        self.rm(path, recursive=True)

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Removes a file, or a folder with all that is in it."""
        with _os_errors(path):
            (tf.io.gfile.rmtree if recursive else tf.io.gfile.remove)(path)

    def mv(self, path1: str, path2: str, recursive: bool = False, maxdepth: int | None = None, **options: Any) -> None:
        """Renames a file, over what is there."""
        with _os_errors(path1):
            tf.io.gfile.rename(path1, path2, overwrite=True)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        """The bytes [start, end) of a file."""
        with _os_errors(path), tf.io.gfile.GFile(path, "rb") as file:
            file.seek(start or 0)
            return file.read(-1 if end is None else end - (start or 0))

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **options: Any) -> Any:
        file = _File(path, mode)
        return io.BufferedReader(file, 1 << 20) if "r" in mode else io.BufferedWriter(file, 1 << 20)


class _File(io.RawIOBase):
    """A file, with the methods that Python's libraries expect of one."""

    def __init__(self, path: str, mode: str):
        self._path, self._mode, self._file = path, mode, tf.io.gfile.GFile(path, mode)

    def readable(self) -> bool:
        return "r" in self._mode

    def writable(self) -> bool:
        return "r" not in self._mode

    def seekable(self) -> bool:
        return self.readable()

    def readinto(self, buffer: Any) -> int:
        data = self._do(self._file.read, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write(self, data: Any) -> int:
        self._do(self._file.write, bytes(data))
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._do(self._file.seek, offset, whence)
        return self._file.tell()

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        if not self.closed:
            self._do(self._file.close)
        super().close()

    def _do(self, function: Callable[..., Any], *arguments: object) -> Any:
        with _os_errors(self._path):
            return function(*arguments)


@contextlib.contextmanager
def _os_errors(path: str) -> Iterator[None]:
    try:
        yield
    except tf.errors.NotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, error.message, path) from error
    except tf.errors.PermissionDeniedError as error:
        raise PermissionError(errno.EACCES, error.message, path) from error
    except tf.errors.OpError as error:
        raise OSError(errno.EIO, error.message, path) from error
