"""`PackedOrder`: which examples share row r. Rows have addresses, too, and nothing is packed while a run runs.

    epoch    template 0 | template 1 | .. | the cycles that are no whole template | the tail, one example a row
    row      0 ..         R ..             I R ..

A template says how many examples of each denoiser are in each of its R rows, and holds m cycles. With `shuffle` the rows of an
epoch come in a permuted order. So do the examples of each denoiser: which row gets which of them is another permutation, of all
slots of that denoiser in the epoch. Thus a row has examples from anywhere in the corpus, and neighbouring rows are of any pattern.

A slot is the same example as in the `Order`: the same tokens, the same denoiser, the same key of the noise.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.order.epochs import FOR_CONTENTS, FOR_ROWS, Order, Switch
from ul2_tasks.order.packing_plans import Sizes, best_cycles, template
from ul2_tasks.order.permutation import invert, keyed, keys, permute


class RowSlots(NamedTuple):
    """The examples of n rows, [examples] int64 each: of which row each is, from 0 to n - 1, ascending; its epoch and its slot."""

    places: np.ndarray
    epochs: np.ndarray
    slots: np.ndarray


@dataclasses.dataclass(frozen=True)
class PackedOrder:
    """The examples of an `Order` in rows, epoch after epoch without end. In an epoch each slot is in one row.

    `sizes` has F integers for each of K denoisers, the length of each feature of a full chunk's example, at least 1; `budgets` has
    those of a row.

    >>> from ul2_tasks.order.cycles import nearest_cycle
    >>> order = Order(nearest_cycle([1, 1]), (8, 10), tokens=40, seed=0, shuffle=False)
    >>> packed = PackedOrder(order, ((6, 2), (3, 7)), (12, 12))
    >>> packed.rows  # two cycles, and a tail of 4 tokens
    3
    >>> packed.slots(np.array([0, 2, 3]))
    RowSlots(places=array([0, 0, 1, 2, 2]), epochs=array([0, 0, 0, 1, 1]), slots=array([0, 1, 4, 0, 1]))
    """

    order: Order
    sizes: Sizes
    budgets: tuple[int, ...]

    def __post_init__(self):
        if len(self.sizes) != len(self._counts):
            raise ValueError(f"sizes must be those of {len(self._counts)} denoisers, got {self.sizes}.")

    @property
    def _counts(self) -> np.ndarray:
        return np.asarray(self.order.cycle.counts)

    @cached_property
    def template_cycles(self) -> int:
        """m, how many cycles a template holds."""
        return best_cycles(self.sizes, self.order.cycle.counts, self.budgets)

    @cached_property
    def _parts(self) -> tuple[np.ndarray, np.ndarray]:
        """[R, K] and [R', K] int64, how many examples of each denoiser are in the rows of a template, and of the cycles left."""
        rest = self.order.cycles % self.template_cycles
        solve = functools.partial(template, self.sizes, self.order.cycle.counts, self.budgets)
        return solve(self.template_cycles), solve(rest)

    @cached_property
    def _firsts(self) -> tuple[int, int]:
        """The first row after the templates, and the first of the tail."""
        whole, rest = self._parts
        after = self.order.cycles // self.template_cycles * len(whole)
        return after, after + len(rest)

    @property
    def rows(self) -> int:
        """How many rows an epoch has."""
        return self._firsts[1] + self.order.tail

    @property
    def rows_about(self) -> int:
        """See `WindowRows.rows_about`; here it is exact."""
        return self.rows

    @cached_property
    def _patterns(self) -> np.ndarray:
        """[R + R' + 1, K + 1] int64: the two parts, then a row of the tail, whose one example is of a kind of its own."""
        patterns = np.concatenate(self._parts)
        return np.pad(patterns, [(0, 1), (0, 1)]) + np.pad([[1]], [(len(patterns), 0), (patterns.shape[1], 0)])

    @cached_property
    def _before(self) -> np.ndarray:
        """[R + R' + 1, K + 1] int64, how many examples of each kind are in the rows before, of the same part."""
        before = [np.cumsum(part, axis=0) - part for part in self._parts]
        return np.pad(np.concatenate(before), [(0, 1), (0, 1)])

    def slots(self, rows: np.ndarray) -> RowSlots:
        """The examples of each row. Rows are [n] integers from 0, below 2**63."""
        epochs, rows = np.divmod(np.asarray(rows, np.int64), self.rows)
        if self.order.shuffle:
            rows = permute(rows, self.rows, self._row_keys(epochs))
        after, tail = self._firsts
        whole = len(self._parts[0])
        pattern = np.where(rows < after, rows % whole, np.minimum(whole + rows - after, len(self._patterns) - 1))
        held = self._patterns[pattern]  # [n, K + 1]
        before = self._before[pattern]
        before[:, :-1] += (np.minimum(rows, after) // whole)[:, np.newaxis] * self.template_cycles * self._counts
        before[:, -1] += rows - tail
        places, kinds = np.divmod(np.repeat(np.arange(held.size), held.ravel()), held.shape[1])
        in_row = np.arange(len(kinds)) - np.repeat(np.cumsum(held) - held.ravel(), held.ravel())
        return RowSlots(places, epochs[places], self._contents(epochs[places], kinds, before[places, kinds] + in_row))

    def rows_at(self, epochs: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """The inverse of `slots`: in which row each slot of each epoch is, [n] int64."""
        epochs, slots = np.asarray(epochs, np.int64), np.asarray(slots, np.int64)
        rows = self._firsts[1] + slots - self._cycle_slots  # of the tail
        in_cycles = np.flatnonzero(slots < self._cycle_slots)
        kinds, numbers = self.order.cycle.positions(slots[in_cycles])
        if self.order.shuffle:
            numbers = invert(numbers, *self._shuffle(epochs[in_cycles], kinds))
        rows[in_cycles] = self._rows_with(kinds, numbers)
        if self.order.shuffle:
            rows = invert(rows, self.rows, self._row_keys(epochs))
        return epochs * self.rows + rows

    def switch(self, row: int) -> Switch:
        """See `Order.switch`."""
        epoch = -(-row // self.rows)
        return Switch(epoch, 0, epoch * self.rows)

    def begun(self, row: int) -> Switch:
        """See `Order.begun`."""
        epoch = row // self.rows
        return Switch(epoch, 0, epoch * self.rows)

    def first_of(self, epoch: int, number: int) -> int:
        """See `Order.first_of`."""
        return epoch * self.rows

    def _rows_with(self, kinds: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """[n] int64, the row of the template that holds the example of each number among those of its kind."""
        templates, numbers = np.divmod(numbers, self.template_cycles * self._counts[kinds])
        rows = templates * len(self._parts[0])
        is_whole = templates < self.order.cycles // self.template_cycles
        for part, in_part in zip(self._parts, (is_whole, ~is_whole)):
            for kind in range(len(self._counts)):
                of = in_part & (kinds == kind)
                rows[of] += np.searchsorted(np.cumsum(part[:, kind]), numbers[of], side="right")
        return rows

    @property
    def _cycle_slots(self) -> int:
        return self.order.cycles * len(self.order.cycle)

    def _contents(self, epochs: np.ndarray, kinds: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """[examples] int64, the slot that is the example of each number among those of its kind."""
        slots = self._cycle_slots + numbers
        in_cycles = np.flatnonzero(kinds < len(self._counts))
        kinds, numbers = kinds[in_cycles], numbers[in_cycles]
        if self.order.shuffle:
            numbers = permute(numbers, *self._shuffle(epochs[in_cycles], kinds))
        slots[in_cycles] = self.order.cycle.places(kinds, numbers)
        return slots

    def _shuffle(self, epochs: np.ndarray, kinds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The size and the key of each denoiser's permutation in each epoch."""
        return self.order.cycles * self._counts[kinds], keys(keyed(self.order.seed, FOR_CONTENTS), epochs, kinds)

    def _row_keys(self, epochs: np.ndarray) -> np.ndarray:
        return keys(keyed(self.order.seed, FOR_ROWS), epochs)
