"""Draws examples of a description to look at, and to measure: the first by index, of its cache or of its first documents."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from ul2_tasks.inspect.samples import Sample
from ul2_tasks.inspect.steps import fed_at
from ul2_tasks.inspect.tasks import Folders, text_tasks
from ul2_tasks.mixtures.mixture import documents_in, solved_members
from ul2_tasks.random_access.numbering import MemberSchedule, kinds_in, number_examples
from ul2_tasks.random_access.sequence import Examples

if TYPE_CHECKING:
    from ul2_tasks.mixtures.description import Description
    from ul2_tasks.mixtures.mix import Mix

FIRST_TOKENS = 1 << 17  # the fewest of the documents that are read
FIRST_CHUNKS = 16  # and the fewest full chunks of each denoiser that these make
_AT_A_TIME = 512  # examples


def first_examples(schedule: MemberSchedule, sequence_length: Mapping[str, int], tokens: int, *, seed: int, split: str) -> Examples:
    """The examples of the first documents that have so many tokens, or of a cache. Nothing resumes them."""
    numbering = number_examples(schedule, kinds_in(split, documents_in(split, tokens)), seed, shuffle=True)
    return Examples(numbering, sequence_length, dict)


def in_order(found: Examples, count: int) -> Iterator[dict]:
    """The first examples, of as many epochs as it takes."""
    number = 0
    while number < count:
        of_epoch, index = found.at(number)
        some = of_epoch[index : min(index + _AT_A_TIME, index + count - number)]
        yield from some
        number += len(some)


def draw(
    mixture: Description | Mix,
    sequence_length: Mapping[str, int],
    count: int,
    *,
    seed: int = 0,
    split: str = "train",
    denoisers: Collection[str] | None = None,
    num_epochs: int | None = None,
    cache_dirs: Folders = (),
) -> Iterator[Sample]:
    """Draws examples of each denoising task of text, task by task: the first by index, of its cache or its first documents.

    Args:
        mixture: a description.
        sequence_length: {"inputs": int, "targets": int}, the budgets in tokens.
        count: how many examples of each task are drawn.
        seed: the same seed draws the same examples.
        split: of the corpus.
        denoisers: the names of the denoisers whose examples are drawn; by default all.
        num_epochs: how often what is read is repeated, each time with other noise; there may then be fewer than `count` examples.
            None for as often as it takes.
        cache_dirs: the folders that a cache may be in.

    Raises:
        ValueError: there is no such denoiser; the corpus has no token; the lengths do not fit, see `lengths.chunk_length`.
    """
    tasks = text_tasks(mixture, cache_dirs=cache_dirs)
    members = solved_members(tasks, {task.name: float(task.denoiser.weight) for task in tasks}, sequence_length)
    text_tasks(mixture, denoisers)  # which raises for a name that is none
    first = max(FIRST_TOKENS, FIRST_CHUNKS * sum(member.solution.full.length for member in members))
    found = first_examples(MemberSchedule.of(members), sequence_length, first, seed=seed, split=split)
    counted: dict[str, Iterator[int]] = collections.defaultdict(itertools.count)
    numbers = itertools.count() if num_epochs is None else range(found.end_of(num_epochs))
    fed = fed_at(found, numbers, count, denoisers)
    return (dataclasses.replace(each.sample, number=next(counted[each.sample.task])) for each in fed)
