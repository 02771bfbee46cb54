"""`Numbering`: which corpora's slots make element i, an example or a packed row, of a mixture of corpora."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.order.order import Order
from ul2_tasks.order.permutation import keyed
from ul2_tasks.order.rows import Rows
from ul2_tasks.order.shares import Shares
from ul2_tasks.order.stages import Rounds, Timeline, Wanted, arrange
from ul2_tasks.random_access.corpora import OrderedCorpus, order_corpus
from ul2_tasks.random_access.kinds import Kind, Task
from ul2_tasks.random_access.leaving_out import NOTHING, LeavingOut
from ul2_tasks.store.read import TokenStore

if TYPE_CHECKING:
    from ul2_tasks.corpus.corpus import Corpus

RUN_RECORD = "ul2_run.json"  # in the folder of a training run: the fingerprint of its dataset, its batch size and first step
_FOR_CORPORA = 1 << 32  # what a key is for
_MOST_PARTITIONS = 1 << 12
_NO_END = 1 << 60
_FAR = 4  # times as far as another


class Slots(NamedTuple):
    """The m examples of some elements, [m] int64 each: of which element, ascending; the number of its corpus; and see `Order`.

    Corpora are counted as those of a `Numbering`.
    """

    places: np.ndarray
    corpora: np.ndarray
    epochs: np.ndarray
    slots: np.ndarray


@dataclasses.dataclass(frozen=True)
class Share:
    """Which elements one of several hosts has: `run` in a row, before the next host has as many. `start` is the first of all."""

    host: int = 0
    hosts: int = 1
    run: int = 1
    start: int = 0

    def numbers(self, elements: np.ndarray) -> np.ndarray:
        """The numbers of this host's elements, which are counted from 0."""
        runs, places = np.divmod(elements, self.run)
        return self.start + (runs * self.hosts + self.host) * self.run + places

    def count(self, stop: int) -> int:
        """How many elements this host has whose numbers are below `stop`."""
        rounds, rest = divmod(max(0, stop - self.start), self.hosts * self.run)
        return rounds * self.run + min(max(0, rest - self.host * self.run), self.run)


def check_hosts(name: str, split: str, elements: int, hosts: int) -> None:
    """Raises a ValueError where hosts outnumber the elements that all epochs have."""
    if elements < hosts:
        raise ValueError(
            f"{name!r} must have an example of split {split!r} for each of {hosts} hosts, got {elements}. Use fewer hosts. See"
            " docs/help/troubleshooting.md#too-few-documents-for-the-hosts."
        )


class StageMembers(NamedTuple):
    """From element `first` of a run on, these tasks are read, at their rates."""

    first: int
    members: Sequence[Task]


@dataclasses.dataclass(frozen=True)
class MemberSchedule:
    """What is read in the course of a run, of so many steps with so many elements each; None of what is always the same."""

    stages: tuple[StageMembers, ...]
    batch_size: int | None = None
    steps: int | None = None

    @classmethod
    def of(cls, members: Sequence[Task]) -> MemberSchedule:
        """The same all the time."""
        return cls((StageMembers(0, members),))

    @property
    def elements(self) -> int | None:
        """How many elements the run has."""
        return None if self.steps is None or self.batch_size is None else self.steps * self.batch_size


def members_by_stage(
    members: Sequence[Task], rates: Sequence[tuple[int, Mapping[str, float]]], batch_size: int, steps: int
) -> MemberSchedule:
    """Of these tasks those of each stage: from its first step on, at its rates, which it has by the names of tasks."""
    stages = [
        StageMembers(
            first_step * batch_size,
            [dataclasses.replace(member, rate=of_stage[member.task]) for member in members if member.task in of_stage],
        )
        for first_step, of_stage in rates
    ]
    return MemberSchedule(tuple(stages), batch_size, steps)


class MixedStage(NamedTuple):
    """How a stage mixes the examples of corpora, by their numbers among those of a `Numbering`."""

    first: int
    corpora: tuple[int, ...]
    mixing: Shares


@dataclasses.dataclass(frozen=True)
class Numbering:
    """The elements of a mixture of corpora, without end, from stage to stage; in each corpus a position of its own order.

    A corpus is there once for each way in which stages read it, by its denoisers and their weights. `packed` says how the examples
    of each corpus share rows, if elements are packed rows; it is empty if they are examples. `stages` tell how examples are mixed,
    and `timeline` which corpus each element of the data is of. `size` is how many elements are asked for, None for an epoch.
    `leaving_out` says which documents and steps are left out.
    """

    corpora: tuple[OrderedCorpus, ...]
    packed: tuple[Rows, ...]
    stages: tuple[MixedStage, ...]
    timeline: Timeline
    size: int | None
    leaving_out: LeavingOut = NOTHING

    @cached_property
    def names(self) -> list[str]:
        """The names of the corpora, each once, as the timeline counts them."""
        return list(dict.fromkeys(corpus.name for corpus in self.corpora))

    def first_of(self, epoch: int) -> int:
        """The first element of an epoch: that which begins so many epochs of a corpus, and is the first to do so of any.

        So no token comes more often than `epoch` times before it.
        """
        if self.size is not None:
            return epoch * self.size
        data = self.orders[0].first_of(epoch * self.orders[0].rounds) if len(self.corpora) == 1 else self._first_of_several(epoch)
        return int(self.leaving_out.first_from(np.array([data]))[0])

    def _first_of_several(self, epoch: int) -> int:
        if not epoch:
            return 0
        data = _NO_END
        about = {number: self._elements(number) / weight for number, weight in zip(self.stages[0].corpora, self._weights)}
        for number in sorted(about, key=about.__getitem__):
            if about[number] * epoch < _FAR * data:  # rows far beyond need not be counted
                data = min(data, self._first_with(number, epoch))
        return data

    def epoch_with(self, number: int) -> int:
        """The epoch that has an element."""
        if self.size is not None:
            return number // self.size
        data = int(self.leaving_out.data_of(np.array([number]))[0])
        if len(self.corpora) == 1:
            return self.orders[0].round_of(data) // self.orders[0].rounds
        return max(self._begun(number, data) for number in range(len(self.corpora)))

    def begun_again(self, epoch: int) -> list[str]:
        """The corpora that end, and begin again, within an epoch: it may have tokens of them more than once."""
        if self.size is not None or len(self.corpora) == 1 or not epoch:
            return []
        first, stop = (int(self.leaving_out.data_of(np.array([self.first_of(each)]))[0]) for each in (epoch, epoch + 1))
        found = []
        for number, corpus in enumerate(self.corpora):
            begun = self._begun(number, stop - 1)
            if begun:
                end = self.orders[number].first_of(begun * self.orders[number].rounds)
                last = np.arange(max(0, end - self.timeline.stages[0].mixing.unit), end)
                found += [corpus.name] * bool((self.timeline.numbers(number, last) >= first).any())
        return found

    def _begun(self, number: int, data: int) -> int:
        """The last epoch of a corpus of which the data up to an element have something; 0 if they have nothing."""
        stop = max((stop for _, stop in self.timeline.indices(number, 0, data)), default=1)
        epoch = self.orders[number].round_of(stop - 1) // self.orders[number].rounds
        while epoch and self._first_with(number, epoch) > data:
            epoch -= 1
        return epoch

    def _first_with(self, number: int, epoch: int) -> int:
        """The first element of the data that has something of an epoch of a corpus, or of a later one."""
        first, mixing = self.orders[number].first_of(epoch * self.orders[number].rounds), self.timeline.stages[0].mixing
        kind = self.stages[0].corpora.index(number)
        if first > self._weights[kind] * _NO_END:
            return _NO_END
        unit = int(mixing.places(np.array([kind]), np.array([first]))[0]) // mixing.unit
        positions = np.arange(first, int(mixing.taken(unit + 1)[kind]))  # partitions take turns of their own in a unit
        return int(self.timeline.numbers(number, positions).min())

    @property
    def _weights(self) -> tuple[float, ...]:
        """Those of the corpora of the first stage, of which the sum is 1."""
        return self.timeline.stages[0].mixing.weights

    @property
    def tokens_per_element(self) -> float:
        """How many tokens of text an element has, on average in the first stage."""
        tokens = (self.corpora[number].store.tokens / self._elements(number) for number in self.stages[0].corpora)
        return sum(weight * each for weight, each in zip(self._weights, tokens))

    def _elements(self, number: int) -> float:
        """How many elements an epoch of a corpus has, about."""
        return self.packed[number].rows_about if self.packed else self.corpora[number].order.examples

    @property
    def orders(self) -> Sequence[Rounds]:
        """The order of the elements of each corpus."""
        return self.packed or [corpus.order for corpus in self.corpora]

    def slots(self, numbers: np.ndarray) -> Slots:
        """The examples of elements, [n] integers from 0, below 2**62. Those of a row stand in its order."""
        corpora, indices = self.timeline.elements(self.leaving_out.data_of(numbers))
        if len(self.corpora) == 1:
            return self._slots_of(0, np.arange(len(corpora)), indices)
        found = [Slots(*(np.zeros([0], np.int64),) * 4)]
        for number in np.unique(corpora).tolist():
            places = np.flatnonzero(corpora == number)
            found.append(self._slots_of(number, places, indices[places]))
        order = np.argsort(np.concatenate([each.places for each in found]), kind="stable")
        return Slots(*(np.concatenate(each)[order] for each in zip(*found)))

    def _slots_of(self, corpus: int, places: np.ndarray, indices: np.ndarray) -> Slots:
        if self.packed:
            in_rows = self.packed[corpus].slots(indices)
            places, epochs, slots = places[in_rows.places], in_rows.epochs, in_rows.slots
        else:
            epochs, slots = self.corpora[corpus].order.slots(indices)
        return Slots(places, np.full_like(places, corpus), epochs, slots)

    def numbers(self, corpus: int, epochs: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """The inverse of `slots`: the elements that have these slots of these epochs of a corpus, [m] int64; -1 where none has."""
        at = self.packed[corpus].rows_at if self.packed else self.corpora[corpus].order.examples_at
        data = self.timeline.numbers(corpus, at(epochs, slots))
        return np.where(data < 0, data, self.leaving_out.numbers_of(data))

    def epochs_of(self, corpus: int, first: int, last: int) -> list[int]:
        """The epochs of a corpus that have some of the elements first .. last of the mixture."""
        ranges = self.timeline.indices(corpus, *self.leaving_out.data_of(np.array([first, last])).tolist())
        order = self.orders[corpus]
        epochs = ((order.round_of(index) // order.rounds for index in (start, stop - 1)) for start, stop in ranges)
        return sorted({epoch for of_first, of_last in epochs for epoch in range(of_first, of_last + 1)})

    def in_rows(self, budgets: Mapping[str, int | None]) -> Numbering:
        """The same examples in packed rows of these lengths.

        Corpora are mixed by examples. A row of a corpus counts for as many examples as the rows of this corpus have on average.
        """
        packed = tuple(corpus.packed(budgets) for corpus in self.corpora)
        per_example = [each.rows_about / corpus.order.examples for each, corpus in zip(packed, self.corpora)]
        mixings = []
        for stage in self.stages:
            weights = [weight * per_example[number] for weight, number in zip(stage.mixing.weights, stage.corpora)]
            mixings.append(Shares.of(weights, stage.mixing.partitions))
        return _arranged(self.corpora, packed, self.stages, mixings, self.timeline.key, self.size, leaving_out=self.leaving_out)

    def without(self, leaving_out: LeavingOut) -> Numbering:
        """The same, but for what is left out."""
        if leaving_out is self.leaving_out:
            return self
        mixings = [stage.mixing for stage in self.timeline.stages]
        corpora = tuple(corpus.without(leaving_out.left_out(corpus.name)) for corpus in self.corpora)
        return _arranged(corpora, self.packed, self.stages, mixings, self.timeline.key, self.size, leaving_out=leaving_out)


def _arranged(
    corpora: tuple[OrderedCorpus, ...],
    packed: tuple[Rows, ...],
    stages: tuple[MixedStage, ...],
    mixings: Sequence[Shares],
    key: int | None,
    size: int | None,
    *,
    leaving_out: LeavingOut = NOTHING,
) -> Numbering:
    """The numbering of stages whose elements, examples or rows, are mixed in these ways."""
    names = list(dict.fromkeys(corpus.name for corpus in corpora))
    # A stage begins after the last element before it: of what is skipped where it begins, the beginning is its own.
    firsts = [int(leaving_out.data_of(np.array([stage.first - 1]))[0]) + 1 if stage.first else 0 for stage in stages]
    wanted = [
        Wanted(first, mixing, tuple(names.index(corpora[number].name) for number in stage.corpora), stage.corpora)
        for first, stage, mixing in zip(firsts, stages, mixings)
    ]
    orders: Sequence[Rounds] = packed or [corpus.order for corpus in corpora]
    return Numbering(corpora, packed, stages, arrange(wanted, orders, key), size, leaving_out)


def number_examples(schedule: MemberSchedule, tokens: Callable[[Corpus, bool], TokenStore], seed: int, shuffle: bool) -> Numbering:
    """Numbers the examples of denoising tasks, which are mixed by their rates.

    `tokens` gives the tokens of each corpus, with an EOS after each document or without. With `shuffle` examples come in a
    pseudo-random permutation of all of an epoch; else in the order of the corpus.
    """
    readers_of = by_corpus(member for _, members in schedule.stages for member in members)
    kinds: dict[str, Kind] = {}
    corpora: dict[tuple, OrderedCorpus] = {}
    stages = []
    for first, members in schedule.stages:
        read = by_corpus(members)
        chosen = []
        for name, readers in read.items():
            at = keyed(seed, list(readers_of).index(name))
            if name not in kinds:
                kinds[name] = readers[0].kind(readers_of[name], tokens)
            found = order_corpus(readers, kinds[name].read_by(readers), at, shuffle)
            objective = name, tuple(member.task for member in readers), found.order
            chosen.append(list(corpora).index(objective) if objective in corpora else len(corpora))
            corpora.setdefault(objective, found)
        # Not `sum`, which some versions of Python round otherwise: that would be another order.
        rates = [math.fsum(member.rate for member in readers) for readers in read.values()]
        orders = [list(corpora.values())[number].order for number in chosen]
        stages.append(MixedStage(first, tuple(chosen), Shares.of(rates, _partitions(orders))))
    key = keyed(seed, _FOR_CORPORA) if shuffle else None
    return _arranged(tuple(corpora.values()), (), tuple(stages), [stage.mixing for stage in stages], key, schedule.elements)


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
