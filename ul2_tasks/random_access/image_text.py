"""`ImageTextIndex`: the examples of interleaved image-text data by their numbers, whichever denoiser an order chooses for each."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from typing import NamedTuple

import numpy as np
from absl import logging

from ul2_tasks.cached import cached_property
from ul2_tasks.corpus.image_text import ImageTextCorpus
from ul2_tasks.corpus.image_text_records import ImageTextRecords, not_together
from ul2_tasks.denoising.piece_examples import (
    RECORDS,
    UNKNOWN,
    Rules,
    count_examples,
    find_examples,
    measure_examples,
    pieces_of,
    problem_of,
    rules_of,
)
from ul2_tasks.denoising.piece_lengths import CAUSES, NO_TEXT, PieceLimits, Problem
from ul2_tasks.denoising.write_pieces import noise_place, piece_sizes, recipe_of_pieces, write_pieces
from ul2_tasks.example_features import TOKEN_FEATURES
from ul2_tasks.order.epochs import expanded
from ul2_tasks.store.block_cache import BlockCache
from ul2_tasks.store.read import Store, TokenStore
from ul2_tasks.vocabulary.special_ids import SpecialTokens, id_shift

_AT_A_TIME = 1 << 20  # records that are counted, by one of the threads
_THREADS = 8
_BEGINNING = 24  # tokens of a record's text, by which it is found


class ImageTextExamples(NamedTuple):
    """Some examples: the values of "inputs" and "targets", [tokens] int32, one example's after the other's, and the length of each,
    [n] int64; and the images of each, encoded, in the order of their runs, or no list where they are codes."""

    values: dict[str, np.ndarray]
    lengths: dict[str, np.ndarray]
    images: list[list[bytes]]


@dataclasses.dataclass(frozen=True, eq=False)
class ImageTextIndex:
    """The examples of all records, numbered in the order of the corpus. `index_image_text` makes it.

    Each is an example under every denoiser, whose number is its kind, see `piece_examples`. One integer is held for
    each 16 records; the rest is in the pieces that lie beside the tokens. Ids are the tokenizer's own.

    Attributes:
        limits: of each denoiser.
        data: the records, in a cache or in memory.
        left_out: how many records make no example, or how many chunks have no text, by the task that says so first, and the cause.
        firsts: the first example of each 16 records of a pair of files, and at the end how many there are.
    """

    limits: tuple[PieceLimits, ...]
    data: ImageTextRecords
    left_out: Mapping[str, int]
    firsts: np.ndarray
    rules: Rules

    @property
    def count(self) -> int:
        """How many examples all records make."""
        return int(self.firsts[-1])

    @property
    def store(self) -> TokenStore:
        """The tokens of all records, each a document."""
        return self.data.tokens

    @property
    def identity(self) -> str:
        """See `ImageTextRecords.identity`."""
        return self.data.identity

    @property
    def settings(self) -> str:
        """See `records.RecordIndex`."""
        return repr(self.limits)

    def records(self, numbers: np.ndarray) -> np.ndarray:
        """The record that each example is of, [n] int64."""
        found, pairs = self._find(numbers)
        return found[:, 0] + self.data.pieces.borders[pairs]

    def ranges(self, numbers: np.ndarray) -> np.ndarray:
        """The tokens [start, stop) of the store that each example is made of, [n, 2] int64: those of a record, or some of them."""
        found, pairs = self._find(numbers)
        starts, _ = self.data.tokens.ranges_of(found[:, 0] + self.data.pieces.borders[pairs])
        return starts[:, np.newaxis] + found[:, 1:]

    def pieces_of(self, numbers: np.ndarray) -> list[np.ndarray]:
        """The pieces of each example, see `interleaved`, [2 P + 1] int32."""
        pieces, firsts = self._pieces(*self._find(numbers))
        return np.split(pieces, firsts[1:-1]) if len(numbers) else []

    def examples_of(self, record: int) -> tuple[int, int]:
        """The examples [first, stop) of a record."""
        borders = self.data.pieces.borders
        if not 0 <= record < borders[-1]:
            raise IndexError(f"record must be from 0 to {borders[-1] - 1}, got {record}.")
        pair = int(np.searchsorted(borders, record, side="right")) - 1
        block, place = divmod(record - int(borders[pair]), RECORDS)
        made, _, _ = _count(self.data, self.rules, (pair, block * RECORDS, place + 1))
        stop = int(self.firsts[self._blocks[pair] + block] + made.sum())
        return stop - int(made[-1]), stop

    def sizes(self, numbers: np.ndarray, kinds: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """The inputs and the targets of examples in tokens, [n, 2] int64. No token is read; for the arguments see `read`."""
        found, pairs = self._find(numbers)
        kinds, keys = np.asarray(kinds, np.int64), np.asarray(keys, np.uint64)
        sizes, are_drawn = np.zeros([len(found), 2], np.int64), np.array([recipe_of_pieces(each).is_drawn for each in self.limits])
        for pair in np.unique(pairs).tolist():
            of_pair = np.flatnonzero(pairs == pair)
            sizes[of_pair] = measure_examples(self.rules, *self._arrays(pair), found[of_pair], kinds[of_pair])  # the most
            if len(drawn := of_pair[are_drawn[kinds[of_pair]]]):
                pieces, firsts = pieces_of(*self._arrays(pair), found[drawn])
                sizes[drawn] = self._sizes(pieces, firsts, kinds[drawn], keys[drawn])
        return sizes

    def read(self, numbers: np.ndarray, kinds: np.ndarray, keys: np.ndarray) -> ImageTextExamples:
        """Reads examples, [n] integers in any order; each under the denoiser of its number, of [n] integers, with the key of its
        noise, of [n] uint64.

        Raises a ValueError where the files of a cache do not belong together.
        """
        found, pairs = self._find(numbers)
        kinds, keys = np.asarray(kinds, np.int64), np.asarray(keys, np.uint64)
        records = found[:, 0] + self.data.pieces.borders[pairs]
        starts, stops = self.data.tokens.ranges_of(records)
        self._check(records, found[:, 2], stops - starts)
        tokens = (self.data.cache or self.data.tokens).read_chunks(starts + found[:, 1], starts + found[:, 2])
        pieces, firsts = self._pieces(found, pairs)
        lengths = found[:, 2] - found[:, 1]
        first_tokens = np.cumsum(lengths) - lengths
        sizes = self._sizes(pieces, firsts, kinds, keys)
        places = np.cumsum(sizes, axis=0) - sizes
        features = [np.zeros([1, total], np.int32) for total in sizes.sum(axis=0).tolist()]
        for limits, of_kind, own, own_firsts in self._of_kinds(pieces, firsts, kinds):
            given = tokens, first_tokens[of_kind], own, own_firsts, keys[of_kind], np.zeros_like(of_kind), places[of_kind]
            write_pieces(recipe_of_pieces(limits), noise_place(limits), *given, *features)
        return ImageTextExamples(
            dict(zip(TOKEN_FEATURES, (feature[0] for feature in features))),
            dict(zip(TOKEN_FEATURES, sizes.T)),
            [] if self.rules.are_cut else self.data.images.read(records),
        )

    @property
    def caches(self) -> Sequence[BlockCache]:
        """What `read` reads in blocks of examples; none where files are local."""
        return self.data.caches

    def in_blocks(self, size: int) -> ImageTextIndex:
        """The same examples, of which so many are a block, and remote files are read in blocks."""
        firsts = np.arange(0, self.count, size)
        records, places = [], []
        for numbers, column in ((firsts, 1), (np.append(firsts[1:], self.count) - 1, 2)):
            found, pairs = self._find(numbers)
            records.append(found[:, 0] + self.data.pieces.borders[pairs])
            places.append(self.data.tokens.ranges_of(records[-1])[0] + found[:, column])
        return dataclasses.replace(self, data=self.data.in_blocks(*records, *places))

    def _sizes(self, pieces: np.ndarray, firsts: np.ndarray, kinds: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """`sizes` of examples of these pieces, see `pieces_of`."""
        sizes = np.zeros([len(kinds), 2], np.int64)
        for limits, of_kind, own, own_firsts in self._of_kinds(pieces, firsts, kinds):
            sizes[of_kind] = piece_sizes(recipe_of_pieces(limits), noise_place(limits), own, own_firsts, keys[of_kind])
        return sizes

    def _of_kinds(
        self, pieces: np.ndarray, firsts: np.ndarray, kinds: np.ndarray
    ) -> Iterator[tuple[PieceLimits, np.ndarray, np.ndarray, np.ndarray]]:
        """The limits of each denoiser, and its examples: their places among all, [m] int64, and their pieces, see `pieces_of`."""
        for kind in np.unique(kinds).tolist():
            of_kind = np.flatnonzero(kinds == kind)
            yield self.limits[kind], of_kind, *_parts(pieces, firsts, of_kind)

    def _pieces(self, found: np.ndarray, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `pieces_of`."""
        by_pair = np.argsort(pairs, kind="stable")
        each = [pieces_of(*self._arrays(pair), found[pairs == pair]) for pair in np.unique(pairs).tolist()]
        pieces = np.concatenate([np.zeros([0], np.int32), *(held for held, _ in each)])
        counts = np.concatenate([np.zeros([1], np.int64), *(np.diff(firsts) for _, firsts in each)])
        return _parts(pieces, np.cumsum(counts), np.argsort(by_pair))

    def _find(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What `find_examples` gives of examples, with records that are counted within their pairs; and these, [n] int64."""
        numbers = np.asarray(numbers, np.int64)
        if len(wrong := numbers[(numbers < 0) | (numbers >= self.count)]):
            raise IndexError(f"numbers must be from 0 to {self.count - 1}, got {wrong[0]}.")
        blocks = np.searchsorted(self.firsts, numbers, side="right") - 1
        pairs = np.searchsorted(self._blocks, blocks, side="right") - 1
        of_pairs, borders = blocks - self._blocks[pairs], self.data.pieces.borders
        held = np.minimum(RECORDS, np.diff(borders)[pairs] - of_pairs * RECORDS)
        is_whole = (self.firsts[blocks + 1] - self.firsts[blocks] == held) & (not self.rules.are_cut)
        ranks, found = numbers - self.firsts[blocks], np.zeros([len(numbers), 3], np.int64)
        for pair in np.unique(pairs).tolist():
            own = pairs == pair
            found[own] = find_examples(self.rules, *self._arrays(pair), of_pairs[own], ranks[own], is_whole[own])
        return found, pairs

    @cached_property
    def _blocks(self) -> np.ndarray:
        """The first 16 records of each pair among those of all, and at the end how many there are, [pairs + 1] int64."""
        return np.concatenate([[0], np.cumsum(-(-np.diff(self.data.pieces.borders) // RECORDS))])

    def _arrays(self, pair: int) -> tuple[np.ndarray, np.ndarray]:
        return self.data.pieces.places(pair), self.data.pieces.values(pair)

    def _check(self, records: np.ndarray, stops: np.ndarray, lengths: np.ndarray) -> None:
        """Raises a ValueError where the pieces of a record are not those of its tokens."""
        are_wrong = stops > lengths if self.rules.are_cut else stops != lengths
        if are_wrong.any() and isinstance(self.data.tokens, Store):
            first = int(np.argmax(are_wrong))
            raise not_together(self.data.tokens, int(records[first]), f"{stops[first]} tokens", int(lengths[first]))


def index_image_text(
    corpus: ImageTextCorpus, limits: Sequence[PieceLimits], split: str, use_cached: bool, on_unusable: str
) -> ImageTextIndex:
    """Finds the examples that the records of a split make under each denoiser of a mixture, see `index_records`.

    Raises a ValueError where that does, or no record makes an example; and see `ImageTextCorpus.all_records`.
    """
    index = index_records(corpus, corpus.all_records(split, use_cached), limits, on_unusable)
    if not index.count:
        why = "; ".join(f"{number} of its records because of {cause}" for cause, number in index.left_out.items())
        raise ValueError(f"{corpus.name!r} makes no example of split {split!r}: {why or 'it has no record'}")
    for cause, number in index.left_out.items():
        logging.warning("%d records make no example: %s", number, cause)
    return index


def index_records(
    corpus: ImageTextCorpus, data: ImageTextRecords, limits: Sequence[PieceLimits], on_unusable: str
) -> ImageTextIndex:
    """Finds the examples that records make under each denoiser of a mixture, and of no other: see `piece_examples`.

    The limits have SeqIO's ids. `on_unusable` is what becomes of a record that makes none: "raise", which raises a ValueError, or
    "skip".
    """
    shift = id_shift(corpus.vocabulary)
    own = tuple(dataclasses.replace(each, special=moved(each.special, -shift)) for each in limits)
    rules = rules_of(own)
    left_out = np.zeros([len(own), len(CAUSES)], np.int64)
    counts: list[np.ndarray] = [np.zeros([1], np.int64)]
    parts = [
        (pair, first, min(_AT_A_TIME, records - first))
        for pair, records in enumerate(np.diff(data.pieces.borders).tolist())
        for first in range(0, records, _AT_A_TIME)
    ]
    with futures.ThreadPoolExecutor(_THREADS) as threads:
        for part, found in zip(parts, threads.map(functools.partial(_count_part, data, rules), parts)):
            records = data.pieces.borders[part[0]] + part[1] + found.fewer
            if on_unusable == "raise" and len(records):
                raise _unusable(corpus, own, data, int(records[0]), shift)
            for record in records[found.causes == UNKNOWN].tolist():
                denoiser, problem = problem_of(own, data.read_pieces(record))
                left_out[denoiser, CAUSES.index(problem.cause)] += 1
            left_out += found.left_out
            counts.append(found.counts)
    which = np.argwhere(left_out).tolist()
    by_cause = {f"{own[denoiser].name}: {CAUSES[cause]}": int(left_out[denoiser, cause]) for denoiser, cause in which}
    return ImageTextIndex(own, data, by_cause, np.cumsum(np.concatenate(counts)), rules)


def _unusable(
    corpus: ImageTextCorpus, limits: Sequence[PieceLimits], data: ImageTextRecords, record: int, shift: int
) -> ValueError:
    """What is said of a record that makes no example, or has a chunk without a text."""
    pieces = data.read_pieces(record)
    denoiser, problem = problem_of(limits, pieces)
    if not problem.cause:
        problem = Problem(NO_TEXT, " in a chunk of it, which has images alone")
    texts = np.split(data.read_tokens(record), np.cumsum(pieces))[:-1:2]
    text = corpus.vocabulary.decode((np.concatenate(texts)[:_BEGINNING] + shift).tolist())
    beginning = f"It begins with {text!r}" if text else "It has no text"
    return ValueError(
        f"{limits[denoiser].name}: a record makes no example: {problem.cause}{problem.numbers}. {beginning}, and it is"
        f" {data.locate(record)}. Fix it, or pass on_unusable='skip' to leave such records out and count them."
    )


class _Counted(NamedTuple):
    """Some records of a pair: the examples of each 16, and those that make fewer than they could, with their causes."""

    counts: np.ndarray
    left_out: np.ndarray
    fewer: np.ndarray
    causes: np.ndarray


def _count_part(data: ImageTextRecords, rules: Rules, part: tuple[int, int, int]) -> _Counted:
    """Counts the examples of a part: a pair, a first record of it, and how many records from there on."""
    made, causes, left_out = _count(data, rules, part)
    fewer = np.flatnonzero(causes)
    return _Counted(np.add.reduceat(made, np.arange(0, len(made), RECORDS)), left_out, fewer, causes[fewer])


def _count(data: ImageTextRecords, rules: Rules, part: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What `count_examples` says of a part: `made`, `causes` and `left_out`."""
    pair, first, records = part
    found = np.zeros([records], np.int64), np.zeros([records], np.uint8), np.zeros([len(rules.facts), len(CAUSES)], np.int64)
    count_examples(rules, data.pieces.places(pair), data.pieces.values(pair), first, *found)
    return found


def moved(special: SpecialTokens, by: int) -> SpecialTokens:
    """Special tokens with other ids: those of a vocabulary whose ids are so much higher, or the tokenizer's own."""
    return dataclasses.replace(
        special,
        sentinels=tuple(id + by for id in special.sentinels),
        mode=tuple(id + by for id in special.mode),
        eos=None if special.eos is None else special.eos + by,
    )


def _parts(values: np.ndarray, firsts: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Some parts of values, one after the other, and where each begins, [n + 1] int64. Part i is [firsts[i], firsts[i + 1])."""
    starts, stops = firsts[numbers], firsts[numbers + 1]
    return values[expanded(numbers, starts, stops)[1]], np.append(0, np.cumsum(stops - starts))
