"""A stream is random access over one window after the other: of a corpus that has no cache and is too large for memory.

    pass 0     shard 4 ........ | shard 1 ....... | shard 7 ..      the shards of this host, in an order of that pass
    windows    0         | 1          | 2            | 3 ..         records until they have so many tokens, or bytes
    elements   0 ..      | 310 ..     | 622 ..                      of each window: its own order, noise and rows

Within a window all is as it is for a whole corpus: the same order, examples, rows and models; its place takes the place of the
epoch's number in the keys. A pass reads each record once. Corpora of a mixture are mixed by the arithmetic of `Mix`: element i is
at a position of a corpus, whose windows are read one after the other. Corpora that have a cache or fit in memory are beside them
as they are, and each host has its share of them.

The state is a few integers: the next element, and where the present window of each corpus begins. So a stream goes on anywhere
from its state, after one window of each corpus is read again.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import numpy as np

from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.corpus.documents import Bound, beginning_of, of_parts, stored
from ul2_tasks.corpus.token_batches import Documents, document_shards
from ul2_tasks.order.mix import Mix, Shares, Stage
from ul2_tasks.order.permutation import keyed, permute
from ul2_tasks.random_access.corpora import Kind
from ul2_tasks.random_access.kinds import Task
from ul2_tasks.random_access.numbering import (
    NO_END,
    MemberSchedule,
    Numbering,
    Slots,
    by_corpus,
    in_order,
    kinds_in,
    number_examples,
)
from ul2_tasks.scalars import fractions
from ul2_tasks.store.columns import Columns

_logger = logging.getLogger(__name__)
WINDOW_TOKENS = 1 << 22  # some 20 MB of text: read in seconds, and examples of thousands of documents are shuffled in it
WINDOW_BYTES = 1 << 29  # or so many, of records with images; two windows are held, the present and the next one
_FOR_SHARDS, _FOR_WINDOWS = 0x73686172, 0x77696E64  # what a key is for


class Place(NamedTuple):
    """Where a window begins: in which pass, at which of the host's shards, after which records of it; and its first position."""

    passes: int = 0
    shard: int = 0
    records: int = 0
    first: int = 0


class Window(NamedTuple):
    """The positions of a corpus below `stop`, from a place on, and where the next window begins.

    Position p is element `offset` + p * `step` of a numbering of the corpus alone.
    """

    numbering: Numbering
    stop: int
    following: Place
    offset: int
    step: int = 1


class Host(NamedTuple):
    """Which host reads a stream, of how many; how many epochs, None for no end; with which seed, and whether in a random order."""

    host: int
    hosts: int
    epochs: int | None
    seed: int
    shuffle: bool


@dataclasses.dataclass(frozen=True, eq=False)
class Held:
    """A corpus that is read by number: in a cache, or in memory. Of n hosts each has every n-th of its elements."""

    numbering: Numbering
    host: Host

    def window(self, place: Place) -> Window | None:
        """The window that begins at a place, here all; None where the last epoch has ended."""
        host, hosts, epochs = self.host[:3]
        stop = NO_END if epochs is None else len(range(host, self.numbering.first_of(epochs), hosts))
        return None if place.passes else Window(self.numbering, stop, Place(1), host, hosts)


class Windows:
    """The corpus of these tasks, which is read in windows that end once they have `most`.

    `number` makes the numbering of the data of a window, with a seed. `numbering` is that of the corpus's beginning.
    """

    def __init__(
        self,
        members: Sequence[Task],
        split: str,
        use_cached: bool,
        host: Host,
        *,
        number: Callable[[Kind, int], Numbering],
        numbering: Numbering,
        most: Bound,
    ):
        self.numbering = numbering
        self._members, self._corpus, self._split = members, members[0].corpus, split
        self._number, self._host, self._most = number, host, most
        self._left_out = collections.Counter[str]()
        corpus = self._corpus
        self._source = document_shards(corpus, split, use_cached, host.hosts)
        if self._source.shards < host.hosts:
            raise ValueError(
                f"{corpus.name!r} must have a shard of split {split!r} for each of {host.hosts} hosts (of PyTorch's workers), got"
                f" {self._source.shards}. Use fewer, divide the corpus into more files, or write its cache with `ul2 cache`. See"
                " docs/help/troubleshooting.md#too-few-documents-for-the-hosts."
            )
        self._process = 0
        self._read: dict[Place, futures.Future[Window | None]] = {}  # the last window, and the next one

    def window(self, place: Place) -> Window | None:
        """Reads a window, and in a thread already the next one."""
        if self._process != os.getpid():  # a forked process has no thread of the other's
            self._process, self._thread, self._read = os.getpid(), futures.ThreadPoolExecutor(1), {}
        read = self._read
        own = read.pop(place, None) or self._thread.submit(self._window, place)
        window = own.result()  # one that failed is gone, and is read again where it is asked for again
        self._read = {place: own}
        if window:
            following = window.following
            self._read[following] = read.get(following) or self._thread.submit(self._window, following)
        return window

    def _window(self, place: Place) -> Window | None:
        _, _, epochs, seed, _ = self._host
        has_some = bool(place.shard or place.records)  # of this pass were examples before
        while epochs is None or place.passes < epochs:
            shards = self._shards_of(place.passes)
            parts, end = self._documents(shards, place)
            columns = of_parts(self._corpus, parts, self._members[0].separate_documents)
            kind = self._members[0].kind(self._members, columns) if columns.count else None
            if kind and not place.passes:
                self._report(kind.left_out)
            own = keyed(seed, _FOR_WINDOWS, place.passes, shards[place.shard], place.records)
            first, following = place.first, Place(place.passes + 1) if end is None else Place(place.passes, *end)
            if kind and kind.count:
                numbering = self._number(kind, own)
                stop = first + numbering.first_of(1)
                return Window(numbering, stop, following._replace(first=stop), -first)
            if end is None and not has_some:
                raise ValueError(
                    f"{self._corpus.name!r} must have an example of split {self._split!r} in the shards of host {self._host.host}"
                    f" of {self._host.hosts}, got none. Use fewer hosts, or look at the corpus with `ul2 doctor`."
                )
            place, has_some = following._replace(first=first), has_some and end is not None
        return None

    def _report(self, left_out: Mapping[str, int]) -> None:
        """Counts the examples of the first pass that are left out, and logs it when there are ten times as many."""
        for cause, number in left_out.items():
            before = self._left_out[cause]
            self._left_out[cause] += number
            if len(str(before + number)) > len(str(before)) or not before:
                _logger.warning("%s: %d examples are left out until now: %s", self._corpus.name, before + number, cause)

    def _shards_of(self, passes: int) -> list[int]:
        """The shards of this host, in the order of a pass; those of all hosts are all shards."""
        shards = np.arange(self._source.shards)
        if self._host.shuffle:
            shards = permute(shards, len(shards), keyed(self._host.seed, _FOR_SHARDS, passes))
        return shards[self._host.host :: self._host.hosts].tolist()

    def _documents(self, shards: Sequence[int], place: Place) -> tuple[list[Documents], tuple[int, int] | None]:
        """The documents from a place on, and after how many records of which shard they end."""
        parts, tokens, size, first = list[Documents](), 0, 0, place.records
        for number in range(place.shard, len(shards)):
            for documents, records in self._source.read(shards[number], first, place.passes == 0):
                parts.append(documents)
                tokens, size = tokens + len(documents.tokens), size + documents.size
                if self._most.is_reached(tokens, size):
                    return parts, (number, records)
            first = 0
        return parts, None


@dataclasses.dataclass(frozen=True)
class Stretch:
    """Elements of a mixture while no corpus comes to its window's end, and the examples of these; see `batches.Mixed`."""

    corpora: tuple
    packed: tuple
    slots: Slots
    numbers: np.ndarray


def joined(stretches: Sequence[Stretch]) -> Stretch:
    """Stretches, at least one, that follow each other, as one."""
    found, corpora, packed, places = [], (), (), 0
    for each in stretches:
        found.append(each.slots._replace(places=each.slots.places + places, corpora=each.slots.corpora + len(corpora)))
        corpora, packed, places = corpora + each.corpora, packed + each.packed, places + len(each.numbers)
    return Stretch(corpora, packed, in_order(found), np.concatenate([each.numbers for each in stretches]))


class Stream:
    """The elements of a host of a mixture, one stretch after the other.

    `feeds` are its corpora, and `stages` say from which element on they are mixed by which weights of examples, by their numbers.
    Elements are examples, or packed rows if the numberings are.
    """

    def __init__(self, feeds: Sequence[Held | Windows], stages: Sequence[tuple[int, Mapping[int, float]]]):
        self.feeds = tuple(feeds)
        elements = [_elements_per_example(feed.numbering) for feed in feeds]
        mixed = (
            Stage(first, tuple(weights), Shares.of(weight * elements[number] for number, weight in weights.items()))
            for first, weights in stages
        )
        self._mix = Mix(tuple(mixed))

    @property
    def start(self) -> np.ndarray:
        """The state of the beginning, int64: the next element, and the place of the window of each corpus."""
        return np.array([0, *itertools.chain.from_iterable(Place() for _ in self.feeds)], np.int64)

    @property
    def tokens_per_element(self) -> float:
        """How many tokens of text an element has, about."""
        return max(feed.numbering.tokens_per_element for feed in self.feeds)

    def read(self, state: np.ndarray, most: int) -> tuple[np.ndarray, Stretch]:
        """The state after the next elements, at most so many, and these; none where the last epoch has ended."""
        element, places = int(state[0]), [Place(*place) for place in state[1:].reshape(-1, len(Place._fields)).tolist()]
        numbers = np.arange(element, element + most)
        corpora, positions = self._mix.elements(numbers)
        windows: list[Window | None] = []
        for number, feed in enumerate(self.feeds):
            at = np.flatnonzero(corpora == number)
            own = positions[at]
            window = feed.window(places[number]) if len(at) else None  # of a later stage it is read when that begins
            while window and own[0] >= window.stop:
                places[number] = window.following
                window = feed.window(places[number])
            windows.append(window)
            beyond = np.flatnonzero(own >= (window.stop if window else 0))
            most = min(most, int(at[beyond[0]])) if len(beyond) else most
        after = np.array([element + most, *itertools.chain.from_iterable(places)], np.int64)
        return after, self._stretch(windows, np.stack([numbers, corpora, positions])[:, :most])

    def _stretch(self, windows: Sequence[Window | None], elements: np.ndarray) -> Stretch:
        """Elements: their numbers, their corpora and their positions there, [3, n] int64."""
        numbers, corpora, positions = elements
        numberings = [window.numbering if window else feed.numbering for window, feed in zip(windows, self.feeds)]
        found = []
        for number in np.unique(corpora).tolist():
            of = np.flatnonzero(corpora == number)
            window = windows[number]
            assert window is not None, "elements are of windows that are there"
            own = numberings[number].slots(window.offset + positions[of] * window.step)
            found.append(own._replace(places=of[own.places], corpora=own.corpora + number))
        packed = tuple(numbering.packed[0] for numbering in numberings if numbering.packed)
        return Stretch(tuple(numbering.corpora[0] for numbering in numberings), packed, in_order(found), numbers)


def _elements_per_example(numbering: Numbering) -> float:
    return numbering.packed[0].rows_about / numbering.corpora[0].order.examples if numbering.packed else 1.0


class Corpora:
    """The corpora of a mixture: read by number, but for those `in_windows`, which neither have a cache nor fit into a window.

    `numbering` is that of the mixture, in which these have their beginning alone. With `use_cached` caches are read; None is for
    those that are there. It can be pickled, for a process that is spawned.
    """

    def __init__(self, schedule: MemberSchedule, split: str, use_cached: bool | None, seed: int, shuffle: bool):
        self._schedule, self._split, self._use_cached, self._seed, self._shuffle = schedule, split, use_cached, seed, shuffle
        self._columns: dict[str, Columns] = {}
        self._cached: dict[str, bool] = {}
        self.in_windows: list[str] = []
        self.window = Bound(WINDOW_TOKENS, WINDOW_BYTES)
        self.numbering = number_examples(schedule, kinds_in(split, self._documents, self.in_windows), seed, shuffle)

    def _documents(self, corpus: Corpus, separate_documents: bool) -> Columns:
        if corpus.name not in self._columns:
            self._cached[corpus.name] = is_cached = bool(corpus.cache_dir) if self._use_cached is None else self._use_cached
            found = stored(corpus, self._split, is_cached, separate_documents)
            if found is None:
                found, is_whole = beginning_of(corpus, self._split, is_cached, separate_documents, self.window)
                if not is_whole:
                    self.in_windows.append(corpus.name)
            self._columns[corpus.name] = found
        return self._columns[corpus.name]

    def stream(self, budgets: Mapping[str, int | None] | None, host: int = 0, hosts: int = 1, epochs: int | None = None) -> Stream:
        """The stream of one of several hosts, of examples, or with `budgets` of rows that are so long."""
        if self._schedule.max_epochs:
            raise ValueError(
                f"max_epochs must be left out where corpora are read in windows, got {dict(self._schedule.max_epochs)} with"
                f" {self.in_windows}. Write their caches with `ul2 cache`."
            )
        if self._schedule.stages[0].lengths:
            raise ValueError(
                f"stages must be without lengths where corpora are read in windows, got some with {self.in_windows}. Write their"
                " caches with `ul2 cache`."
            )
        readers: dict[str, list[Task]] = {}
        for _, members, _ in self._schedule.stages:
            for name, of_stage in by_corpus(members).items():
                _check_as_before(name, readers.setdefault(name, of_stage), of_stage)
        feeds = [
            self._feed(own, Host(host, hosts, epochs, keyed(self._seed, number), self._shuffle), budgets)
            for number, own in enumerate(readers.values())
        ]
        corpora = [self.numbering.names.index(corpus.name) for corpus in self.numbering.corpora]
        stages = {  # the last of those that begin at one element of this host
            -(-first // hosts): {corpora[number]: weight for number, weight in zip(of, rates)}
            for first, of, rates in self.numbering.stages
        }
        return Stream(feeds, list(stages.items()))

    def _feed(self, members: Sequence[Task], host: Host, budgets: Mapping[str, int | None] | None) -> Held | Windows:
        """How the corpus of these tasks is read."""

        def number(kind: Kind, seed: int) -> Numbering:
            found = number_examples(MemberSchedule.of(members), lambda _: kind, seed, host.shuffle)
            return found if budgets is None else found.in_rows(budgets)

        name = members[0].corpus.name
        whole = number(next(each.data for each in self.numbering.corpora if each.name == name), host.seed)
        if name not in self.in_windows:
            return Held(whole, host)
        settings = self._split, self._cached[name], host
        return Windows(members, *settings, number=number, numbering=whole, most=self.window)

    def __getstate__(self) -> dict[str, Any]:
        """With the corpora, of which a task has the name alone where it is pickled."""
        members = itertools.chain.from_iterable(stage.members for stage in self._schedule.stages)
        return vars(self) | {"corpora": {member.corpus.name: member.corpus for member in members}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        corpora, schedule = state.pop("corpora"), state["_schedule"]
        stages = [
            stage._replace(members=[dataclasses.replace(each, corpus=corpora[each.corpus.name]) for each in stage.members])
            for stage in schedule.stages
        ]
        vars(self).update(state, _schedule=dataclasses.replace(schedule, stages=tuple(stages)))


def _check_as_before(name: str, first: Sequence[Task], now: Sequence[Task]) -> None:
    """Raises a ValueError where a stage reads a corpus with other denoisers, or with others of their weights, than the first."""
    shares = [fractions({member.task: member.rate for member in members}) for members in (first, now)]
    if shares[0] != shares[1]:
        raise ValueError(
            f"schedule must read {name!r} by the same denoisers in all stages, as it has no cache and is too large for memory, got"
            f" {shares[0]} and then {shares[1]}. Write its cache with `ul2 cache`, or change the weights of corpora alone."
        )
