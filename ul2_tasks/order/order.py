"""`Order`: which tokens make example i, under which denoiser, and which examples have a token. All of it is arithmetic.

In an epoch each token of the corpus is in exactly one example. The corpus is one *window*, or several, each of some blocks:

    window   0 ............ start ............................................ N tokens
    stream                  | cycle 0 | cycle 1 | .. | cycle A - 1 | tail |        goes on at 0, and ends at start
    slots                   0 ..      n ..                         A n .. E

A window is read from a start of its own, round its end. A = N // S cycles of S tokens are cut into the slots' full chunks. What
remains is shorter than a cycle. It is not carried further: it is cut into shorter chunks, the *tail*, all shortened in proportion.
So each window has as many examples each time, and is whole in itself. Starts follow the golden ratio within a cycle: over the
epochs a token comes under each denoiser nearly as often as that denoiser's share of the tokens says, and not by chance. The tail
begins at another slot of the cycle each time, at every slot once in n times: a corpus shorter than a cycle, too, is seen under all
denoisers. With `shuffle` the examples of a window come in a permuted order, another one each time.

With blocks a corpus is shuffled in two levels, so that each reader needs a few whole blocks of it at a time:

    corpus        block 0 | block 1 | .. | the short last block         B tokens each, on a fixed grid
    epoch         the blocks in a permuted order, the short one last
                  window 0 | window 1 | .. | window C - 1               a round: one window of each partition, W blocks each
                  window C | ..                                         the next round
                  C shorter windows                                     what is left of whole blocks for each partition
                  one last window                                       fewer than C blocks, and the short one
    example j     of an epoch is of partition j mod C

All windows of a round have equally many examples, so element j follows from divisions. Readers whose number divides C read their
own partitions alone, and so their own blocks. Any other number of readers reads the same elements, of more blocks.

The corpus is a number of tokens here. Where an EOS stands between documents, it is one of them: the caller knows where. Nothing
here knows of hosts or batches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.order.cycles import Cycle
from ul2_tasks.order.permutation import GOLDEN, invert, keyed, keys, permute
from ul2_tasks.order.ranges import Ranges, cut, cut_at_the_end, expanded
from ul2_tasks.scalars import is_integer

FOR_STARTS, FOR_TAILS, FOR_SLOTS, FOR_NOISE, FOR_ROWS, FOR_CONTENTS = range(6)  # what a key is for
_FOR_BLOCKS, _FOR_WINDOWS = 0x626C6F636B, 0x77696E646F77


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


class Chunks(NamedTuple):
    """Where the chunks of n examples lie in a window, [n] int64 each: each one's denoiser, and its tokens [start, stop).

    A chunk whose stop is above N goes round the end of the window: it has [start, N), then [0, stop - N).
    """

    kinds: np.ndarray
    starts: np.ndarray
    stops: np.ndarray


@dataclasses.dataclass(frozen=True)
class Window:
    """The chunks of some tokens that are read time after time; see `Order`. A time is an epoch, or a window's number."""

    cycle: Cycle
    lengths: tuple[int, ...]
    tokens: int
    seed: int
    shuffle: bool

    @cached_property
    def cycle_tokens(self) -> int:
        """S, how many tokens a full cycle has."""
        return sum(count * length for count, length in zip(self.cycle.counts, self.lengths))

    @property
    def cycles(self) -> int:
        """A, how many full cycles there are."""
        return self.tokens // self.cycle_tokens

    @cached_property
    def tail(self) -> int:
        """How many examples are shortened: so many that from any slot on their full chunks would hold the remainder."""
        firsts = np.arange(len(self.cycle))
        return int((np.searchsorted(self._bounds, self._bounds[firsts] + self._remainder) - firsts).max())

    @cached_property
    def examples(self) -> int:
        """E, how many examples there are each time."""
        return self.cycles * len(self.cycle) + self.tail

    @property
    def _remainder(self) -> int:
        return self.tokens % self.cycle_tokens

    @cached_property
    def _bounds(self) -> np.ndarray:
        """[2 n + 1] int64, where the slots of two cycles begin and end."""
        return np.concatenate([[0], np.cumsum(np.tile(np.asarray(self.lengths)[self.cycle.kinds], 2))])

    def slots(self, times: np.ndarray, examples: np.ndarray) -> np.ndarray:
        """The slot of each example of each time, [n] int64."""
        return permute(examples, self.examples, self._shuffle(times)) if self.shuffle else examples

    def examples_at(self, times: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """The inverse of `slots`."""
        return invert(slots, self.examples, self._shuffle(times)) if self.shuffle else slots

    def chunks(self, times: np.ndarray, slots: np.ndarray) -> Chunks:
        """Which tokens make the example of each slot of each time, under which denoiser."""
        cycles, slots = np.divmod(slots, len(self.cycle))
        first, last = self._bounds[slots], self._bounds[slots + 1]
        kinds = self.cycle.kinds[slots]
        tail = np.nonzero(cycles == self.cycles)
        if len(tail[0]):
            from_slot = self._tail_starts(times[tail])
            kinds[tail] = self.cycle.kinds[(from_slot + slots[tail]) % len(self.cycle)]
            first[tail], last[tail] = (self._tail_cut(from_slot, slots[tail] + more) for more in (0, 1))
        starts = (cycles * self.cycle_tokens + first + self._starts(times)) % self.tokens
        return Chunks(kinds, starts, starts + last - first)

    def slots_within(self, times: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The slots that have some tokens of ranges of times, all [m] int64: of which range each is, and it, [n] int64 both."""
        begins = self._starts(times)
        is_round = (starts < begins) & (begins < stops)  # first at the end of the stream, then at its beginning
        which = np.append(np.arange(len(starts)), np.flatnonzero(is_round))
        starts, stops = np.append(starts, begins[is_round]), np.append(np.where(is_round, begins, stops), stops[is_round])
        firsts, lasts = self._slots_of(times[which], starts), self._slots_of(times[which], stops - 1)
        return expanded(which, firsts, lasts + 1)

    def _slots_of(self, times: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """The slot of each time whose example has the token, [n] int64, for [n] int64 from 0 to N - 1."""
        cycles, places = np.divmod((tokens - self._starts(times)) % self.tokens, self.cycle_tokens)
        slots = np.searchsorted(self._bounds[: len(self.cycle)], places, side="right") - 1
        tail = np.nonzero(cycles == self.cycles)
        if len(tail[0]):
            from_slot = self._tail_starts(times[tail])[:, np.newaxis]
            slots[tail] = (self._tail_cut(from_slot, np.arange(1, self.tail)) <= places[tail][:, np.newaxis]).sum(axis=1)
        return cycles * len(self.cycle) + slots

    def _shuffle(self, times: np.ndarray) -> np.ndarray:
        return keys(keyed(self.seed, FOR_SLOTS), times)

    def _starts(self, times: np.ndarray) -> np.ndarray:
        """[n] int64, where the stream of each time starts: within the first cycle, or the window if that is shorter."""
        first = keyed(self.seed, FOR_STARTS) if self.shuffle else 0
        parts = np.uint64(first) + times.astype(np.uint64) * np.uint64(GOLDEN)  # of a cycle, in 2**-64
        return ((parts >> np.uint64(33)) * np.uint64(min(self.cycle_tokens, self.tokens)) >> np.uint64(31)).astype(np.int64)

    def _tail_starts(self, times: np.ndarray) -> np.ndarray:
        """[n] int64, the slot of the cycle at which the tail of each time begins: each slot in one of n times."""
        rounds, places = np.divmod(times, len(self.cycle))
        return permute(places, len(self.cycle), keys(keyed(self.seed, FOR_TAILS), rounds))

    def _tail_cut(self, from_slot: np.ndarray, chunks: np.ndarray) -> np.ndarray:
        """[n] int64, how many tokens of the tail so many chunks take: each has one token and its part of the others."""

        def others(chunks: int | np.ndarray) -> np.ndarray:
            return self._bounds[from_slot + chunks] - self._bounds[from_slot] - chunks

        return chunks + others(chunks) * (self._remainder - self.tail) // np.maximum(1, others(self.tail))


class Section(NamedTuple):
    """Windows of one size in each epoch: how many, how many of them take turns, and each one's chunks."""

    windows: int
    turns: int
    inner: Window


class Places(NamedTuple):
    """Where examples are, [n] int64 each: their epoch, section, window of it, and number, or slot, in the window."""

    epochs: np.ndarray
    sections: np.ndarray
    windows: np.ndarray
    numbers: np.ndarray


@dataclasses.dataclass(frozen=True)
class Order:
    """The examples of a corpus, epoch after epoch without end: example i is slot `slots(i)` of an epoch, of the tokens `ranges`.

    It is a function of its fields alone, and each call takes the same time for any i and any corpus. Full chunks of denoiser k have
    `lengths[k]` tokens, and the corpus has N, `tokens`; each is at least 1. The seed is of the starts and of the permutations. A
    slot of an epoch is one of its windows: those of the first window come first, then those of the second, and so on. Without
    `shuffle` examples come in the order of the corpus, which begins at token 0 in epoch 0. An order may end where a round does, and
    another one of the same tokens go on; rounds are counted over all epochs.

    >>> from ul2_tasks.order.cycles import nearest_cycle
    >>> order = Order(nearest_cycle([1, 2]), (3, 4), tokens=27, seed=0, shuffle=False)
    >>> order.examples  # two cycles of 4 + 3 + 4 tokens, and a tail of 5 tokens in two shortened chunks
    8
    >>> ranges = order.ranges(*order.slots(np.arange(8)))
    >>> ranges.kinds, ranges.starts, ranges.sizes
    (array([1, 0, 1, 1, 0, 1, 0, 1]), array([ 0,  4,  7, 11, 15, 18, 22, 24]), array([4, 3, 4, 4, 3, 4, 2, 3]))
    """

    cycle: Cycle
    lengths: tuple[int, ...]
    tokens: int
    seed: int
    shuffle: bool = True
    blocks: BlockShuffle | None = None

    def __post_init__(self):
        if len(self.lengths) != len(self.cycle.counts) or min(self.lengths) < 1:
            raise ValueError(f"lengths must be {len(self.cycle.counts)} integers of at least 1, got {self.lengths}.")
        if self.tokens < 1:
            raise ValueError(f"the corpus must have at least 1 token, got {self.tokens}. Without any there is no example.")
        if (size := self.sections[0].inner.cycle_tokens) >= 1 << 31:
            raise ValueError(
                f"weights must give a mixing block of less than 2**31 tokens, got {size}. Pass weights in the ratio of small"
                " integers."
            )

    @property
    def is_one_window(self) -> bool:
        """Whether the whole corpus is shuffled together: without blocks, or with fewer than one for each partition."""
        blocks = self.blocks and self.tokens // self.blocks.block_tokens
        return not blocks or blocks == 1 or blocks < self.blocks.partitions  # type: ignore[union-attr]

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """The sections of an epoch, as the top of this file draws them; those that have a window."""
        if self.blocks is None or self.is_one_window:
            return (Section(1, 1, Window(self.cycle, self.lengths, self.tokens, self.seed, self.shuffle)),)
        size, turns = self.blocks.block_tokens, self.blocks.partitions
        per_partition = self.tokens // size // turns
        rounds, shorter = divmod(per_partition, self.blocks.window_blocks)
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
                Window(self.cycle, self.lengths, tokens, keyed(self.seed, _FOR_WINDOWS, number), self.shuffle),
            )
            for number, (windows, turns, tokens) in enumerate(wanted)
            if windows
        )

    @cached_property
    def _windows(self) -> np.ndarray:
        """[sections, 4] int64, of each the windows, how many take turns, and the examples and tokens of one."""
        return np.array([(each.windows, each.turns, each.inner.examples, each.inner.tokens) for each in self.sections])

    @cached_property
    def _starts(self) -> np.ndarray:
        """[3, sections + 1] int64, where each section begins in an epoch, and where that ends: in examples, tokens, and rounds."""
        windows, turns, examples, tokens = self._windows.T
        return np.pad(np.cumsum([windows * examples, windows * tokens, windows // turns], axis=1), [(0, 0), (1, 0)])

    @property
    def examples(self) -> int:
        """E, how many examples an epoch has."""
        return int(self._starts[0, -1])

    @property
    def rounds(self) -> int:
        """How many rounds an epoch has."""
        return int(self._starts[2, -1])

    def slots(self, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The epoch and the slot of each example.

        Examples are [n] integers from 0, below 2**63. Gives [n] int64, epochs from 0, and [n] int64, slots from 0 to E - 1.
        """
        epochs, numbers = np.divmod(np.asarray(examples, np.int64), self.examples)
        if self.is_one_window:
            return epochs, self.sections[0].inner.slots(epochs, numbers)
        sections = np.searchsorted(self._starts[0], numbers, side="right") - 1
        _, all_turns, sizes, _ = self._windows[sections].T
        rounds, turns = np.divmod(numbers - self._starts[0, sections], all_turns)
        rounds, numbers = np.divmod(rounds, sizes)
        places = Places(epochs, sections, rounds * all_turns + turns, numbers)
        found = np.zeros_like(numbers)
        for _, inner, of, times in self.by_section(places):
            found[of] = inner.slots(times, numbers[of])
        return epochs, self.slots_at(places._replace(numbers=found))

    def examples_at(self, epochs: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """The inverse of `slots`: which example each slot of each epoch is, [n] int64."""
        epochs, slots = np.asarray(epochs, np.int64), np.asarray(slots, np.int64)
        if self.is_one_window:
            return epochs * self.examples + self.sections[0].inner.examples_at(epochs, slots)
        places = self.places(epochs, slots)
        found = np.zeros_like(slots)
        for _, inner, of, times in self.by_section(places):
            found[of] = inner.examples_at(times, places.numbers[of])
        _, all_turns, sizes, _ = self._windows[places.sections].T
        rounds, turns = np.divmod(places.windows, all_turns)
        return epochs * self.examples + self._starts[0, places.sections] + (rounds * sizes + found) * all_turns + turns

    def ranges(self, epochs: np.ndarray, slots: np.ndarray) -> Ranges:
        """Which tokens of the corpus make the example of each slot, under which denoiser. Both arguments are [n] integers."""
        epochs, slots = np.asarray(epochs, np.int64), np.asarray(slots, np.int64)
        if self.is_one_window:
            kinds, starts, stops = self.sections[0].inner.chunks(epochs, slots)
            return Ranges(kinds, stops - starts, *cut_at_the_end(starts, stops, self.tokens))
        places = self.places(epochs, slots)
        kinds, starts, stops = (np.zeros_like(slots) for _ in range(3))
        for _, inner, of, times in self.by_section(places):
            kinds[of], starts[of], stops[of] = inner.chunks(times, places.numbers[of])
        tokens = self._windows[places.sections, 3]
        firsts, sizes = self._starts[1, places.sections] + places.windows * tokens, stops - starts
        # First cut at the end of the window, which a chunk may go round, then at the borders of blocks.
        of, starts, stops = cut_at_the_end(starts, stops, tokens)
        of_block, starts, stops = cut(starts + firsts[of], stops + firsts[of], self._block)
        of = of[of_block]
        blocks, before = np.divmod(starts, self._block)
        starts_there = self._placed(epochs[of], blocks) * self._block + before
        return Ranges(kinds, sizes, of, starts_there, starts_there + stops - starts)

    def slots_with(self, epoch: int, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        """The slots of an epoch whose examples have some of the tokens [start, stop) of the corpus, [n] int64, ascending.

        The ranges are [m] integers each. Raises a ValueError where one is empty, or not of the corpus.
        """
        if ((starts < 0) | (starts >= stops) | (stops > self.tokens)).any():
            raise ValueError(
                f"starts and stops must be non-empty ranges of tokens within 0 to {self.tokens}, got {starts} to {stops}."
            )
        if not self.is_one_window:  # where the blocks are in the stream of the epoch
            _, starts, stops = cut(starts, stops, self._block)
            blocks = starts // self._block
            moved = (self._placed(np.full_like(blocks, epoch), blocks, is_inverse=True) - blocks) * self._block
            starts, stops = starts + moved, stops + moved
        sections = np.searchsorted(self._starts[1], starts, side="right") - 1
        found = [np.zeros([0], np.int64)]
        for number, (windows, _, inner) in enumerate(self.sections):
            of = np.flatnonzero(sections == number)
            numbers, begins = np.divmod(starts[of] - self._starts[1, number], inner.tokens)
            of_range, slots = inner.slots_within(epoch * windows + numbers, begins, begins + stops[of] - starts[of])
            found.append(self._starts[0, number] + numbers[of_range] * inner.examples + slots)
        return np.unique(np.concatenate(found))

    def noise_keys(self, epochs: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """See `noise_keys`."""
        if self.is_one_window:
            return noise_keys(self.seed, epochs, slots)
        places = self.places(epochs, slots)
        found = np.zeros(len(places.numbers), np.uint64)
        for _, inner, of, times in self.by_section(places):
            found[of] = noise_keys(inner.seed, times, places.numbers[of])
        return found

    def round_of(self, example: int) -> int:
        """The round that an example is of."""
        epoch, number = divmod(example, self.examples)
        section = int(np.searchsorted(self._starts[0], number, side="right")) - 1
        _, turns, size, _ = self._windows[section].tolist()
        return epoch * self.rounds + int(self._starts[2, section]) + (number - int(self._starts[0, section])) // (turns * size)

    def first_of(self, round: int) -> int:
        """The first example of a round."""
        epoch, number = divmod(round, self.rounds)
        section = int(np.searchsorted(self._starts[2], number, side="right")) - 1
        _, turns, size, _ = self._windows[section].tolist()
        rounds = number - int(self._starts[2, section])
        return epoch * self.examples + int(self._starts[0, section]) + rounds * turns * size

    @property
    def part(self) -> float:
        """Which part of a round it has: all, but for a `rest.Rest`."""
        return 1.0

    def reaches(self, round: int) -> bool:
        """Whether it has a round, or ends where that begins."""
        return round >= 0

    def places(self, epochs: np.ndarray, slots: np.ndarray) -> Places:
        """Where slots of epochs are. Numbers are the slots of the windows."""
        sections = np.searchsorted(self._starts[0], slots, side="right") - 1
        windows, numbers = np.divmod(slots - self._starts[0, sections], self._windows[sections, 2])
        return Places(np.asarray(epochs, np.int64), sections, windows, numbers)

    def slots_at(self, places: Places) -> np.ndarray:
        """The inverse of `places`: the slots of epochs, [n] int64."""
        if self.is_one_window:
            return places.numbers
        return self._starts[0, places.sections] + places.windows * self._windows[places.sections, 2] + places.numbers

    def by_section(self, places: Places) -> Iterator[tuple[int, Window, np.ndarray, np.ndarray]]:
        """For each section with some places: its number and window, which they are, and their windows, counted over all epochs."""
        for number, section in enumerate(self.sections):
            of = np.flatnonzero(places.sections == number) if len(self.sections) > 1 else np.arange(len(places.sections))
            if len(of):
                yield number, section.inner, of, places.epochs[of] * section.windows + places.windows[of]

    @property
    def _block(self) -> int:
        return self.blocks.block_tokens if self.blocks else self.tokens

    def _placed(self, epochs: np.ndarray, blocks: np.ndarray, is_inverse: bool = False) -> np.ndarray:
        """[n] int64, which block is at each place of the order of an epoch's blocks, or back. The short one keeps its place."""
        whole = self.tokens // self._block
        if not self.shuffle or not len(blocks):
            return blocks
        walk = invert if is_inverse else permute
        found = walk(np.minimum(blocks, whole - 1), whole, keys(keyed(self.seed, _FOR_BLOCKS), epochs))
        return np.where(blocks < whole, found, blocks)

    def windows_of(self, epochs: np.ndarray, slots: np.ndarray) -> list[tuple[int, int, int]]:
        """The windows that have these slots, each once: epoch, section, and which of its windows."""
        return [(*each,) for each in np.unique(np.stack(self.places(epochs, slots)[:3], axis=1), axis=0).tolist()]

    def next_window(self, epoch: int, section: int, window: int) -> tuple[int, int, int]:
        """The window that the partition of a window reads next, or what follows that all partitions read."""
        own, following = self.sections[section], window + self.sections[section].turns
        if following < own.windows:
            return epoch, section, following
        if section + 1 < len(self.sections):
            return epoch, section + 1, window % own.turns % self.sections[section + 1].windows
        return epoch + 1, 0, window % self.sections[0].turns

    def blocks_of(self, epoch: int, section: int, window: int) -> np.ndarray:
        """[blocks] int64, the blocks of a window."""
        tokens = self.sections[section].inner.tokens
        first = int(self._starts[1, section]) + window * tokens
        numbers = np.arange(first // self._block, -(-(first + tokens) // self._block))
        return self._placed(np.full_like(numbers, epoch), numbers)


def noise_keys(seed: int, epochs: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """The key of each example's noise: the same whatever the block, the batch, the row or the host it is drawn in.

    Draw number t of a row, as SplitMix64 has it, is `mix(key + (t + 1) * GOLDEN)`. Epochs and slots are [n] integers, and the keys
    [n] uint64. The last 64 bits of the seed count.

    >>> noise_keys(0, np.array([0, 0, 1]), np.array([0, 1, 0])).tolist()
    [1145214906792232761, 18385035034070138188, 3608400687859252187]
    """
    return keys(keyed(seed, FOR_NOISE), epochs, slots)
