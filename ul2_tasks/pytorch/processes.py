"""Which of several processes a dataset is in, and what each of their workers reads."""

from __future__ import annotations

import dataclasses
import inspect
import os
import sys
from types import FrameType
from typing import Any

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

    An element has `joined` examples, of which `in_a_row` is a multiple.
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

    def share(self, start: int, turns: int = 0) -> Share:
        """Which indexed examples are read, from a number on; for `turns` see `Share`."""
        return Share(self.rank, self.world_size, self.in_a_row, start, turns, self.worker, self.workers)

    def number(self, start: int, given: int) -> int:
        """The next indexed example for all readers, after this one took so many elements from a number on.

        Raises a ValueError in the middle of what a reader takes in turn, where this is no number that all share.
        """
        readers = self.world_size * self.workers
        rounds, rest = divmod(given * self.joined, self.in_a_row)
        if rest and readers > 1:
            raise ValueError(
                f"batch_size must be that of the DataLoader for a state of one of {readers} readers, got {self.in_a_row} and a"
                f" state after {rest} examples of a batch. Pass the dataset the DataLoader's batch_size, and save after a batch."
            )
        return start + rounds * self.in_a_row * readers + rest

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
    if _dealer() is None:
        return given or started_in or this_process()
    if given and given[1] > 1:
        raise ValueError(
            "rank and world_size must be 0 and 1 with accelerate, which transformers.Trainer reads with and which splits the"
            f" data among its processes again, got {given[0]} and {given[1]}. Leave both out. See"
            " docs/help/troubleshooting.md#rank-and-world-size-are-rejected."
        )
    return 0, 1


def dealt_at_once() -> int | None:
    """How many elements the reader takes for a step of all processes, where each process takes all and keeps its own; else None.

    A worker has to read whole steps then, whatever batch size the dataset was given.
    """
    dealer: Any = _dealer()
    if type(dealer).__name__ != "IterableDatasetShard":
        return None
    return dealer.batch_size * (1 if getattr(dealer, "split_batches", False) else dealer.num_processes)


def _dealer() -> object | None:
    """The reader, who asks for data now, if it deals it out to several processes.

    The calls that led here say it, and nothing else does: a program can read one DataLoader that accelerate prepared, and another
    that it did not. A forked worker has the calls of the process that it was forked from.
    """
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        dealers = _DEALERS.get(frame.f_globals.get("__name__", ""))
        if dealers and _deals_out(frame.f_locals.get("self"), dealers):
            return frame.f_locals["self"]
        frame = frame.f_back
    return None


def _deals_out(reader: object, dealers: set[str]) -> bool:
    if dealers.isdisjoint(base.__name__ for base in type(reader).__mro__):
        return False
    if hasattr(reader, "num_processes"):  # also in a worker that was spawned
        return reader.num_processes > 1
    return sys.modules["accelerate.state"].PartialState().num_processes > 1
