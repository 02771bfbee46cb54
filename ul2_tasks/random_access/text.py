"""`Text`: documents of tokens that are joined, of which chunks are denoised; and `Apart`, the same of pieces of each document."""

from __future__ import annotations

import dataclasses
import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.compiled import compiled
from ul2_tasks.denoisers.solution import DenoisingConfiguration, Solution
from ul2_tasks.denoisers.write import recipe
from ul2_tasks.example_features import EXAMPLE, TOKEN_FEATURES, Feature
from ul2_tasks.order.order import BlockShuffle
from ul2_tasks.order.ranges import Ranges
from ul2_tasks.random_access.kinds import CorpusName, Origin, described_blocks, mark_text
from ul2_tasks.random_access.leaving_out import Overlay
from ul2_tasks.random_access.pieces import Pieces, cut_documents
from ul2_tasks.store.block_cache import BlockCache, Blocks, is_remote
from ul2_tasks.store.columns import Columns
from ul2_tasks.store.read import Store, TokenStore
from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.special_ids import TextIds

if TYPE_CHECKING:
    from ul2_tasks.corpus.corpus import Corpus

_AT_A_TIME = 1 << 22  # tokens


@dataclasses.dataclass(frozen=True)
class Member:
    """A denoising task of text, see `kinds.Task`."""

    task: str
    corpus: Corpus
    rate: float
    solution: Solution

    has_images = False

    @property
    def separate_documents(self) -> bool:
        return self.solution.configuration.separate_documents

    @property
    def denoiser(self) -> str:
        return self.solution.configuration.denoiser.name

    @property
    def vocabulary(self) -> Vocabulary:
        return self.solution.vocabulary

    @property
    def features(self) -> Mapping[str, Feature]:
        return EXAMPLE

    @property
    def longest(self) -> dict[str, int]:
        return {key: getattr(self.solution.full, key) for key in EXAMPLE}

    @property
    def described(self) -> Mapping[str, object]:
        return described(self.solution.configuration, self.vocabulary)

    @property
    def block_shuffle(self) -> BlockShuffle | None:
        return self.solution.configuration.block_shuffle

    def kind(self, readers: Sequence[Member], columns: Columns) -> Text:
        """See `kinds.Task.kind`. Raises a ValueError where readers divide the corpus in other ways."""
        for other in readers:
            for argument in ("merge_examples", "separate_documents", "block_shuffle"):
                values = [getattr(each.solution.configuration, argument) for each in (self, other)]
                if values[0] != values[1]:
                    raise ValueError(
                        f"{argument} must be the same for all tasks of {self.corpus.name!r}, got {values[0]} for {self.task!r} and"
                        f" {values[1]} for {other.task!r}. Register them with the same one."
                    )
        configuration, blocks = self.solution.configuration, self.block_shuffle
        store: TokenStore = columns.tokens
        has_blocks, solutions = blocks is not None and is_remote(store) and isinstance(store, Store), _solutions(readers)
        if configuration.merge_examples:
            in_blocks = BlockCache(store, blocks.block_tokens) if has_blocks else store  # type: ignore[union-attr, arg-type]
            return Text(self.corpus.name, in_blocks, solutions)
        # Pieces are the same in all stages, and short enough for each denoiser.
        pieces = cut_documents(store, min(each.full.length for each in solutions))  # type: ignore[arg-type]
        if has_blocks:
            size = blocks_of(blocks, pieces.count, store.tokens).block_tokens  # type: ignore[union-attr]
            starts, _ = pieces.tokens_of(np.arange(0, pieces.count, size))
            store = BlockCache(store, Blocks(starts, np.append(starts[1:], store.tokens)))  # type: ignore[arg-type]
        return Apart(self.corpus.name, store, solutions, pieces=pieces)

    def __reduce__(self) -> tuple:
        """For another process, in which nothing need be registered. The name of the corpus is all that is asked of it there."""
        return Member, (self.task, CorpusName(self.corpus.name), self.rate, self.solution)


def blocks_of(blocks: BlockShuffle | None, count: int, tokens: int) -> BlockShuffle | None:
    """The same blocks, counted in units of which so many have so many tokens: as many as a block has on average."""
    return blocks and dataclasses.replace(blocks, block_tokens=max(1, round(blocks.block_tokens * count / tokens)))


def _solutions(readers: Sequence[Member]) -> tuple[Solution, ...]:
    return tuple(reader.solution for reader in readers)


def described(configuration: DenoisingConfiguration, vocabulary: Vocabulary) -> dict[str, object]:
    """Describes a configuration in few words: a list of a thousand sentinels by its length and checksum.

    Iterators are saved with these names in this order.
    """
    sentinels, modes = configuration.special_tokens.by_id(vocabulary)
    if sentinels is not None and not isinstance(sentinels, str):
        sentinels = f"{len(sentinels)} ids, crc32 {zlib.crc32(repr(list(sentinels)).encode())}"
    return {
        "denoiser": configuration.denoiser.described,
        "sentinels": sentinels,
        "modes": modes,
        "merge_examples": configuration.merge_examples,
        "chunk_tokens": configuration.chunk_tokens,
        "separate_documents": configuration.separate_documents,
    } | described_blocks(configuration.block_shuffle)


@dataclasses.dataclass(frozen=True, eq=False)
class Text:
    """The tokens of a corpus, which are the units; for the methods see `kinds.Kind`. `overlay` leaves documents out."""

    name: str
    store: TokenStore
    solutions: tuple[Solution, ...]
    overlay: Overlay | None = None

    unit = "tokens"
    index = None
    left_out: ClassVar[Mapping[str, int]] = {}

    @property
    def count(self) -> int:
        return self.store.tokens

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(solution.full.length for solution in self.solutions)

    @property
    def fixed_sizes(self) -> tuple[tuple[int, ...], ...] | None:
        chunks = [(solution.configuration.denoiser, solution.full.length) for solution in self.solutions]
        follow = all(denoiser.lengths_follow_noise for denoiser, _ in chunks)
        are_fixed = follow and all(len(set(denoiser.noise_range(length))) == 1 for denoiser, length in chunks)
        return tuple((each.full.inputs, each.full.targets) for each in self.solutions) if are_fixed else None

    @cached_property
    def recipes(self) -> tuple[Any, ...]:
        """Those of the readers."""
        found = ((each.configuration.denoiser, each.special, each.full.length, each.add_eos) for each in self.solutions)
        return tuple(recipe(*each) for each in found)

    def tokens(self, ranges: Ranges) -> Ranges:
        """The tokens of the places of examples."""
        return ranges

    def sizes(self, ranges: Ranges, keys: np.ndarray) -> np.ndarray:
        return sizes_of(self.recipes, self.tokens(ranges), keys)

    def read(self, ranges: Ranges, keys: np.ndarray) -> MadeText:
        """Raises a ValueError for a token that is no text."""
        ranges = self.tokens(ranges)
        tokens = (self.overlay or self.store).read_chunks(ranges.starts, ranges.stops)
        self._check(tokens)
        return MadeText(self.recipes, ranges, keys, tokens, sizes_of(self.recipes, ranges, keys))

    def origin(self, ranges: Ranges) -> Origin:
        ranges = self.tokens(ranges)
        if self.overlay is None:
            return Origin(*ranges[2:], np.zeros(len(ranges.of), bool))
        part, *places = self.overlay.places(ranges.starts, ranges.stops)
        return Origin(ranges.of[part], *places)

    def units_of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.store.ranges_of(documents)

    def units_with(self, document: int) -> tuple[np.ndarray, np.ndarray]:
        tokens = self.store.tokens_of(document)
        if self.overlay:
            return self.overlay.ranges_with(document)
        starts, stops = (np.array([end], np.int64)[: tokens[1] - tokens[0]] for end in tokens)
        return starts, stops

    def tokens_an_epoch(self) -> np.ndarray:
        starts, stops = self.store.ranges_of(np.arange(self.store.documents))
        return stops - starts

    def without(self, documents: np.ndarray) -> Text:
        return dataclasses.replace(self, overlay=Overlay(self.name, self.store, documents))

    def read_by(self, readers: Sequence[Member]) -> Text:
        return dataclasses.replace(self, solutions=_solutions(readers))

    @property
    def identity(self) -> str:
        return self._identity(hashlib.sha256())

    def _identity(self, found) -> str:
        for start in range(0, self.store.tokens, _AT_A_TIME):
            found.update(self.store.read_tokens(start, min(start + _AT_A_TIME, self.store.tokens)).astype("<i4").tobytes())
        return f"{self.store.tokens} tokens in memory, sha256 {found.hexdigest()[:16]}"

    @property
    def described(self) -> Mapping[str, object]:
        return {}

    @property
    def size_words(self) -> Sequence[object]:
        return [(), list(self.recipes)]

    @property
    def caches(self) -> Sequence[BlockCache]:
        return [self.store] if isinstance(self.store, BlockCache) else []

    @cached_property
    def _text_ids(self) -> TextIds:
        reserved = frozenset().union(*(solution.special.reserved for solution in self.solutions))
        return TextIds(self.solutions[0].vocabulary.vocab_size, reserved)

    def _check(self, tokens: np.ndarray) -> None:
        if not _are_all(self._text_ids.table, tokens):
            self._text_ids.check(tokens, repr(self.name), "Register it with the vocabulary that tokenized it.")


@dataclasses.dataclass(frozen=True, eq=False)
class Apart(Text):
    """The `pieces` of the documents of a corpus, which are the units; each is a chunk."""

    pieces: Pieces = dataclasses.field(kw_only=True)

    unit = "pieces"
    fixed_sizes = None

    @property
    def count(self) -> int:
        return self.pieces.count

    @property
    def lengths(self) -> tuple[int, ...]:
        return (1,) * len(self.solutions)

    def tokens(self, ranges: Ranges) -> Ranges:
        starts, stops = self.pieces.tokens_of(ranges.starts)
        return ranges._replace(sizes=stops - starts, starts=starts, stops=stops)

    def units_of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.pieces.of_documents(documents)

    def units_with(self, document: int) -> tuple[np.ndarray, np.ndarray]:
        return self.pieces.with_tokens(*super().units_with(document))

    @property
    def identity(self) -> str:
        store = self.pieces.store
        return self._identity(hashlib.sha256(store.document_lengths(0, store.documents).astype("<i8").tobytes()))

    @property
    def described(self) -> Mapping[str, object]:
        return {"pieces": self.pieces.most}

    @property
    def size_words(self) -> Sequence[object]:
        return [(self.pieces.most, self.pieces.lengths_hash), list(self.recipes)]


class MadeText(NamedTuple):
    """Chunks that are read, see `kinds.Made`: the tokens of `ranges`, one range's after the other's."""

    recipes: tuple[Any, ...]
    ranges: Ranges
    keys: np.ndarray
    tokens: np.ndarray
    sizes: np.ndarray
    images: Sequence[Sequence[bytes]] = ()

    def write(self, rows: np.ndarray, places: np.ndarray, written: Mapping[str, np.ndarray]) -> None:
        lengths = self.ranges.sizes
        starts = np.cumsum(lengths) - lengths
        for recipe_, of in by_kind(self.recipes, self.ranges.kinds):
            chunks = starts[of], lengths[of].astype(np.int32), np.arange(len(of) + 1), self.keys[of]
            write, _ = recipe_.loops
            write(recipe_, self.tokens, *chunks, rows[of], places[of], *(written[key] for key in TOKEN_FEATURES))
        mark_text(rows, places, self.sizes, written)


def sizes_of(recipes: Sequence[Any], ranges: Ranges, keys: np.ndarray) -> np.ndarray:
    """How long inputs and targets of chunks are, [n, 2] int64; `keys`, [n] uint64, are those of their noise."""
    found = np.zeros([len(ranges.kinds), len(TOKEN_FEATURES)], np.int64)
    for recipe_, of in by_kind(recipes, ranges.kinds):
        _, sizes = recipe_.loops
        found[of] = sizes(recipe_, ranges.sizes[of].astype(np.int32), np.arange(len(of) + 1), keys[of])
    return found


def by_kind(recipes: Sequence[Any], kinds: np.ndarray) -> Iterator[tuple[Any, np.ndarray]]:
    """The recipe of each kind that occurs, and which examples are of it, [m] int64."""
    for number in np.flatnonzero(np.bincount(kinds)).tolist():
        yield recipes[number], np.flatnonzero(kinds == number)


@compiled
def _are_all(members, ids):
    """Whether `members`, [n + 1] bool, has True for each id, [m] int32; it has False at its end, for ids that are not below n."""
    has_all, beyond = True, np.uint32(len(members) - 1)
    for id in ids:
        has_all &= members[min(np.uint32(id), beyond)]  # negative ones are large
    return has_all
