"""What a run has read of each document: by arithmetic on its order, without reading a token.

    indices of an order   0 ............. | epoch 1 ............. | epoch 2 ..... |
    read until a step     ################|####################   |               |      ranges, less some holes

In an epoch that was read whole, each token was read once, so any number of them costs nothing. In any other, the examples that have
the tokens of some documents are found, and where they come in the epoch: which is compared with what was read of it. Documents are
looked at in parts, in threads.

Where documents are left out, the examples in whose place others were read are few. They are found, and both are counted. That is
done for each epoch, as is what a block shuffle of units has of each denoiser; and rows of such units are counted by packing them.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import NamedTuple

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.order.epochs import Order, Ranges
from ul2_tasks.order.weights import Weights
from ul2_tasks.order.window_rows import WindowRows
from ul2_tasks.random_access.corpora import OrderedCorpus
from ul2_tasks.random_access.leaving_out import unit_ranges
from ul2_tasks.random_access.numbering import Numbering
from ul2_tasks.random_access.records import OrderedRecords

_DOCUMENTS, _TOKENS = 1 << 17, 1 << 27  # at a time
_AT_ONCE = 1 << 20  # units
_MOST_EPOCHS = 1 << 17  # that are looked at one by one
_MOST_TOKENS = 1 << 62
Corpus = OrderedCorpus | OrderedRecords
Track = Callable[[str, int], Callable[[int], object]]


class ReadIndices(NamedTuple):
    """The indices of an order that were read: ranges [start, stop), ascending, [n] int64, without holes, [m], ascending."""

    starts: np.ndarray
    stops: np.ndarray
    holes: np.ndarray

    def have(self, indices: np.ndarray) -> np.ndarray:
        """Whether each was read, [n] bool."""
        which = np.searchsorted(self.starts, indices, side="right") - 1
        found = (which >= 0) & (indices < np.append(self.stops, -1)[which])
        if len(self.holes):
            found &= self.holes[np.minimum(np.searchsorted(self.holes, indices), len(self.holes) - 1)] != indices
        return found

    def holes_within(self, first: np.ndarray | int, stop: np.ndarray | int) -> np.ndarray:
        """How many holes are from a first index to before a stop."""
        return np.searchsorted(self.holes, stop) - np.searchsorted(self.holes, first)


class Tally(NamedTuple):
    """What was read by each member of a corpus: how many examples and how many tokens, [members] int64."""

    examples: np.ndarray
    tokens: np.ndarray


class DocumentsRead(NamedTuple):
    """What was read of the documents from `first` on, [n] int64 each.

    `lengths` are their tokens; `tokens` how many of them were read, each time counted; and `times` in how many epochs of the corpus
    all of a document's tokens, or examples, were read. Of a record `tokens` are all of it for each of its examples.
    """

    first: int
    lengths: np.ndarray
    tokens: np.ndarray
    times: np.ndarray


class EpochsRead(NamedTuple):
    """The epochs of which something was read.

    `whole` are ranges of those that were read whole, by the order in which they were; `others` are looked at one by one, ascending:
    the orders in which they were read, and whether all of one was read in this order.
    """

    whole: dict[int, list[range]]
    others: dict[int, dict[int, bool]]

    @property
    def number(self) -> int:
        """How many there are."""
        return sum(map(len, itertools.chain(*self.whole.values()))) + len(self.others)


def read_indices(numbering: Numbering, elements: int) -> list[ReadIndices]:
    """Which indices of each order of a numbering the first elements of a run have."""
    ranges: list[list[tuple[int, int]]] = [[] for _ in numbering.corpora]
    holes: list[list[int]] = [[] for _ in numbering.corpora]
    for corpus in range(len(numbering.names)):
        fresh, missing = _positions_read(numbering, corpus, elements)
        for part, stop in numbering.timeline.parts_until(corpus):
            moved = part.start - part.first
            own = ((max(first, part.first), min(last, stop)) for first, last in fresh)
            ranges[part.order] += [(first + moved, last + moved) for first, last in own if first < last]
            holes[part.order] += (missing[(missing >= part.first) & (missing < stop)] + moved).tolist()
    return [
        ReadIndices(starts, stops, np.array(sorted(of_holes), np.int64))
        for of_order, of_holes in zip(ranges, holes)
        for starts, stops in [np.array(_joined(of_order), np.int64).reshape(-1, 2).T]
    ]


def _positions_read(numbering: Numbering, corpus: int, elements: int) -> tuple[list[tuple[int, int]], np.ndarray]:
    """The positions of a corpus that the first elements of a run have: ranges of them, without the holes, [n] int64."""
    fresh, holes, late = list[tuple[int, int]](), np.zeros([0], np.int64), np.zeros([0], np.int64)
    for begin, end in _data_read(numbering, elements):
        (first, left), (stop, still_left) = (numbering.timeline.progress(corpus, data) for data in (begin, end))
        fresh += [(first, stop)] if first < stop else []
        holes = np.append(holes, still_left[still_left >= first])
        late = np.append(late, np.setdiff1d(left, still_left))  # read after others that come after them
    alone = np.setdiff1d(late, holes).tolist()  # of those that were skipped
    return [*fresh, *((position, position + 1) for position in alone)], np.setdiff1d(holes, late)


def _data_read(numbering: Numbering, elements: int) -> list[tuple[int, int]]:
    """Which elements of the data, [begin, end), the first elements of a run are."""
    found, begin, skipped = [], 0, 0
    for skip in numbering.leaving_out.skips:
        if skip.first < elements:
            found.append((begin, skip.first + skipped))
            skipped += skip.count
            begin = skip.first + skipped
    return [each for each in [*found, (begin, elements + skipped)] if each[0] < each[1]]


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges that are apart, ascending, of which none begins where another ends."""
    found: list[tuple[int, int]] = []
    for first, stop in sorted(ranges):
        if found and found[-1][1] == first:
            first = found.pop()[0]
        found.append((first, stop))
    return found


def _without(epochs: range, single: list[int]) -> list[range]:
    """The ranges that are left of a range without some of its epochs, ascending.

    >>> _without(range(2, 9), [0, 2, 5, 6, 9])
    [range(3, 5), range(7, 9)]
    """
    inside = [epoch for epoch in single if epoch in epochs]
    left = map(range, [epochs.start, *(epoch + 1 for epoch in inside)], [*inside, epochs.stop])
    return [each for each in left if each]


def _unseen(what: str, total: int) -> Callable[[int], object]:
    return lambda more: None


@dataclasses.dataclass(frozen=True, eq=False)
class Reading:
    """What the first elements of a run have read of a corpus, which has a name, in all orders in which stages read it.

    `reads` is what was read of each order of the numbering, see `read_indices`. `track` is told what takes long, and how much of it
    there is to do; what it gives is told how much more is done.
    """

    numbering: Numbering
    name: str
    elements: int
    reads: list[ReadIndices]
    track: Track = _unseen

    @property
    def orders(self) -> list[int]:
        """The numbers of these orders in the numbering."""
        return [number for number, corpus in enumerate(self.numbering.corpora) if corpus.name == self.name]

    @property
    def corpus(self) -> Corpus:
        """The corpus, in the first of its orders: all have the same documents."""
        return self.numbering.corpora[self.orders[0]]

    @cached_property
    def epochs(self) -> EpochsRead:
        """The epochs of which something was read. Raises a ValueError where too many of them are to be looked at one by one."""
        found = EpochsRead({number: [] for number in self.orders}, {})
        for number in self.orders:
            order, read = self.numbering.orders[number], self.reads[number]
            for start, stop in zip(read.starts.tolist(), read.stops.tolist()):
                self._count_rows(number, stop)
                first, last = order.begun(start).epoch, order.begun(stop - 1).epoch
                after = last + 1 if order.begun(stop).epoch > last else last
                whole = range(first if order.first_of(first, 0) >= start else first + 1, after)
                holes = read.holes[(read.holes >= start) & (read.holes < stop)].tolist()
                broken = {*(order.begun(hole).epoch for hole in holes), *(each for each in (first, last) if each not in whole)}
                one_by_one = range(max(first, self._first_one_by_one(number)), last + 1)
                self._check(len(one_by_one))
                single = sorted(broken.union(one_by_one))
                for epoch in single:
                    found.others.setdefault(epoch, {})[number] = epoch in whole and epoch not in broken
                found.whole[number] += _without(whole, single)
        return EpochsRead(found.whole, dict(sorted(found.others.items())))

    def _first_one_by_one(self, number: int) -> int:
        """The first epoch of an order from which on each is looked at: where documents may be left out, or blocks are summed."""
        if not self._is_summed:
            return 0
        return self._first_moved(number)

    def _first_moved(self, number: int) -> int:
        """The first epoch of an order of which something may have been read elsewhere."""
        leaving_out = self.numbering.leaving_out
        if not leaving_out.documents or leaving_out.documents[0].first >= self.elements:
            return 1 << 62
        data = leaving_out.data_of(np.array([leaving_out.documents[0].first, self.elements - 1])).tolist()
        ranges = self.numbering.timeline.indices(number, *data)
        return min((self.numbering.orders[number].begun(start).epoch for start, _ in ranges), default=1 << 62)

    def _count_rows(self, number: int, stop: int) -> None:
        """Has the rows of an order counted until one ends after this one, if they are counted by packing them."""
        rows = self.numbering.packed[number] if self.numbering.packed else None
        if isinstance(rows, WindowRows):
            self._check(int(stop / rows.rows_about))
            rows.count_past(stop, self.track(f"{self.name}: rows packed", stop))

    def _check(self, epochs: int) -> None:
        if epochs > _MOST_EPOCHS:
            causes = {
                "packed sequences of documents or records are counted by packing them": any(
                    isinstance(self.numbering.packed[number], WindowRows) for number in self.orders if self.numbering.packed
                ),
                "documents are left out": bool(self.numbering.leaving_out.documents),
                "documents are shuffled in blocks": True,
            }
            why = next(cause for cause, holds in causes.items() if holds)
            raise ValueError(
                f"until must be a step at which at most {_MOST_EPOCHS:,} epochs of {self.name!r} are to be looked at one by one,"
                f" because {why}, got one with {epochs:,}. Count until an earlier step."
            )

    def documents(self) -> Iterator[tuple[DocumentsRead, dict[int, Tally]]]:
        """Yields what was read of all documents, part by part; and by each member of each order, of these documents.

        What whole epochs have is not in these tallies, see `tallies_of_whole_epochs`; neither are `moved`.
        """
        threads = os.cpu_count() or 1
        _ = self._other_epochs, self.moved  # once, not in each thread
        advance = self.track(f"{self.name}: documents", self.corpus.store.documents)
        with futures.ThreadPoolExecutor(threads) as pool:
            waiting: collections.deque[futures.Future] = collections.deque()
            for first, stop in self._parts():
                waiting.append(pool.submit(self._look, first, stop))
                if len(waiting) > 2 * threads:
                    yield self._done(waiting, advance)
            while waiting:
                yield self._done(waiting, advance)

    def _done(self, waiting: collections.deque[futures.Future], advance: Callable[[int], object]) -> tuple[DocumentsRead, dict]:
        found = waiting.popleft().result()
        advance(len(found[0].lengths))
        return found

    def tallies_of_whole_epochs(self) -> dict[int, Tally]:
        """What was read by each member of each order in whole epochs. Raises a ValueError where these are too many tokens."""
        found = {number: none(self.numbering.corpora[number]) for number in self.orders}
        for number in self.orders if self._is_summed else ():
            singles = [range(epoch, epoch + 1) for epoch, orders in self.epochs.others.items() if orders.get(number)]
            for epochs in [*self.epochs.whole[number], *singles]:
                found[number] = added(found[number], self._tally(number, epochs))
        return found

    def _tally(self, number: int, epochs: range) -> Tally:
        """What each member has in whole epochs of an order."""
        order, weights = self.numbering.corpora[number].order, self._weights.get(number)
        if self.epochs.number * (weights.total if weights else self.corpus.store.tokens) > _MOST_TOKENS:
            raise ValueError(
                f"until must be a step before which fewer than 2^62 tokens are read, got {self.epochs.number:,} epochs of"
                f" {self.name!r}. Count until an earlier step."
            )
        examples, tokens = order.totals(epochs.start, epochs.stop)
        if weights:
            advance = self.track(f"{self.name}: whole epochs", len(epochs))
            tokens = weights.of_kinds(epochs.start, epochs.stop, advance)
        return Tally(examples, tokens)

    @cached_property
    def _weights(self) -> dict[int, Weights]:
        """The tokens of the units of each order; none of joined tokens."""
        if self._is_joined:
            return {}
        found = {}
        for number in self.orders:
            order = self.numbering.corpora[number].order
            assert isinstance(order, Order)
            parts = (np.arange(first, min(first + _AT_ONCE, order.tokens)) for first in range(0, order.tokens, _AT_ONCE))
            found[number] = Weights.of(order, (self._tokens(units, *self._places(units, units + 1)) for units in parts))
        return found

    @cached_property
    def moved(self) -> Moved:
        """What was read elsewhere, because documents are left out, see `numbering.Slots`."""
        found = Moved({}, Coverage.of([]), {number: none(self.numbering.corpora[number]) for number in self.orders})
        if not self.numbering.leaving_out.documents:
            return found
        to: list[tuple[np.ndarray, np.ndarray]] = []
        firsts = {number: self._first_moved(number) for number in self.orders}
        advance = self.track(f"{self.name}: epochs with documents left out", len(self.epochs.others))
        for epoch, orders in self.epochs.others.items():
            away: list[tuple[np.ndarray, np.ndarray]] = []
            for number in (number for number in orders if epoch >= firsts[number]):
                for sign, ranges in self._moved(number, epoch):
                    starts, stops = self._places(ranges.starts, ranges.stops)
                    (to if sign > 0 else away).append((starts, stops))
                    tokens = self._tokens(ranges.starts, starts, stops)
                    kinds, is_first = ranges.kinds[ranges.of], np.diff(ranges.of, prepend=-1) != 0
                    counted = _tallied(kinds, is_first, tokens, len(found.tallies[number].tokens))
                    found.tallies[number] = added(found.tallies[number], counted, sign)
            if away:
                found.away[epoch] = Coverage.of(away)
            advance(1)
        return found._replace(to=Coverage.of(to))

    def _moved(self, number: int, epoch: int) -> list[tuple[int, Ranges]]:
        """The ranges of an epoch that were not read, with -1, and those that were read in their place, with 1."""
        numbering, order = self.numbering, self.numbering.corpora[number].order
        slots = numbering.slots_left_out(number, epoch)
        elements = numbering.numbers(number, np.full_like(slots, epoch), slots)
        slots = slots[(elements >= 0) & (elements < self.elements)]
        elements = elements[(elements >= 0) & (elements < self.elements)]
        if not len(slots):
            return []
        found = numbering.slots(np.unique(elements))
        found = found.only((found.corpora == number) & (found.epochs == epoch))
        assert found.elsewhere is not None
        by_slot = np.argsort(found.slots)
        places = (
            by_slot[np.minimum(np.searchsorted(found.slots, slots, sorter=by_slot), len(by_slot) - 1)] if len(by_slot) else None
        )
        is_there = np.zeros(len(slots), bool) if places is None else found.slots[places] == slots
        elsewhere = np.full(len(slots), -1) if places is None else np.where(is_there, found.elsewhere[places], -1)
        away, to = slots[~is_there | (elsewhere >= 0)], elsewhere >= 0
        return [
            (-1, order.ranges(np.full_like(away, epoch), away)),
            (1, unit_ranges(numbering.corpora[number], np.full(to.sum(), epoch), slots[to], elsewhere[to])),
        ]

    @property
    def _is_joined(self) -> bool:
        return isinstance(self.corpus, OrderedCorpus) and self.corpus.pieces is None

    @property
    def _is_summed(self) -> bool:
        """Whether what each member has in whole epochs is summed without looking at these."""
        return self._is_joined or isinstance(self.corpus.order, Order)

    def _parts(self) -> Iterator[tuple[int, int]]:
        """Documents [first, stop) to look at together."""
        for begun in range(0, self.corpus.store.documents, _DOCUMENTS):
            documents = np.arange(begun, min(begun + _DOCUMENTS, self.corpus.store.documents))
            starts, stops = self.corpus.store.ranges_of(documents)
            parts = (stops - starts[0]) // _TOKENS
            borders = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(documents)]
            yield from ((begun + first, begun + stop) for first, stop in itertools.pairwise(borders))

    def _look(self, first: int, stop: int) -> tuple[DocumentsRead, dict[int, Tally]]:
        documents = np.arange(first, stop)
        starts, stops = self.corpus.store.ranges_of(documents)
        lengths = stops - starts
        units, borders = self._units(documents, starts, stops)
        full = np.diff(borders) if self._has_records else lengths
        times, read = (full > 0) * self._plain, full * self._plain
        tallies = {number: none(self.numbering.corpora[number]) for number in self.orders}
        for epoch, orders in self._other_epochs.items():
            own = np.zeros_like(lengths)
            for number, is_whole in orders.items():
                if is_whole and self._is_summed:
                    own += full
                elif units[0] < units[1]:
                    covered, tally = self._covered(number, epoch, units, is_whole)
                    own += covered.within(borders[:-1], borders[1:])
                    tallies[number] = added(tallies[number], tally)
            if epoch in self.moved.away:
                own -= self.moved.away[epoch].within(borders[:-1], borders[1:])
            times += (own == full) & (full > 0)
            read += own
        read += self.moved.to.within(borders[:-1], borders[1:])
        return DocumentsRead(first, lengths, read * lengths if self._has_records else read, times), tallies

    @cached_property
    def _other_epochs(self) -> dict[int, dict[int, bool]]:
        """The epochs in which some tokens may not have been read once, in their place; or of which that is not summed."""
        away = self.moved.away if self._is_summed else self.epochs.others
        return {epoch: orders for epoch, orders in self.epochs.others.items() if epoch in away or not all(orders.values())}

    @property
    def _plain(self) -> int:
        """How many epochs are none of these."""
        return self.epochs.number - len(self._other_epochs)

    @property
    def _has_records(self) -> bool:
        return isinstance(self.corpus, OrderedRecords)

    def _units(self, documents: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> tuple[tuple[int, int], np.ndarray]:
        """What documents in a row are in the order, [start, stop), see `units_of`; and the borders of each.

        The borders are in tokens, or of records in examples, [n + 1] int64.
        """
        corpus, ends = self.corpus, documents[[0, -1]]
        if isinstance(corpus, OrderedRecords):
            first, stop = corpus.index.examples_of(int(ends[0]))[0], corpus.index.examples_of(int(ends[1]))[1]
            records = corpus.index.records(np.arange(first, stop))
            counts = np.bincount(records - documents[0], minlength=len(documents))
            return (first, stop), first + np.concatenate([[0], np.cumsum(counts)])
        firsts, lasts = corpus.units_of(ends)
        return (int(firsts[0]), int(lasts[-1])), np.append(starts, stops[-1])

    def _covered(self, number: int, epoch: int, units: tuple[int, int], is_whole: bool) -> tuple[Coverage, Tally]:
        """What was read of some units in an epoch, as `_places`, and the tally of it."""
        corpus = self.numbering.corpora[number]
        slots = corpus.order.slots_with(epoch, *np.array(units).reshape(2, 1))
        epochs = np.full_like(slots, epoch)
        found = corpus.order.ranges(epochs, slots)
        is_read = np.ones(len(slots), bool) if is_whole else self._are_read(number, epochs, slots)
        is_first = (np.diff(found.of, prepend=-1) != 0) & (found.starts >= units[0]) & (found.starts < units[1])
        starts, stops = np.maximum(found.starts, units[0]), np.minimum(found.stops, units[1])
        kept = is_read[found.of] & (starts < stops)
        kinds, is_first, units_read = found.kinds[found.of[kept]], is_first[kept], starts[kept]
        starts, stops = self._places(units_read, stops[kept])
        tokens = self._tokens(units_read, starts, stops)
        return Coverage.of([(starts, stops)]), _tallied(kinds, is_first, tokens, len(corpus.members))

    def _places(self, starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ranges of units as ranges of tokens; those of examples of records as they are."""
        pieces = getattr(self.corpus, "pieces", None)
        return pieces.tokens_of(starts) if pieces else (starts, stops)

    def _tokens(self, units: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        """How many tokens ranges have, of which the units and the places are given."""
        if not isinstance(self.corpus, OrderedRecords):
            return stops - starts
        begins, ends = self.corpus.store.ranges_of(self.corpus.index.records(units))
        return ends - begins

    def _are_read(self, number: int, epochs: np.ndarray, slots: np.ndarray) -> np.ndarray:
        read = self.reads[number]
        if not self.numbering.packed:
            return read.have(self.numbering.corpora[number].order.examples_at(epochs, slots))
        rows = self.numbering.packed[number]
        if not isinstance(rows, WindowRows):
            return read.have(rows.rows_at(epochs, slots))
        # Windows need not be packed of which all rows were read, or none.
        firsts, stops = rows.rows_around(epochs, slots)
        which = np.searchsorted(read.starts, firsts, side="right") - 1
        found = (which >= 0) & (stops <= np.append(read.stops, -1)[which]) & (read.holes_within(firsts, stops) == 0)
        is_open = ~found & (np.searchsorted(read.starts, stops) > np.searchsorted(read.stops, firsts, side="right"))
        open_ones = np.flatnonzero(is_open)
        if len(open_ones):
            found[open_ones] = read.have(rows.rows_at(epochs[open_ones], slots[open_ones]))
        return found


class Moved(NamedTuple):
    """What was not read in its place, by epochs; what was read instead; and what both change of the tallies of each order."""

    away: dict[int, Coverage]
    to: Coverage
    tallies: dict[int, Tally]


class Coverage(NamedTuple):
    """Ranges that may overlap: their starts and their stops, [n] int64, each ascending; and sums of the first, [n + 1] int64."""

    starts: np.ndarray
    stops: np.ndarray
    sums_of_starts: np.ndarray
    sums_of_stops: np.ndarray

    @classmethod
    def of(cls, ranges: list[tuple[np.ndarray, np.ndarray]]) -> Coverage:
        """Of the starts and the stops of ranges."""
        none = np.zeros([0], np.int64)
        starts, stops = (np.sort(np.concatenate([none, *(each[place] for each in ranges)])) for place in (0, 1))
        return cls(starts, stops, *(np.concatenate([[0], np.cumsum(each)]) for each in (starts, stops)))

    def within(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        """How much of each range [start, stop) they cover, counted as often as they do, [m] int64."""
        return self._below(stops) - self._below(starts)

    def _below(self, ends: np.ndarray) -> np.ndarray:
        begun, over = np.searchsorted(self.starts, ends), np.searchsorted(self.stops, ends)
        return begun * ends - self.sums_of_starts[begun] - over * ends + self.sums_of_stops[over]


def none(corpus: Corpus) -> Tally:
    """Of nothing that was read."""
    return Tally(*np.zeros([2, len(corpus.members)], np.int64))


def added(one: Tally, other: Tally, sign: int = 1) -> Tally:
    """Both together."""
    return Tally(one.examples + sign * other.examples, one.tokens + sign * other.tokens)


def _tallied(kinds: np.ndarray, is_first: np.ndarray, tokens: np.ndarray, members: int) -> Tally:
    """Of ranges: the member of each, whether it is the first of its example, and its tokens."""
    count: Callable[..., np.ndarray] = functools.partial(np.bincount, minlength=members)
    of_members = np.zeros(members, np.int64)
    np.add.at(of_members, kinds, tokens)
    return Tally(count(kinds[is_first]), of_members)
