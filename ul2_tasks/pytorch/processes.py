"""Which of several processes a dataset is in, and what each of their workers reads."""

from __future__ import annotations

import dataclasses
import inspect
import os
import sys
from types import FrameType

import torch

from ul2_tasks.random_access.numbering import Share
from ul2_tasks.scalars import is_integer

# Who deals the rows of an iterable dataset out to processes, by module. Both of accelerate's loaders do what accelerate decided.
_DEALERS = {
    "accelerate.data_loader": {"IterableDatasetShard", "DataLoaderShard", "DataLoaderDispatcher"},
    "transformers.trainer_pt_utils": {"IterableDatasetShard"},
}


@dataclasses.dataclass(frozen=True)
class Reader:
    """A process of several and a worker of its own, of several. Those of indexed examples take `in_a_row` in turn.

    An element has `joined` examples.
    """

    rank: int
    world_size: int
    worker: int
    workers: int
    in_a_row: int
    joined: int

    @property
    def of_shards(self) -> tuple[int, int]:
        """Which shard of a stream is read, of how many."""
        return self.rank * self.workers + self.worker, self.world_size * self.workers

    @property
    def shard(self) -> str:
        index, shards = self.of_shards
        return f"{index} of {shards}"

    def share(self, start: int) -> Share:
        """Which indexed examples are read, from a number on."""
        return Share(self.worker * self.world_size + self.rank, self.world_size * self.workers, self.in_a_row, start)

    @property
    def each(self) -> int:
        """How many indexed examples all readers take while this one takes an element."""
        return self.joined * self.world_size * self.workers

    @property
    def worker_of_several(self) -> dict[str, str]:
        """What a state says of a worker that is not alone."""
        return {"workers": f"{self.worker} of {self.workers}"} if self.workers > 1 else {}


def this_process() -> tuple[int, int]:
    """Its number and how many there are: as `torch.distributed` says, or RANK and WORLD_SIZE, or 0 and 1."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def given_process(rank: int | None, world_size: int | None) -> tuple[int, int] | None:
    """The process that is given; None if none is. Raises a ValueError where one is given alone, or rank is out of range."""
    if rank is None and world_size is None:
        return None
    if not (is_integer(rank, at_least=0) and is_integer(world_size, at_least=rank + 1)):
        raise ValueError(
            "rank and world_size must be integers, 0 <= rank < world_size, or both be left out, got rank"
            f" {rank!r} and world_size {world_size!r}."
        )
    return int(rank), int(world_size)


def reading_process(given: tuple[int, int] | None, started_in: tuple[int, int] | None = None) -> tuple[int, int]:
    """The process, and of how many, whose share of the data is read now: (0, 1), so all of it, where the reader shares it out.

    `started_in` is what this was where this worker was started. Raises a ValueError where the user gave a share, and the reader
    shares it out once more.
    """
    if not _is_dealt_out():
        return given or started_in or this_process()
    if given and given[1] > 1:
        raise ValueError(
            "rank and world_size must be 0 and 1 with accelerate, which transformers.Trainer reads with and which splits the"
            f" data among its processes again, got {given[0]} and {given[1]}. Leave both out. See"
            " docs/help/troubleshooting.md#rank-and-world-size-are-rejected."
        )
    return 0, 1


def _is_dealt_out() -> bool:
    """Whether the reader, who asks for data now, deals it out to several processes.

    The calls that led here say it, and nothing else does: a program can read one DataLoader that accelerate prepared, and another
    that it did not. A forked worker has the calls of the process that it was forked from.
    """
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        dealers = _DEALERS.get(frame.f_globals.get("__name__", ""))
        if dealers and _deals_out(frame.f_locals.get("self"), dealers):
            return True
        frame = frame.f_back
    return False


def _deals_out(reader: object, dealers: set[str]) -> bool:
    if dealers.isdisjoint(base.__name__ for base in type(reader).__mro__):
        return False
    if hasattr(reader, "num_processes"):  # also in a worker that was spawned
        return reader.num_processes > 1
    return sys.modules["accelerate.state"].PartialState().num_processes > 1
