"""Which of several processes a dataset is in, and what each of their workers reads."""

from __future__ import annotations

import dataclasses
import os
import sys
import warnings

import torch

from ul2_tasks.random_access.numbering import Share
from ul2_tasks.scalars import is_integer


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

    def reached(self, start: int, given: int) -> int:
        """The number before which all are of the rounds in which this reader took so many elements from a number on."""
        rounds = -(-given * self.joined // self.in_a_row)
        return start + (((rounds - 1) * self.workers + self.worker + 1) * self.in_a_row * self.world_size if rounds else 0)

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
    """The process, and of how many, whose share of the data is read: the given one, or that in which this worker was started.

    Otherwise it is `this_process`, but all of the data beside an `Accelerator` of several processes, which splits what it reads.
    What it would split, or split again, is a warning.
    """
    if started_in is not None:
        return started_in
    processes = _processes_of_accelerate()
    worker = torch.utils.data.get_worker_info()
    if processes > 1 and given != (0, 1) and (worker is None or worker.id == 0):
        gets = "all of the data" if given is None else f"share {given[0]} of {given[1]} of the data"
        warnings.warn(
            f"each of the {processes} processes of accelerate reads {gets}. An Accelerator, and transformers.Trainer, splits it"
            " among them where it has prepared the DataLoader: pass rank=0 and world_size=1 there, and rank and world_size of the"
            " process to a dataset whose DataLoader is not prepared. See"
            " docs/help/troubleshooting.md#each-process-reads-all-of-the-data.",
            stacklevel=1,  # one place, which Python tells once
        )
    return given or ((0, 1) if processes > 1 else this_process())


def _processes_of_accelerate() -> int:
    """Among how many processes an `Accelerator` splits data, which `transformers.Trainer` makes, too; 1 where there is none."""
    state = sys.modules.get("accelerate.state")
    return state.PartialState().num_processes if state is not None and state.is_initialized() else 1
