"""`ImageTextIndex`: the examples of interleaved image-text data by their numbers, whichever denoiser an order chooses for each."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from typing import NamedTuple

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.corpus.image_text import PIECES, SIZES
from ul2_tasks.denoisers.pieces import CAUSES, PieceLimits, Rules, find_causes, problem_of, rules_of
from ul2_tasks.denoisers.write import example_sizes, write_examples
from ul2_tasks.example_features import IMAGES, TOKEN_FEATURES
from ul2_tasks.order.ranges import expanded
from ul2_tasks.store.columns import TOKENS, Columns
from ul2_tasks.store.read import MemoryStore, Store
from ul2_tasks.tokenizers.base import Vocabulary

_AT_A_TIME = 1 << 20  # records that are looked at, by one of the threads
_THREADS = 8
_BEGINNING = 24  # tokens of a record's text, by which it is found


class ImageTextExamples(NamedTuple):
    """Some examples: the values of "inputs" and "targets", [tokens] int32, one example's after the other's, and the length of each,
    [n] int64; and the images of each, encoded, in the order of their runs."""

    values: dict[str, np.ndarray]
    lengths: dict[str, np.ndarray]
    images: list[list[bytes]]


@dataclasses.dataclass(frozen=True, eq=False)
class ImageTextIndex:
    """The examples of all records, numbered in the order of the corpus. `index_records` makes it.

    A record is an example under every denoiser, whose number is its kind, or under none. Ids are the tokenizer's own.

    Attributes:
        limits: of each denoiser.
        columns: the records, in a cache or in memory.
        left_out: how many records make no example, by the task that says so first, and the cause.
        unusable: these records, ascending, int64.
    """

    limits: tuple[PieceLimits, ...]
    columns: Columns
    left_out: Mapping[str, int]
    unusable: np.ndarray

    READ = (TOKENS, SIZES, IMAGES)  # the columns that `read` reads, but for those of the index

    @property
    def count(self) -> int:
        """How many examples all records make."""
        return self.columns.count - len(self.unusable)

    @property
    def settings(self) -> str:
        """What is made of the records, in words."""
        return repr(self.limits)

    def records(self, numbers: np.ndarray) -> np.ndarray:
        """The record that each example is of, [n] int64."""
        numbers = np.asarray(numbers, np.int64)
        if len(wrong := numbers[(numbers < 0) | (numbers >= self.count)]):
            raise IndexError(f"numbers must be from 0 to {self.count - 1}, got {wrong[0]}.")
        return numbers + np.searchsorted(self._examples_before, numbers, side="right")

    @cached_property
    def _examples_before(self) -> np.ndarray:
        """How many examples come before each record that makes none."""
        return self.unusable - np.arange(len(self.unusable))

    def examples_of(self, record: int) -> tuple[int, int]:
        """The examples [first, stop) of a record: one, or none."""
        if not 0 <= record < self.columns.count:
            raise IndexError(f"record must be from 0 to {self.columns.count - 1}, got {record}.")
        before, until = (int(np.searchsorted(self.unusable, record, side=side)) for side in ("left", "right"))
        return record - before, record + 1 - until

    def sizes(self, numbers: np.ndarray, kinds: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """The inputs and the targets of examples in tokens, [n, 2] int64. No token is read; for the arguments see `read`."""
        kinds, keys = np.asarray(kinds, np.int64), np.asarray(keys, np.uint64)
        return self._sizes(*self._pieces(self.records(numbers)), kinds, keys)

    def read(self, numbers: np.ndarray, kinds: np.ndarray, keys: np.ndarray) -> ImageTextExamples:
        """Reads examples, [n] integers in any order; each under the denoiser of its number, of [n] integers, with the key of its
        noise, of [n] uint64.

        Raises a ValueError where the files of a cache do not belong together.
        """
        kinds, keys = np.asarray(kinds, np.int64), np.asarray(keys, np.uint64)
        records = self.records(numbers)
        tokens, lengths = self.columns.read(TOKENS, records)
        pieces, firsts = self._pieces(records)
        self._check(records, np.diff(np.append(0, np.cumsum(pieces))[firsts]), lengths, "tokens")
        first_tokens = np.cumsum(lengths) - lengths
        sizes = self._sizes(pieces, firsts, kinds, keys)
        places = np.cumsum(sizes, axis=0) - sizes
        features = [np.zeros([1, total], np.int32) for total in sizes.sum(axis=0).tolist()]
        for limits, of_kind, own, own_firsts in self._of_kinds(pieces, firsts, kinds):
            given = tokens, first_tokens[of_kind], own, own_firsts, keys[of_kind], np.zeros_like(of_kind), places[of_kind]
            write_examples(limits.recipe, *given, *features)
        return ImageTextExamples(
            dict(zip(TOKEN_FEATURES, (feature[0] for feature in features))),
            dict(zip(TOKEN_FEATURES, sizes.T)),
            self._images(records),
        )

    def why_none(self, record: int) -> str:
        """Why a record makes no example."""
        denoiser, problem = problem_of(self.limits, _pieces_of(self.columns, record))
        return f"{self.limits[denoiser].name}: {problem.cause}{problem.numbers}"

    def _sizes(self, pieces: np.ndarray, firsts: np.ndarray, kinds: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """`sizes` of examples of these pieces, see `_pieces`."""
        sizes = np.zeros([len(kinds), 2], np.int64)
        for limits, of_kind, own, own_firsts in self._of_kinds(pieces, firsts, kinds):
            sizes[of_kind] = example_sizes(limits.recipe, own, own_firsts, keys[of_kind])
        return sizes

    def _of_kinds(
        self, pieces: np.ndarray, firsts: np.ndarray, kinds: np.ndarray
    ) -> Iterator[tuple[PieceLimits, np.ndarray, np.ndarray, np.ndarray]]:
        """The limits of each denoiser, and its examples: their places among all, [m] int64, and their pieces, see `_pieces`."""
        for kind in np.unique(kinds).tolist():
            of_kind = np.flatnonzero(kinds == kind)
            starts, stops = firsts[of_kind], firsts[of_kind + 1]
            own = pieces[expanded(of_kind, starts, stops)[1]]
            yield self.limits[kind], of_kind, own, np.append(0, np.cumsum(stops - starts))

    def _pieces(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The pieces of records, one after the other, int32; and where those of each begin, [n + 1] int64."""
        pieces, counts = self.columns.read(PIECES, records)
        return pieces, np.append(0, np.cumsum(counts))

    def _images(self, records: np.ndarray) -> list[list[bytes]]:
        """The images of records, encoded."""
        sizes, counts = self.columns.read(SIZES, records)
        of_each = np.split(sizes, np.cumsum(counts)[:-1]) if len(counts) else []
        held = self.columns.read_each(IMAGES, records)
        self._check(records, np.array([own.sum() for own in of_each]), np.array([*map(len, held)]), "bytes of images")
        stops = [np.cumsum([0, *own]).tolist() for own in of_each]
        return [[image[start:stop].tobytes() for start, stop in itertools.pairwise(ends)] for image, ends in zip(held, stops)]

    def _check(self, records: np.ndarray, expected: np.ndarray, got: np.ndarray, what: str) -> None:
        """Raises a ValueError where the columns of a cache do not belong together."""
        if (are_wrong := expected != got).any():
            first = int(np.argmax(are_wrong))
            raise ValueError(
                f"{self.columns.locate(int(records[first]))} must have {expected[first]} {what}, got {got[first]}: these files do"
                " not belong together. Write the cache again."
            )


def index_records(data: Columns, limits: Sequence[PieceLimits], vocabulary: Vocabulary, on_unusable: str) -> ImageTextIndex:
    """Finds the records that make an example under each denoiser of a mixture.

    `on_unusable` is what becomes of a record that makes none: "raise", which raises a ValueError, or "skip".
    """
    own = tuple(limits)
    rules, store = rules_of(own), data.stores[PIECES]
    left_out = np.zeros([len(own), len(CAUSES)], np.int64)
    unusable = [np.zeros(0, np.int64)]
    parts = [
        (pair, first, min(_AT_A_TIME, records - first))
        for pair, records in enumerate(np.diff(store.borders).tolist())
        for first in range(0, records, _AT_A_TIME)
    ]
    with futures.ThreadPoolExecutor(_THREADS) as threads:
        for part, (causes, denoisers) in zip(parts, threads.map(functools.partial(_causes, store, rules), parts)):
            found = np.flatnonzero(causes)
            unusable.append(store.borders[part[0]] + part[1] + found)
            if on_unusable == "raise" and len(found):
                raise _unusable(vocabulary, own, data, int(unusable[-1][0]))
            np.add.at(left_out, (denoisers[found], causes[found]), 1)
    which = np.argwhere(left_out).tolist()
    by_cause = {f"{own[denoiser].name}: {CAUSES[cause]}": int(left_out[denoiser, cause]) for denoiser, cause in which}
    return ImageTextIndex(own, data, by_cause, np.concatenate(unusable))


def _unusable(vocabulary: Vocabulary, limits: Sequence[PieceLimits], data: Columns, record: int) -> ValueError:
    """What is said of a record that makes no example."""
    pieces, (tokens, _) = _pieces_of(data, record), data.read(TOKENS, np.array([record]))
    denoiser, problem = problem_of(limits, pieces)
    texts = np.split(tokens, np.cumsum(pieces))[:-1:2]
    text = vocabulary.decode(np.concatenate(texts)[:_BEGINNING].tolist())
    beginning = f"It begins with {text!r}" if text else "It has no text"
    return ValueError(
        f"{limits[denoiser].name}: a record makes no example: {problem.cause}{problem.numbers}. {beginning}, and it is"
        f" {data.locate(record)}. Fix it, or pass on_unusable='skip' to leave such records out and count them."
    )


def _pieces_of(data: Columns, record: int) -> list[int]:
    pieces, _ = data.read(PIECES, np.array([record]))
    return pieces.tolist()


def _causes(store: Store | MemoryStore, rules: Rules, part: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """See `find_causes`. A part is a pair, a first record of it, and how many records from there on."""
    pair, first, records = part
    causes, denoisers, needed = (np.zeros([records], kind) for kind in (np.uint8, np.uint8, np.int64))
    find_causes(rules, store.places(pair), store.values(pair), first, causes, denoisers, needed)
    return causes, denoisers
