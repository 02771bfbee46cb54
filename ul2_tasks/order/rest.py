"""`Rest`: what is not read yet of a round of an order, cut anew, for a run that goes on with examples of another length.

    round     | read | . . | read | . . . | read | . . |        examples of the old length, read in a permuted order
    rest             | 0 1 2        3 4     5      6 7 |        the tokens of the others, in the order of the corpus: one window

Each of its tokens is in one example of the rest, and so in one of the epoch. An example has neighbouring parts of the corpus, and
one piece of it where nothing between was read.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.order.order import Order
from ul2_tasks.order.permutation import keyed
from ul2_tasks.order.ranges import Ranges, cut_at, expanded
from ul2_tasks.order.rows import Rows

_FOR_RESTS = 0x72657374  # what a key is for
_AT_ONCE = 1 << 20  # elements


@dataclasses.dataclass(frozen=True, eq=False)
class Rest(Order):
    """The tokens of ranges [start, stop), [n] int64, ascending and apart, which are not read yet of a round.

    `of_rounds` is how many rounds an epoch has, and `of_round` which part of its round it is. Only the epoch of its round is read.
    """

    starts: np.ndarray = dataclasses.field(kw_only=True, repr=False)
    stops: np.ndarray = dataclasses.field(kw_only=True, repr=False)
    round: int = dataclasses.field(kw_only=True)
    of_rounds: int = dataclasses.field(kw_only=True)
    of_round: float = dataclasses.field(kw_only=True)

    @cached_property
    def _firsts(self) -> np.ndarray:
        """[n] int64, where each range begins among the tokens of all."""
        sizes = self.stops - self.starts
        return np.cumsum(sizes) - sizes

    def ranges(self, epochs: np.ndarray, slots: np.ndarray) -> Ranges:
        found = super().ranges(epochs, slots)
        part, starts, stops = cut_at(found.starts, found.stops, self._firsts)
        at = np.searchsorted(self._firsts, starts, side="right") - 1
        moved = (self.starts - self._firsts)[at]
        return found._replace(of=found.of[part], starts=starts + moved, stops=stops + moved)

    def slots_with(self, epoch: int, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        firsts, lasts = np.searchsorted(self.stops, starts, side="right"), np.searchsorted(self.starts, stops)
        of, at = expanded(np.arange(len(starts)), firsts, np.maximum(firsts, lasts))
        moved = (self._firsts - self.starts)[at]
        starts, stops = np.maximum(starts[of], self.starts[at]) + moved, np.minimum(stops[of], self.stops[at]) + moved
        return super().slots_with(epoch, starts, stops)

    @property
    def rounds(self) -> int:
        return self.of_rounds

    def round_of(self, example: int) -> int:
        return self.round + (example >= self.first_of(self.round + 1))

    def first_of(self, round: int) -> int:
        """The first example of its round, or of what follows."""
        return (self.round // self.of_rounds + (round > self.round)) * self.examples

    @property
    def part(self) -> float:
        return self.of_round

    def reaches(self, round: int) -> bool:
        return self.round <= round <= self.round + 1


def rest_of(before: Order | Rows, index: int, after: Order) -> Rest:
    """Cuts the tokens of the elements from `index` to the end of its round as another order does."""
    order = before.order if isinstance(before, Rows) else before
    number = before.round_of(index)
    first, stop = before.first_of(number), before.first_of(number + 1)
    held = []
    for begin in range(index, stop, _AT_ONCE):
        epochs, slots = before.slots(np.arange(begin, min(begin + _AT_ONCE, stop)))[-2:]
        held.append(order.ranges(epochs, slots)[-2:])
    starts, stops = (np.concatenate(each) for each in zip(*held))
    in_order = np.argsort(starts)
    starts, stops = starts[in_order], stops[in_order]
    is_apart = starts[1:] != stops[:-1]
    starts, stops = starts[np.append(True, is_apart)], stops[np.append(is_apart, True)]
    tokens, seed = int((stops - starts).sum()), keyed(after.seed, _FOR_RESTS, number, index)
    part = order.part * (stop - index) / (stop - first)
    of_round: Any = {"round": number, "of_rounds": before.rounds, "of_round": part}
    return Rest(after.cycle, after.lengths, tokens, seed, after.shuffle, starts=starts, stops=stops, **of_round)
