"""`KeptCounts`: counts that take long to make and are small, kept in a hidden file beside the data that they are of.

The file, .ul2_rows, has an array of uint32 for each key, as `numpy.savez` writes them; a key tells all that decides the counts. A
file that is damaged, or another program's, counts as empty and is written again. It is bounded: the entries that were written first
go. Where the folder cannot be written nothing is kept, and nothing is said.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os

import numpy as np

from ul2_tasks.files.atomic import write_atomically
from ul2_tasks.files.systems import exists, place, read

FILE = ".ul2_rows"
MOST = 1 << 20  # counts of an entry
_MOST_COUNTS = 1 << 22  # of the file


@dataclasses.dataclass(frozen=True)
class KeptCounts:
    """The counts of a key, which is any text, in a folder."""

    folder: str
    key: str

    def load(self) -> np.ndarray:
        """The counts that are kept, [n] int64; none where there are none."""
        return self._entries().get(self._key, np.zeros([0])).astype(np.int64)

    def save(self, counts: np.ndarray) -> None:
        """Keeps the first `MOST` of these counts, [n] integers below 2**32, unless as many are kept already.

        Two that write at one time lose what one of them kept, and nothing else.
        """
        own, entries = np.asarray(counts[:MOST]).astype(np.uint32), self._entries()
        if len(own) <= len(entries.pop(self._key, own[:0])):
            return
        entries, content, total = {self._key: own, **entries}, io.BytesIO(), 0
        for key in list(entries):
            total += len(entries[key])
            if total > _MOST_COUNTS:
                del entries[key]
        np.savez(content, **entries)  # type: ignore[arg-type]  # no key is that of its other argument
        try:
            write_atomically(place(self.folder, FILE), content.getvalue())
        except OSError:
            return

    @property
    def _key(self) -> str:
        return hashlib.sha256(self.key.encode()).hexdigest()[:32]

    def _entries(self) -> dict[str, np.ndarray]:
        """What is kept of each key, the last written first."""
        path = place(self.folder, FILE)
        try:
            with np.load(io.BytesIO(read(path) if exists(path) else b"")) as found:
                return {key: each for key, each in found.items() if each.dtype == np.uint32 and each.ndim == 1}
        except Exception:  # of any file system, and of what is no archive
            return {}


def beside(prefix: str) -> str:
    """The folder that has a file, as a path that workers know, too."""
    folder = prefix.rpartition("/")[0] if "://" in prefix else os.path.dirname(os.path.abspath(prefix))
    return folder or "/"
