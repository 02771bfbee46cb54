"""`Numbering`: which corpora's slots make element i, an example or a packed row, of a mixture of corpora."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ul2_tasks.order.cycles import Cycle, nearest_cycle
from ul2_tasks.order.permutation import keyed
from ul2_tasks.order.rows import PackedOrder
from ul2_tasks.random_access.corpora import Member, OrderedCorpus, cycle_of, order_corpus
from ul2_tasks.store.read import TokenStore

if TYPE_CHECKING:
    from ul2_tasks.corpus.corpus import Corpus

RUN_RECORD = "ul2_run.json"  # in the folder of a training run: the fingerprint of its dataset, its batch size and first step
_FOR_CORPORA = 1 << 32  # what a key is for


class Slots(NamedTuple):
    """The m examples of some elements, [m] int64 each: of which element, ascending; the number of its corpus; and see `Order`."""

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


@dataclasses.dataclass(frozen=True)
class Numbering:
    """The elements of a mixture of corpora, without end: a cycle of corpora, and in each a position of its own order.

    `packed` says how the examples of each corpus share rows, if elements are packed rows; it is empty if they are examples. `key`
    is of the order of corpora within a cycle; None is that of `Cycle.kinds`.
    """

    corpora: tuple[OrderedCorpus, ...]
    packed: tuple[PackedOrder, ...]
    cycle: Cycle
    key: int | None

    @functools.cached_property
    def epoch(self) -> int:
        """How many elements an epoch has: whole cycles of the corpora, so that no element of the first that ends comes twice."""
        if len(self.corpora) == 1:
            return self._elements[0]
        cycles = (elements // count for elements, count in zip(self._elements, self.cycle.counts))
        return len(self.cycle) * max(1, min(cycles))

    @property
    def tokens_per_element(self) -> float:
        """How many tokens of text an element has, on average over a cycle."""
        tokens = (corpus.store.tokens / elements for corpus, elements in zip(self.corpora, self._elements))
        return sum(count * each for count, each in zip(self.cycle.counts, tokens)) / len(self.cycle)

    @property
    def _elements(self) -> list[int]:
        return [packed.rows for packed in self.packed] or [corpus.order.examples for corpus in self.corpora]

    def slots(self, numbers: np.ndarray) -> Slots:
        """The examples of elements, [n] integers from 0, below 2**62. Those of a row stand in its order."""
        kinds, positions = self.cycle.positions(numbers, self.key)
        found = []
        for kind, corpus in enumerate(self.corpora):
            places = np.flatnonzero(kinds == kind)
            if self.packed:
                in_rows = self.packed[kind].slots(positions[places])
                places, epochs, slots = places[in_rows.places], in_rows.epochs, in_rows.slots
            else:
                epochs, slots = corpus.order.slots(positions[places])
            found.append(Slots(places, np.full_like(places, kind), epochs, slots))
        if len(found) == 1:
            return found[0]
        order = np.argsort(np.concatenate([each.places for each in found]), kind="stable")
        return Slots(*(np.concatenate(each)[order] for each in zip(*found)))

    def numbers(self, corpus: int, epochs: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """The inverse of `slots`: the elements that have these slots of these epochs of a corpus, [m] int64."""
        at = self.packed[corpus].rows_at if self.packed else self.corpora[corpus].order.examples_at
        positions = at(epochs, slots)
        return self.cycle.places(np.full_like(positions, corpus), positions, self.key)

    def epochs_of(self, corpus: int, first: int, last: int) -> range:
        """The epochs of a corpus that have some of the elements first .. last of the mixture."""
        before, after = (number // len(self.cycle) * self.cycle.counts[corpus] for number in (first, last + len(self.cycle)))
        return range(before // self._elements[corpus], after // self._elements[corpus] + 1)

    def in_rows(self, budgets: Mapping[str, int]) -> Numbering | None:
        """The same examples in packed rows of these lengths; None where lengths of examples are drawn, so that no row is fixed.

        Corpora are mixed by examples. A row of a corpus counts for as many examples as the rows of this corpus have on average.
        """
        if not all(corpus.lengths_are_fixed for corpus in self.corpora):
            return None
        packed = tuple(corpus.packed(budgets) for corpus in self.corpora)
        rows = [count * each.rows / corpus.order.examples for count, each, corpus in zip(self.cycle.counts, packed, self.corpora)]
        return dataclasses.replace(self, packed=packed, cycle=nearest_cycle(rows))


def number_examples(
    members: Sequence[Member], tokens: Callable[[Corpus, bool], TokenStore | None], seed: int, shuffle: bool
) -> Numbering | None:
    """Numbers the examples of denoising tasks, which are mixed by their rates.

    `why_a_stream` says nothing of any of the tasks. `tokens` gives the tokens of each corpus, with an EOS after each document or
    without, or None for what is to stay a stream. With `shuffle` examples come in a pseudo-random permutation of all of an epoch;
    else in the order of the corpus. Gives None where a corpus has no tokens that can be read at any place.
    """
    by_corpus: dict[str, list[Member]] = {}
    for member in members:
        by_corpus.setdefault(member.corpus.name, []).append(member)
    corpora = []
    for number, readers in enumerate(by_corpus.values()):
        store = tokens(readers[0].corpus, _are_separate(readers))
        if store is None:
            return None
        corpora.append(order_corpus(readers, store, keyed(seed, number), shuffle))
    rates = {name: sum(member.rate for member in readers) for name, readers in by_corpus.items()}
    return Numbering(tuple(corpora), (), cycle_of(rates), keyed(seed, _FOR_CORPORA) if shuffle else None)


def _are_separate(readers: Sequence[Member]) -> bool:
    """Whether an EOS ends each document of a corpus for those that read it. Mixtures may share it, but its tokens are the same."""
    first, *others = readers
    is_separate = first.solution.configuration.separate_documents
    for other in others:
        if other.solution.configuration.separate_documents != is_separate:
            raise ValueError(
                f"separate_documents must be the same for all that read {first.corpus.name!r} in one mixture, got {is_separate} for"
                f" {first.task!r} and {not is_separate} for {other.task!r}. Register one of them again with the other's."
            )
    return is_separate
