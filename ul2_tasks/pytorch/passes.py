"""Where the iterators of a dataset begin, also those of its copies in workers, and who has read last.

A state that was loaded is where every iterator begins, until one has come to its end: so a look at the first element changes
nothing, and the second pass over a finite dataset is a whole one. Workers are copies of the dataset in the main process, which is
not asked when they begin or end. So they leave a word in memory that all copies share.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ul2_tasks.pytorch.processes import reading_process
from ul2_tasks.pytorch.shared import SharedIntegers, for_copy, starts_worker
from ul2_tasks.pytorch.states import STATE_VERSION, check_form, check_state

_READ_BY_WORKERS, _LOADS, _EPOCH, _IS_TOLD, _ENDED = range(5)
_WORKERS = 1024  # words of workers; more of them share these


class Passes:
    """The state that a dataset has loaded, and what its workers say.

    Attributes:
        loaded: the state at which the next iterator begins, or None for the start.
    """

    def __init__(self) -> None:
        self.loaded: Mapping[str, Any] | None = None
        self._is_own = False  # whether this worker loaded the state itself
        self._loads = 0  # how often the main process had loaded one when this copy was made
        self._has_begun = False  # whether an iterator of this copy has begun since then
        self._has_ended = False  # whether one of this copy has come to its end
        self._shared = SharedIntegers([0] * (_ENDED + _WORKERS))

    @property
    def epoch(self) -> int | None:
        """The epoch that was chosen, in any copy."""
        return self._shared[_EPOCH] - 1 if self._shared[_EPOCH] else None

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._shared[_EPOCH] = epoch + 1

    def load(self, state: Mapping[str, Any]) -> None:
        """Makes the next iterators begin at a state."""
        self.loaded = dict(state)
        self._has_begun, self._is_own = False, torch.utils.data.get_worker_info() is not None
        if not self._is_own:
            self._loads += 1
            self._shared[_LOADS], self._shared[_READ_BY_WORKERS] = self._loads, 0
            self._shared[_ENDED:] = [0] * _WORKERS

    def begin(self) -> Mapping[str, Any] | None:
        """Notes that an iterator begins. Gives the state that it begins at, or None for the start."""
        worker = torch.utils.data.get_worker_info()
        is_another = bool(self._has_begun or self._shared[_READ_BY_WORKERS])
        self._has_begun, self._shared[_READ_BY_WORKERS] = True, int(worker is not None)
        if not self._is_own and self._is_after_an_end(worker):
            self.loaded = None
        if self.loaded is not None and is_another and self.epoch not in (None, self.loaded.get("epoch", 0)):
            self.loaded = None  # since it was read, the user has gone on to another epoch
        return self.loaded

    def end(self) -> None:
        """Notes that an iterator has come to its end: the next one begins at the start."""
        worker = torch.utils.data.get_worker_info()
        self.loaded, self._has_ended = None, True
        if worker is not None:
            self._shared[_ENDED + worker.id % _WORKERS] = _pass_of(worker)

    def is_repeated_untold(self) -> bool:
        """Whether the iterator that begins now is of another pass over the same, for the first time that this is asked."""
        worker = torch.utils.data.get_worker_info()
        if self._shared[_IS_TOLD] or not (self._has_ended or self._is_after_an_end(worker)):
            return False
        self._shared[_IS_TOLD] = 1
        return True

    def check_not_too_late(self) -> None:
        """Raises a ValueError in a worker that stays, where the main process has loaded a state since it started."""
        if self._loads != self._shared[_LOADS] and not self._is_own:
            raise ValueError(
                "load_state_dict must be called before the workers start, got a call after it, and persistent workers keep what"
                " they started with. Make a new DataLoader."
            )

    def check_read_here(self, advice: str) -> None:
        """Raises a ValueError in the main process where workers have read, of which it does not know where they are."""
        if self._shared[_READ_BY_WORKERS] and torch.utils.data.get_worker_info() is None:
            raise ValueError(
                "state and counts must be those of the workers of the DataLoader, which read the data, got this dataset."
                f" {advice} See docs/help/troubleshooting.md#the-position-is-not-known-with-workers."
            )

    def _is_after_an_end(self, worker: Any) -> bool:
        """Whether this worker, or one of an earlier pass, has come to its end since a state was loaded."""
        ended = self._shared[_ENDED:]
        if worker is None:
            return any(ended)
        return ended[worker.id % _WORKERS] != 0 or not {*ended} <= {0, _pass_of(worker)}


class Pass(Iterator[dict[str, Any]]):
    """An iterator over elements that notes when they have come to their end. After an error there is no end, but the same error."""

    def __init__(self, elements: Iterator[dict[str, Any]], passes: Passes):
        self._elements, self._passes, self._has_begun = elements, passes, False
        self._error: Exception | None = None

    def __next__(self) -> dict[str, Any]:
        if not self._has_begun:  # and not when it is made: of an error there the workers of PyTorch that stay say nothing
            self._passes.check_not_too_late()
            self._has_begun = True
        try:
            return next(self._elements)
        except StopIteration:
            if self._error is not None:
                raise self._error from None
            self._passes.end()
            raise
        except Exception as error:
            self._error = error
            raise


class Resumable(torch.utils.data.IterableDataset, abc.ABC):
    """An iterable dataset of which a process, and each of its workers, reads a part, and whose iterators have states.

    An iterator has `state()`, and `resume(state)`, which raises a ValueError for that of another one, and says if it is at the end.
    """

    def __init__(self, process: tuple[int, int] | None):
        """Takes which process this is, of how many; None where `reading_process` says it."""
        self._process, self._started_in = process, None
        self._passes = Passes()
        self._elements: Any = None  # the last iterator in this process
        self._place: dict[str, Any] | None = None  # where that of the dataset was that this is a copy of

    @abc.abstractmethod
    def _new_elements(self) -> Any:
        """An iterator from the beginning."""

    def _reading_process(self) -> tuple[int, int]:
        return reading_process(self._process, self._started_in)

    def __getstate__(self) -> dict[str, Any]:
        """For a worker that is spawned, which cannot ask torch.distributed for its process; or any other copy.

        A copy has no iterator: it begins where this one would begin another, and its state is that of this one.
        """
        return {
            **self.__dict__,
            "_started_in": self._reading_process() if starts_worker() else self._started_in,
            "_elements": None,
            "_place": self._elements.state() if self._elements and not starts_worker() else self._place,
            "_passes": for_copy(self._passes),
        }

    def __iter__(self) -> Iterator[dict[str, Any]]:
        loaded, elements = self._passes.begin(), self._new_elements()
        self._elements, self._place = elements, None
        if loaded is not None and elements.resume(loaded):
            self._passes.end()
        return Pass(elements, self._passes)

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the last iterator. Before the first iterator it is the state that was loaded, or the start.

        A copy, as of `copy.deepcopy` or pickle, has the same state. See the guide "Resume exactly" for workers.

        Returns:
            {"version": int, "pipeline": dict, "number": int}, or of what is read in windows {"version": int, "pipeline": dict,
            "windows": [int, ..]}; of rows of texts and images also "epoch", "start" and "readers", integers. "pipeline" is compared
            when the state is loaded.

        Raises:
            ValueError: workers of a DataLoader have read, which have copies of this dataset; or this is one of several readers that
                take batches in turn, in the middle of a batch.
        """
        self._passes.check_read_here("Use the StatefulDataLoader of torchdata, or count the steps.")
        if self._elements is not None:
            return self._elements.state()
        return dict(self._place or self._passes.loaded or self._new_elements().state())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes iterators begin where the state was taken, until one of them, or of a worker, has come to its end.

        Call it in each process, before the workers start.

        Raises:
            ValueError: it is not a state, or one of another version of this package.
        """
        check_state(state, STATE_VERSION)
        check_form(state)
        self._passes.load(state)
        self._elements = self._place = None


def _pass_of(worker: Any) -> int:
    """A number other than 0 that all workers of one iterator of a DataLoader have, and those of hardly any other."""
    return worker.seed - worker.id + 1
