"""Examples that tasks of interleaved image-text data make of the first records of their corpus, and what they are like.

What is drawn is an epoch of these records under each denoiser.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.denoisers.pieces import problem_of
from ul2_tasks.denoisers.write import made
from ul2_tasks.images.interleaved import Interleaved
from ul2_tasks.inspect.statistics import Tally
from ul2_tasks.inspect.tasks import ImageTextTask
from ul2_tasks.order.permutation import keyed

if TYPE_CHECKING:
    pass

PERCENTS = (50, 90, 99)
RECORDS = 1000  # of a corpus, that are looked at


class Looked(NamedTuple):
    """What was read of a corpus.

    Attributes:
        right: the place of each that is right, and what it is.
        problems: those that are not, by what it is, without numbers and texts.
    """

    records: int
    is_all: bool
    right: Sequence[tuple[str, Interleaved]]
    problems: Tally


class ImageTextExample(NamedTuple):
    """An example: [tokens] int32 each, EOS included; the place of its record, and what that is."""

    inputs: np.ndarray
    targets: np.ndarray
    where: str
    source: Interleaved


class Planned(NamedTuple):
    """What a task makes examples of, see `Looked.right`; and the records that make none, by cause."""

    sources: Sequence[tuple[str, Interleaved]]
    unusable: Tally


class Made(NamedTuple):
    """What a task makes of records: examples, in their order and as they are taken; and the records that make none, by cause."""

    examples: Iterator[ImageTextExample]
    unusable: Tally


def look_at_corpus(corpus: Corpus, split: str, records: int = RECORDS) -> Looked:
    """Reads the first records of a corpus."""
    if split not in corpus.splits:
        raise ValueError(f"split of {corpus.name!r} must be one of {sorted(corpus.splits)}, got {split!r}.")
    of_split = (record for shard in corpus.source.shards(split) for record in corpus.source.read(shard))
    read = list(corpus.encoder.read(corpus, itertools.islice(of_split, records + 1)))
    right: list[tuple[str, Interleaved]] = []
    problems = Tally()
    for where, found, wrong in read[:records]:
        if problem := wrong.decode(errors="replace"):
            problems.add("wrong", problem)
        else:
            right.append((where, found))
    return Looked(min(len(read), records), len(read) <= records, right, problems)


def plan_examples(
    task: ImageTextTask, tasks: Sequence[ImageTextTask], looked: Looked, sequence_length: Mapping[str, int]
) -> Planned:
    """What a task makes examples of, of the records that were read, in their order.

    `tasks` are those of the mixture: those of one corpus make examples of the same records.
    """
    limits = [other.limits(sequence_length) for other in tasks if other.corpus.name == task.corpus.name]
    sources, unusable = list[tuple[str, Interleaved]](), Tally()
    for where, found in looked.right:
        denoiser, problem = problem_of(limits, found.pieces.tolist())
        if not problem.cause:
            sources.append((where, found))
            continue
        unusable.add(problem.cause, f"{where}, under {limits[denoiser].name}{problem.numbers}")
    return Planned(sources, unusable)


def make_examples(
    task: ImageTextTask, tasks: Sequence[ImageTextTask], looked: Looked, sequence_length: Mapping[str, int], seed: int
) -> Made:
    """Makes examples of the records that were read, in their order; for `tasks` see `plan_examples`."""
    planned, recipe = plan_examples(task, tasks, looked, sequence_length), task.limits(sequence_length).recipe
    name = zlib.crc32(task.denoiser.name.encode())

    def examples() -> Iterator[ImageTextExample]:
        for number, (where, found) in enumerate(planned.sources):
            key = np.array([keyed(seed, number, name)], np.uint64)
            inputs, targets = made(recipe, found.tokens, found.pieces, np.array([0, len(found.pieces)]), key)[0]
            yield ImageTextExample(inputs, targets, where, found)

    return Made(examples(), planned.unusable)


def look_at_corpora(tasks: Iterable[ImageTextTask], split: str, records: int = RECORDS) -> dict[str, Looked]:
    """Reads the first records of the corpora of tasks, by their names."""
    corpora = {task.corpus.name: task.corpus for task in tasks}
    return {name: look_at_corpus(corpus, split, records) for name, corpus in corpora.items()}
