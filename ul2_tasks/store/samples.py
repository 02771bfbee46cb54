"""What files hold, told by few reads of them: a hash of blocks that are spread over each."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from ul2_tasks.files.systems import sizes
from ul2_tasks.store.fetch import fetch

BLOCK = 1 << 12  # bytes
_MOST_BLOCKS = 64  # of a file
_FEWEST_BLOCKS = 4
_MOST_READS = 1 << 11  # of all files: some 10 ms of local ones, and as many requests as reading a few thousand rows


def sampled_hash(files: Sequence[Sequence[str]]) -> str:
    """16 hexadecimal digits, which are others where files, such as pairs, have other sizes, or other bytes in a block that is read.

    Up to 64 blocks of 4 kB are read of each file, its beginning and its end among them. Of many files fewer are read, four of each
    at least, and of very many, pairs that are spread among them. Small files are read whole. Where the files lie makes no
    difference.
    """
    pairs = _spread(len(files) - 1, min(len(files), _MOST_READS // (2 * _FEWEST_BLOCKS)))
    paths = [path for pair in pairs.tolist() for path in files[pair]]
    counts = np.array(sizes(paths), np.int64)
    starts = [_starts(each, min(_MOST_BLOCKS, _MOST_READS // len(paths))) for each in counts.tolist()]
    numbers = np.repeat(np.arange(len(paths)), list(map(len, starts)))
    firsts = np.concatenate([np.zeros([0], np.int64), *starts])
    found = hashlib.sha256(counts.tobytes())
    for block in fetch(paths, numbers, firsts, np.minimum(firsts + BLOCK, counts[numbers])):
        found.update(block)
    return found.hexdigest()[:16]


def _starts(size: int, blocks: int) -> np.ndarray:
    """Where in a file of this size the blocks begin, [at most `blocks`] int64."""
    needed = -(-size // BLOCK)
    return np.arange(needed) * BLOCK if needed <= blocks else _spread(size - BLOCK, blocks)


def _spread(last: int, count: int) -> np.ndarray:
    """So many integers from 0 to `last`, as far from each other as can be, [count] int64; both ends are among them."""
    return np.arange(count) * last // max(1, count - 1)
