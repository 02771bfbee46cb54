"""Arguments that SeqIO gives to every `get_dataset`, checked: the split, the seed, which host this is, how many epochs are read."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, SupportsIndex

from ul2_tasks.scalars import is_integer

if TYPE_CHECKING:
    import seqio


def seed_from(seed: SupportsIndex | None) -> int | None:
    """The seed as one of Python's integers, whatever library's it is; None for none. It has at most 64 bits."""
    try:
        number = None if seed is None else operator.index(seed)
    except TypeError:
        raise ValueError(f"seed is {seed!r}, expected an integer, or None for another order each time") from None
    if number is not None and not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"seed is {number}, expected an integer of 64 bits, from -2**63 to 2**63 - 1")
    return number


def host_of(shard_info: seqio.ShardInfo | None) -> tuple[int, int]:
    """The number of this host, and how many there are."""
    host, hosts = (int(shard_info.index), int(shard_info.num_shards)) if shard_info else (0, 1)
    if not 0 <= host < hosts:
        raise ValueError(f"shard_info is {shard_info}, expected an index from 0 to {hosts - 1}")
    return host, hosts


def epochs_of(num_epochs: int | None) -> int | None:
    """The number of epochs; None for no end. Raises a ValueError where it is no integer of at least 1."""
    if num_epochs is not None and not is_integer(num_epochs, at_least=1):
        raise ValueError(f"num_epochs is {num_epochs!r}, expected an integer of at least 1, or None for no end")
    return None if num_epochs is None else int(num_epochs)


def check_splits(mixture: seqio.Mixture, split: str) -> None:
    """Raises a ValueError where a task of a mixture has no such split. SeqIO would mix the others at other rates."""
    without = {task.name: sorted(task.splits) for task in mixture.tasks if split not in task.splits}
    if without:
        raise ValueError(
            f"{mixture.name!r} has no split {split!r}, because not all of its tasks have: {without}; name another split, or read"
            " the tasks that have it one by one"
        )
