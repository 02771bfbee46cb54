"""`OrderedCorpus`: a corpus, those who read it, and the order in which they do, whatever kind of data it is."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.denoisers.diffusion import spread
from ul2_tasks.example_features import RATE, token_features
from ul2_tasks.files.kept_counts import KeptCounts, beside
from ul2_tasks.order.cycles import Cycle, nearest_cycle
from ul2_tasks.order.order import Order
from ul2_tasks.order.rest import Rest
from ul2_tasks.order.rows import Rows, rows_in_words
from ul2_tasks.random_access.kinds import Task, blocks_of
from ul2_tasks.random_access.records import MadeRecords, Records
from ul2_tasks.random_access.text import MadeText, Text
from ul2_tasks.store.block_cache import BlockCache, is_remote
from ul2_tasks.store.read import TokenStore

Kind: TypeAlias = Text | Records
Made: TypeAlias = MadeText | MadeRecords
_logger = logging.getLogger(__name__)
_MOST_WINDOWS = 1 << 14  # that are remembered
_AT_ONCE = 1 << 16  # examples
TOLERATED = 0.01  # the relative error of a share of which nothing is said


def fetch_windows(
    caches: Iterable[BlockCache], order: Order, begun: set[tuple[int, int, int]], epochs: np.ndarray, slots: np.ndarray
) -> None:
    """Fetches the blocks of the windows of these slots that are not `begun`, and of those that come next. Then they are `begun`."""
    new = [] if order.is_one_window else [window for window in order.windows_of(epochs, slots) if window not in begun]
    if not new:
        return
    if len(begun) > _MOST_WINDOWS:
        begun.clear()
    begun.update(new)
    both = new, map(order.next_window, *zip(*new))
    now, later = (np.concatenate([order.blocks_of(*window) for window in windows]).tolist() for windows in both)
    for cache in caches:
        cache.prefetch(now, later)


@dataclasses.dataclass(frozen=True)
class OrderedCorpus:
    """A corpus with the tasks that read it. The kinds of `order` are the numbers of the members.

    `data` is what is in order, and `kind` what is read: the same, but for documents that are left out. `lengths` are those of the
    rows that its stages have, if they have some of their own.
    """

    name: str
    members: tuple[Task, ...]
    order: Order
    data: Kind
    kind: Kind
    lengths: Mapping[str, int | None] | None = None

    @property
    def store(self) -> TokenStore:
        """The tokens of all documents."""
        return self.data.store

    @cached_property
    def epoch_tokens(self) -> int:
        """How many tokens the examples of an epoch have: of text those that they are made of, of records all, in the first."""
        if self.data.index is None:
            return self.store.tokens
        parts = (np.arange(first, min(first + _AT_ONCE, self.order.examples)) for first in range(0, self.order.examples, _AT_ONCE))
        return sum(int(self.lengths_of(np.zeros_like(slots), slots).sum()) for slots in parts)

    def packed(self, budgets: Mapping[str, int | None]) -> Rows:
        """Which examples share which rows of these lengths."""
        if any(member.has_images for member in self.members):
            raise ValueError(
                f"pack must be False for {self.name!r}, whose examples have images, got True: no model takes a mask for several of"
                " them in a row. Set pack=False."
            )
        rows = row_lengths(self.lengths or budgets, token_features(self.members[0].features))
        if (fixed := self.data.fixed_sizes) is not None:
            return Rows(self.order, rows, fixed)
        words = None if isinstance(self.order, Rest) else self.data.size_words
        return Rows(self.order, rows, lengths=self, kept=None if words is None else kept_rows(self.store, self.order, rows, words))

    def without(self, documents: np.ndarray) -> OrderedCorpus:
        """The same, but for the tokens of documents, [n] int64, ascending."""
        return dataclasses.replace(self, kind=self.data.without(documents) if len(documents) else self.data)

    def lengths_of(self, epochs: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """See `rows.ExampleLengths`."""
        return self.data.sizes(self.order.ranges(epochs, slots), self.order.noise_keys(epochs, slots))

    def read(self, epochs: np.ndarray, slots: np.ndarray, indices: np.ndarray, texts: np.ndarray) -> tuple[np.ndarray, Made]:
        """The members of the examples of slots, [n] int64, and these. Blocks of windows that come next are fetched ahead.

        `indices` are of their elements in this order, and `texts` which text of its element each is, [n] int64.
        """
        ranges, keys = self.order.ranges(epochs, slots), self.order.noise_keys(epochs, slots)
        has_rates = [RATE in member.features for member in self.members]
        if any(has_rates):
            keys = np.where(np.array(has_rates)[ranges.kinds], spread(keys, indices, texts, self.order.seed), keys)
        made = self.kind.read(ranges, keys)
        if caches := self.kind.caches:
            fetch_windows(caches, self.order, self._begun, epochs, slots)
        return ranges.kinds, made

    @cached_property
    def _begun(self) -> set[tuple[int, int, int]]:
        """The windows whose blocks were asked for."""
        return set()

    def slots_with(self, epoch: int, document: int) -> np.ndarray:
        """The slots of an epoch whose examples have tokens of a document, [n] int64, ascending. An IndexError without it."""
        return self.order.slots_with(epoch, *self.kind.units_with(document))


def row_lengths(budgets: Mapping[str, int | None], features: Iterable[str]) -> tuple[int, ...]:
    """The lengths of packed sequences. Raises a ValueError where one is left open."""
    given = {key: budgets.get(key) for key in features}
    found = [int(length) for length in given.values() if length is not None]
    if len(found) < len(given):
        raise ValueError(f"sequence_length must have lengths of packed sequences, got {given}. Give them in tokens.")
    return tuple(found)


def kept_rows(store: TokenStore, order: Order, rows: tuple[int, ...], lengths: Iterable[object]) -> KeptCounts | None:
    """What keeps how many rows the windows of a corpus have, beside the files of its tokens; None where these are in memory.

    `lengths` are all that decides how long each example is, with words that are the same in any process.
    """
    while not hasattr(store, "prefixes") and hasattr(store, "store"):
        store = store.store
    prefixes = getattr(store, "prefixes", ())
    told = "; ".join([rows_in_words(order, rows), *(_told(each) for each in lengths)])
    return KeptCounts(beside(prefixes[0]), told) if prefixes else None


def _told(value: object) -> str:
    """A value in words, with hashes for arrays, of which NumPy shows only the ends."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    return f"({', '.join(map(_told, value))})" if isinstance(value, list | tuple) else repr(value)


def order_corpus(
    members: Sequence[Task], kind: Kind, seed: int, shuffle: bool, lengths: Mapping[str, int | None] | None = None
) -> OrderedCorpus:
    """Puts the units of a corpus in order. The seed is of the order and of the noise."""
    name, cycle = members[0].corpus.name, cycle_of({member.task: member.rate for member in members})
    blocks = blocks_of(members[0].block_shuffle, kind.count, kind.store.tokens)
    order = Order(cycle, kind.lengths, kind.count, seed, shuffle, blocks)
    check_windows(name, order, kind.unit)
    if shuffle and blocks is None and is_remote(kind.store):
        _warn_of_requests(name, round(1e6 * kind.count / kind.store.tokens / np.mean(kind.lengths)))
    return OrderedCorpus(name, tuple(members), order, kind, kind, lengths)


def check_windows(name: str, order: Order, what: str) -> None:
    """Warns of windows that are shorter than a mixing block."""
    if not order.is_one_window and not (first := order.sections[0].inner).cycles:
        _logger.warning(
            "block_shuffle of %r must have windows of at least %d %s, which is a mixing block of its denoisers, got %d, so its"
            " examples are shortened. Raise block_tokens or window_blocks.",
            name,
            first.cycle_tokens,
            what,
            first.tokens,
        )


@functools.cache
def _warn_of_requests(name: str, requests: int) -> None:
    _logger.warning(
        "%r is not on this machine, and shuffled as a whole: up to %d requests for 10^6 tokens. Pass"
        " block_shuffle=ul2_tasks.BlockShuffle(), with which it is read in blocks. See docs/guides/operate.md#block-shuffle.",
        name,
        requests,
    )


def cycle_of(rates: Mapping[str, float]) -> Cycle:
    """The nearest cycle of tasks, by their names. Warns where a share is far from what was asked for."""
    cycle = nearest_cycle(list(rates.values()))
    if cycle.error > TOLERATED:
        counts = dict(zip(rates, cycle.counts))
        _logger.warning(
            "the rates %s are mixed as %s, so a fraction differs by up to %.0f %% from its rate", rates, counts, 100 * cycle.error
        )
    return cycle
