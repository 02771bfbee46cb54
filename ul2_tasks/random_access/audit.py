"""What a run has read of each document: each token once in an epoch that is whole, and of what is begun all examples are looked at.

    indices of an order   0 ............. | epoch 1 ............. | epoch 2 ..... |
    read until a step     ################|####################   |               |      ranges, less some holes

No token is read. It takes time as the epochs that are begun have examples, and of whole ones where a task's part of an epoch is not
known by arithmetic; and memory as there are documents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ul2_tasks.random_access.corpora import OrderedCorpus
from ul2_tasks.random_access.kinds import Origin
from ul2_tasks.random_access.numbering import NO_END, Numbering

_AT_ONCE = 1 << 16  # elements
Track = Callable[[str, int], Callable[[int], object]]


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


def read_of(numbering: Numbering, name: str, elements: int, track: Track = lambda what, total: lambda more: None) -> CorpusRead:
    """What the first elements of a run have read of a corpus. `track` is told how much there is to do, and then what is done."""
    numbers = [number for number, corpus in enumerate(numbering.corpora) if corpus.name == name]
    corpus = numbering.corpora[numbers[0]]  # all have the same documents
    starts, stops = corpus.store.ranges_of(np.arange(corpus.store.documents))
    lengths, borders, full = stops - starts, np.append(starts, stops[-1]), corpus.data.tokens_an_epoch()
    whole, begun = _epochs(numbering, numbering.names.index(name), elements)
    advance = track(name, len(whole) + sum(stop - start for parts in begun.values() for _, start, stop in parts))

    tallies = {number: np.zeros([2, len(numbering.corpora[number].members)], np.int64) for number in numbers}
    for number, epoch in whole:
        tallies[number] += _of_epoch(numbering.corpora[number], epoch)
        advance(1)
    read, times = full * len(whole), (full > 0) * len(whole)
    for parts in begun.values():
        own, others = _Covered(borders), _Covered(borders)
        for number, start, stop in parts:
            for first in range(start, stop, _AT_ONCE):
                indices = np.arange(first, min(first + _AT_ONCE, stop))
                found = numbering.slots(_elements(numbering, number, indices, elements))
                counts, origin = _tally(numbering.corpora[number], found.epochs, found.slots)
                for covered, are_so in ((own, ~origin.are_others), (others, origin.are_others)):
                    covered.add(origin.starts[are_so], origin.stops[are_so])
                tallies[number] += counts
                advance(len(indices))
        read_once = own.by_document()
        times += (read_once == full) & (full > 0)
        read += read_once + others.by_document()

    tasks: dict[str, TaskRead] = {}
    for number, tally in tallies.items():
        for member, examples, tokens in zip(numbering.corpora[number].members, *tally.tolist()):
            before = tasks.get(member.task, TaskRead(member.denoiser, 0, 0))
            tasks[member.task] = TaskRead(member.denoiser, before.examples + examples, before.tokens + tokens)
    return CorpusRead(lengths, read, times, tasks)


def _epochs(
    numbering: Numbering, corpus: int, elements: int
) -> tuple[list[tuple[int, int]], dict[int, list[tuple[int, int, int]]]]:
    """The epochs of a corpus of which the first elements of a run have something.

    First those that are read whole, and in one order, of which each gives the number: the order and the epoch. Then the others: of
    each epoch the order, and its indices [start, stop) of which some were read.
    """
    leaving_out = numbering.leaving_out

    def after(number: int) -> int:  # where the data of so many elements end
        return int(leaving_out.data_of(np.array([number - 1]))[0]) + 1 if number else 0

    def read(data: int) -> int:
        return int(numbering.mix.before(data)[corpus])

    # Positions of which some may not be read, or be read as others.
    unsure = [(read(after(0 if leaving_out.documents else elements)), NO_END)]
    for skip in leaving_out.skips:
        end = int(leaving_out.data_of(np.array([skip.first]))[0])
        unsure.append((read(after(skip.first)), read(end)))

    whole, begun = list[tuple[int, int]](), dict[int, list[tuple[int, int, int]]]()
    for part, stop in numbering.parts_until(corpus, read(after(elements))):
        order, start, moved = numbering.orders[part.order], part.start, part.start - part.first
        while start < stop + moved:
            epoch = order.round_of(start) // order.rounds
            is_over = order.round_of(stop + moved) // order.rounds > epoch  # asked first: rows are counted by packing them
            end = order.first_of((epoch + 1) * order.rounds) if is_over else stop + moved
            is_sure = all(end - moved <= first or last <= start - moved for first, last in unsure)
            if is_over and is_sure and start == order.first_of(epoch * order.rounds):
                whole.append((part.order, epoch))
            else:
                begun.setdefault(epoch, []).append((part.order, start, end))
            start = end
    return whole, begun


def _elements(numbering: Numbering, number: int, indices: np.ndarray, elements: int) -> np.ndarray:
    """Those of the first elements of a run that have some of these indices of an order."""
    found = numbering.elements_at(number, indices)
    return found[(found >= 0) & (found < elements)]


def _of_epoch(corpus: OrderedCorpus, epoch: int) -> np.ndarray:
    """What each member has in an epoch, see `_tally`."""
    order, found, first = corpus.order, np.zeros([2, len(corpus.members)], np.int64), 0
    if corpus.data.fixed_sizes and order.is_one_window:  # cycles have full chunks
        cycles = order.sections[0].inner.cycles
        counts, first = cycles * np.asarray(order.cycle.counts), cycles * len(order.cycle)
        found += [counts, counts * np.asarray(order.lengths)]
    for begin in range(first, order.examples, _AT_ONCE):
        slots = np.arange(begin, min(begin + _AT_ONCE, order.examples))
        found += _tally(corpus, np.full_like(slots, epoch), slots)[0]
    return found


def _tally(corpus: OrderedCorpus, epochs: np.ndarray, slots: np.ndarray) -> tuple[np.ndarray, Origin]:
    """How many examples each member has of these, and how many tokens, [2, members] int64; and where they are from."""
    ranges, found = corpus.order.ranges(epochs, slots), np.zeros([2, len(corpus.members)], np.int64)
    origin = corpus.kind.origin(ranges)
    np.add.at(found[0], ranges.kinds, 1)
    np.add.at(found[1], ranges.kinds[origin.of], origin.stops - origin.starts)
    return found, origin


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
