"""What is wrong with records, each in a sentence with the record's name; and how many were skipped for what."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import logging
import os
import re
from collections.abc import Iterator, Sequence
from typing import Literal

from ul2_tasks.images.problems import check_of_record, sentence_of

MOST_IN_A_ROW = 100  # of a source that are skipped; more of them mean that something is wrong with all of its records
_TOLD = 10  # problems of each source and cause that are logged; then each tenfold of them
Step = Literal["planned", "decoded"]
_logger = logging.getLogger(__name__)


class RecordError(ValueError):
    """What is wrong with a record: its name, or "" where that stands in the sentence alone, and a sentence.

    `cause` is where it was found: "record", "schema", "sample", "too long" or "image".
    """

    def __init__(self, cause: str, sentence: str, record: str = ""):
        super().__init__(sentence)
        self.cause, self.record = cause, record


@dataclasses.dataclass
class Problems:
    """The problems that were skipped, each source for itself.

    Each is logged and appended to `file`, if there is one, as a line of JSON, unless they are not to be told. `by_source` has how
    many there are of each cause. As many as `most` in a row, of those that were planned or of those that were decoded, raise a
    ValueError.
    """

    sources: Sequence[str] = ("records",)
    file: str | None = None
    most: int = MOST_IN_A_ROW
    is_told: bool = True
    by_source: dict[str, collections.Counter[str]] = dataclasses.field(default_factory=dict)
    _in_a_row: collections.Counter[tuple[Step, int]] = dataclasses.field(default_factory=collections.Counter)

    @property
    def counts(self) -> collections.Counter[str]:
        """How many of each cause."""
        return sum(self.by_source.values(), collections.Counter())

    def right(self, step: Step, source: int) -> None:
        """A sample of the source of this number was planned, or decoded."""
        self._in_a_row.pop((step, source), None)

    def skip(self, problem: RecordError, step: Step, source: int) -> None:
        """Counts a problem of the source of this number, logs it, and writes it down."""
        name = self.sources[source]
        counts = self.by_source.setdefault(name, collections.Counter())
        counts[problem.cause] += 1
        self._in_a_row[step, source] += 1
        if self.is_told:
            self._log(problem, name, counts[problem.cause])
            self._write(problem, name)
        if (in_a_row := self._in_a_row[step, source]) >= self.most:
            of = f" of {name}" if len(self.sources) > 1 else ""
            raise ValueError(f"{in_a_row} records in a row{of} were skipped, by cause {dict(counts)}; the last: {problem}")

    def _log(self, problem: RecordError, source: str, number: int) -> None:
        if number > _TOLD and not re.fullmatch("10*", str(number)):
            return
        more = ""
        if number >= _TOLD:
            listed = f"all are in {self.file}" if self.file else "skipped_file=PATH lists all"
            more = f" ({number:,} of this cause until now, of {source}; the next is logged after ten times as many, {listed})"
        _logger.warning("skipped (%s): %s%s", problem.cause, problem, more)

    def _write(self, problem: RecordError, source: str) -> None:
        """Appends a line at once, so that lines of several processes do not mix."""
        if self.file is None:
            return
        told = {"source": source, "cause": problem.cause, "record": problem.record, "problem": str(problem)}
        file = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(file, (json.dumps(told) + "\n").encode())
        finally:
            os.close(file)


class Noted(Problems):
    """Problems that are kept in a list, with None for what was right, and that can be told later; any number may be in a row."""

    def __init__(self) -> None:
        super().__init__(is_told=False)
        self.found: list[tuple[RecordError | None, Step, int]] = []

    def right(self, step: Step, source: int) -> None:
        self.found.append((None, step, source))

    def skip(self, problem: RecordError, step: Step, source: int) -> None:
        self.found.append((problem, step, source))

    def tell(self, problems: Problems) -> None:
        """Counts them there, once."""
        found, self.found = self.found, []
        for problem, step, source in found:
            if problem is None:
                problems.right(step, source)
            else:
                problems.skip(problem, step, source)


@contextlib.contextmanager
def told_as(cause: str, name: str, record: str) -> Iterator[None]:
    """Makes a `RecordError` of an error, unless it is none of the record, see `check_of_record`.

    For `cause` see `RecordError`. `name` is that of the record, in words, and `record` its name alone.
    """
    try:
        yield
    except RecordError:
        raise
    except Exception as error:
        check_of_record(error, record)
        raise RecordError(cause, f"{name}: {sentence_of(error)}", record) from error
