"""`Weights`: what each denoiser has in whole epochs of an `Order` whose units, of length 1, weigh something: pieces, say.

    epoch     start s ..................... N | 0 .. s          unit u is at the place (u - s) mod N of the epoch's stream
    cycles    | kinds of a cycle | .. | ..    | the tail        a unit in a cycle has the kind of its place modulo n

The start s, and the slot f at which the tail begins, decide all of an epoch. Of the units in cycles only their sums by residues
modulo n matter, but for the n units at either end of the corpus, which also make the tail. So an epoch costs what finding s and f
does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import numpy as np

from ul2_tasks.order.epochs import Order

_AT_ONCE = 1 << 20  # epochs


@dataclasses.dataclass(frozen=True, eq=False)
class Weights:
    """The weights of the N units of an order, [n] int64 of its cycle of n slots.

    `sums` are those of the units of each residue modulo n, and `firsts` and `lasts`, [min(n, N)] int64, what the units at both ends
    weigh.
    """

    order: Order
    sums: np.ndarray
    firsts: np.ndarray
    lasts: np.ndarray

    @classmethod
    def of(cls, order: Order, parts: Iterable[np.ndarray]) -> Weights:
        """Of the weights of all units, [n] int64 a part, in their order."""
        size, first = len(order.cycle), 0
        sums, firsts, lasts = np.zeros([3, size], np.int64)
        seen = 0
        for part in parts:
            aligned = np.zeros(-(-(first + len(part)) // size) * size, np.int64)
            aligned[first : first + len(part)] = part
            sums = sums + aligned.reshape(-1, size).sum(axis=0)
            if seen < size:
                firsts[seen : seen + len(part)] = part[: size - seen]
            lasts = np.concatenate([lasts, part[-size:]])[-size:]
            seen, first = seen + len(part), (first + len(part)) % size
        return cls(order, sums, firsts[: order.tokens], lasts[-order.tokens :])

    @property
    def total(self) -> int:
        """What all units weigh."""
        return int(self.sums.sum())

    def of_kinds(self, first: int, stop: int, advance: Callable[[int], object] = lambda epochs: None) -> np.ndarray:
        """[K] int64, what the units of each kind weigh in the epochs [first, stop). `advance` is told of epochs that are done."""
        order, size, found = self.order, len(self.order.cycle), np.zeros(len(self.order.cycle.counts), np.int64)
        if size == 1:  # then all epochs are the same
            return found + (stop - first) * self.total
        for begin in range(first, stop, _AT_ONCE):
            epochs = np.arange(begin, min(begin + _AT_ONCE, stop))
            tails = order.tail_starts(epochs) if self._remainder else np.zeros_like(epochs)
            pairs, counts = np.unique(order.starts(epochs) * size + tails, return_counts=True)
            starts, tails = np.divmod(pairs, size)
            for start in np.unique(starts).tolist():
                of = starts == start
                np.add.at(found, order.cycle.kinds, counts[of].sum() * self._of_cycles(start))
                weights = self._of_tail(start)
                kinds = order.cycle.kinds[(tails[of][:, np.newaxis] + np.arange(len(weights))) % size]
                np.add.at(found, kinds, counts[of][:, np.newaxis] * weights)
            advance(len(epochs))
        return found

    @property
    def _remainder(self) -> int:
        return self.order.tokens % len(self.order.cycle)

    def _of_cycles(self, start: int) -> np.ndarray:
        """[n] int64, what the units at each place of a cycle weigh, in an epoch with this start."""
        size, rest = len(self.sums), self._remainder
        found, before = np.roll(self.sums, -start), np.arange(start)
        found[(before - start) % size] -= self.firsts[:start]  # they go round the end, and so come `rest` places later
        in_cycles = np.arange(max(0, start - rest))
        found[(in_cycles - start + rest) % size] += self.firsts[: len(in_cycles)]
        at_the_end = self._at_the_end(start)
        found[: len(at_the_end)] -= at_the_end
        return found

    def _of_tail(self, start: int) -> np.ndarray:
        """[tail] int64, what the units of the tail weigh, in an epoch with this start."""
        return np.concatenate([self._at_the_end(start), self.firsts[max(0, start - self._remainder) : start]])

    def _at_the_end(self, start: int) -> np.ndarray:
        """What the units at the end of the corpus weigh that are in the tail."""
        return self.lasts[len(self.lasts) - max(0, self._remainder - start) :]
