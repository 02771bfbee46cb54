"""`BlockOrder`: a corpus is shuffled in two levels, so that each reader needs a few whole blocks of it at a time.

    corpus        block 0 | block 1 | .. | the short last block         B tokens each, on a fixed grid
    epoch         the blocks in a permuted order, the short one last
                  window 0 | window 1 | .. | window C - 1               a round: one window of each partition, W blocks each
                  window C | ..                                         the next round
                  C shorter windows                                     what is left of whole blocks for each partition
                  one last window                                       fewer than C blocks, and the short one
    example j     of an epoch is of partition j mod C

A window is an `Order` on its tokens: it has cycles and a tail of its own, and a permutation of its slots. Its number, over all
epochs, is that order's epoch. So all that holds of an epoch of an `Order` holds of a window, and an epoch here is a whole number of
windows: each token is in exactly one example.

Element j of an epoch follows from divisions, because all windows of a round have equally many elements. Readers whose number
divides C read their own partitions alone, and so their own blocks. Any other number of readers reads the same elements, of more
blocks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.order.cycles import Cycle
from ul2_tasks.order.epochs import Order, Ranges, Switch, cut_at_the_end, expanded
from ul2_tasks.order.packing_plans import Sizes
from ul2_tasks.order.permutation import invert, keyed, keys, permute
from ul2_tasks.order.rows import PackedOrder, RowSlots
from ul2_tasks.scalars import is_integer

_FOR_BLOCKS, _FOR_WINDOWS = 0x626C6F636B, 0x77696E646F77  # what a key is for
_Inner = TypeVar("_Inner", Order, PackedOrder)


@dataclasses.dataclass(frozen=True)
class BlockShuffle:
    """How a corpus is shuffled in two levels: blocks in the corpus, and chunks within windows of blocks.

    partitions * window_blocks * block_tokens tokens are mixed at any moment. A corpus of fewer than partitions blocks is shuffled
    as a whole, as without blocks.

    Attributes:
        block_tokens: the length of a block in tokens. A host reads a block in one request.
        partitions: how many parts share the blocks of an epoch. Where the number of hosts divides it, each host reads its
            own parts alone.
        window_blocks: how many blocks of a partition are shuffled together.

    Raises:
        ValueError: one of them is not an integer of at least 1.
    """

    block_tokens: int = 1 << 20
    partitions: int = 64
    window_blocks: int = 16

    def __post_init__(self):
        for name, value in vars(self).items():
            if not is_integer(value, at_least=1):
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
            object.__setattr__(self, name, int(value))


@dataclasses.dataclass(frozen=True)
class Section(Generic[_Inner]):
    """Windows of one size in each epoch: how many, how many of them take turns, and the order of each, of examples or rows."""

    windows: int
    partitions: int
    inner: _Inner


class Places(NamedTuple):
    """Where elements are, [n] int64 each: their epoch, section, window of it, and number in the window."""

    epochs: np.ndarray
    sections: np.ndarray
    windows: np.ndarray
    numbers: np.ndarray


@dataclasses.dataclass(frozen=True)
class Windows:
    """The elements of windows, epoch after epoch: `sizes[s]` in each of the `windows[s]` of section s, `partitions[s]` in turn."""

    windows: tuple[int, ...]
    partitions: tuple[int, ...]
    sizes: tuple[int, ...]

    @cached_property
    def starts(self) -> np.ndarray:
        """[sections + 1] int64, where each section begins in an epoch, in elements; at the end, where the epoch ends."""
        return np.cumsum([0, *(count * size for count, size in zip(self.windows, self.sizes))])

    @property
    def elements(self) -> int:
        """How many elements an epoch has."""
        return int(self.starts[-1])

    def places(self, elements: np.ndarray) -> Places:
        """Where elements are, [n] integers from 0."""
        epochs, numbers = np.divmod(np.asarray(elements, np.int64), self.elements)
        sections = np.searchsorted(self.starts, numbers, side="right") - 1
        partitions, sizes = np.asarray(self.partitions)[sections], np.asarray(self.sizes)[sections]
        turns, partition = np.divmod(numbers - self.starts[sections], partitions)
        rounds, numbers = np.divmod(turns, sizes)
        return Places(epochs, sections, rounds * partitions + partition, numbers)

    def elements_at(self, places: Places) -> np.ndarray:
        """The inverse of `places`, [n] int64."""
        partitions, sizes = np.asarray(self.partitions)[places.sections], np.asarray(self.sizes)[places.sections]
        rounds, partition = np.divmod(places.windows, partitions)
        turns = rounds * sizes + places.numbers
        return places.epochs * self.elements + self.starts[places.sections] + turns * partitions + partition

    def switch(self, element: int) -> Switch:
        """The first element from this one on at which a round begins."""
        epoch, number = divmod(element, self.elements)
        rounds = 0
        for windows, partitions, size, start in zip(self.windows, self.partitions, self.sizes, self.starts.tolist()):
            done = -(-max(0, number - start) // (partitions * size))
            if done < windows // partitions:
                return Switch(epoch, rounds + done, epoch * self.elements + start + done * partitions * size)
            rounds += windows // partitions
        return Switch(epoch + 1, 0, (epoch + 1) * self.elements)

    def begun(self, element: int) -> Switch:
        """The round that an element is of."""
        epoch, number = divmod(element, self.elements)
        section = int(np.searchsorted(self.starts, number, side="right")) - 1
        size = self.partitions[section] * self.sizes[section]
        done = (number - int(self.starts[section])) // size
        before = sum(windows // turns for windows, turns in zip(self.windows[:section], self.partitions))
        return Switch(epoch, before + done, epoch * self.elements + int(self.starts[section]) + done * size)

    def first_of(self, epoch: int, number: int) -> int:
        """The first element of a round of an epoch."""
        for windows, partitions, size, start in zip(self.windows, self.partitions, self.sizes, self.starts.tolist()):
            if number < windows // partitions:
                return epoch * self.elements + start + number * partitions * size
            number -= windows // partitions
        raise ValueError(f"an epoch must have the round, got {number} too many.")


@dataclasses.dataclass(frozen=True)
class BlockOrder:
    """The examples of a corpus in windows of blocks; see `Order`, whose methods these are.

    A slot of an epoch is one of its windows: those of the first window come first, then those of the second, and so on. The corpus
    has at least `partitions` blocks. Without `shuffle` blocks, windows and examples come in the order of the corpus.
    """

    cycle: Cycle
    lengths: tuple[int, ...]
    tokens: int
    seed: int
    shuffle: bool
    blocks: BlockShuffle

    @property
    def _whole_blocks(self) -> int:
        return self.tokens // self.blocks.block_tokens

    @cached_property
    def sections(self) -> tuple[Section[Order], ...]:
        """The sections of an epoch, as the top of this file draws them; those that have a window."""
        per_partition = self._whole_blocks // self.blocks.partitions
        rounds, shorter = divmod(per_partition, self.blocks.window_blocks)
        size, turns = self.blocks.block_tokens, self.blocks.partitions
        last = self.tokens - per_partition * turns * size
        wanted = (
            (rounds * turns, turns, self.blocks.window_blocks * size),
            (turns if shorter else 0, turns, shorter * size),
            (1 if last else 0, 1, last),
        )
        return tuple(
            Section(
                windows,
                turns if self.shuffle else 1,
                Order(self.cycle, self.lengths, tokens, keyed(self.seed, _FOR_WINDOWS, number), self.shuffle),
            )
            for number, (windows, turns, tokens) in enumerate(wanted)
            if windows
        )

    @cached_property
    def windows(self) -> Windows:
        """The examples of its windows."""
        return windows_of(self.sections, [section.inner.examples for section in self.sections])

    @cached_property
    def _first_tokens(self) -> np.ndarray:
        """[sections] int64, where the first window of each section begins in the stream of an epoch, in tokens."""
        tokens = [section.windows * section.inner.tokens for section in self.sections]
        return np.cumsum([0, *tokens[:-1]])

    @property
    def examples(self) -> int:
        """E, how many examples an epoch has."""
        return self.windows.elements

    def slots(self, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `Order.slots`."""
        places = self.windows.places(examples)
        in_windows = np.zeros_like(places.numbers)
        for inner, of, numbers in of_sections(self.sections, places):
            in_windows[of] = inner.slots(numbers * inner.examples + places.numbers[of])[1]
        return places.epochs, self.slot_of(places._replace(numbers=in_windows))

    def examples_at(self, epochs: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """See `Order.examples_at`."""
        places = self.place_of(epochs, slots)
        in_windows = np.zeros_like(places.numbers)
        for inner, of, numbers in of_sections(self.sections, places):
            in_windows[of] = inner.examples_at(numbers, places.numbers[of]) - numbers * inner.examples
        return self.windows.elements_at(places._replace(numbers=in_windows))

    def slot_of(self, places: Places) -> np.ndarray:
        """[n] int64, the slot of each window's slot. Numbers are the slots of the windows."""
        sizes = np.asarray(self.windows.sizes)[places.sections]
        return self.windows.starts[places.sections] + places.windows * sizes + places.numbers

    def place_of(self, epochs: np.ndarray, slots: np.ndarray) -> Places:
        """The inverse of `slot_of`."""
        epochs, slots = np.asarray(epochs, np.int64), np.asarray(slots, np.int64)
        sections = np.searchsorted(self.windows.starts, slots, side="right") - 1
        windows, numbers = np.divmod(slots - self.windows.starts[sections], np.asarray(self.windows.sizes)[sections])
        return Places(epochs, sections, windows, numbers)

    def ranges(self, epochs: np.ndarray, slots: np.ndarray) -> Ranges:
        """See `Order.ranges`."""
        places = self.place_of(epochs, slots)
        kinds, starts, stops, tokens = (np.zeros_like(places.numbers) for _ in range(4))
        for inner, of, numbers in of_sections(self.sections, places):
            kinds[of], starts[of], stops[of] = inner.chunks(numbers, places.numbers[of])
            tokens[of] = inner.tokens
        firsts, sizes = self._first_token_of(places), stops - starts
        # First cut at the end of the window, which a chunk may go round, then at the borders of blocks.
        of, starts, stops = cut_at_the_end(starts, stops, tokens)
        of_block, starts, stops = cut(starts + firsts[of], stops + firsts[of], self.blocks.block_tokens)
        of = of[of_block]
        blocks, before = np.divmod(starts, self.blocks.block_tokens)
        starts_there = self.placed(places.epochs[of], blocks) * self.blocks.block_tokens + before
        return Ranges(kinds, sizes, of, starts_there, starts_there + stops - starts)

    def _first_token_of(self, places: Places) -> np.ndarray:
        """[n] int64, where the window of each place begins in the stream of its epoch."""
        sizes = np.array([section.inner.tokens for section in self.sections])[places.sections]
        return self._first_tokens[places.sections] + places.windows * sizes

    def slots_with(self, epoch: int, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        """See `Order.slots_with`."""
        size = self.blocks.block_tokens
        _, starts, stops = cut(starts, stops, size)
        blocks = starts // size
        to_stream = (self._unplaced(np.full_like(blocks, epoch), blocks) - blocks) * size
        starts, stops = starts + to_stream, stops + to_stream
        sections = np.searchsorted(self._first_tokens, starts, side="right") - 1
        found = [np.zeros([0], np.int64)]
        for number, section in enumerate(self.sections):
            of = np.flatnonzero(sections == number)
            windows, begins = np.divmod(starts[of] - self._first_tokens[number], section.inner.tokens)
            of_range, slots = section.inner.slots_within(epoch * section.windows + windows, begins, begins + stops[of] - starts[of])
            found.append(self.windows.starts[number] + windows[of_range] * section.inner.examples + slots)
        return np.unique(np.concatenate(found))

    def noise_keys(self, epochs: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """See `epochs.noise_keys`."""
        places = self.place_of(epochs, slots)
        found = np.zeros(len(places.numbers), np.uint64)
        for inner, of, numbers in of_sections(self.sections, places):
            found[of] = inner.noise_keys(numbers, places.numbers[of])
        return found

    def switch(self, example: int) -> Switch:
        """See `Order.switch`."""
        return self.windows.switch(example)

    def begun(self, element: int) -> Switch:
        """See `Order.begun`."""
        return self.windows.begun(element)

    def first_of(self, epoch: int, number: int) -> int:
        """See `Order.first_of`."""
        return self.windows.first_of(epoch, number)

    def tokens_of(self, rounds: int) -> int:
        """See `Order.tokens_of`."""
        tokens = 0
        for section in self.sections:
            here = min(rounds, section.windows // section.partitions)
            tokens, rounds = tokens + here * section.partitions * section.inner.tokens, rounds - here
        return tokens

    def placed(self, epochs: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """[n] int64, which block is at each place of the order of an epoch's blocks. The short one keeps its place."""
        whole = self._whole_blocks
        if not self.shuffle or not len(numbers):
            return numbers
        found = permute(np.minimum(numbers, whole - 1), whole, keys(keyed(self.seed, _FOR_BLOCKS), epochs))
        return np.where(numbers < whole, found, numbers)

    def windows_of(self, epochs: np.ndarray, slots: np.ndarray) -> list[tuple[int, int, int]]:
        """The windows that have these slots, each once: epoch, section, and which of its windows."""
        places = self.place_of(epochs, slots)
        most = max(self.windows.windows)
        codes = np.unique((places.epochs * len(self.sections) + places.sections) * most + places.windows)
        sections, windows = np.divmod(codes, most)
        return list(zip(*(each.tolist() for each in (*np.divmod(sections, len(self.sections)), windows))))

    def next_window(self, epoch: int, section: int, window: int) -> tuple[int, int, int]:
        """The window that the partition of a window reads next, or what follows that all partitions read."""
        own, following = self.sections[section], window + self.sections[section].partitions
        if following < own.windows:
            return epoch, section, following
        if section + 1 < len(self.sections):
            return epoch, section + 1, window % own.partitions % self.sections[section + 1].windows
        return epoch + 1, 0, window % self.sections[0].partitions

    def blocks_of(self, epoch: int, section: int, window: int) -> np.ndarray:
        """[blocks] int64, the blocks of a window."""
        size, tokens = self.blocks.block_tokens, self.sections[section].inner.tokens
        first = int(self._first_tokens[section]) + window * tokens
        numbers = np.arange(first // size, -(-(first + tokens) // size))
        return self.placed(np.full_like(numbers, epoch), numbers)

    def _unplaced(self, epochs: np.ndarray, blocks: np.ndarray) -> np.ndarray:
        """The inverse of `placed`."""
        whole = self._whole_blocks
        if not self.shuffle or not len(blocks):
            return blocks
        found = invert(np.minimum(blocks, whole - 1), whole, keys(keyed(self.seed, _FOR_BLOCKS), epochs))
        return np.where(blocks < whole, found, blocks)


@dataclasses.dataclass(frozen=True)
class PackedBlockOrder:
    """The examples of a `BlockOrder` in rows; see `PackedOrder`. The examples of a row are of one window."""

    order: BlockOrder
    sizes: Sizes
    budgets: tuple[int, ...]

    @cached_property
    def sections(self) -> tuple[Section[PackedOrder], ...]:
        """Those of the order, with the rows of their windows."""
        return tuple(
            Section(section.windows, section.partitions, PackedOrder(section.inner, self.sizes, self.budgets))
            for section in self.order.sections
        )

    @cached_property
    def windows(self) -> Windows:
        """The rows of its windows."""
        return windows_of(self.sections, [section.inner.rows for section in self.sections])

    @property
    def rows(self) -> int:
        """How many rows an epoch has."""
        return self.windows.elements

    @property
    def rows_about(self) -> int:
        """See `WindowRows.rows_about`; here it is exact."""
        return self.rows

    def slots(self, rows: np.ndarray) -> RowSlots:
        """See `PackedOrder.slots`."""
        places = self.windows.places(rows)
        found = []
        for inner, of, numbers in of_sections(self.sections, places):
            in_rows = inner.slots(numbers * inner.rows + places.numbers[of])
            rows_of = of[in_rows.places]
            at = Places(*(each[rows_of] for each in places))._replace(numbers=in_rows.slots)
            found.append(RowSlots(rows_of, at.epochs, self.order.slot_of(at)))
        if len(found) == 1:
            return found[0]
        joined = RowSlots(*(np.concatenate([np.zeros([0], np.int64), *each]) for each in (zip(*found) if found else [()] * 3)))
        by_row = np.argsort(joined.places, kind="stable")
        return RowSlots(*(each[by_row] for each in joined))

    def rows_at(self, epochs: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """See `PackedOrder.rows_at`."""
        places = self.order.place_of(epochs, slots)
        numbers = np.zeros_like(places.numbers)
        for inner, of, of_windows in of_sections(self.sections, places):
            numbers[of] = inner.rows_at(of_windows, places.numbers[of]) - of_windows * inner.rows
        return self.windows.elements_at(places._replace(numbers=numbers))

    def switch(self, row: int) -> Switch:
        """See `Order.switch`."""
        return self.windows.switch(row)

    def begun(self, element: int) -> Switch:
        """See `Order.begun`."""
        return self.windows.begun(element)

    def first_of(self, epoch: int, number: int) -> int:
        """See `Order.first_of`."""
        return self.windows.first_of(epoch, number)


def of_sections(sections: Sequence[Section[_Inner]], places: Places) -> Iterator[tuple[_Inner, np.ndarray, np.ndarray]]:
    """For each section with some of the places: its order, which they are, and the numbers of their windows over all epochs."""
    for number, section in enumerate(sections):
        of = np.flatnonzero(places.sections == number)
        if len(of):
            yield section.inner, of, places.epochs[of] * section.windows + places.windows[of]


def windows_of(sections: Sequence[Section], sizes: Sequence[int]) -> Windows:
    """The windows of sections, with so many elements in each of a section."""
    return Windows(tuple(each.windows for each in sections), tuple(each.partitions for each in sections), tuple(sizes))


def order_of(
    cycle: Cycle, lengths: tuple[int, ...], tokens: int, seed: int, shuffle: bool, blocks: BlockShuffle | None
) -> Order | BlockOrder:
    """The order of a corpus: that of the whole, unless it has a block for each partition."""
    if blocks is None or tokens // blocks.block_tokens < blocks.partitions or tokens // blocks.block_tokens == 1:
        return Order(cycle, lengths, tokens, seed, shuffle)
    return BlockOrder(cycle, lengths, tokens, seed, shuffle, blocks)


def packed_order(order: Order | BlockOrder, sizes: Sizes, budgets: tuple[int, ...]) -> PackedOrder | PackedBlockOrder:
    """Which examples of an order share which rows."""
    return PackedOrder(order, sizes, budgets) if isinstance(order, Order) else PackedBlockOrder(order, sizes, budgets)


def cut(starts: np.ndarray, stops: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cuts ranges, of which none is empty, at the multiples of a size; for what it gives see `epochs.cut_at_the_end`.

    >>> [column.tolist() for column in cut(np.array([3, 8]), np.array([5, 12]), 10)]
    [[0, 1, 1], [3, 8, 10], [5, 10, 12]]
    """
    first, last = starts // size, (stops - 1) // size
    if (first == last).all():
        return np.arange(len(starts)), starts, stops
    of, number = expanded(np.arange(len(starts)), first, last + 1)
    return of, np.maximum(starts[of], number * size), np.minimum(stops[of], (number + 1) * size)
