"""`Numbering`: which corpora's slots make element i, an example or a packed row, of a mixture of corpora."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.order.mix import Mix, Shares, Stage
from ul2_tasks.order.order import Order
from ul2_tasks.order.permutation import keyed, keys, permute
from ul2_tasks.order.rest import Rest, rest_of
from ul2_tasks.order.rows import Rows
from ul2_tasks.order.steps import Steps
from ul2_tasks.random_access.corpora import Kind, OrderedCorpus, order_corpus
from ul2_tasks.random_access.kinds import Task
from ul2_tasks.random_access.leaving_out import NOTHING, LeavingOut
from ul2_tasks.store.columns import Columns

if TYPE_CHECKING:
    from ul2_tasks.corpus.corpus import Corpus

_logger = logging.getLogger(__name__)
RUN_RECORD = "ul2_run.json"  # in the folder of a training run: the fingerprint of its dataset, its batch size and first step
_FOR_HOSTS = 0x686F737473  # what a key is for
_MOST_PARTITIONS = 1 << 12
NO_END = 1 << 60  # beyond all elements
_FAR = 4  # times as far as another


class Slots(NamedTuple):
    """The m examples of some elements, [m] int64 each: of which element, ascending; the number of its corpus; and see `Order`.

    Corpora are counted as those of a `Numbering`, and `indices` are those of the elements in the order of their corpus.
    """

    places: np.ndarray
    corpora: np.ndarray
    epochs: np.ndarray
    slots: np.ndarray
    indices: np.ndarray


def in_order(parts: Iterable[Slots]) -> Slots:
    """The same examples, by their elements."""
    found = [Slots(*np.zeros([5, 0], np.int64)), *parts]
    order = np.argsort(np.concatenate([each.places for each in found]), kind="stable")
    return Slots(*(np.concatenate(each)[order] for each in zip(*found)))


@dataclasses.dataclass(frozen=True)
class Share:
    """Which elements one of several hosts has: `run` in a row, before the next host has as many. `start` is the first of all.

    A round is one run of each host, and of several workers of a host each has another round in turn. Where corpora are mixed,
    `turns` elements in a row of one of them, see `Mix`, hosts take their places of a round in an order that changes: some would
    never read one of the corpora otherwise. Turns stay whole, so that a host has its own partitions. 0 is for a single corpus.
    """

    host: int = 0
    hosts: int = 1
    run: int = 1
    start: int = 0
    turns: int = 0
    worker: int = 0
    workers: int = 1

    def numbers(self, elements: np.ndarray) -> np.ndarray:
        """The numbers of this host's elements, which are counted from 0."""
        runs, places = np.divmod(elements, self.run)
        firsts = self.start + (runs * self.workers + self.worker) * self.hosts * self.run
        return firsts + self._places(firsts) * self.run + places

    def count(self, stop: int) -> int:
        """How many elements this host has whose numbers are below `stop`."""
        rounds, rest = divmod(max(0, stop - self.start), self.hosts * self.run)
        full = (rounds - self.worker + self.workers - 1) // self.workers * self.run
        if rounds % self.workers != self.worker:
            return full
        place = int(self._places(np.array([self.start + rounds * self.hosts * self.run]))[0])
        return full + min(max(0, rest - place * self.run), self.run)

    def _places(self, firsts: np.ndarray) -> np.ndarray:
        """[n] int64, which of the hosts this one is in the rounds that begin with these elements."""
        whole = self.turns and self.run == 1 and 0 in (self.hosts % self.turns, self.turns % self.hosts)
        together = math.gcd(self.turns, self.hosts) if whole else 1
        if not self.turns or together == self.hosts:
            return np.full_like(firsts, self.host)
        group, place = divmod(self.host, together)
        return permute(np.full_like(firsts, group), self.hosts // together, keys(_FOR_HOSTS, firsts)) * together + place


def check_hosts(name: str, split: str, elements: int, hosts: int) -> None:
    """Raises a ValueError where hosts outnumber the elements that all epochs have."""
    if elements < hosts:
        raise ValueError(
            f"{name!r} must have an example of split {split!r} for each of {hosts} hosts, got {elements}. Use fewer hosts. See"
            " docs/help/troubleshooting.md#too-few-documents-for-the-hosts."
        )


class StageMembers(NamedTuple):
    """From element `first` of a run on, these tasks are read, at their rates; in rows of these lengths, or of those asked for."""

    first: int
    members: Sequence[Task]
    lengths: Mapping[str, int | None] | None = None


@dataclasses.dataclass(frozen=True)
class MemberSchedule:
    """What is read in the course of a run of so many elements, in such steps; None of what is always the same.

    The rates of corpora, `weigh`, are parts of the examples or of the tokens. Some corpora are read so many epochs at most.
    """

    stages: tuple[StageMembers, ...]
    steps: Steps | None = None
    elements: int | None = None
    weigh: str = "examples"
    max_epochs: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, members: Sequence[Task]) -> MemberSchedule:
        """The same all the time."""
        return cls((StageMembers(0, members),))


class MixedStage(NamedTuple):
    """How a stage mixes the examples of corpora, by their numbers among those of a `Numbering`, and their weights."""

    first: int
    corpora: tuple[int, ...]
    weights: tuple[float, ...]


class Part(NamedTuple):
    """From position `first` of a corpus on, it is read in the order of this number, from element `start` of that on."""

    first: int
    order: int
    start: int


@dataclasses.dataclass(frozen=True)
class Numbering:
    """The elements of a mixture of corpora, without end, from stage to stage; in each corpus a position of its own order.

    A corpus is there once for each way in which stages read it, by its denoisers, their weights and the lengths, and once for each
    rest of a round, see `order.rest`. `packed` says how the examples
    of each corpus share rows, if elements are packed rows; it is empty if they are examples. `stages` tell how examples are mixed,
    `mixed` the same of elements of the data, with a stage more where a corpus has been read `max_epochs`; `mix` which corpus each
    is of, by its name, and `parts` in which orders that is read. `size` is how many elements are asked for, None for an epoch.
    `leaving_out` says which documents and steps are left out.
    """

    corpora: tuple[OrderedCorpus, ...]
    packed: tuple[Rows, ...]
    stages: tuple[MixedStage, ...]
    mixed: tuple[MixedStage, ...]
    mix: Mix
    parts: tuple[tuple[Part, ...], ...]
    size: int | None
    max_epochs: Mapping[str, int]
    leaving_out: LeavingOut = NOTHING

    @cached_property
    def names(self) -> list[str]:
        """The names of the corpora, each once, as the mix counts them."""
        return list(dict.fromkeys(corpus.name for corpus in self.corpora))

    @cached_property
    def lengths(self) -> list[tuple[int, Mapping[str, int | None]]]:
        """The lengths of rows and the element from which on they are so, where stages have some of their own; else none."""
        found: list[tuple[int, Mapping[str, int | None]]] = []
        for stage in self.stages:
            lengths = self.corpora[stage.corpora[0]].lengths
            if lengths and (not found or found[-1][1] != lengths):
                found.append((stage.first, lengths))
        return found

    def by_lengths(self, numbers: np.ndarray, asked: Mapping[str, int | None]) -> list[tuple[Mapping[str, int | None], np.ndarray]]:
        """Which elements, [n] int64 of their numbers, have rows of which lengths: those `asked` for, unless stages have others."""
        if not self.lengths:
            return [(asked, np.arange(len(numbers)))]
        at = np.searchsorted([first for first, _ in self.lengths], numbers, side="right") - 1
        return [(self.lengths[stage][1], np.flatnonzero(at == stage)) for stage in np.unique(at).tolist()]

    @property
    def turns(self) -> int:
        """See `Share`."""
        return self.mix.turns if len(self.names) > 1 else 0

    def first_of(self, epoch: int) -> int:
        """The first element of an epoch: that which begins so many epochs of a corpus, and is the first to do so of any.

        So no token comes more often than `epoch` times before it.
        """
        if self.size is not None:
            return epoch * self.size
        data = NO_END if epoch else 0
        about = {number: self._elements(number) / share for number, share in self._first_shares}
        least = math.inf
        for number in sorted(about, key=about.__getitem__) if epoch else ():
            if about[number] < _FAR * least:  # rows far beyond need not be counted
                first = self.orders[number].first_of(epoch * self.orders[number].rounds)
                at = int(self.mix.numbers(self.names.index(self.corpora[number].name), np.array([first]))[0])
                if at >= 0:  # else all epochs of it that may be read have been
                    data, least = min(data, at), min(least, about[number])
        return int(self.leaving_out.first_from(np.array([data]))[0])

    def warn_of_unread(self) -> None:
        """Warns of corpora of which the first epoch has no example, because another one ends before."""
        shares = self._first_shares
        end, first = min((self._elements(number) / share, number) for number, share in shares)
        unread = [self.corpora[number].name for number, share in shares if share * end < 0.5]
        if unread and self.size is None:
            _logger.warning(
                "an epoch has no example of %s: %s ends before, after some %d elements. Raise their weights, or read more epochs.",
                unread,
                self.corpora[first].name,
                end,
            )

    def epoch_with(self, number: int) -> int:
        """The epoch that has an element."""
        if self.size is not None:
            return number // self.size
        read = self.mix.before(int(self.leaving_out.data_of(np.array([number]))[0]) + 1).tolist()
        return max(self._epoch_of(corpus, count - 1) for corpus, count in enumerate(read) if count)

    def begun_again(self, epoch: int) -> list[str]:
        """The corpora that end, and begin again, within an epoch: it may have tokens of them more than once."""
        if self.size is not None or len(self.corpora) == 1 or not epoch:
            return []
        read = (self._before(self.first_of(each)).tolist() for each in (epoch, epoch + 1))
        return [
            self.names[corpus]
            for corpus, (first, stop) in enumerate(zip(*read))
            if first < stop and self._epoch_of(corpus, first) < self._epoch_of(corpus, stop - 1)
        ]

    def _before(self, element: int) -> np.ndarray:
        """[names] int64, how many positions of each corpus come before the data of an element."""
        return self.mix.before(int(self.leaving_out.data_of(np.array([element - 1]))[0]) + 1 if element else 0)

    def _epoch_of(self, corpus: int, position: int) -> int:
        """The epoch that a position of a corpus is of, in its first order."""
        order = self.orders[self.parts[corpus][0].order]
        return order.round_of(position) // order.rounds

    @property
    def tokens_per_element(self) -> float:
        """How many tokens of text an element has, on average in the first stage."""
        return sum(share * self.corpora[number].store.tokens / self._elements(number) for number, share in self._first_shares)

    @property
    def _first_shares(self) -> list[tuple[int, float]]:
        """The corpora of the first stage, and which part of the elements each has."""
        return list(zip(self.stages[0].corpora, self.mix.stages[0].shares.weights))

    def _elements(self, number: int) -> float:
        """How many elements an epoch of a corpus has, about."""
        return self.packed[number].rows_about if self.packed else self.corpora[number].order.examples

    @property
    def orders(self) -> Sequence[Order | Rows]:
        """The order of the elements of each corpus."""
        return self.packed or [corpus.order for corpus in self.corpora]

    def slots(self, numbers: np.ndarray) -> Slots:
        """The examples of elements, [n] integers from 0, below 2**60. Those of a row stand in its order."""
        corpora, positions = self.mix.elements(self.leaving_out.data_of(numbers))
        if len(self.corpora) == 1:
            return self._slots_of(0, np.arange(len(positions)), positions)
        return in_order(self._slots_of_corpora(corpora, positions))

    def _slots_of_corpora(self, corpora: np.ndarray, positions: np.ndarray) -> Iterator[Slots]:
        for corpus in np.unique(corpora).tolist():
            for part, stop in self.parts_until(corpus):
                of = np.flatnonzero((corpora == corpus) & (positions >= part.first) & (positions < stop))
                if len(of):
                    yield self._slots_of(part.order, of, positions[of] - part.first + part.start)

    def _slots_of(self, number: int, places: np.ndarray, indices: np.ndarray) -> Slots:
        if self.packed:
            in_rows = self.packed[number].slots(indices)
            epochs, slots = in_rows.epochs, in_rows.slots
            places, indices = places[in_rows.places], indices[in_rows.places]
        else:
            epochs, slots = self.corpora[number].order.slots(indices)
        return Slots(places, np.full_like(places, number), epochs, slots, indices)

    def numbers(self, number: int, epochs: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """The inverse of `slots`: the elements that have these slots of these epochs of a corpus, [m] int64; -1 where none has."""
        at = self.packed[number].rows_at if self.packed else self.corpora[number].order.examples_at
        return self.elements_at(number, at(epochs, slots))

    def end_of_epochs(self, name: str) -> int:
        """The element of the data at which a corpus that is read `max_epochs` at most would begin another one; -1 for never.

        Of elements that come in turns it is the last whole turn's end.
        """
        corpus, turns = self.names.index(name), self.mix.turns
        for part, stop in self.parts_until(corpus):
            order = self.orders[part.order]
            if not order.reaches(round := self.max_epochs[name] * order.rounds):
                continue
            end = order.first_of(round) - part.start + part.first
            if part.first < end <= stop:
                if end < turns:
                    raise ValueError(
                        f"max_epochs of {name!r} must be at least {turns} elements, one of each partition, got {end}. Raise it, or"
                        " lower the partitions of block_shuffle."
                    )
                return int(self.mix.numbers(corpus, np.array([end // turns * turns]))[0])
        return -1

    def elements_at(self, number: int, indices: np.ndarray) -> np.ndarray:
        """The elements that are these of an order, [n] int64; -1 where none is."""
        found = np.full_like(indices, -1)
        corpus = self.names.index(self.corpora[number].name)
        for part, stop in self.parts_until(corpus):
            positions = indices - part.start + part.first
            of = np.flatnonzero((part.order == number) & (positions >= part.first) & (positions < stop))
            found[of] = self.mix.numbers(corpus, positions[of])
        return np.where(found < 0, found, self.leaving_out.numbers_of(found))

    def parts_until(self, corpus: int, position: int = NO_END) -> list[tuple[Part, int]]:
        """The parts of a corpus that begin before a position, each with where it ends, at the latest there."""
        parts = [part for part in self.parts[corpus] if part.first < position]
        return list(zip(parts, [*(following.first for following in parts[1:]), position]))

    def epochs_of(self, number: int, first: int, last: int) -> list[int]:
        """The epochs of a corpus that have some of the elements first .. last of the mixture."""
        order, corpus, found = self.orders[number], self.names.index(self.corpora[number].name), set[int]()
        begin, end = (int(self._before(element)[corpus]) for element in (first, last + 1))
        for part, stop in self.parts_until(corpus, end):
            if part.order == number and max(part.first, begin) < stop:
                ends = (each - part.first + part.start for each in (max(part.first, begin), stop - 1))
                of_first, of_last = (order.round_of(index) // order.rounds for index in ends)
                found.update(range(of_first, of_last + 1))
        return sorted(found)

    def in_rows(self, budgets: Mapping[str, int | None]) -> Numbering:
        """The same examples in packed rows of these lengths, which are mixed by examples, too."""
        packed = tuple(corpus.packed(budgets) for corpus in self._whole)
        return _arranged(self._whole, packed, self.stages, self.size, self.max_epochs, self.leaving_out)

    @property
    def _whole(self) -> tuple[OrderedCorpus, ...]:
        """The corpora without rests of rounds, which come last."""
        return tuple(corpus for corpus in self.corpora if not isinstance(corpus.order, Rest))

    def with_stages(self, more: Mapping[int, Mapping[str, float]], weigh: str) -> Numbering:
        """The same with stages more, from elements on: these weights of corpora, which are read as in the last stage before."""
        stages, read = {stage.first: stage for stage in self.stages}, dict[str, int]()
        for stage in reversed(self.stages):
            read |= {self.corpora[number].name: number for number in stage.corpora}
        lengths: Mapping[str, int | None] | None = None
        for first in sorted({*stages, *more}):
            if (weights := more.get(first)) is not None:
                numbers = sorted(map(read.__getitem__, weights), key=lambda number: self.corpora[number].members[0].task)
                chosen = [self.corpora[number] for number in numbers]  # as of all tasks of a stage
                if any(each.lengths != lengths for each in chosen):
                    raise ValueError(
                        f"weights from element {first:,} on must be of corpora that are read with the lengths {lengths},"
                        f" got {sorted(weights)}. Give the others a weight in the schedule's stage with these lengths."
                    )
                of = _weights([weights[each.name] for each in chosen], chosen, weigh)
                stages[first] = MixedStage(first, tuple(numbers), tuple(of))
            lengths = self.corpora[stages[first].corpora[0]].lengths
            read |= {self.corpora[number].name: number for number in stages[first].corpora}
        in_order, packed = tuple(stages[first] for first in sorted(stages)), self.packed[: len(self._whole)]
        return _arranged(self._whole, packed, in_order, self.size, self.max_epochs, self.leaving_out)

    def without(self, leaving_out: LeavingOut) -> Numbering:
        """The same, but for what is left out."""
        if leaving_out is self.leaving_out:
            return self
        corpora = tuple(corpus.without(leaving_out.left_out(corpus.name)) for corpus in self._whole)
        return _arranged(corpora, self.packed[: len(corpora)], self.stages, self.size, self.max_epochs, leaving_out)


def _arranged(
    corpora: tuple[OrderedCorpus, ...],
    packed: tuple[Rows, ...],
    stages: tuple[MixedStage, ...],
    size: int | None,
    max_epochs: Mapping[str, int],
    leaving_out: LeavingOut = NOTHING,
) -> Numbering:
    """The numbering of stages. A row of a corpus counts for as many examples as the rows of this corpus have on average."""
    names, rests = list(dict.fromkeys(corpus.name for corpus in corpora)), _Rests(list(corpora), list(packed), {})
    per_example = [rows.rows_about / rows.order.examples for rows in packed] or [1.0] * len(corpora)
    turns = _partitions([corpus.order for corpus in corpora]) if len(names) > 1 else 1
    # A stage begins after the last element before it: of what is skipped where it begins, the beginning is its own.
    begins = [int(leaving_out.data_of(np.array([stage.first - 1]))[0]) + 1 if stage.first else 0 for stage in stages]
    for begin, planned in zip(begins, stages):
        if corpora[planned.corpora[0]].lengths and begin % turns:
            raise ValueError(
                f"stages with lengths must begin at a multiple of {turns} elements, the partitions of block_shuffle of corpora that"
                f" are mixed, got {begin:,}. Choose another first_step, or fewer partitions."
            )
    stop = NO_END if size is None else int(leaving_out.data_of(np.array([size - 1]))[0]) + 1
    mixed = [stage._replace(first=begin) for begin, stage in zip(begins, stages)]
    while True:
        mix_stages = []
        for first, of, weights in mixed:
            shares = Shares.of(weight * per_example[number] for number, weight in zip(of, weights))
            mix_stages.append(Stage(first, tuple(names.index(corpora[number].name) for number in of), shares))
        mix = Mix(tuple(mix_stages), turns)
        parts: list[list[Part]] = [[] for _ in names]
        for stage, before, of in zip(mix_stages, mix.begun.tolist(), (stage.corpora for stage in mixed)):
            for corpus, number in zip(stage.corpora, of):
                _switch_to(parts[corpus], number, before[corpus], rests)
        ordered = tuple(map(tuple, parts))
        found = Numbering(
            tuple(rests.corpora), tuple(rests.packed), stages, tuple(mixed), mix, ordered, size, max_epochs, leaving_out
        )
        ends = [(end, name) for name in max_epochs if name in names and 0 <= (end := found.end_of_epochs(name)) < stop]
        if not ends:
            return found
        mixed = _without(mixed, *min(ends), corpora)


def _without(stages: Sequence[MixedStage], end: int, name: str, corpora: Sequence[OrderedCorpus]) -> list[MixedStage]:
    """The same stages, but for a corpus from an element on, whose part goes to the others."""
    begun = [stage for stage in stages if stage.first <= end]
    found = begun[: -1 if begun[-1].first == end else None]
    for stage in [begun[-1]._replace(first=end), *stages[len(begun) :]]:
        kept = [each for each in zip(stage.corpora, stage.weights) if corpora[each[0]].name != name]
        if not kept:
            raise ValueError(
                f"max_epochs must leave a corpus to read from element {stage.first:,} on, got none: {name!r} is the last that ends."
                " Raise it, or leave it out for one corpus."
            )
        found.append(MixedStage(stage.first, *map(tuple, zip(*kept))))
    return found


class _Rests(NamedTuple):
    """Corpora, and their packed rows if elements are rows, with the rests of rounds after them, by what they are made of."""

    corpora: list[OrderedCorpus]
    packed: list[Rows]
    numbers: dict[tuple[int, int, int], int]

    @property
    def orders(self) -> Sequence[Order | Rows]:
        return self.packed or [corpus.order for corpus in self.corpora]

    def number(self, before: int, index: int, number: int) -> int:
        """That of the rest which one order has from an element on, in the way that another one is read."""
        if (key := (before, index, number)) not in self.numbers:
            whole = self.corpora[number]
            rest = dataclasses.replace(whole, order=rest_of(self.orders[before], index, whole.order))
            self.numbers[key] = len(self.corpora)
            self.corpora.append(rest)
            if self.packed:
                self.packed.append(rest.packed(rest.lengths or {}))
        return self.numbers[key]


def _switch_to(parts: list[Part], number: int, position: int, rests: _Rests) -> None:
    """Has a corpus go on in an order from the first round on that begins at a position or later, or where that has other lengths
    with the rest of the round: each token is in one example."""
    while len(parts) > 1 and parts[-1].first >= position:
        parts.pop()  # asked for, but not begun
    if not parts:
        parts.append(Part(0, number, 0))
    elif parts[-1].order != number:
        last, orders = parts[-1], rests.orders
        index, before = position - last.first + last.start, orders[last.order]
        round = before.round_of(index)
        is_within = before.first_of(round) < index
        left = before.first_of(round + is_within) - index
        if is_within and rests.corpora[last.order].lengths != rests.corpora[number].lengths:
            rest = rests.number(last.order, index, number)
            first, stop = (rests.orders[rest].first_of(each) for each in (round, round + 1))
            last = Part(position, rest, first)
            left = stop - first
            parts.append(last)
        new = Part(position + left, number, orders[number].first_of(round + is_within))
        parts[-1:] = [new] if new.first == last.first else [last, new]


def kinds_in(
    split: str, documents: Callable[[Corpus, bool], Columns], beginnings: Collection[str] = ()
) -> Callable[[Sequence[Task]], Kind]:
    """A function that gives the data of the tasks of a corpus. Raises a ValueError where there is no example.

    `documents` gives those of a corpus, with an EOS after each or without. How many examples are left out is logged, but for the
    corpora of these names, of which it gives the `beginnings`.
    """

    def kind_of(readers: Sequence[Task]) -> Kind:
        corpus = readers[0].corpus
        columns = documents(corpus, readers[0].separate_documents)
        kind = readers[0].kind(readers, columns) if columns.count else None
        if kind is None or not kind.count:
            causes = (
                ", ".join(f"{number} {cause}" for cause, number in kind.left_out.items()) if kind else "no document has a token"
            )
            raise ValueError(
                f"{corpus.name!r} must have an example in split {split!r}, got none: {causes}. Look at it with `ul2 doctor`. See"
                " docs/help/troubleshooting.md#a-split-has-no-document."
            )
        for cause, number in () if corpus.name in beginnings else kind.left_out.items():
            _logger.warning("%s: %d examples of split %s are left out: %s", corpus.name, number, split, cause)
        return kind

    return kind_of


def number_examples(schedule: MemberSchedule, kind_of: Callable[[Sequence[Task]], Kind], seed: int, shuffle: bool) -> Numbering:
    """Numbers the examples of tasks, which are mixed by their rates.

    `kind_of` gives the data of all tasks of a corpus. With `shuffle` examples come in a pseudo-random permutation of all of an
    epoch; else in the order of the corpus.
    """
    readers_of = by_corpus(member for stage in schedule.stages for member in stage.members)
    kinds: dict[str, Kind] = {}
    corpora: dict[tuple, OrderedCorpus] = {}
    stages = []
    for first, members, lengths in schedule.stages:
        read = by_corpus(members)
        chosen = []
        for name, readers in read.items():
            at = keyed(seed, list(readers_of).index(name))
            if name not in kinds:
                kinds[name] = kind_of(readers_of[name])
            found = order_corpus(readers, kinds[name].read_by(readers), at, shuffle, lengths)
            objective = name, tuple(member.task for member in readers), found.order, tuple((lengths or {}).items())
            chosen.append(list(corpora).index(objective) if objective in corpora else len(corpora))
            corpora.setdefault(objective, found)
        # Not `sum`, which some versions of Python round otherwise: that would be another order.
        rates = [math.fsum(member.rate for member in readers) for readers in read.values()]
        weights = _weights(rates, [list(corpora.values())[number] for number in chosen], schedule.weigh)
        stages.append(MixedStage(first, tuple(chosen), tuple(weights)))
    return _arranged(tuple(corpora.values()), (), tuple(stages), schedule.elements, schedule.max_epochs)


def _weights(rates: Sequence[float], corpora: Sequence[OrderedCorpus], weigh: str) -> Sequence[float]:
    """The weights of examples of corpora that have these rates, of examples or of tokens."""
    if weigh == "examples":
        return rates
    return [rate * each.order.examples / each.epoch_tokens for rate, each in zip(rates, corpora)]


def by_corpus(members: Iterable[Task]) -> dict[str, list[Task]]:
    """The members that read each corpus, by its name."""
    found: dict[str, list] = {}
    for member in members:
        found.setdefault(member.corpus.name, []).append(member)
    return found


def _partitions(orders: Sequence[Order]) -> int:
    """The partitions of which each element of a mixture is of one: those of all corpora that have some."""
    found = {order.sections[0].turns for order in orders}
    if (partitions := math.lcm(*found)) > _MOST_PARTITIONS:
        raise ValueError(
            f"partitions of mixed corpora must have a common multiple of at most {_MOST_PARTITIONS:,}, got {sorted(found)}. Give"
            " them the same, block_shuffle=BlockShuffle(partitions=..)."
        )
    return partitions
