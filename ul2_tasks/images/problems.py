"""What is wrong with records, each in a sentence with the record's name; and how many were skipped for what."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
from collections.abc import Iterator
from typing import Any, Literal

MOST_IN_A_ROW = 100  # that are skipped; more of them mean that something is wrong with all records
_TOLD = 10  # problems of each cause that are logged
# What comes of what a record holds, where a function of one's own reads it: not errors of memory, files, or packages.
OF_RECORDS = (LookupError, TypeError, AttributeError, RecursionError)
Step = Literal["planned", "decoded"]
_logger = logging.getLogger(__name__)


class RecordError(ValueError):
    """What is wrong with a record: its name and a sentence.

    Attributes:
        cause: where it was found: "record", "plan", "sample", "too long" or "picture".
    """

    def __init__(self, cause: str, sentence: str):
        super().__init__(sentence)
        self.cause = cause


@dataclasses.dataclass
class Problems:
    """The problems that were skipped.

    Attributes:
        counts: how many of each cause.
        in_a_row: how many since a sample was right, of those that were planned, and of those that were decoded.
    """

    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    in_a_row: dict[Step, int] = dataclasses.field(default_factory=lambda: {"planned": 0, "decoded": 0})

    def right(self, step: Step) -> None:
        """A sample was planned, or decoded."""
        self.in_a_row[step] = 0

    def skip(self, problem: RecordError, step: Step, most: int) -> None:
        """Counts a problem; logs the first of each cause.

        Raises:
            ValueError: there are `most` problems in a row.
        """
        self.counts[problem.cause] += 1
        self.in_a_row[step] += 1
        if self.counts[problem.cause] <= _TOLD:
            _logger.warning("skipped (%s): %s", problem.cause, problem)
        if self.in_a_row[step] >= most:
            raise ValueError(
                f"{self.in_a_row[step]} records in a row were skipped, by cause {dict(self.counts)}; the last: {problem}"
            )

    def state(self) -> dict[str, Any]:
        """What `load` takes."""
        return {"counts": dict(self.counts), "in_a_row": dict(self.in_a_row)}

    def load(self, state: dict[str, Any]) -> None:
        """Goes on counting from there."""
        self.counts, self.in_a_row = collections.Counter(state["counts"]), dict(state["in_a_row"])


@contextlib.contextmanager
def told_as(cause: str, name: str, *more: type[Exception]) -> Iterator[None]:
    """Makes a `RecordError` of a ValueError, and of other errors that come from what a record holds.

    >>> with told_as("plan", "pets, record 7"):
    ...     raise ValueError("the record has no caption")
    Traceback (most recent call last):
    ..
    ul2_tasks.images.problems.RecordError: pets, record 7: the record has no caption
    """
    kinds: tuple[type[Exception], ...] = (ValueError, *more)
    try:
        yield
    except RecordError:
        raise
    except kinds as error:
        raise RecordError(cause, f"{name}: {sentence_of(error)}") from error


def sentence_of(error: Exception) -> str:
    """The error in words, with its type where that is not clear.

    >>> sentence_of(ValueError("there is no caption")), sentence_of(KeyError("caption"))
    ('there is no caption', "KeyError: 'caption'")
    """
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
