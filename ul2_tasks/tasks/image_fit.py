"""Which image-text records make examples within the lengths; the others are an error, or left out and counted."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import seqio
import tensorflow as tf
from absl import logging

from ul2_tasks.corpus.image_text import PIECES
from ul2_tasks.counting import count
from ul2_tasks.denoising.denoisers import Denoiser
from ul2_tasks.denoising.joined_pieces import chunk_records
from ul2_tasks.denoising.pieces import longest
from ul2_tasks.example_features import TOKEN_FEATURES
from ul2_tasks.graphs import no_autograph, python_op
from ul2_tasks.vocabulary.special_ids import SpecialTokens

_BEGINNING = 24  # tokens of a record's text, by which it is found
_unusable: collections.Counter[str] = collections.Counter()  # records of this process, by task and cause


class Problem(NamedTuple):
    """Why something makes no example. `cause` is for counting, and empty where it makes one. `numbers` follow it."""

    cause: str
    numbers: str = ""


NONE = Problem("")


@dataclasses.dataclass(frozen=True)
class Fit:
    """What the examples of one task have to be.

    Attributes:
        denoiser, split, add_eos: see `pieces.longest`.
        special: the ids that the denoiser adds.
        lengths: the longest inputs and targets.
        joins_records: whether records are joined, and cut into chunks.
        on_unusable: what becomes of a record that makes no example: "raise" or "skip".
    """

    name: str
    vocabulary: seqio.Vocabulary
    denoiser: Denoiser
    split: str
    special: SpecialTokens
    lengths: tuple[int, int]
    add_eos: tuple[bool, bool]
    joins_records: bool
    on_unusable: str

    def examples(self, records: tf.data.Dataset) -> tf.data.Dataset:
        """The records, or the chunks of them, that make examples.

        Records are {"targets": [tokens] int32, "pieces": [2 P + 1] int32} and other features, which chunks have not. A record that
        makes none is an error while iterating, if it is to be raised.
        """
        fitting = self._only_fit(records, self.problem_of_record)
        if not self.joins_records:
            return fitting
        chunks = chunk_records(fitting, self.fits, sum(self.lengths))
        return self._only_fit(chunks, problem_of_chunk)

    def problem(self, pieces: Sequence[int]) -> Problem:
        """Why pieces that are an example of their own make none."""
        try:
            found = longest(pieces, self.denoiser, self.split, len(self.special.mode), self.add_eos)
        except ValueError as error:
            return Problem(str(error))
        if found.sentinels > len(self.special.sentinels):
            numbers = f": it needs {found.sentinels}, and the vocabulary has {len(self.special.sentinels)}"
            return Problem("there are too few sentinels", numbers)
        for key, tokens, length in zip(TOKEN_FEATURES, found, self.lengths):
            if tokens > length:
                images = f" with all images, {len(pieces) // 2}" if key == "inputs" else ""
                return Problem(f"its {key} are too long", f": up to {tokens} tokens{images}, of {length} in sequence_length")
        return NONE

    def fits(self, pieces: Sequence[int]) -> bool:
        """Whether pieces that are an example of their own make one."""
        return not self.problem(pieces).cause

    def problem_of_record(self, pieces: Sequence[int]) -> Problem:
        """Why a record makes no example, or none with others: a run stands whole in a chunk, with a token of text at least."""
        if not self.joins_records:
            return self.problem(pieces)
        longest_run = max(pieces[1::2], default=0)
        problem = self.problem([1, longest_run, 0])
        return Problem("an image is longer than a chunk", f", {longest_run} tokens{problem.numbers}") if problem.cause else NONE

    def check_not_empty(self, records: tf.data.Dataset, split: str) -> None:
        """Raises a ValueError where no record makes an example, and passes that are repeated would never end."""
        counts: collections.Counter[str] = collections.Counter()
        for record in records:
            pieces = record[PIECES].numpy().tolist()
            cause = self.problem_of_record(pieces).cause or (self.joins_records and problem_of_chunk(pieces).cause)
            if not cause or self.on_unusable == "raise":
                return
            counts[cause] += 1
        why = "; ".join(f"{number} of its records because {cause}" for cause, number in counts.items()) or "it has no record"
        raise ValueError(f"{self.name!r} makes no example of split {split!r}: {why}")

    def _only_fit(self, examples: tf.data.Dataset, problem: Callable[[Sequence[int]], Problem]) -> tf.data.Dataset:
        def is_fit(tokens: np.ndarray, pieces: np.ndarray) -> bool:
            found = problem(pieces.tolist())
            if found.cause:
                self._refuse_or_count(found, tokens, pieces)
            return not found.cause

        def keep(example: Mapping[str, tf.Tensor]) -> tf.Tensor:
            return tf.ensure_shape(python_op(is_fit, [example["targets"], example[PIECES]], tf.bool), [])

        return examples.filter(no_autograph(keep))

    def _refuse_or_count(self, problem: Problem, tokens: np.ndarray, pieces: np.ndarray) -> None:
        if self.on_unusable == "raise":
            raise ValueError(
                f"{self.name}: a record makes no example: {problem.cause}{problem.numbers}. {self._beginning(tokens, pieces)}"
                " Fix it, or pass on_unusable='skip' to leave such records out and count them."
            )
        total, is_logged = count(_unusable, f"{self.name}: {problem.cause}")
        if is_logged:
            logging.warning("%s: %d records until now make no example, because %s", self.name, total, problem.cause)

    def _beginning(self, tokens: np.ndarray, pieces: np.ndarray) -> str:
        """In words, how the text of a record begins."""
        texts = np.split(tokens, np.cumsum(pieces))[:-1:2]
        text = self.vocabulary.decode(np.concatenate(texts)[:_BEGINNING].tolist())
        return f"It begins with {text!r}." if text else "It has no text."


def problem_of_chunk(pieces: Sequence[int]) -> Problem:
    """Why a chunk of records that are joined makes no example."""
    return NONE if any(pieces[::2]) else Problem("there is no text")
