"""A file system of fsspec's kind, `faulty://`, over local files. Its requests are counted, and some of them fail."""

import errno
import threading
from typing import ClassVar

import aiohttp
import fsspec
import requests
from fsspec.exceptions import FSTimeoutError
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

_counting = threading.Lock()
EMPTY, SHORT = "an empty answer", "half an answer"
FAULTS = {
    "time-out": TimeoutError(),
    "time-out of fsspec": FSTimeoutError(),
    "reset": ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
    "input and output": OSError(errno.EIO, "Input/output error"),
    "too many files": OSError(errno.EMFILE, "Too many open files"),
    "plain": OSError("the server is busy"),
    "aiohttp": aiohttp.ClientPayloadError("Response payload is not completed"),
    "requests": requests.ConnectionError("connection aborted"),
    "of no type": RuntimeError("503 Slow Down"),
    "end of file": EOFError("Connection closed by peer"),
    EMPTY: EMPTY,
    SHORT: SHORT,
}
# What another try does not change, and what no decoder may take for what it read.
LASTING = {
    "a value": ValueError("cannot parse the answer"),
    "text": UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    "a key": KeyError("ETag"),
    "forbidden": PermissionError("Forbidden"),
}


class FaultyFileSystem(AbstractFileSystem):
    """Opening a file is a request, and so is each block of it. Requests `first` to `last`, from 0, fail with the fault."""

    protocol = "faulty"
    cachable = False
    fault: ClassVar[object] = None
    first: ClassVar[int] = 0
    last: ClassVar[int] = 0
    requests: ClassVar[int] = 0
    listed: ClassVar[str] = ""  # a folder whose listing is a request, too

    @classmethod
    def fails(cls, fault: object = None, first: int = 0, last: int | None = None) -> None:
        """Counts requests anew. By default only the first of those that fail does, or all after it where `last` is -1."""
        last = first if last is None else last
        cls.fault, cls.first, cls.last, cls.requests = fault, first, last, 0

    @classmethod
    def ask(cls) -> object:
        with _counting:  # a reader of Parquet asks from several threads
            number = cls.requests
            cls.requests += 1
        if cls.fault is None or number < cls.first or (cls.last >= 0 and number > cls.last):
            return None
        if isinstance(cls.fault, Exception):
            raise cls.fault
        return cls.fault

    local: ClassVar[LocalFileSystem] = LocalFileSystem()

    @classmethod
    def _strip_protocol(cls, path):
        return path.removeprefix("faulty://")

    def info(self, path, **options):
        return self.local.info(path)

    def ls(self, path, detail=True, **options):
        if self.listed and path.rstrip("/").endswith(self.listed):
            self.ask()
        return self.local.ls(path, detail)

    def modified(self, path):
        return self.local.modified(path)

    def _open(self, path, mode="rb", **options):
        self.ask()
        return _File(self, path, mode, block_size=1 << 12)


class _File(AbstractBufferedFile):
    def _fetch_range(self, start, end):
        told = self.fs.ask()
        with open(self.path, "rb") as file:
            file.seek(start)
            found = file.read(min(end - start, 1 << 13))  # a server may answer with less than it was asked for
        return {EMPTY: b"", SHORT: found[: len(found) // 2]}.get(told, found)


fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)
