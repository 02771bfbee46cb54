"""The order of records, and which of them are packed together. Both are computed from numbers alone.

    source     each epoch its pieces are permuted by a key of seed, source and epoch; a piece's records come as they stand, or the
               records of so many consecutive pieces, a window, are permuted by a key of the window, too
    mixture    records of each source as evenly as its weight says, see `Shares`, until the epochs end
    pools      so many consecutive records: pool q has the places q P .. (q + 1) P - 1 of the mixture

So a pool is a function of its number, whoever reads it, and so are its rows.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.order.mix import Shares
from ul2_tasks.order.permutation import invert, keyed, permute

FOR_PIECES, FOR_ROWS_OF_POOLS = 7, 8  # what a key is for; `draws` has the number before
_FOR_RECORDS = 0x7265636F7264


class Stretch(NamedTuple):
    """Consecutive records of a piece, in an epoch of their source."""

    source: int
    epoch: int
    piece: int
    start: int
    stop: int


@dataclasses.dataclass(frozen=True, eq=False)
class Pools:
    """The pools of a mixture.

    `pieces` are how many records the pieces of each source have, and `weights` how many records of each source come for how many of
    the others. A pool has P, `size`, records. An epoch of a mixture has each source's records once at least, and those of the one
    that takes longest exactly once. The pools are those of the epochs from `first` on, `epochs` of them; None is for no end. The
    seed is of the permutations. `window` is how many pieces are shuffled together, record by record; 0 is for none.

    >>> pools = Pools(pieces=((3, 2), (4,)), weights=(1, 2), size=6, epochs=None, seed=0)
    >>> for stretch in pools.stretches(0):
    ...     print(stretch)
    Stretch(source=0, epoch=0, piece=0, start=0, stop=2)
    Stretch(source=1, epoch=0, piece=0, start=0, stop=4)
    """

    pieces: tuple[tuple[int, ...], ...]
    weights: tuple[float, ...]
    size: int
    epochs: int | None
    seed: int
    first: int = 0
    window: int = 0

    @cached_property
    def count(self) -> int | None:
        """How many pools there are; None for no end."""
        return None if self._stop is None else -(-(self._stop - self._start) // self.size)

    def pool_of(self, source: int, epoch: int, piece: int, number: int) -> int | None:
        """The pool that has a record of a piece in an epoch of its source, the inverse of `stretches`; None if none has."""
        order, ends = self._order(source, epoch)
        within = int(ends[np.flatnonzero(order == piece)[0]]) - self.pieces[source][piece] + number
        if self.window:
            start, stop, key = self._window(source, epoch, within)
            within = start + int(invert(np.array(within - start), stop - start, key))
        place = self._place(source, epoch * sum(self.pieces[source]) + within) - self._start
        return None if place < 0 or (self._stop is not None and place >= self._stop - self._start) else place // self.size

    def epochs_of(self, source: int, first: int, stop: int) -> range:
        """The epochs of a source that have some of the records of the pools `first` to `stop`."""
        end = self._start + stop * self.size
        places = (self._start + first * self.size, end if self._stop is None else min(end, self._stop))
        before, after = (int(self._mixing.counts(place)[source]) for place in places)
        records = sum(self.pieces[source])
        return range(before // records, -(-after // records) if after > before else before // records)

    def stretches(self, pool: int) -> Iterator[Stretch]:
        """The records of a pool, source by source."""
        start = self._start + pool * self.size
        stop = start + self.size if self._stop is None else min(start + self.size, self._stop)
        sources, positions = self._mixing.positions(np.arange(start, stop))
        for source in np.unique(sources).tolist():
            of_source = positions[sources == source]
            yield from self._stretches(source, int(of_source[0]), int(of_source[-1]) + 1)

    def _stretches(self, source: int, start: int, stop: int) -> Iterator[Stretch]:
        """The records `start` to `stop` of a source that begins anew when it ends."""
        records = sum(self.pieces[source])
        while start < stop:
            epoch, within = divmod(start, records)
            order, ends = self._order(source, epoch)
            if self.window:
                first, last, key = self._window(source, epoch, within)
                taken = min(last - within, stop - start)
                places = first + permute(np.arange(within, within + taken) - first, last - first, key)
                in_order = np.searchsorted(ends, places, side="right")
                numbers = places - np.append(0, ends)[in_order]
                for piece, number in zip(order[in_order].tolist(), numbers.tolist()):
                    yield Stretch(source, epoch, piece, number, number + 1)
                start += taken
                continue
            place = int(np.searchsorted(ends, within, side="right"))
            piece = int(order[place])
            begins = int(ends[place]) - self.pieces[source][piece]
            taken = min(int(ends[place]) - within, stop - start)
            yield Stretch(source, epoch, piece, within - begins, within - begins + taken)
            start += taken

    @functools.lru_cache(maxsize=16)  # noqa: B019 (few are ever made)
    def _order(self, source: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The pieces of an epoch in their order, and how many records there are up to the end of each."""
        count = len(self.pieces[source])
        order = permute(np.arange(count), count, keyed(self.seed, FOR_PIECES, source, epoch))
        return order, np.cumsum(np.array(self.pieces[source])[order])

    def _window(self, source: int, epoch: int, within: int) -> tuple[int, int, int]:
        """The first and the last record, exclusive, of the window in which a record of an epoch is; and the window's key."""
        _, ends = self._order(source, epoch)
        window = int(np.searchsorted(ends, within, side="right")) // self.window
        first = int(ends[window * self.window - 1]) if window else 0
        last = int(ends[min((window + 1) * self.window, len(ends)) - 1])
        return first, last, keyed(self.seed, _FOR_RECORDS, source, epoch, window)

    @cached_property
    def _start(self) -> int:
        return self._end(self.first)

    @cached_property
    def _stop(self) -> int | None:
        return None if self.epochs is None else self._end(self.first + self.epochs)

    def _end(self, epochs: int) -> int:
        """The place of the mixture where so many epochs end."""
        return max(self._place(source, epochs * sum(pieces) - 1) + 1 for source, pieces in enumerate(self.pieces)) if epochs else 0

    def _place(self, source: int, position: int) -> int:
        return int(self._mixing.places(np.array([source]), np.array([position]))[0])

    @cached_property
    def _mixing(self) -> Shares:
        return Shares.of(self.weights)


def in_order(rows: Sequence[list[int]], seed: int, pool: int, first: int = 0) -> list[list[int]]:
    """The rows of a pool in a shuffled order. As they are packed, the fullest come first. `first` is as in `Pools`."""
    key = keyed(seed, FOR_ROWS_OF_POOLS, pool, *([first] if first else []))
    order = permute(np.arange(len(rows)), max(1, len(rows)), key)
    return [rows[number] for number in order]
