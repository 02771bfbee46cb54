"""`OrderedCorpus`: a corpus of tokens, the denoisers that read it, and the order in which they do."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from absl import logging

from ul2_tasks.cached import cached_property
from ul2_tasks.compiled import compiled
from ul2_tasks.denoising.solution import DenoisingConfiguration, Solution
from ul2_tasks.denoising.write import example_sizes, recipe_of
from ul2_tasks.example_features import EXAMPLE
from ul2_tasks.files.kept_counts import KeptCounts, beside
from ul2_tasks.order.cycles import Cycle, nearest_cycle
from ul2_tasks.order.order import BlockShuffle, Order
from ul2_tasks.order.ranges import Ranges
from ul2_tasks.order.rows import Rows, rows_in_words
from ul2_tasks.random_access.leaving_out import Overlay
from ul2_tasks.random_access.pieces import Pieces
from ul2_tasks.store.block_cache import BlockCache, Blocks, is_remote
from ul2_tasks.store.read import Store, TokenStore
from ul2_tasks.vocabulary.special_ids import id_shift

if TYPE_CHECKING:
    import seqio

    from ul2_tasks.corpus.corpus import Corpus

_MOST_WINDOWS = 1 << 14  # that are remembered
TOLERATED = 0.01  # the relative error of a share of which nothing is said


@dataclasses.dataclass(frozen=True)
class Member:
    """A denoising task of a mixture. `corpus` is its name alone, a `CorpusName`, where the task was pickled for another process."""

    task: str
    corpus: Corpus
    rate: float
    solution: Solution

    @property
    def denoiser(self) -> str:
        return self.solution.configuration.denoiser.name

    @property
    def vocabulary(self) -> seqio.Vocabulary:
        return self.solution.vocabulary

    def __reduce__(self) -> tuple:
        """For another process, in which nothing need be registered. The name of the corpus is all that is asked of it there."""
        return Member, (self.task, CorpusName(self.corpus.name), self.rate, self.solution)


class TokensAt(NamedTuple):
    """What an example has: the number of its member, ranges of tokens, and of each range the documents [first, stop) that it has
    tokens of. Where some are read in place of documents that are left out, `replaces` are the documents of its own place."""

    kind: int
    tokens: tuple[tuple[int, int], ...]
    documents: tuple[tuple[int, int], ...]
    replaces: tuple[tuple[int, int], ...] = ()


def has_units(starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ranges that are not empty."""
    return starts[starts < stops], stops[starts < stops]


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


class CorpusName(NamedTuple):
    """What is left of a corpus in another process. Its tokens are a store beside it."""

    name: str


@dataclasses.dataclass(frozen=True)
class OrderedCorpus:
    """A corpus with the tasks that read it. The kinds of `order` are the numbers of the members.

    What is in order is the tokens of the corpus; where documents are kept apart it is their `pieces`, each of which is a chunk.
    `overlay` is what is read where documents are left out.
    """

    name: str
    store: TokenStore
    members: tuple[Member, ...]
    order: Order
    pieces: Pieces | None = None
    overlay: Overlay | None = None

    @property
    def lengths_are_fixed(self) -> bool:
        """Whether all examples of full chunks of one denoiser have the same lengths; it is so unless these are drawn."""
        chunks = ((member.solution.configuration.denoiser, member.solution.full.length) for member in self.members)
        return all(len(set(denoiser.noise_range(length))) == 1 for denoiser, length in chunks)

    def packed(self, budgets: Mapping[str, int | None]) -> Rows:
        """Which examples share which rows of these lengths."""
        rows = row_lengths(budgets, EXAMPLE)
        if self.pieces or not self.lengths_are_fixed:
            recipes = [recipe_of(member.solution) for member in self.members]
            texts = (self.pieces.most, self.pieces.lengths_hash) if self.pieces else ()
            return Rows(self.order, rows, lengths=self, kept=kept_rows(self.store, self.order, rows, [texts, recipes]))
        return Rows(self.order, rows, tuple((each.solution.full.inputs, each.solution.full.targets) for each in self.members))

    def without(self, documents: np.ndarray) -> OrderedCorpus:
        """The same, but for the tokens of documents, [n] int64, ascending."""
        return dataclasses.replace(self, overlay=Overlay(self.name, self.store, documents) if len(documents) else None)

    def ranges(self, epochs: np.ndarray, slots: np.ndarray) -> Ranges:
        """Which tokens make the chunk of each slot, [n] integers both; others are read where documents are left out."""
        found = self.order.ranges(epochs, slots)
        if self.pieces is None:
            return found
        starts, stops = self.pieces.tokens_of(found.starts)
        return found._replace(sizes=stops - starts, starts=starts, stops=stops)

    def tokens_at(self, epoch: int, slot: int) -> TokensAt:
        """What an example has."""
        found = self.ranges(np.array([epoch]), np.array([slot]))
        own = [*zip(found.starts.tolist(), found.stops.tolist())]
        ranges, is_other = own, False
        if self.overlay:
            _, starts, stops, are_others = self.overlay.places(found.starts, found.stops)
            ranges, is_other = [*zip(starts.tolist(), stops.tolist())], bool(are_others.any())
        of_ranges, replaces = (tuple(self.store.documents_at(*each) for each in of) for of in (ranges, own if is_other else []))
        return TokensAt(int(found.kinds[0]), tuple(ranges), of_ranges, replaces)

    def slots_with(self, epoch: int, document: int) -> np.ndarray:
        """The slots of an epoch whose examples have tokens of a document, [n] int64, ascending. An IndexError without it."""
        self.store.tokens_of(document)  # which raises it
        if self.overlay is None:
            return self.order.slots_with(epoch, *has_units(*self.units_of(np.array([document]))))
        starts, stops = self.overlay.ranges_with(document)
        if self.pieces:
            starts, stops = self.pieces.with_tokens(starts, stops)
        return self.order.slots_with(epoch, starts, stops)

    def units_of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What documents, [n] int64, are in the order: their tokens, or their pieces, [start, stop) of each, [n] int64 both."""
        return self.pieces.of_documents(documents) if self.pieces else self.store.ranges_of(documents)

    def lengths_of(self, epochs: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """See `rows.ExampleLengths`."""
        ranges, recipes = self.ranges(epochs, slots), [recipe_of(member.solution) for member in self.members]
        are_drawn = any(recipe.is_drawn for recipe in recipes)
        keys = self.order.noise_keys(epochs, slots) if are_drawn else np.zeros(len(epochs), np.uint64)
        found = np.zeros([len(keys), len(EXAMPLE)], np.int64)
        for number, recipe in enumerate(recipes):
            of = np.flatnonzero(ranges.kinds == number)
            found[of] = example_sizes(recipe, ranges.sizes[of].astype(np.int32), np.arange(len(of) + 1), keys[of])
        return found

    def read(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        """The tokens of ranges as ids of the vocabulary, one range's after the other's.

        `starts` and `stops` are [n] int64 each, as in `ranges.Ranges`. A token that is no text raises a ValueError.
        """
        tokens = (self.overlay or self.store).read_chunks(starts, stops)
        if shift := id_shift(self._vocabulary):
            tokens += np.int32(shift)
        self._check(tokens, shift)
        return tokens

    def fetch_ahead(self, epochs: np.ndarray, slots: np.ndarray) -> None:
        """Has the blocks of new windows among these fetched, and then those of the windows that come next."""
        if isinstance(self.store, BlockCache):
            fetch_windows([self.store], self.order, self._begun, epochs, slots)

    @cached_property
    def _begun(self) -> set[tuple[int, int, int]]:
        """The windows whose blocks were asked for."""
        return set()

    @property
    def _vocabulary(self):
        return self.members[0].solution.vocabulary

    @cached_property
    def _is_text(self) -> np.ndarray:
        """[ids + 1] bool. What is beyond the vocabulary is no text."""
        is_text = np.append(np.ones(self._vocabulary.vocab_size, bool), False)
        for member in self.members:
            is_text[list(member.solution.special.reserved)] = False
        return is_text

    def _check(self, tokens: np.ndarray, shift: int) -> None:
        if _are_all(self._is_text, tokens):
            return
        found, ids = np.unique(tokens), len(self._is_text) - 1
        wrong = found[(found < 0) | (found >= ids) | ~self._is_text[np.clip(found, 0, ids - 1)]]
        raise ValueError(
            f"{self.name!r} must have ids of text alone, got {_some(wrong - shift)}, which are padding, sentinels, modes, or"
            " beyond the vocabulary. Register it with the vocabulary that tokenized it."
        )


def _some(ids: np.ndarray) -> str:
    """The first of some ids, and how many there are besides."""
    return f"{ids[:8].tolist()}" + (f" and {len(ids) - 8:,} more" if len(ids) > 8 else "")


@compiled
def _are_all(members, ids):
    """Whether `members`, [n + 1] bool, has True for each id, [m] int32; it has False at its end, for ids that are not below n."""
    has_all, beyond = True, np.uint32(len(members) - 1)
    for id in ids:
        has_all &= members[min(np.uint32(id), beyond)]  # negative ones are large
    return has_all


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
    members: Sequence[Member], store: TokenStore, seed: int, shuffle: bool, pieces: Pieces | None = None
) -> OrderedCorpus:
    """Puts the chunks of a corpus in order, or the `pieces` of its documents. The seed is of the order and of the noise."""
    if not store.tokens:
        raise ValueError(f"{members[0].corpus.name!r} has no token in this split. Look at it with `ul2 doctor`.")
    blocks = members[0].solution.configuration.block_shuffle
    lengths, count, name = tuple(member.solution.full.length for member in members), store.tokens, members[0].corpus.name
    if pieces:
        lengths, count, blocks = (1,) * len(members), pieces.count, blocks_of(blocks, pieces.count, store.tokens)
    cycle = cycle_of({member.task: member.rate for member in members})
    order = Order(cycle, lengths, count, seed, shuffle, blocks)
    check_windows(name, order, "pieces" if pieces else "tokens")
    return OrderedCorpus(name, store, tuple(members), order, pieces)


def blocks_of(blocks: BlockShuffle | None, count: int, tokens: int) -> BlockShuffle | None:
    """The same blocks, counted in pieces or examples of which so many have so many tokens: as many as a block has on average."""
    return blocks and dataclasses.replace(blocks, block_tokens=max(1, round(blocks.block_tokens * count / tokens)))


def in_blocks(store: TokenStore, blocks: BlockShuffle | None, pieces: Pieces | None) -> TokenStore:
    """A store, which is read in the blocks of the order where there are some and it is remote."""
    if not blocks or not is_remote(store) or not isinstance(store, Store):
        return store
    if pieces is None:
        return BlockCache(store, blocks.block_tokens)
    size = blocks_of(blocks, pieces.count, store.tokens).block_tokens  # type: ignore[union-attr]
    starts, _ = pieces.tokens_of(np.arange(0, pieces.count, size))
    stops = np.append(starts[1:], store.tokens)
    return BlockCache(store, Blocks(starts, stops))


def check_windows(name: str, order: Order, what: str) -> None:
    """Warns of windows that are shorter than a mixing block."""
    if not order.is_one_window and not (first := order.sections[0].inner).cycles:
        logging.warning(
            "block_shuffle of %r must have windows of at least %d %s, which is a mixing block of its denoisers, got %d, so its"
            " examples are shortened. Raise block_tokens or window_blocks.",
            name,
            first.cycle_tokens,
            what,
            first.tokens,
        )


def cycle_of(rates: Mapping[str, float]) -> Cycle:
    """The nearest cycle of tasks, by their names. Warns where a share is far from what was asked for."""
    cycle = nearest_cycle(list(rates.values()))
    if cycle.error > TOLERATED:
        counts = dict(zip(rates, cycle.counts))
        logging.warning(
            "the rates %s are mixed as %s, so a fraction differs by up to %.0f %% from its rate", rates, counts, 100 * cycle.error
        )
    return cycle


def why_a_stream(configuration: DenoisingConfiguration, vocabulary: seqio.Vocabulary) -> str | None:
    """Why a task is read as a stream; None where its examples have random access."""
    if not configuration.merge_examples and not configuration.random_access:
        return "documents are kept apart (merge_examples=False) without random_access=True"
    return why_no_index(configuration, vocabulary)


def why_no_index(configuration: DenoisingConfiguration, vocabulary: seqio.Vocabulary) -> str | None:
    """Why the chunks of a task have no fixed places; None where they have."""
    lacks_eos = configuration.separate_documents and vocabulary.eos_id is None
    return "an EOS goes between documents, and the vocabulary has none" if lacks_eos else None
