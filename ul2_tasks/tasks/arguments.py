"""Arguments that SeqIO gives to every `get_dataset`, checked: the split, the seed, which host this is, how many epochs are read."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, NamedTuple, SupportsIndex

from ul2_tasks.scalars import epochs_of

if TYPE_CHECKING:
    import seqio


class Reader(NamedTuple):
    """Who reads a dataset: with which seed, None for another order each time; how many epochs, None for no end; and which host."""

    seed: int | None
    num_epochs: int | None
    host: int
    hosts: int


def reader_of(seed: SupportsIndex | None, num_epochs: int | None, shard_info: seqio.ShardInfo | None) -> Reader:
    """The arguments as Python's own integers, whatever library's they are. A seed has at most 64 bits."""
    try:
        number = None if seed is None else operator.index(seed)
    except TypeError:
        raise ValueError(f"seed must be an integer, or None for another order each time, got {seed!r}.") from None
    if number is not None and not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"seed must be an integer of 64 bits, from -2**63 to 2**63 - 1, got {number}.")
    host, hosts = (int(shard_info.index), int(shard_info.num_shards)) if shard_info else (0, 1)
    if not 0 <= host < hosts:
        raise ValueError(f"shard_info must have an index from 0 to {hosts - 1}, got {shard_info}.")
    return Reader(number, epochs_of(num_epochs), host, hosts)


def check_splits(mixture: seqio.Mixture, split: str) -> None:
    """Raises a ValueError where a task of a mixture has no such split. SeqIO would mix the others at other rates."""
    without = {task.name: sorted(task.splits) for task in mixture.tasks if split not in task.splits}
    if without:
        raise ValueError(
            f"split must be one that all tasks of {mixture.name!r} have, got {split!r}, which these lack: {without}. Name another"
            " split, or read the tasks that have it one by one. See"
            " docs/help/troubleshooting.md#evaluation-has-no-validation-split."
        )
