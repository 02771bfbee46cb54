"""Blocks of tokens in a local folder, which several processes may share: a file each, `NAME-BLOCK.tokens`.

A file has the tokens of its block, uint8, uint16 or int32, then 32 bytes: a hash of its name and of the tokens. It is written whole
under another name, and then renamed. Its time is when a process last opened it, and the oldest are removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
import zlib
from collections.abc import Iterator

import numpy as np
from absl import logging

from ul2_tasks.files.atomic import write_atomically
from ul2_tasks.store.arrays import MappedArray, MemoryArray, may_map

_HASH = 32  # bytes
_LOCKS = 1024  # files; two blocks that share one are fetched one after the other
_LEFT = 3600  # seconds after which a file under another name is one that a process left when it was killed
_unlooked: dict[str, int] = {}  # of each folder, how many bytes this process may write before it looks at all files again


def read_block(path: str, tokens: int) -> MemoryArray | None:
    """The tokens of a file, as many as its block has, or None: it is not there, or not as it was written, which is logged."""
    try:
        with open(path, "rb") as file:
            content = file.read()
        os.utime(path)
        dtype = {size * tokens + _HASH: dtype for size, dtype in ((1, np.uint8), (2, np.uint16), (4, np.int32))}.get(len(content))
        if dtype and content[-_HASH:] == _hash(path, memoryview(content)[:-_HASH]):
            return _array(path, np.frombuffer(content, dtype, tokens))
    except FileNotFoundError:
        return None
    logging.warning("%s is damaged, so its tokens are fetched again", path)
    return None


def write_block(path: str, values: np.ndarray, max_bytes: int) -> MemoryArray:
    """Writes the tokens of a block, [tokens] uint8, uint16 or int32, and gives them as `read_block` does.

    The files of the folder have at most `max_bytes` after that. Of other processes that write at the same time up to three are
    allowed for. Tokens that cannot be written stay in memory, which is logged.
    """
    folder, data = os.path.dirname(path), values.data.cast("B")
    try:
        _make_room(folder, len(data) + _HASH, max_bytes)
        write_atomically(path, bytes(data) + _hash(path, data), is_lasting=False)  # what is damaged is fetched again
        return _array(path, values)
    except OSError as error:
        logging.log_every_n_seconds(
            logging.WARNING, "a block of tokens stays in memory, because %s cannot be written: %s", 60, path, error
        )
        return MemoryArray(values)


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """While one process fetches a block, others that need it wait, and then find its file. A process that dies keeps no lock."""
    number = zlib.crc32(os.path.basename(path).encode()) % _LOCKS
    with open(f"{os.path.dirname(path)}/{number}.lock", "ab") as file:
        with contextlib.suppress(OSError):  # a file system without locks: several may fetch it
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)  # a process that was forked meanwhile has the file open, too


def _array(path: str, values: np.ndarray) -> MemoryArray:
    """Where the process may have another memory map, what is in memory is let go."""
    return MappedArray(path, values.dtype, len(values)) if may_map() else MemoryArray(values)


def _hash(path: str, data: memoryview) -> bytes:
    found = hashlib.blake2b(os.path.basename(path).encode(), digest_size=_HASH)
    found.update(data)
    return found.digest()


def _make_room(folder: str, size: int, max_bytes: int) -> None:
    """Removes files, where so many more bytes would be too many. A process that has one open reads on."""
    _unlooked[folder] = _unlooked.get(folder, 0) - size
    if _unlooked[folder] >= 0:
        return
    files = []
    for entry in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):  # another process has removed or renamed it
            found = entry.stat()
            if entry.name.endswith(".tokens"):
                files.append((found.st_mtime_ns, found.st_size, entry.path))
            elif ".tokens." in entry.name and time.time() - found.st_mtime > _LEFT:
                os.remove(entry.path)
    total = size + sum(of_file for _, of_file, _ in files)
    if total > max_bytes:
        for _, of_file, path in sorted(files):
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)
            total -= of_file
            if total <= max_bytes - max_bytes // 16:
                break
    _unlooked[folder] = (max_bytes - total) // 4
