"""`KeptCounts`: counts that take long to make and are small, kept in a hidden file beside the data that they are of.

    .ul2_rows    magic | entry | entry | ..         the last written entry first
    entry        key, 16 bytes | how many, <u4 | CRC-32, <u4 | the counts, <u4 each

The key tells all that decides the counts. A file that is damaged, or another program's, counts as empty and is written again. It is
bounded: the entries that were written first go. Where the folder cannot be written nothing is kept, and nothing is said.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import struct
import zlib
from collections.abc import Iterator

import numpy as np

from ul2_tasks.files.atomic import write_atomically
from ul2_tasks.files.systems import exists, place, read
from ul2_tasks.imported import failures

FILE = ".ul2_rows"
MOST = 1 << 20  # counts of an entry
_MAGIC = b"UL2 rows, 1\n"
_HEAD = struct.Struct("<16sII")
_MOST_BYTES = 1 << 24  # of the file


@dataclasses.dataclass(frozen=True)
class KeptCounts:
    """The counts of a key, which is any text, in a folder."""

    folder: str
    key: str

    def load(self) -> np.ndarray:
        """The counts that are kept, [n] int64; none where there are none."""
        return np.frombuffer(dict(self._entries()).get(self._key, b""), "<u4").astype(np.int64)

    def save(self, counts: np.ndarray) -> None:
        """Keeps the first `MOST` of these counts, [n] integers below 2**32, unless as many are kept already.

        Two that write at one time lose what one of them kept, and nothing else.
        """
        own, entries = np.asarray(counts[:MOST]).astype("<u4").tobytes(), dict(self._entries())
        if len(own) <= len(entries.pop(self._key, b"")):
            return
        content = [_MAGIC]
        for key, kept in ((self._key, own), *entries.items()):
            entry = _HEAD.pack(key, len(kept) // 4, zlib.crc32(kept)) + kept
            if sum(map(len, content)) + len(entry) <= _MOST_BYTES:
                content.append(entry)
        try:
            write_atomically(place(self.folder, FILE), b"".join(content))
        except failures():
            return

    @property
    def _key(self) -> bytes:
        return hashlib.sha256(self.key.encode()).digest()[:16]

    def _entries(self) -> Iterator[tuple[bytes, bytes]]:
        """The key and the counts of each entry, up to what is not one."""
        path = place(self.folder, FILE)
        try:
            content = read(path) if exists(path) else b""
        except failures():
            return
        at = len(_MAGIC)
        if not content.startswith(_MAGIC):
            return
        while at + _HEAD.size <= len(content):
            key, count, sum_of_bytes = _HEAD.unpack_from(content, at)
            kept = content[at + _HEAD.size : at + _HEAD.size + 4 * count]
            if len(kept) < 4 * count or zlib.crc32(kept) != sum_of_bytes:
                return
            yield key, kept
            at += _HEAD.size + 4 * count


def beside(prefix: str) -> str:
    """The folder that has a file, as a path that workers know, too."""
    folder = prefix.rpartition("/")[0] if "://" in prefix else os.path.dirname(os.path.abspath(prefix))
    return folder or "/"
