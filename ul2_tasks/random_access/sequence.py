"""`Examples`: a mixture as a sequence, in which each element has a location, from which alone it is made."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.corpus.configuration import digest
from ul2_tasks.example_features import DENOISER, IMAGES, TASK, with_task_id
from ul2_tasks.order.steps import Steps
from ul2_tasks.random_access.batches import Batch, features_of, make_batch, members_of, room_of
from ul2_tasks.random_access.corpora import OrderedCorpus
from ul2_tasks.random_access.numbering import Numbering
from ul2_tasks.random_access.tasks import TaskInfo, tasks_of
from ul2_tasks.scalars import fractions, is_integer
from ul2_tasks.store.provenance import Origin, Provenance

_logger = logging.getLogger(__name__)
_AT_A_TIME = 512


@dataclasses.dataclass(frozen=True)
class Location:
    """Where an example is from.

    Attributes:
        corpus: the name of the corpus's task.
        task, denoiser: the names of its task and its denoiser.
        epoch: of the corpus, from 0.
        chunk_index: which of the chunks of that epoch, from 0, in the order of the corpus.
        tokens: ranges (start, stop) of the corpus's tokens; more than one where the chunk goes round the end of the corpus, or
            from one block to the next.
        documents: for each of the ranges, the first of the documents that it has tokens of, and the one after the last.
        replaces: where tokens are read in place of documents that are left out, the `documents` that the example would have.
    """

    corpus: str
    task: str
    denoiser: str
    epoch: int
    chunk_index: int
    tokens: tuple[tuple[int, int], ...]
    documents: tuple[tuple[int, int], ...]
    replaces: tuple[tuple[int, int], ...] = ()

    _provenance: ClassVar[Provenance | None] = None  # of the corpus, on each location; no field, as it is no part of the place

    @property
    def origins(self) -> list[Origin] | None:
        """Where each of the documents is from, in their order: file, row, id and hash; None if the corpus does not record it.

        It is read when it is asked for.
        """
        if self._provenance is None:
            return None
        return self._provenance.of([*dict.fromkeys(itertools.chain(*(range(*each) for each in self.documents)))])


class Examples(Sequence[dict[str, np.ndarray | str]]):
    """A map-style dataset of one epoch of a mixture: its examples, or its packed sequences. `ul2_tasks.examples` returns it.

    An example is {"inputs": [tokens] int32, "targets": [tokens] int32, "denoiser": str, "task": str}. A packed sequence is
    {"inputs", "inputs_segment_ids", "inputs_positions": [length] int32, and the same of "targets"}; segment k is its k-th example,
    from 1, and segment 0 its padding, in which all three are 0. With `task_id=True` both have "task_id", too, [targets] int32: of
    each target the index of its task in `tasks`, and -1 in the padding of a packed sequence. Ids are the tokenizer's
    own, without SeqIO's offset.

    Every token of the corpus is in exactly one example of an epoch, and the ratio of the denoisers is that of their weights. An
    epoch of several corpora ends where the first of them ends, and the others continue in the next: so each token is in one example
    at most in the first epoch, and in at most n in the first n. With a schedule an "epoch" is the run, so as many elements as its
    steps have; `epoch(1)` continues after it.

    It works as a dataset of PyTorch and as a random-access source of grain. It can be pickled, for processes that are spawned: a
    cache and Megatron's files are opened again there, by their paths, and must have as many documents and tokens as here; a corpus
    that was tokenized into memory is sent with its tokens. Nothing needs to be registered there.
    """

    def __init__(
        self,
        numbering: Numbering,
        budgets: Mapping[str, int | None],
        describe: Callable[[], Mapping[str, object]],
        epoch: int = 0,
        task_id: bool = False,
    ):
        """Takes the numbering, the budgets, what tells all that decides which element has which number, and the epoch's number.

        `task_id` says whether elements have the task of each target.
        """
        self.numbering, self.budgets, self.describe, self.number, self.task_id = numbering, budgets, describe, epoch, task_id

    def __reduce__(self) -> tuple:
        """For another process, in which nothing is known of the corpora but their tokens."""
        return Examples, (self.numbering, self.budgets, functools.partial(dict, self.describe()), self.number, self.task_id)

    def __repr__(self) -> str:
        """What the elements are, and a digest of all that decides them: by it grain knows whether a state is of these."""
        told = {**self.describe(), "epoch": self.number, "task_id": self.task_id}
        shown = ", ".join(f"{key}={told[key]!r}" for key in ("mixture", "sequence_length", "split", "seed", "epoch"))
        return f"Examples({shown}, {digest(told)})"

    def __len__(self) -> int:
        """Returns the number of elements of the epoch."""
        return self._stop - self.first

    def epoch(self, epoch: int) -> Examples:
        """Returns another epoch, from 0, which has other borders of chunks, other denoisers, another order and other masks.

        Warns where a corpus comes to its end within that epoch, which then may have tokens of it more than once.
        """
        if not is_integer(epoch, at_least=0):
            raise ValueError(f"epoch must be an integer of at least 0, got {epoch!r}.")
        if again := self.numbering.begun_again(int(epoch)):
            _logger.warning("epoch %d may have tokens more than once of %s, which end in it, and begin again.", epoch, again)
        return self._epoch(int(epoch))

    def _epoch(self, epoch: int) -> Examples:
        return Examples(self.numbering, self.budgets, self.describe, epoch, self.task_id)

    def with_stages(self, stages: Sequence[tuple[int, Mapping[str, float]]]) -> Examples:
        """The same of a schedule that has stages more: from first steps on these weights of corpora, by their names."""
        told: dict = {**self.describe()}
        steps, described = Steps.of_record(told["schedule"]), {each["first"]: each for each in told["schedule"]["stages"]}
        more = {steps.element(step): weights for step, weights in stages}
        numbering = self.numbering.with_stages(more, told.get("weigh", "examples"))
        before: dict[str, object] = {}
        for stage in numbering.stages:
            as_before = {key: before[key] for key in ("sequence_length", "batch_size") if key in before}
            if (weights := more.get(stage.first)) is not None:
                chosen = [numbering.corpora[number] for number in stage.corpora]
                parts = [(weights[each.name] / sum(member.rate for member in each.members), each.members) for each in chosen]
                rates = {member.task: part * member.rate for part, members in parts for member in members}
                names = [each.name for each in chosen]
                described[stage.first] = {"first": stage.first, "rates": fractions(rates), "corpora": names, **as_before}
            before = described[stage.first]
        told["schedule"] = {**told["schedule"], "stages": [described[first] for first in sorted(described)]}
        return Examples(numbering, self.budgets, lambda: told, self.number, self.task_id)

    @cached_property
    def tasks(self) -> tuple[TaskInfo, ...]:
        """The tasks of the mixture, in the order of their names, which `task_id` counts from 0."""
        return tasks_of(members_of(self.numbering))

    def __getitem__(self, index):
        """Returns the element at an index, negative ones from the end; or the list of a slice."""
        if isinstance(index, slice):
            return self.__getitems__(range(*index.indices(len(self))))
        return self.__getitems__([index])[0]

    def __iter__(self) -> Iterator[dict[str, np.ndarray | str]]:
        for first in range(0, len(self), _AT_A_TIME):
            yield from self[first : first + _AT_A_TIME]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, np.ndarray | str]]:
        """Returns the elements at several indices, made together, which costs a tenth of one after the other."""
        if not len(indices):
            return []
        numbers, found = self._numbers(indices), dict[int, dict[str, np.ndarray | str]]()
        for _, of in self.numbering.by_lengths(numbers, self.budgets):
            found |= zip(of.tolist(), self._elements(numbers[of]))
        return [found[at] for at in range(len(numbers))]

    def _elements(self, numbers: np.ndarray) -> list[dict[str, np.ndarray | str]]:
        """The elements of numbers of any epoch, whose rows have the same lengths."""
        rows, sizes, of_members = read_rows(self, numbers, self.task_id)
        if self.numbering.packed:
            return [dict(zip(rows, [values.copy() for values in row])) for row in zip(*rows.values())]
        members = members_of(self.numbering)
        spec = with_task_id(features_of(members)) if self.task_id else features_of(members)
        keys = dict.fromkeys([*spec, *([IMAGES] if IMAGES in rows else [])])
        empty = [{**keys, DENOISER: member.denoiser, TASK: member.task} for member in members]
        made: list[dict] = [empty[member].copy() for member in of_members.tolist()]
        for key, feature in spec.items():
            for example, row, size in zip(made, rows[key], sizes[feature.per_token_of].tolist()):
                example[key] = row[:size].copy()  # else one that is kept would keep all that were made with it
        if IMAGES in rows:
            for example, row, count in zip(made, rows[IMAGES], sizes[IMAGES].tolist()):
                example[IMAGES] = row[:count].tolist()
        return made

    def locate(self, index: int) -> Location | list[Location]:
        """Returns the location of an example in the corpus; for a packed sequence the list of its examples' locations."""
        _, *found = (each.tolist() for each in self.numbering.slots(self._numbers([index])))
        locations = [_location(self.numbering.corpora[corpus], *at) for corpus, *at, _ in zip(*found)]
        return locations if self.numbering.packed else locations[0]

    def find(self, document: int, corpus: str | None = None) -> list[int]:
        """Returns the indices of this epoch's elements that have tokens of a document, ascending.

        Args:
            document: its index, from 0, in the order of the cache or the corpus.
            corpus: the name of the corpus's task, where there are several.

        Raises:
            ValueError: the corpus does not exist.
            IndexError: the document does not exist.
        """
        names = self.numbering.names
        if corpus not in (None, *names) or (corpus is None and len(names) > 1):
            raise ValueError(f"corpus must be one of {names}, got {corpus!r}.")
        first, last = self.first, self.first + len(self) - 1
        found: set[int] = set()
        for kind, chosen in enumerate(self.numbering.corpora):
            if chosen.name != (corpus or names[0]):
                continue
            for epoch in self.numbering.epochs_of(kind, first, last):
                held = chosen.slots_with(epoch, operator.index(document))
                numbers = self.numbering.numbers(kind, np.full_like(held, epoch), held)
                found |= set((numbers[(numbers >= first) & (numbers <= last)] - first).tolist())
        return sorted(found)

    @cached_property
    def first(self) -> int:
        """The first element of the epoch, counted over all epochs."""
        return self.numbering.first_of(self.number)

    @cached_property
    def _stop(self) -> int:
        return self.end_of(1)

    def _numbers(self, indices: Sequence[int]) -> np.ndarray:
        given = indices if isinstance(indices, range) else [operator.index(index) for index in indices]
        ends = (given[0], given[-1]) if isinstance(given, range) else (min(given), max(given))
        if min(ends) < -len(self) or max(ends) >= len(self):
            wrong = next(index for index in given if not -len(self) <= index < len(self))
            allowed = f"0 to {len(self) - 1}" if len(self) else f"of an epoch that has elements, and epoch {self.number} has none"
            raise IndexError(f"index must be {allowed}, got {wrong}. Use .epoch({self.number + 1}) for the next epoch.")
        return self.first + np.fromiter(given, np.int64, len(given)) % len(self)

    def end_of(self, epochs: int) -> int:
        """The element after those of `epochs` epochs from this one on, counted over all epochs."""
        return self.numbering.first_of(self.number + epochs)

    def at(self, number: int) -> tuple[Examples, int]:
        """The epoch that has an element, which is counted over all epochs, and its index there."""
        epoch = self.numbering.epoch_with(number)
        found = self._epoch(epoch)
        return found, number - found.first

    def epochs(self) -> Epochs:
        """Returns all epochs from the first on as one sequence that does not end: its element `n` is that of `at(n)`."""
        return Epochs(self)


class Epochs:
    """The elements of all epochs, counted from the first one on, for a loader that reads by index. See `Examples.epochs`."""

    def __init__(self, examples: Examples):
        self.examples = examples

    def __repr__(self) -> str:
        return f"{self.examples!r}.epochs()"

    def __len__(self) -> int:
        """Returns the largest length that Python knows."""
        return sys.maxsize

    def __getitem__(self, number: int) -> dict[str, np.ndarray | str]:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, np.ndarray | str]]:
        """Returns the elements of several numbers. Raises an IndexError where one is negative, because there is no end."""
        if any(operator.index(number) < 0 for number in numbers):
            raise IndexError(f"numbers must be at least 0, got {min(numbers)}. Epochs have no end to count from.")
        places = [self.examples.at(operator.index(number)) for number in numbers]
        of_epochs = [list(of) for _, of in itertools.groupby(places, key=lambda place: place[0].number)]
        return [made for of in of_epochs for made in of[0][0].__getitems__([index for _, index in of])]


def read_rows(examples: Examples, numbers: np.ndarray, task_id: bool = False) -> Batch:
    """The elements of numbers of any epoch, at least one and of the same lengths, in the tokenizer's own ids."""
    numbering = examples.numbering
    ((lengths, _),) = numbering.by_lengths(numbers, examples.budgets)
    return make_batch(numbering, numbering.slots(numbers), room_of(numbering, lengths), task_id)


def _location(corpus: OrderedCorpus, epoch: int, slot: int) -> Location:
    ranges = corpus.order.ranges(np.array([epoch]), np.array([slot]))
    origin, member = corpus.kind.origin(ranges), corpus.members[int(ranges.kinds[0])]
    found = [origin, *([corpus.data.origin(ranges)] if origin.are_others.any() else [])]
    tokens = [tuple(zip(each.starts.tolist(), each.stops.tolist())) for each in found]
    documents = [tuple(corpus.store.documents_at(*each) for each in of) for of in tokens]
    location = Location(corpus.name, member.task, member.denoiser, epoch, slot, tokens[0], *documents)
    object.__setattr__(location, "_provenance", corpus.store.provenance)
    return location
