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
from ul2_tasks.denoisers.diffusion import Noising
from ul2_tasks.denoisers.loss_weights import mask_repeats, split_numbered
from ul2_tasks.denoisers.solution import DenoisingConfiguration, Solution
from ul2_tasks.denoisers.write import exact_sizes, recipe
from ul2_tasks.example_features import DIFFUSION, EXAMPLE, LOSS_WEIGHT, RATE, TOKEN_FEATURES, WEIGHTED
from ul2_tasks.order.ranges import Ranges
from ul2_tasks.random_access.kinds import Origin, Task, blocks_of, described_blocks, mark_text
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


def text_task(task: str, corpus: Corpus, rate: float, solution: Solution) -> Task:
    """A denoising task of text."""
    configuration, vocabulary = solution.configuration, solution.vocabulary
    is_weighted = configuration.repeated_ngrams or LOSS_WEIGHT in corpus.columns
    return Task(
        task,
        corpus,
        rate,
        DIFFUSION if configuration.denoiser.has_rates else WEIGHTED if is_weighted else EXAMPLE,
        vocabulary,
        text_of,
        described(configuration, vocabulary),
        configuration.denoiser.name,
        configuration.block_shuffle,
        {key: getattr(solution.full, key) for key in EXAMPLE},
        solution,
        configuration.separate_documents,
    )


def text_of(readers: Sequence[Task], columns: Columns) -> Text:
    """The documents of a corpus of text, see `kinds.Task`. Raises a ValueError where readers divide it in other ways."""
    first, store, solutions = readers[0], columns.tokens, _solutions(readers)
    weights = columns.stores.get(LOSS_WEIGHT)
    if weights is not None and weights.tokens != store.tokens:
        raise ValueError(f"{first.corpus.name!r} must have a weight for each of {store.tokens} tokens, got {weights.tokens}.")
    for other in readers:
        for argument in ("merge_examples", "separate_documents", "block_shuffle"):
            values = [getattr(each.solution.configuration, argument) for each in (first, other)]
            if values[0] != values[1]:
                raise ValueError(
                    f"{argument} must be the same for all tasks of {first.corpus.name!r}, got {values[0]} for {first.task!r} and"
                    f" {values[1]} for {other.task!r}. Register them with the same one."
                )
    blocks = first.block_shuffle if is_remote(store) and isinstance(store, Store) else None
    if first.solution.configuration.merge_examples:
        held = [each and BlockCache(each, blocks.block_tokens) if blocks else each for each in (store, weights)]  # type: ignore[arg-type]
        return Text(first.corpus.name, held[0], solutions, weights=held[1])  # type: ignore[arg-type]
    # Pieces are the same in all stages, and short enough for each denoiser.
    pieces = cut_documents(store, min(each.full.length for each in solutions))
    if in_pieces := blocks_of(blocks, pieces.count, store.tokens):
        starts, _ = pieces.tokens_of(np.arange(0, pieces.count, in_pieces.block_tokens))
        both = Blocks(starts, np.append(starts[1:], store.tokens))
        store, weights = (each and BlockCache(each, both) for each in (store, weights))  # type: ignore[assignment,arg-type]
    return Apart(first.corpus.name, store, solutions, weights=weights, pieces=pieces)


def _solutions(readers: Sequence[Task]) -> tuple[Solution, ...]:
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
        **({"repeated_ngrams": dataclasses.asdict(repeats)} if (repeats := configuration.repeated_ngrams) else {}),
    } | described_blocks(configuration.block_shuffle)


@dataclasses.dataclass(frozen=True, eq=False)
class Text:
    """The tokens of a corpus, which are the units. Each kind of data has these attributes and methods, but for `overlay`.

    `kinds` of ranges are the numbers of its readers, and `keys`, [n] uint64, those of the noise.

    Attributes:
        store: its documents.
        unit: what units are, in the plural.
        index: that of the records which units are made of; None of text.
        left_out: how many units there would be that are left out, by cause.
        overlay: leaves documents out.
        weights: those of the tokens in the loss, as the bits of float32, or 0 and 1 in bytes; None where all are 1.
    """

    name: str
    store: TokenStore
    solutions: tuple[Solution, ...]
    overlay: Overlay | None = None
    weights: TokenStore | None = None

    unit = "tokens"
    index: ClassVar[Any] = None
    left_out: ClassVar[Mapping[str, int]] = {}

    @property
    def count(self) -> int:
        """How many units there are."""
        return self.store.tokens

    @property
    def lengths(self) -> tuple[int, ...]:
        """How many units a full example of each reader has."""
        return tuple(solution.full.length for solution in self.solutions)

    @property
    def fixed_sizes(self) -> tuple[tuple[int, ...], ...] | None:
        """Of each reader, the sizes of its full examples; None where some differ."""
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
        """How long the features of tokens of examples are, [n, features] int64, without reading tokens."""
        return sizes_of(self.recipes, self.tokens(ranges), keys)

    def read(self, ranges: Ranges, keys: np.ndarray) -> MadeText:
        """Reads examples. Raises a ValueError for a token that is no text."""
        ranges, given = self.tokens(ranges), ranges
        read = self.overlay.places(ranges.starts, ranges.stops)[1:3] if self.overlay else (ranges.starts, ranges.stops)
        tokens = self.store.read_chunks(*read)
        self._check(tokens, given)
        weights = self._weights(ranges, tokens, read)
        return MadeText(self.recipes, ranges, keys, tokens, sizes_of(self.recipes, ranges, keys, tokens), weights=weights)

    def _weights(self, ranges: Ranges, tokens: np.ndarray, read: tuple[np.ndarray, np.ndarray]) -> np.ndarray | None:
        """Those of the tokens of examples in the loss, float32; None where all are 1."""
        weights = None
        if self.weights is not None:
            found = self.weights.read_chunks(*read)
            weights = found.astype(np.float32) if self.weights.is_mask else found.view(np.float32)
        repeats = [solution.configuration.repeated_ngrams for solution in self.solutions]
        if any(repeats):
            weights = np.ones(len(tokens), np.float32) if weights is None else weights
            starts = np.cumsum(ranges.sizes) - ranges.sizes
            for each, of in by_kind(repeats, ranges.kinds):
                if each:
                    mask_repeats(tokens, starts[of], ranges.sizes[of], each.n, each.times, weights)
        return weights

    def origin(self, ranges: Ranges) -> Origin:
        """Where examples are from."""
        ranges = self.tokens(ranges)
        if self.overlay is None:
            return Origin(*ranges[2:], np.zeros(len(ranges.of), bool))
        part, *places = self.overlay.places(ranges.starts, ranges.stops)
        return Origin(ranges.of[part], *places)

    def units_of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The units [start, stop) of documents, [n] int64 each. Raises an IndexError where one is not there."""
        return self.store.ranges_of(documents)

    def units_with(self, document: int) -> tuple[np.ndarray, np.ndarray]:
        """The inverse of `origin`: ranges of units that have tokens of a document, ascending, none is empty, [n] int64 both."""
        tokens = self.store.tokens_of(document)
        if self.overlay:
            return self.overlay.ranges_with(document)
        starts, stops = (np.array([end], np.int64)[: tokens[1] - tokens[0]] for end in tokens)
        return starts, stops

    def tokens_an_epoch(self) -> np.ndarray:
        """How many tokens of each document the units have, all together, [documents] int64."""
        starts, stops = self.store.ranges_of(np.arange(self.store.documents))
        return stops - starts

    def without(self, documents: np.ndarray) -> Text:
        """The same, but for the tokens of documents, [n] int64, ascending, which are read as those of others. No example is longer
        than it is in its place. Raises a ValueError where there are no others."""
        return dataclasses.replace(self, overlay=Overlay(self.name, self.store, documents))

    def read_by(self, readers: Sequence[Task]) -> Text:
        """The same data, read by some of its readers alone."""
        return dataclasses.replace(self, solutions=_solutions(readers))

    @property
    def identity(self) -> str:
        """What is read, in few words, where it is in memory: others for other data."""
        return self._identity(hashlib.sha256())

    def _identity(self, found) -> str:
        if self.weights is not None:
            found.update(self.weights.read_chunks(np.array([0]), np.array([self.weights.tokens])).astype("<i4").tobytes())
        for start in range(0, self.store.tokens, _AT_A_TIME):
            found.update(self.store.read_tokens(start, min(start + _AT_A_TIME, self.store.tokens)).astype("<i4").tobytes())
        return f"{self.store.tokens} tokens in memory, sha256 {found.hexdigest()[:16]}"

    @property
    def described(self) -> Mapping[str, object]:
        """What a fingerprint says of how units are made of documents."""
        return {}

    @property
    def size_words(self) -> Sequence[object]:
        """All that decides how long each example is, the same in any process; None where it is not known to be the same again."""
        return [(), list(self.recipes)]

    @property
    def caches(self) -> Sequence[BlockCache]:
        """What is read in blocks of units; none where files are local."""
        return [each for each in (self.store, self.weights) if isinstance(each, BlockCache)]

    @cached_property
    def _text_ids(self) -> TextIds:
        reserved = frozenset().union(*(solution.special.reserved for solution in self.solutions))
        return TextIds(self.solutions[0].vocabulary.vocab_size, reserved)

    def _check(self, tokens: np.ndarray, ranges: Ranges) -> None:
        if not _are_all(self._text_ids.table, tokens):
            place, parts = int(np.argmin(self._text_ids.are_in(tokens))), self.origin(ranges)
            lengths = parts.stops - parts.starts
            token = int(np.repeat(parts.stops - np.cumsum(lengths), lengths)[place]) + place
            (document,) = range(*self.store.documents_at(token, token + 1))
            where = self.store.provenance.of([document])[0] if self.store.provenance else f"document {document}"
            what = f"{self.name!r}, {where},"
            self._text_ids.check(tokens, what, "Register it with the vocabulary that tokenized it.")


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
    """Chunks that are read: the tokens of `ranges`, one range's after the other's.

    `sizes`, [n, features] int64, are how long the features of tokens of each are; `images` are those of each, encoded. `weights`,
    [tokens] float32, are those of the tokens in the loss; None where all are 1.
    """

    recipes: tuple[Any, ...]
    ranges: Ranges
    keys: np.ndarray
    tokens: np.ndarray
    sizes: np.ndarray
    images: Sequence[Sequence[bytes]] = ()
    weights: np.ndarray | None = None

    def write(self, rows: np.ndarray, places: np.ndarray, written: Mapping[str, np.ndarray]) -> None:
        """Writes example i into row rows[i] of each feature of tokens, [rows, length], from place places[i, feature] on.

        Ids are the tokenizer's own. Loss groups are written where `written` has them. `rows` are [n] int64, `places` [n, features].
        """
        lengths, tokens = self.ranges.sizes, self.tokens
        starts, features = np.cumsum(lengths) - lengths, [written[key] for key in TOKEN_FEATURES]
        if self.weights is not None:  # each id with the number of its token above it, which so is known where it is written
            tokens = np.arange(1, len(tokens) + 1) << 32 | tokens
            features = [np.zeros(feature.shape, np.int64) for feature in features]
        for recipe_, of in by_kind(self.recipes, self.ranges.kinds):
            chunks = starts[of], lengths[of].astype(np.int32), np.arange(len(of) + 1), self.keys[of]
            write, _ = recipe_.loops
            write(recipe_, tokens, *chunks, rows[of], places[of], *features)
        if self.weights is not None:
            for column, (key, numbered) in enumerate(zip(TOKEN_FEATURES, features)):
                weighted = written[LOSS_WEIGHT] if key == TOKEN_FEATURES[-1] else np.zeros([0, 0], np.float32)
                at = rows, places[:, column], self.sizes[:, column]
                split_numbered(*at, numbered, self.weights, written[key], weighted)
        for recipe_, of in by_kind(self.recipes, self.ranges.kinds) if RATE in written else ():
            if isinstance(recipe_, Noising):
                recipe_.mark(self.keys[of], self.sizes[of], rows[of], places[of], written)
        mark_text(rows, places, self.sizes, written)


def sizes_of(recipes: Sequence[Any], ranges: Ranges, keys: np.ndarray, tokens: np.ndarray | None = None) -> np.ndarray:
    """How long inputs and targets of chunks are, [n, 2] int64, or without their tokens at most; `keys`, [n] uint64, are those of
    their noise."""
    found, starts = np.zeros([len(ranges.kinds), len(TOKEN_FEATURES)], np.int64), np.cumsum(ranges.sizes) - ranges.sizes
    for recipe_, of in by_kind(recipes, ranges.kinds):
        _, sizes = recipe_.loops
        chunks = ranges.sizes[of].astype(np.int32), np.arange(len(of) + 1), keys[of]
        found[of] = sizes(recipe_, *chunks) if tokens is None else exact_sizes(recipe_, tokens, starts[of], *chunks)
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
