"""What a run has read of each document: all of its examples are looked at, and no token is read.

It takes time as there are examples, some million in a second, and memory as there are documents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ul2_tasks.random_access.corpora import OrderedCorpus
from ul2_tasks.random_access.numbering import Numbering

_AT_ONCE = 1 << 16  # elements


class TaskRead(NamedTuple):
    """What a task has read, and its denoiser."""

    denoiser: str
    examples: int
    tokens: int


class CorpusRead(NamedTuple):
    """What was read of a corpus, [documents] int64 each, and by its tasks, by their names.

    `lengths` are the tokens of documents; `tokens` how many of them were read, each time counted; and `times` in how many epochs
    all of a document's tokens were read. Of a record `tokens` are all of it for each of its examples. Tokens that are
    read in place of others, because documents are left out, are in `tokens`, and not in `times`.
    """

    lengths: np.ndarray
    tokens: np.ndarray
    times: np.ndarray
    tasks: dict[str, TaskRead]


def read_of(
    parts: Sequence[tuple[int, int, Numbering]], elements: int, advance: Callable[[int], object] = lambda more: None
) -> dict[str, CorpusRead]:
    """What the first elements of a run have read of each corpus, by its name. `advance` is told of elements looked at.

    `parts` are the elements [first, stop) of the run, and their numbering, which differs in what is left out alone.
    """
    counts: dict[str, _Count] = {}
    for corpus in parts[0][2].corpora:
        counts.setdefault(corpus.name, _Count(corpus)).expect(corpus)
    for begin, end, numbering in parts:
        for first in range(begin, min(end, elements), _AT_ONCE):
            numbers = np.arange(first, min(first + _AT_ONCE, end, elements))
            found = numbering.slots(numbers)
            for epoch, number in np.unique(np.stack([found.epochs, found.corpora]), axis=1).T.tolist():
                corpus, of = numbering.corpora[number], (found.corpora == number) & (found.epochs == epoch)
                counts[corpus.name].add(corpus, epoch, found.slots[of])
            advance(len(numbers))
    return {name: count.read() for name, count in counts.items()}


class _Count:
    """What was read of a corpus until now. Its epochs come one after the other."""

    def __init__(self, corpus: OrderedCorpus):
        starts, stops = corpus.store.ranges_of(np.arange(corpus.store.documents))
        self._lengths, self._full, self._borders = stops - starts, corpus.data.tokens_an_epoch(), np.append(starts, stops[-1])
        self._tokens, self._times = np.zeros([2, len(starts)], np.int64)
        self._tasks: dict[str, TaskRead] = {}
        self._begin(0)

    def _begin(self, epoch: int) -> None:
        self._epoch, self._own, self._others = epoch, _Covered(self._borders), _Covered(self._borders)

    def expect(self, corpus: OrderedCorpus) -> None:
        """Has the tasks of a corpus among those that may have read nothing."""
        for member in corpus.members:
            self._tasks.setdefault(member.task, TaskRead(member.denoiser, 0, 0))

    def add(self, corpus: OrderedCorpus, epoch: int, slots: np.ndarray) -> None:
        if epoch != self._epoch:
            self._end_epoch()
            self._begin(epoch)
        ranges = corpus.order.ranges(np.full_like(slots, epoch), slots)
        origin, found = corpus.kind.origin(ranges), np.zeros([2, len(corpus.members)], np.int64)
        np.add.at(found[0], ranges.kinds, 1)
        np.add.at(found[1], ranges.kinds[origin.of], origin.stops - origin.starts)
        for member, examples, tokens in zip(corpus.members, *found.tolist()):
            before = self._tasks[member.task]
            self._tasks[member.task] = TaskRead(member.denoiser, before.examples + examples, before.tokens + tokens)
        for covered, are_so in ((self._own, ~origin.are_others), (self._others, origin.are_others)):
            covered.add(origin.starts[are_so], origin.stops[are_so])

    def _end_epoch(self) -> None:
        read = self._own.by_document()
        self._times += (read == self._full) & (self._full > 0)
        self._tokens += read + self._others.by_document()

    def read(self) -> CorpusRead:
        """All of it; nothing is added after that."""
        self._end_epoch()
        return CorpusRead(self._lengths, self._tokens, self._times, self._tasks)


class _Covered:
    """How much ranges have of each document, counted as often as they overlap; the borders of documents are [n + 1] int64."""

    def __init__(self, borders: np.ndarray):
        self._borders = borders
        self._counts, self._sums = np.zeros([2, len(borders) + 1], np.int64)  # of ends, by the first border after each

    def add(self, starts: np.ndarray, stops: np.ndarray) -> None:
        for sign, ends in ((1, starts), (-1, stops)):
            at = np.searchsorted(self._borders, ends, side="right")
            np.add.at(self._counts, at, sign)
            np.add.at(self._sums, at, sign * ends)

    def by_document(self) -> np.ndarray:
        """[n] int64. Sums may be beyond 2**63, and come back, as integers do that have 64 bits."""
        below = self._borders * np.cumsum(self._counts)[:-1] - np.cumsum(self._sums)[:-1]
        return np.diff(below)
