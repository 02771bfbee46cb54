"""Draws examples of each denoiser to look at, of a mixture that is registered or described."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping

from ul2_tasks.inspect.samples import Sample
from ul2_tasks.inspect.steps import fed_at
from ul2_tasks.inspect.texts.tasks import tasks_of
from ul2_tasks.mixtures.mixture import Mixture, documents_in, solved_members
from ul2_tasks.random_access.numbering import MemberSchedule, kinds_in, number_examples
from ul2_tasks.random_access.sequence import Examples

FIRST_TOKENS = 1 << 17  # the fewest of the documents that are read
FIRST_CHUNKS = 16  # and the fewest full chunks of each denoiser that these make


def draw(
    mixture: str | Mixture,
    sequence_length: Mapping[str, int],
    count: int,
    *,
    seed: int = 0,
    split: str = "train",
    denoisers: Collection[str] | None = None,
    num_epochs: int | None = None,
) -> Iterator[Sample]:
    """Draws examples of each denoising task of a mixture, task by task: the first by index, of its cache or its first documents.

    Args:
        mixture: a description; or the name of a mixture that `register` or `mix` returned, or of one of its tasks.
        sequence_length: {"inputs": int, "targets": int}, the budgets in tokens.
        count: how many examples of each task are drawn.
        seed: the same seed draws the same examples.
        split: of the corpus.
        denoisers: the names of the denoisers whose examples are drawn; by default all.
        num_epochs: how often what is read is repeated, each time with other noise; there may then be fewer than `count` examples.
            None for as often as it takes.

    Raises:
        ValueError: there is no such denoiser; the corpus has no token; the lengths do not fit, see `lengths.chunk_length`.
    """
    tasks = tasks_of(mixture)
    members = solved_members(tasks, {task.name: float(task.denoiser.weight) for task in tasks}, sequence_length)
    tasks_of(mixture, denoisers)  # which raises for a name that is none
    first = max(FIRST_TOKENS, FIRST_CHUNKS * sum(member.solution.full.length for member in members))
    kinds = kinds_in(split, documents_in(split, first))
    numbering = number_examples(MemberSchedule.of(members), kinds, seed, shuffle=True)
    found = Examples(numbering, sequence_length, dict)  # which nothing resumes
    counted: dict[str, Iterator[int]] = collections.defaultdict(itertools.count)
    numbers = itertools.count() if num_epochs is None else range(found.end_of(num_epochs))
    fed = fed_at(found, numbers, count, denoisers)
    return (dataclasses.replace(each.sample, number=next(counted[each.sample.task])) for each in fed)
