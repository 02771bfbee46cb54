"""How many documents of a job have an id that another one has: exact over all shards, in little memory.

A worker writes the hashes of its shard's ids, 64 bits each, beside the shard's record. At the end of the job the hashes of all
shards are counted in passes, each over those with one remainder, so that no more than some of them are in memory. Two ids of one
hash, of which there is one chance in ten thousand among 60 million ids, count as one id.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ul2_tasks.files.systems import open_to_write, read, sizes
from ul2_tasks.jobs.shards import JobShard

_AT_A_TIME = 1 << 24  # hashes in memory, 128 MB
_HASH = np.dtype("<u8")


def hashes_path(shard: JobShard, split: str) -> str:
    """Where a worker writes the hashes of a shard's ids of a split; among the records, which are removed at the end of a job."""
    return f"{shard.record.removesuffix('.json')}.{split}.ids"


def write_hashes(path: str, hashes: Sequence[np.ndarray]) -> None:
    """Writes hashes, [n] uint64 each."""
    with open_to_write(path) as file:
        file.write(np.concatenate([np.zeros([0], _HASH), *hashes]).astype(_HASH).tobytes())  # once: none makes a file, too


def count_repeated(paths: Sequence[str]) -> int:
    """How many ids are those of earlier ones, in all files together."""
    passes, repeated = sum(sizes(paths)) // (_AT_A_TIME * _HASH.itemsize) + 1, 0
    for remainder in range(passes):
        found = (np.frombuffer(read(path), _HASH) for path in paths)
        hashes = np.concatenate([np.zeros([0], _HASH), *(each[each % np.uint64(passes) == remainder] for each in found)])
        repeated += len(hashes) - len(np.unique(hashes))
    return repeated


def in_words(repeated: int) -> str:
    """What a summary says of so many repeated ids."""
    return (
        f"{repeated:,} have the id of an earlier one, in all splits together. Give each its own, because splits go by ids. Without"
        " id_key the ids are made of the tokens, and these are copies"
    )
