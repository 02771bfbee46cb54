"""What is wrong with records, each in a sentence with the record's name; and how many were skipped for what."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from ul2_tasks.images.problems import check_of_record, sentence_of

MOST_IN_A_ROW = 100  # of a source that are skipped; more of them mean that something is wrong with all of its records
_TOLD = 10  # problems of each source and cause that are logged; then each tenfold of them
Step = Literal["planned", "decoded"]
_SAVED = {"schema": "plan", "image": "picture"}  # causes by their names in states, which version 1 gave them
_ANY = "any source"  # of which problems are that a state of 1.0.3 counts
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

    Each is appended to `file`, if there is one, as a line of JSON. `by_source` has how many there are of each cause; `in_a_row` how
    many since a sample of a source was right, of those that were planned, and of those that were decoded. Where a pool is planned
    again, they are not logged and written (`is_told`).
    """

    sources: Sequence[str] = ("records",)
    file: str | None = None
    by_source: dict[str, collections.Counter[str]] = dataclasses.field(default_factory=dict)
    in_a_row: dict[Step, collections.Counter[str]] = dataclasses.field(default_factory=lambda: _none_in_a_row({}))
    is_told: bool = True

    @property
    def counts(self) -> collections.Counter[str]:
        """How many of each cause."""
        return sum(self.by_source.values(), collections.Counter())

    def right(self, step: Step, source: int) -> None:
        """A sample of the source of this number was planned, or decoded."""
        self.in_a_row[step].pop(self.sources[source], None)

    def skip(self, problem: RecordError, step: Step, source: int, most: int) -> None:
        """Counts a problem of the source of this number, logs it, and writes it down. `most` in a row raise a ValueError."""
        name = self.sources[source]
        counts = self.by_source.setdefault(name, collections.Counter())
        counts[problem.cause] += 1
        self.in_a_row[step][name] += 1
        if self.is_told:
            self._log(problem, name, counts[problem.cause])
            self._write(problem, name)
        if (in_a_row := self.in_a_row[step][name]) >= most:
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

    def state(self) -> dict[str, Any]:
        """What `load` takes."""
        numbers = {name: str(number) for number, name in enumerate(self.sources)} | {_ANY: _ANY}
        return {
            "counts": _renamed(self.counts, _SAVED),
            "by_source": {numbers[name]: _renamed(counts, _SAVED) for name, counts in self.by_source.items()},
            "in_a_row": {step: {numbers[name]: count for name, count in counts.items()} for step, counts in self.in_a_row.items()},
        }

    def add(self, state: Mapping[str, Any] | None) -> None:
        """Adds how many a state has of each cause."""
        if state is not None:
            other = Problems(self.sources)
            other.load(state)
            for name, counts in other.by_source.items():
                self.by_source.setdefault(name, collections.Counter()).update(counts)

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on counting from there. Of several sources a state of 1.0.3 does not tell which one has the problems."""
        names = {str(number): name for number, name in enumerate(self.sources)} | {_ANY: _ANY}
        any_source = "0" if len(self.sources) == 1 else _ANY
        by_source = state.get("by_source", {any_source: state["counts"]} if state["counts"] else {})
        causes = {saved: cause for cause, saved in _SAVED.items()}
        self.by_source = {names[number]: collections.Counter(_renamed(counts, causes)) for number, counts in by_source.items()}
        in_a_row = {
            step: counts if isinstance(counts, dict) else {any_source: counts} for step, counts in state["in_a_row"].items()
        }
        self.in_a_row = _none_in_a_row(
            {step: {names[number]: count for number, count in counts.items()} for step, counts in in_a_row.items()}
        )


def _renamed(counts: Mapping[str, int], names: Mapping[str, str]) -> dict[str, int]:
    return {names.get(cause, cause): count for cause, count in counts.items()}


def _none_in_a_row(counts: Mapping[str, Mapping[str, int]]) -> dict[Step, collections.Counter[str]]:
    return {"planned": collections.Counter(counts.get("planned", {})), "decoded": collections.Counter(counts.get("decoded", {}))}


@contextlib.contextmanager
def told_as(cause: str, name: str, record: str = "") -> Iterator[None]:
    """Makes a `RecordError` of an error, unless it is none of the record, see `check_of_record`.

    For `cause` see `RecordError`. `name` is that of the record, in words, and `record` its name alone; by default the same.

    >>> with told_as("schema", "pets, record 7"):
    ...     raise ValueError("the record has no caption")
    Traceback (most recent call last):
    ..
    ul2_tasks.image_rows.problems.RecordError: pets, record 7: the record has no caption
    """
    try:
        yield
    except RecordError:
        raise
    except Exception as error:
        check_of_record(error, record or name)
        raise RecordError(cause, f"{name}: {sentence_of(error)}", record or name) from error
