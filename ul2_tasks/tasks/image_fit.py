"""Which image-text records make examples within the lengths; the others are an error, or left out and counted."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping

import numpy as np
import seqio
import tensorflow as tf
from absl import logging

from ul2_tasks.corpus.image_text import PIECES
from ul2_tasks.counting import count
from ul2_tasks.denoising.pieces import PieceLimits, Problem, problem_of
from ul2_tasks.graphs import no_autograph, python_op

_BEGINNING = 24  # tokens of a record's text, by which it is found
_unusable: collections.Counter[str] = collections.Counter()  # records of this process, by task and cause


@dataclasses.dataclass(frozen=True)
class Fit(PieceLimits):
    """What the examples of one task have to be, and what becomes of a record that makes none: "raise" or "skip"."""

    vocabulary: seqio.Vocabulary
    on_unusable: str

    def examples(self, records: tf.data.Dataset) -> tf.data.Dataset:
        """The records that make examples: {"targets": [tokens] int32, "pieces": [2 P + 1] int32} and other features.

        A record that makes none is an error while iterating, if it is to be raised.
        """

        def is_fit(tokens: np.ndarray, pieces: np.ndarray) -> bool:
            _, found = problem_of([self], pieces)
            if found.cause:
                self._refuse_or_count(found, tokens, pieces)
            return not found.cause

        def keep(record: Mapping[str, tf.Tensor]) -> tf.Tensor:
            return tf.ensure_shape(python_op(is_fit, [record["targets"], record[PIECES]], tf.bool), [])

        return records.filter(no_autograph(keep))

    def check_not_empty(self, records: tf.data.Dataset, split: str) -> None:
        """Raises a ValueError where no record makes an example, and passes that are repeated would never end."""
        counts: collections.Counter[str] = collections.Counter()
        for record in records:
            _, (cause, _) = problem_of([self], record[PIECES].numpy())
            if not cause or self.on_unusable == "raise":
                return
            counts[cause] += 1
        why = "; ".join(f"{number} of its records because {cause}" for cause, number in counts.items()) or "it has no record"
        raise ValueError(f"{self.name!r} makes no example of split {split!r}: {why}")

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
