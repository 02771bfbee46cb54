"""Examples of a step: what a run was, or will be, fed, each with its location."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from ul2_tasks.example_features import EXAMPLE
from ul2_tasks.looking.printing import ranges_in_words
from ul2_tasks.looking.run import locations_of, stores
from ul2_tasks.looking.samples import DenoisedTask, Sample, sample_of
from ul2_tasks.mixtures.mixture import with_denoisers
from ul2_tasks.random_access.corpora import Member
from ul2_tasks.random_access.sequence import Examples, Location
from ul2_tasks.store.read import TokenStore
from ul2_tasks.vocabulary.special_ids import id_shift


@dataclasses.dataclass(frozen=True)
class Fed:
    """An example that a run was fed.

    Attributes:
        sample: the example. Its number, or that of its row, counts over all epochs.
        segment: which example of its row it is, from 1; None where examples are not packed.
        location: where it is from.
    """

    sample: Sample
    segment: int | None
    location: Location

    @property
    def name(self) -> str:
        """Which one it is, for people."""
        number = self.sample.number
        return f"example {number}" if self.segment is None else f"row {number}, example {self.segment} of it"


def in_words(location: Location) -> str:
    """Where an example is from, for people.

    >>> in_words(Location("web_corpus", "web_r1", "r1", 3, chunk_index=0, tokens=((90, 100), (0, 5)), documents=((7, 9), (0, 1))))
    'epoch 3 of web_corpus, documents 7 to 8 and 0, tokens 90 to 99 and 0 to 4'
    """
    documents, tokens = map(ranges_in_words, (location.documents, location.tokens))
    return f"epoch {location.epoch} of {location.corpus}, documents {documents}, tokens {tokens}"


def fed_at(found: Examples, numbers: Iterable[int], count: int, denoisers: Collection[str] | None = None) -> list[Fed]:
    """The first examples of each denoiser among some examples or rows, denoiser by denoiser.

    `numbers` count over all epochs, such as those of a step; of each denoiser there are `count` at most.
    """
    tasks = tasks_fed(found, denoisers)
    chosen: dict[str, list[tuple[int, int, Location]]] = {name: [] for name in tasks}
    for number in numbers:
        for segment, location in enumerate(locations_of(found, number), start=1):
            if len(chosen.get(location.task, ())) < count and location.task in chosen:
                chosen[location.task].append((number, segment, location))
        if all(len(of_task) == count for of_task in chosen.values()):
            break
    made = _made(found, sorted({number for of_task in chosen.values() for number, _, _ in of_task}))
    corpora, is_packed = stores(found), bool(found.numbering.packed)
    fed = []
    for name, of_task in chosen.items():
        shift = np.int32(id_shift(tasks[name].vocabulary))
        for number, segment, location in of_task:
            example = _segment(made[number], segment) if is_packed else made[number]
            ids = {key: example[key] + shift for key in EXAMPLE}
            marked = {**ids, "starts_document": _starts(corpora[location.corpus][1], location)}
            fed.append(Fed(sample_of(tasks[name], number, marked), segment if is_packed else None, location))
    return fed


def tasks_fed(found: Examples, denoisers: Collection[str] | None = None) -> dict[str, DenoisedTask]:
    """The tasks that make the examples, by their names, in their order. Raises a ValueError where none has a denoiser's name."""
    members = (member for corpus in found.numbering.corpora for member in corpus.members)
    solved = {member.task: member.solution for member in members if isinstance(member, Member)}
    tasks = [
        DenoisedTask(name, solution.configuration.denoiser, solution.special, solution.vocabulary)
        for name, solution in sorted(solved.items())
    ]
    chosen = with_denoisers(", ".join(corpus.name for corpus in found.numbering.corpora), tasks, denoisers)
    return {task.name: task for task in chosen}


def _made(found: Examples, numbers: Sequence[int]) -> dict[int, dict]:
    """The examples or rows of these numbers, those of an epoch at once."""
    made: dict[int, dict] = {}
    for epoch, of_epoch in itertools.groupby(numbers, key=lambda number: found.at(number)[0].number):
        own, examples = list(of_epoch), found.epoch(epoch)
        made |= dict(zip(own, examples.__getitems__([number - examples.first for number in own])))
    return made


def _segment(row: Mapping[str, np.ndarray], segment: int) -> dict[str, np.ndarray]:
    """An example of a packed row."""
    return {key: row[key][row[f"{key}_segment_ids"] == segment] for key in EXAMPLE}


def _starts(store: TokenStore, location: Location) -> np.ndarray:
    """Which tokens of a chunk begin a document, [L] bool."""
    of_ranges = []
    for (start, stop), (first, after) in zip(location.tokens, location.documents):
        begins = np.array([store.tokens_of(document)[0] for document in range(first, after)])
        of_ranges.append(np.isin(np.arange(start, stop), begins))
    return np.concatenate(of_ranges)
