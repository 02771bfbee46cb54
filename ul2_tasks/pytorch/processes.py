"""Which of several processes a dataset is in, and whether a state is one of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch


def this_process() -> tuple[int, int]:
    """Its number and how many there are: as `torch.distributed` says, or RANK and WORLD_SIZE, or 0 and 1."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def given_process(rank: int | None, world_size: int | None) -> tuple[int, int] | None:
    """The process that is given; None if none is.

    Raises:
        ValueError: one of both is given without the other, or rank is not in 0 .. world_size - 1.
    """
    process = None if rank is None or world_size is None else (rank, world_size)
    if (rank is None) != (world_size is None) or (process and not 0 <= process[0] < process[1]):
        raise ValueError(f"rank is {rank} and world_size {world_size}, expected both, 0 <= rank < world_size, or neither")
    return process


def check_version(state: object, version: int) -> None:
    """Raises a ValueError if this is no state of a dataset, or one of another version."""
    if not isinstance(state, Mapping):
        raise ValueError(f"the state is {state!r}, expected what state_dict() gave")
    if state.get("version") != version:
        raise ValueError(f"the state has version {state.get('version')!r}, expected {version}; start anew")
