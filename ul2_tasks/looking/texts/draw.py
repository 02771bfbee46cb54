"""Draws examples of each denoiser to look at, of a mixture that is registered or described."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping

from ul2_tasks.looking.samples import DenoisedTask, Sample, sample_of
from ul2_tasks.looking.steps import fed_at
from ul2_tasks.looking.texts.tasks import tasks_of
from ul2_tasks.mixtures.mixture import Mixture, members_of_mixture, tokens_of
from ul2_tasks.random_access.numbering import MemberSchedule, number_examples
from ul2_tasks.random_access.sequence import Examples

FIRST_TOKENS = 1 << 17  # the fewest of the documents that are read of a description
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
    use_cached: bool = False,
) -> Iterator[Sample]:
    """Draws examples of each denoising task of a mixture, task by task, in the order of the mixture.

    A description gives the first examples by index of its first documents, without TensorFlow. A registered mixture gives the first
    examples of each task's stream.

    Args:
        mixture: a description; or the name of a mixture that `register` or `mix` returned, or of one of its tasks.
        sequence_length: {"inputs": int, "targets": int}, the budgets in tokens.
        count: how many examples of each task are drawn.
        seed: the same seed draws the same examples.
        split: of the corpus.
        denoisers: the names of the denoisers whose examples are drawn; by default all.
        num_epochs: how often the corpus is read; there may then be fewer than `count` examples. None for as often as it takes,
            each time with other noise. Where that would mean to read very many documents, the first ones are read, in memory.
        use_cached: whether what is registered is read from its cache.

    Raises:
        ValueError: there is no such denoiser; the corpus has no token; the lengths do not fit, see `lengths.chunk_length`.
    """
    if isinstance(mixture, Mixture):
        return _by_index(mixture, sequence_length, count, seed=seed, split=split, denoisers=denoisers, epochs=num_epochs)
    from ul2_tasks.looking.texts.quick_tasks import marked_task, quick_tasks
    from ul2_tasks.tasks.providers import denoising_tasks

    tasks = denoising_tasks(mixture, denoisers)
    if not use_cached:
        quick, _ = quick_tasks(tasks, sequence_length, split, dict.fromkeys((task.name for task in tasks), count))
        tasks = tasks if num_epochs else list(quick.values())
    return (
        sample_of(shown, number, example)
        for task in map(marked_task, tasks)
        for shown in [DenoisedTask(task.name, task.denoiser, task.special_tokens(), task.vocabulary)]  # it looks at all ids
        for number, example in enumerate(
            task.get_dataset(sequence_length, split=split, seed=seed, num_epochs=num_epochs, use_cached=use_cached)
            .take(count)
            .as_numpy_iterator()
        )
    )


def _by_index(
    mixture: Mixture,
    sequence_length: Mapping[str, int],
    count: int,
    *,
    seed: int,
    split: str,
    denoisers: Collection[str] | None,
    epochs: int | None,
) -> Iterator[Sample]:
    chunks = [task.solve(sequence_length).full.length for task in tasks_of(mixture, denoisers)]
    first = max(FIRST_TOKENS, FIRST_CHUNKS * sum(chunks))
    numbering = number_examples(
        MemberSchedule.of(members_of_mixture(mixture, sequence_length)), tokens_of(split, first), seed, shuffle=True
    )
    assert numbering is not None, "`tokens_of` gives a store of each corpus"
    found = Examples(numbering, sequence_length, dict)  # which nothing resumes
    counted: dict[str, Iterator[int]] = collections.defaultdict(itertools.count)
    numbers = itertools.count() if epochs is None else range(found.end_of(epochs))
    fed = fed_at(found, numbers, count, denoisers)
    return (dataclasses.replace(each.sample, number=next(counted[each.sample.task])) for each in fed)
