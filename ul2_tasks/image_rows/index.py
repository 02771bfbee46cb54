"""`ImageRows`: packed rows of texts and images with an index. The iterator of a dataset reads them by their numbers, too.

    pools of an epoch   0              | 1           | 2  ..        a pool's rows are a function of its number, see `pools`
    rows                0 .......... 5 | 6 ...... 10 | 11 ..        row i is known once the rows of the pools before are counted

To count the rows of a pool its records are read, and no image is decoded. Counts are made as far as they are asked for, many of
them by several threads, and kept in a file beside the records, see `files.kept_counts`. Who finds them there reads nothing.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import operator
import os
import re
import threading
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import numpy as np

from ul2_tasks.files.kept_counts import KeptCounts
from ul2_tasks.image_rows.problems import Noted
from ul2_tasks.image_rows.recipe import Recipe
from ul2_tasks.image_rows.rows import Placed, RowMaker
from ul2_tasks.scalars import is_integer

_VERSION = 3  # raised whenever a pool has other rows
_THREADS = 16
_AT_ONCE = 64  # pools that a thread counts in succession, at most
_HELD = 2  # pools that are held in memory, of which rows are read
EPOCH = re.compile(r", epoch (\d+)$")


class _Pool(NamedTuple):
    """A pool of which rows are read: its rows, and what was wrong with its records."""

    rows: list[list[Placed]]
    noted: Noted


class ImageRows(Sequence[dict[str, Any]]):
    """A map-style dataset of one epoch of an `ImageTextDataset`: its rows. `ImageTextDataset.rows` returns it.

    A row has arrays of NumPy; index i is the i-th row of the dataset's iterator in one process without workers. With `num_epochs`,
    epoch n has the rows after `set_epoch(n)`. Without, an epoch is as many pools as have all records of each source once, and the
    next one continues after it. Any sampler of PyTorch (with `batch_size=None`) and grain can read it, and it can be pickled.
    Neighbouring rows are of one pool, whose records are read together: read rows in their order, or shuffle stretches of them.

    With on_error="skip" bad records are counted in `skipped`. A row of which no image can be decoded has the content of the next.
    """

    def __init__(
        self,
        recipe: Recipe,
        folder: str | None = None,
        skipped_file: str | None = None,
        epoch: int = 0,
        counted: Sequence[int] | np.ndarray = (),
    ):
        """Reads nothing yet. Counts are kept in `folder`, by default beside the first file of records.

        `counted` is how many rows each of the first pools has, as far as that is known; where there is no end, of all epochs.
        """
        self.recipe, self.number, self.problems = recipe, epoch, recipe.problems(skipped_file)
        self._folder, self._skipped_file = folder, skipped_file
        self._pools = recipe.pools(self.iteration)
        self._of_epoch = dataclasses.replace(self._pools, epochs=self._pools.epochs or 1).count or 0
        self._first_pool = epoch * self._of_epoch if recipe.epochs is None else 0
        self._ends, self._kept_pools = np.cumsum(np.asarray(counted, np.int64)), len(counted)
        self._is_taken_up = bool(len(counted))
        self._held: collections.OrderedDict[int, _Pool] = collections.OrderedDict()
        self._told: set[int] = set()  # pools whose problems were counted
        self._maker: RowMaker | None = None
        self._process, self._process_lock = os.getpid(), threading.RLock()

    def __reduce__(self) -> tuple:
        """For another process, which opens the files again, with what is counted here."""
        return ImageRows, (self.recipe, self._folder, self._skipped_file, self.number, np.diff(self._ends, prepend=0))

    def __len__(self) -> int:
        """Returns the number of rows of the epoch; all of its records are read for it once, unless their counts are kept."""
        last = self._first_pool + self._of_epoch
        rows = self._before(last) - self._before(self._first_pool)
        if not rows:
            raise self._no_row(self._of_epoch)
        return rows

    def epoch(self, epoch: int) -> ImageRows:
        """Returns another epoch, from 0."""
        if not is_integer(epoch, at_least=0):
            raise ValueError(f"epoch must be an integer of at least 0, got {epoch!r}.")
        counted = np.diff(self._ends, prepend=0) if self.recipe.epochs is None else ()
        return ImageRows(self.recipe, self._folder, self._skipped_file, int(epoch), counted)

    def __getitem__(self, index):
        """Returns the row at an index, negative ones from the end; or the list of a slice."""
        if isinstance(index, slice):
            return self.__getitems__(range(*index.indices(len(self))))
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Returns the rows at several indices; the records of a pool are read once for all of its rows."""
        numbers = [self._checked(index) for index in indices]
        made = {place: self._row(numbers[place]) for place in sorted(range(len(numbers)), key=numbers.__getitem__)}
        return [made[place] for place in range(len(numbers))]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[index] for index in range(len(self)))

    def locate(self, index: int) -> list[Placed]:
        """Returns the samples of a row, each with the source, file, record and epoch that it is of. No image is decoded."""
        pool, row = self._place(self._checked(index))
        return self._pool(pool).rows[row]

    def available(self, least: int) -> int:
        """How many rows are counted: at least so many, if there are; where there is no end, those of later epochs count, too."""
        self._take_up()
        stop, first = None if self.recipe.epochs is None else self._of_epoch, self._before(self._first_pool)
        while (known := (int(self._ends[-1]) if len(self._ends) else 0) - first) < least and (pools := len(self._ends)) != stop:
            if pools - self._first_pool > self._of_epoch and not known:
                raise self._no_row(pools - self._first_pool)
            if least == known + 1:
                self._pool(pools)  # which is read next
            else:
                self._count_to(pools + _THREADS if stop is None else min(pools + _THREADS, stop))
        return known

    def read(self, number: int) -> dict[str, Any] | None:
        """The row of a number below `available`, for one who reads it once; None where none of its images can be decoded.

        What was wrong with records is counted with the first row after them.
        """
        pool, row = self._place(number)
        self._tell(self._place(number - 1)[0] + 1 if number else self._first_pool, pool + 1)
        return self._made(pool, row)

    def end(self) -> None:
        """Counts what was wrong with records after the last row. Raises a ValueError if there was no row."""
        rows = len(self)
        self._tell(self._place(rows - 1)[0] + 1, self._of_epoch)

    def find(self, record: str) -> list[int]:
        """Returns the indices of this epoch's rows that have a record, ascending; none where it is skipped.

        Args:
            record: its name, as in errors and in `samples` of a row. ", epoch 3" behind it names an epoch of its source.

        Raises:
            ValueError: no source has such a record.
        """
        asked = EPOCH.search(record)
        name, rows = record[: asked.start()] if asked else record, set()
        for source, place in self.recipe.places_of(name):
            epochs = self._pools.epochs_of(source, self._first_pool, self._first_pool + self._of_epoch)
            records = self.recipe.sources[source].records
            found, _ = next(records.read(records.pieces[place[0]], place[1]))
            for epoch in epochs if asked is None else {int(asked[1])} & {*epochs}:
                if (pool := self.pool_of(source, epoch, place)) is not None:
                    before, sought = self._before(pool) - self._before(self._first_pool), (source, found, epoch)
                    for row, samples in enumerate(self._pool(pool).rows, before):
                        rows |= {row for each in samples if (each.source, each.record, each.epoch) == sought}
        return sorted(rows)

    @property
    def skipped(self) -> dict[str, int]:
        """How many records were skipped, by cause, in the pools that were read here; see `ImageTextDataset.skipped`."""
        return dict(self.problems.counts)

    def pool_of(self, source: int, epoch: int, place: tuple[int, int]) -> int | None:
        """The pool of this epoch that has a record of a source, by its piece and its number there; None if none has."""
        pool = self._pools.pool_of(source, epoch, *place)
        return pool if pool is not None and self._first_pool <= pool < self._first_pool + self._of_epoch else None

    def _checked(self, index: int) -> int:
        number = operator.index(index)
        if 0 <= number < self._known:
            return number
        if not -len(self) <= number < len(self):
            raise IndexError(f"index must be 0 to {len(self) - 1}, got {number}. Use .epoch(1) for the next epoch.")
        return number % len(self)

    @property
    def _known(self) -> int:
        """How many rows of the epoch are counted."""
        last = min(len(self._ends), self._first_pool + self._of_epoch)
        return self._before(last) - self._before(self._first_pool) if last > self._first_pool else 0

    def _place(self, row: int) -> tuple[int, int]:
        """The pool of a row of the epoch, and which of its rows it is."""
        number = row + self._before(self._first_pool)
        pool = int(np.searchsorted(self._ends, number, side="right"))
        return pool, number - self._before(pool)

    def _row(self, number: int) -> dict[str, Any]:
        """A row; or the first one after it of which an image can be decoded, for which all rows are counted."""
        first, following = number, number
        while True:
            pool, row = self._place(following)
            self._tell(pool, pool + 1)
            if (made := self._made(pool, row)) is not None:
                return made
            if (following := (following + 1) % len(self)) == first:
                raise self._no_row(self._of_epoch)

    def _made(self, pool: int, row: int) -> dict[str, Any] | None:
        rows = self._pool(pool).rows
        assert self._maker is not None
        return self._maker.row(rows[row], self.problems)

    def _tell(self, first: int, stop: int) -> None:
        """Counts the problems of pools, the first time."""
        with self._lock():
            for pool in [each for each in range(first, stop) if each not in self._told]:
                self._pool(pool).noted.tell(self.problems)
                self._told.add(pool)

    def _pool(self, pool: int) -> _Pool:
        """A pool with its rows, which are counted by that if it is the first that is not."""
        with self._lock():
            if pool in self._held:
                self._held.move_to_end(pool)
                return self._held[pool]
            if self._maker is None:
                self._maker = RowMaker(self.recipe, iteration=self.iteration)
            noted = Noted()
            rows = self._maker.packed(pool, noted)
            self._take_up()
            if pool == len(self._ends):
                self._ends = np.append(self._ends, self._before(pool) + len(rows))
                self._keep()
            expected = self._before(pool + 1) - self._before(pool)
            if len(rows) != expected:
                raise ValueError(
                    f"pool {pool} of the records must have the {expected} rows that were counted, got {len(rows)}: files that"
                    " records name were changed. Remove the file .ul2_rows beside the records, or in the folder that was given."
                )
            self._held[pool] = _Pool(rows, noted)
            while len(self._held) > _HELD:
                self._held.popitem(last=False)
            return self._held[pool]

    def _no_row(self, pools: int) -> ValueError:
        """What is said where so many pools have no row; unless too many of their records are wrong, which is said instead."""
        self._tell(self._first_pool, self._first_pool + pools)
        return ValueError(f"sources must give at least one row, got none of {pools} pools; skipped, by cause: {self.skipped}.")

    def _take_up(self) -> None:
        """Takes the counts that are kept, once."""
        if not self._is_taken_up:
            self._is_taken_up, kept = True, self._kept.load() if self._kept else np.zeros([0], np.int64)
            self._ends, self._kept_pools = np.cumsum(kept[: self._pools.count]), len(kept)

    def _lock(self) -> threading.RLock:
        """The lock of this process. One that was forked has neither its threads, nor files at places of its own."""
        if self._process != os.getpid():
            self._process, self._process_lock, self._maker = os.getpid(), threading.RLock(), None
        return self._process_lock

    def _before(self, pool: int) -> int:
        """How many rows there are before a pool, over all pools that are numbered here."""
        self._count_to(pool)
        return int(self._ends[pool - 1]) if pool else 0

    def _count_to(self, stop: int) -> None:
        """Counts the rows of the pools before `stop`."""
        if len(self._ends) >= stop:
            return
        with self._lock():
            self._take_up()
            if (first := len(self._ends)) >= stop:
                return
            size = max(1, min(_AT_ONCE, -(-(stop - first) // _THREADS)))
            own = threading.local()

            def counted(pools: range) -> list[int]:
                if not hasattr(own, "maker"):
                    own.maker = RowMaker(self.recipe, iteration=self.iteration)
                problems = self.recipe.problems(is_told=False)
                return [len(own.maker.packed(pool, problems)) for pool in pools]

            parts = [range(part, min(part + size, stop)) for part in range(first, stop, size)]
            with futures.ThreadPoolExecutor(_THREADS) as threads:
                for some in (parts[at : at + _THREADS] for at in range(0, len(parts), _THREADS)):
                    for rows in threads.map(counted, some):
                        before = int(self._ends[-1]) if len(self._ends) else 0
                        self._ends = np.concatenate([self._ends, before + np.cumsum(rows)])
                    self._keep()

    def _keep(self) -> None:
        """Keeps the counts, from time to time and at the end of the epoch."""
        more, is_last = len(self._ends) - self._kept_pools, len(self._ends) == self._first_pool + self._of_epoch
        if more > (0 if is_last else max(_THREADS, self._kept_pools // 16)) and (kept := self._kept) is not None:
            kept.save(np.diff(self._ends, prepend=0))
            self._kept_pools = len(self._ends)

    @property
    def iteration(self) -> int:
        """That of `Recipe.pools`, in which this epoch is."""
        return 0 if self.recipe.epochs is None else self.number

    @property
    def _kept(self) -> KeptCounts | None:
        """What keeps the counts: of this recipe, and these contents of files."""
        besides = (source.records.folder for source in self.recipe.sources)
        folder = self._folder or next(filter(None, besides), None)
        told = {**self.recipe.settings(), **self.recipe.identity, "iteration": str(self.iteration), "rows": str(_VERSION)}
        return None if folder is None else KeptCounts(os.fspath(folder), json.dumps(told, sort_keys=True))
