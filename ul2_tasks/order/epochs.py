"""`Order`: which tokens make example i, under which denoiser, and which examples have a token. All of it is arithmetic.

In an epoch each token of the corpus is in exactly one example:

    corpus   0 ............ start ............................................ N
    stream                  | cycle 0 | cycle 1 | .. | cycle A - 1 | tail |        goes on at 0, and ends at start
    slots                   0 ..      n ..                         A n .. E

An epoch's stream is the corpus, read from a start of its own, round its end. A = N // S cycles of S tokens are cut into the slots'
full chunks. What remains is shorter than a cycle. It is not carried into the next epoch: it is cut into shorter chunks, the *tail*,
all shortened in proportion. So each epoch has as many examples as any other, and is whole in itself.

The starts of epochs follow the golden ratio within a cycle. So over the epochs a token comes under each denoiser nearly as often as
that denoiser's share of the tokens says, and not by chance. The tail begins at another slot of the cycle each epoch, at every slot
once in n epochs: a corpus shorter than a cycle, too, is seen under all denoisers.

The corpus is a number of tokens here. Where an EOS stands between documents, it is counted as one of them: the caller knows where.
Denoisers whose chunks overlap have no place in this order.

With `shuffle` example i is slot p(i) of its epoch, where p is a keyed permutation, another one each epoch. Nothing here knows of
hosts or batches: who reads every h-th example, reads i = h, h + H, ..
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.order.cycles import Cycle
from ul2_tasks.order.permutation import GOLDEN, invert, keyed, keys, permute

FOR_STARTS, FOR_TAILS, FOR_SLOTS, FOR_NOISE, FOR_ROWS, FOR_CONTENTS = range(6)  # what a key is for


class Chunks(NamedTuple):
    """Where the chunks of n examples lie in the corpus, [n] int64 each: each one's denoiser, and its tokens [start, stop).

    Starts are from 0 to N - 1. A chunk whose stop is above N goes round the end of the corpus: it has [start, N), then [0, stop -
    N).
    """

    kinds: np.ndarray
    starts: np.ndarray
    stops: np.ndarray


class Ranges(NamedTuple):
    """Which tokens of the corpus make n examples: of each its denoiser and its length, [n] int64; and m ranges of tokens.

    Range r is of example `of[r]`, ascending, and has the tokens [starts[r], stops[r]) of the corpus, [m] int64 each.
    """

    kinds: np.ndarray
    sizes: np.ndarray
    of: np.ndarray
    starts: np.ndarray
    stops: np.ndarray


class Switch(NamedTuple):
    """Where an order may end, and another one with the same tokens go on: before a round of an epoch, at this element."""

    epoch: int
    round: int
    element: int


@dataclasses.dataclass(frozen=True)
class Order:
    """The examples of a corpus, epoch after epoch without end: example i is slot `slots(i)` of an epoch, of the tokens `chunks`.

    It is a function of its fields alone, and each call takes the same time for any i and any corpus. Full chunks of denoiser k have
    `lengths[k]` tokens, and the corpus has N, `tokens`; each is at least 1. The seed is of the starts and of the permutations.
    Without `shuffle` examples come in the order of the corpus, which begins at token 0 in epoch 0.

    >>> from ul2_tasks.order.cycles import nearest_cycle
    >>> order = Order(nearest_cycle([1, 2]), (3, 4), tokens=27, seed=0, shuffle=False)
    >>> order.examples  # two cycles of 4 + 3 + 4 tokens, and a tail of 5 tokens in two shortened chunks
    8
    >>> kinds, starts, stops = order.chunks(*order.slots(np.arange(8)))
    >>> kinds, starts, stops - starts
    (array([1, 0, 1, 1, 0, 1, 0, 1]), array([ 0,  4,  7, 11, 15, 18, 22, 24]), array([4, 3, 4, 4, 3, 4, 2, 3]))
    """

    cycle: Cycle
    lengths: tuple[int, ...]
    tokens: int
    seed: int
    shuffle: bool = True

    def __post_init__(self):
        if len(self.lengths) != len(self.cycle.counts) or min(self.lengths) < 1:
            raise ValueError(f"lengths must be {len(self.cycle.counts)} integers of at least 1, got {self.lengths}.")
        if self.cycle_tokens >= 1 << 31:
            raise ValueError(
                f"weights must give a mixing block of less than 2**31 tokens, got {self.cycle_tokens}. Pass weights in the ratio"
                " of small integers."
            )
        if self.tokens < 1:
            raise ValueError(f"the corpus must have at least 1 token, got {self.tokens}. Without any there is no example.")

    @cached_property
    def cycle_tokens(self) -> int:
        """S, how many tokens a full cycle has."""
        return sum(count * length for count, length in zip(self.cycle.counts, self.lengths))

    @property
    def cycles(self) -> int:
        """A, how many full cycles an epoch has."""
        return self.tokens // self.cycle_tokens

    @cached_property
    def tail(self) -> int:
        """How many examples of an epoch are shortened: so many that from any slot on their full chunks would hold the remainder."""
        firsts = np.arange(len(self.cycle))
        return int((np.searchsorted(self._bounds, self._bounds[firsts] + self._remainder) - firsts).max())

    @cached_property
    def examples(self) -> int:
        """E, how many examples an epoch has."""
        return self.cycles * len(self.cycle) + self.tail

    @property
    def _remainder(self) -> int:
        return self.tokens % self.cycle_tokens

    @cached_property
    def _bounds(self) -> np.ndarray:
        """[2 n + 1] int64, where the slots of two cycles begin and end."""
        return np.concatenate([[0], np.cumsum(np.tile(np.asarray(self.lengths)[self.cycle.kinds], 2))])

    def slots(self, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The epoch and the slot of each example.

        Examples are [n] integers from 0, below 2**63. Gives [n] int64, epochs from 0, and [n] int64, slots from 0 to E - 1.
        """
        epochs, slots = np.divmod(np.asarray(examples, np.int64), self.examples)
        return epochs, permute(slots, self.examples, self._shuffle(epochs)) if self.shuffle else slots

    def examples_at(self, epochs: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """The inverse of `slots`: which example each slot of each epoch is, [n] int64."""
        epochs, slots = np.asarray(epochs, np.int64), np.asarray(slots, np.int64)
        return epochs * self.examples + (invert(slots, self.examples, self._shuffle(epochs)) if self.shuffle else slots)

    def chunks(self, epochs: np.ndarray, slots: np.ndarray) -> Chunks:
        """Which tokens of the corpus make the example of each slot, under which denoiser. Both arguments are [n] integers."""
        epochs, slots = np.asarray(epochs, np.int64), np.asarray(slots, np.int64)
        cycles, slots = np.divmod(slots, len(self.cycle))
        first, last = self._bounds[slots], self._bounds[slots + 1]
        kinds = self.cycle.kinds[slots]
        tail = np.nonzero(cycles == self.cycles)
        if len(tail[0]):
            from_slot = self._tail_starts(epochs[tail])
            kinds[tail] = self.cycle.kinds[(from_slot + slots[tail]) % len(self.cycle)]
            first[tail], last[tail] = (self._tail_cut(from_slot, slots[tail] + more) for more in (0, 1))
        starts = (cycles * self.cycle_tokens + first + self.starts(epochs)) % self.tokens
        return Chunks(kinds, starts, starts + last - first)

    def ranges(self, epochs: np.ndarray, slots: np.ndarray) -> Ranges:
        """The same as ranges of the corpus, of which a chunk that goes round its end has two."""
        kinds, starts, stops = self.chunks(epochs, slots)
        return Ranges(kinds, stops - starts, *cut_at_the_end(starts, stops, self.tokens))

    def slots_with(self, epoch: int, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        """The slots of an epoch whose examples have some of the tokens [start, stop) of the corpus, [n] int64, ascending.

        The ranges are [m] integers each, and none is empty.
        """
        if ((starts < 0) | (starts >= stops) | (stops > self.tokens)).any():
            raise ValueError(
                f"starts and stops must be non-empty ranges of tokens within 0 to {self.tokens}, got {starts} to {stops}."
            )
        return np.unique(self.slots_within(np.full(len(starts), epoch), starts, stops)[1])

    def slots_within(self, epochs: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The slots that have some tokens of ranges of epochs, all [m] int64: of which range each is, and it, [n] int64 both."""
        begins = self.starts(epochs)
        is_round = (starts < begins) & (begins < stops)  # first at the end of the epoch, then at its beginning
        which = np.append(np.arange(len(starts)), np.flatnonzero(is_round))
        starts, stops = np.append(starts, begins[is_round]), np.append(np.where(is_round, begins, stops), stops[is_round])
        firsts, lasts = self.slots_of(epochs[which], starts), self.slots_of(epochs[which], stops - 1)
        return expanded(which, firsts, lasts + 1)

    def slots_of(self, epochs: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """The slot of each epoch whose example has the token, [n] int64, for [n] integers from 0 to N - 1."""
        epochs = np.asarray(epochs, np.int64)
        cycles, places = np.divmod((np.asarray(tokens, np.int64) - self.starts(epochs)) % self.tokens, self.cycle_tokens)
        slots = np.searchsorted(self._bounds[: len(self.cycle)], places, side="right") - 1
        tail = np.nonzero(cycles == self.cycles)
        if len(tail[0]):
            from_slot = self._tail_starts(epochs[tail])[:, np.newaxis]
            slots[tail] = (self._tail_cut(from_slot, np.arange(1, self.tail)) <= places[tail][:, np.newaxis]).sum(axis=1)
        return cycles * len(self.cycle) + slots

    def switch(self, example: int) -> Switch:
        """The first example from this one on before which all tokens of the epoch, or of its rounds so far, were read."""
        epoch = -(-example // self.examples)
        return Switch(epoch, 0, epoch * self.examples)

    def begun(self, example: int) -> Switch:
        """The round that an example is of."""
        epoch = example // self.examples
        return Switch(epoch, 0, epoch * self.examples)

    def tokens_of(self, rounds: int) -> int:
        """How many tokens the first rounds of an epoch have."""
        return rounds * self.tokens

    def first_of(self, epoch: int, number: int) -> int:
        """The first example of a round of an epoch; here an epoch is one round."""
        return epoch * self.examples

    def noise_keys(self, epochs: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """See `noise_keys`."""
        return noise_keys(self.seed, epochs, slots)

    def _shuffle(self, epochs: np.ndarray) -> np.ndarray:
        return keys(keyed(self.seed, FOR_SLOTS), epochs)

    def starts(self, epochs: np.ndarray) -> np.ndarray:
        """[n] int64, the token at which each epoch's stream starts: within the first cycle, or the corpus if that is shorter."""
        first = keyed(self.seed, FOR_STARTS) if self.shuffle else 0
        parts = np.uint64(first) + epochs.astype(np.uint64) * np.uint64(GOLDEN)  # of a cycle, in 2**-64
        return ((parts >> np.uint64(33)) * np.uint64(min(self.cycle_tokens, self.tokens)) >> np.uint64(31)).astype(np.int64)

    def _tail_starts(self, epochs: np.ndarray) -> np.ndarray:
        """[n] int64, the slot of the cycle at which each epoch's tail begins: each slot in one of n epochs."""
        rounds, places = np.divmod(epochs, len(self.cycle))
        return permute(places, len(self.cycle), keys(keyed(self.seed, FOR_TAILS), rounds))

    def _tail_cut(self, from_slot: np.ndarray, chunks: np.ndarray) -> np.ndarray:
        """[n] int64, how many tokens of the tail so many chunks take: each has one token and its part of the others."""

        def others(chunks: int | np.ndarray) -> np.ndarray:
            return self._bounds[from_slot + chunks] - self._bounds[from_slot] - chunks

        return chunks + others(chunks) * (self._remainder - self.tail) // np.maximum(1, others(self.tail))


def expanded(which: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The integers of ranges, see `integers_of`, and of each what `which` says of its range, before them.

    >>> [column.tolist() for column in expanded(np.array([7, 9]), np.array([3, 8]), np.array([5, 11]))]
    [[7, 7, 9, 9, 9], [3, 4, 8, 9, 10]]
    """
    return np.repeat(which, stops - starts), integers_of(starts, stops)


def integers_of(starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """The integers of ranges [start, stop), [n] int64, one range after the other.

    >>> integers_of(np.array([5, 1]), np.array([7, 4])).tolist()
    [5, 6, 1, 2, 3]
    """
    counts = np.asarray(stops, np.int64) - starts
    return np.arange(counts.sum()) + np.repeat(starts - np.cumsum(counts) + counts, counts)


def cut_at_the_end(starts: np.ndarray, stops: np.ndarray, end: int | np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cuts ranges in two that go round the end of a stream, of all or [n] of each, and on at 0.

    Gives of which range each part is, ascending, and its start and stop, [parts] int64 each.

    >>> [column.tolist() for column in cut_at_the_end(np.array([3, 8]), np.array([5, 12]), 10)]
    [[0, 1, 1], [3, 8, 0], [5, 10, 2]]
    """
    rounds = np.flatnonzero(stops > end)
    if not len(rounds):
        return np.arange(len(starts)), starts, stops
    rests = np.insert(np.minimum(stops, end), rounds + 1, (stops - end)[rounds])
    return np.insert(np.arange(len(starts)), rounds + 1, rounds), np.insert(starts, rounds + 1, 0), rests


def cut_at(starts: np.ndarray, stops: np.ndarray, borders: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cuts ranges at borders, [n] int64, ascending, of which none is there twice; for what it gives see `cut_at_the_end`.

    >>> [column.tolist() for column in cut_at(np.array([3, 8]), np.array([5, 12]), np.array([4, 8, 9]))]
    [[0, 0, 1, 1], [3, 4, 8, 9], [4, 5, 9, 12]]
    """
    first, last = np.searchsorted(borders, starts, side="right"), np.searchsorted(borders, stops)
    of, at = expanded(np.arange(len(starts)), first, last + 1)
    ends = np.append(borders, 0)
    return of, np.where(at == first[of], starts[of], ends[at - 1]), np.where(at == last[of], stops[of], ends[at])


def noise_keys(seed: int, epochs: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """The key of each example's noise: the same whatever the block, the batch, the row or the host it is drawn in.

    Draw number t of a row, as SplitMix64 has it, is `mix(key + (t + 1) * GOLDEN)`. Epochs and slots are [n] integers, and the keys
    [n] uint64. The last 64 bits of the seed count.

    >>> noise_keys(0, np.array([0, 0, 1]), np.array([0, 1, 0])).tolist()
    [1145214906792232761, 18385035034070138188, 3608400687859252187]
    """
    return keys(keyed(seed, FOR_NOISE), epochs, slots)
