"""Examples that tasks of interleaved image-text data make of the first records of their corpus, and what they are like.

What is drawn is an epoch of these records under each denoiser.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.denoisers.pieces import PieceLimits, problem_of
from ul2_tasks.denoisers.reconstruction import invert
from ul2_tasks.denoisers.write import made
from ul2_tasks.example_features import TOKEN_FEATURES
from ul2_tasks.images.interleaved import Interleaved
from ul2_tasks.inspect.statistics import Check, Checked, Summary, Tally, without_particulars
from ul2_tasks.inspect.tasks import ImageTextTask, image_tasks, rates_of
from ul2_tasks.order.permutation import keyed
from ul2_tasks.version import __version__

if TYPE_CHECKING:
    from ul2_tasks.mixtures.description import Description
    from ul2_tasks.mixtures.mix import Mix

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


@dataclasses.dataclass(frozen=True)
class ImageTaskStatistics:
    """The measurements of a task.

    Attributes:
        tokens: "text", "images" (their runs), and of both together "noise", which is what the targets ask for.
        lengths: of "inputs", "targets" and "chunk", which is what an example is made of.
        fill: the mean part of each budget that an example takes; None without examples.
        unusable, first: see `Made`, and what was said of the first of each cause.
    """

    task: str
    denoiser: str
    rate: float
    examples: int
    images: int
    tokens: Mapping[str, int]
    spans: int
    lengths: Mapping[str, Summary | None]
    fill: Mapping[str, float | None]
    unusable: Mapping[str, int]
    first: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class ImageCorpusStatistics:
    """The measurements of a corpus: its name and `Looked`, with how many are right, and the first problem of each kind."""

    corpus: str
    records: int
    is_all: bool
    right: int
    problems: Mapping[str, int]
    first: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class ImageTasksStatistics(Checked):
    """The measurements of a mixture; `dataclasses.asdict` makes JSON of it."""

    mixture: str
    split: str
    seed: int
    sequence_length: Mapping[str, int]
    version: str
    corpora: Sequence[ImageCorpusStatistics]
    tasks: Sequence[ImageTaskStatistics]
    checks: Sequence[Check] = ()


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
            problems.add(without_particulars(problem.removeprefix(f"{where}: ")), problem)
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


def measure_image_tasks(
    images: Description | Mix, sequence_length: Mapping[str, int], split: str = "train", seed: int = 0, records: int = RECORDS
) -> ImageTasksStatistics:
    """Measures the texts with images of a description; `seed` is of the noise, and `records` per corpus."""
    return measure_looked(images, look_at_corpora(image_tasks(images), split, records), sequence_length, split, seed)


def measure_looked(
    images: Description | Mix, looked: Mapping[str, Looked], sequence_length: Mapping[str, int], split: str, seed: int
) -> ImageTasksStatistics:
    """Measures what the tasks of a mixture make of the records that were read, by corpus."""
    tasks, measured, rates = image_tasks(images), [], rates_of(images, sequence_length)
    for task in tasks:
        found = make_examples(task, tasks, looked[task.corpus.name], sequence_length, seed)
        measured.append(_measured(task, task.limits(sequence_length), found, rates[task.name]))
    return ImageTasksStatistics(
        mixture=images.registered_name(sequence_length),
        split=split,
        seed=seed,
        sequence_length={key: int(sequence_length[key]) for key in TOKEN_FEATURES},
        version=__version__,
        corpora=[
            ImageCorpusStatistics(corpus, read, is_all, len(right), dict(problems.counts), problems.first)
            for corpus, (read, is_all, right, problems) in looked.items()
        ],
        tasks=measured,
    )


def _measured(task: ImageTextTask, fit: PieceLimits, made: Made, rate: float) -> ImageTaskStatistics:
    """The measurements of a task."""
    lengths: dict[str, list[int]] = {key: [] for key in (*TOKEN_FEATURES, "chunk")}
    tokens = collections.Counter[str](text=0, images=0, noise=0)
    spans = images = 0
    for example in made.examples:
        pieces = example.source.pieces.tolist()
        for key, length in zip(lengths, map(len, (example.inputs, example.targets, example.source.tokens))):
            lengths[key].append(length)
        whole = invert({"inputs": example.inputs, "targets": example.targets}, task.denoiser, fit.special)
        tokens.update(text=sum(pieces[::2]), images=sum(pieces[1::2]), noise=int(whole.is_noise.sum()))
        images += len(pieces) // 2
        spans += len(whole.spans)
    return ImageTaskStatistics(
        task=task.name,
        denoiser=task.denoiser.name,
        rate=rate,
        examples=len(lengths["chunk"]),
        images=images,
        tokens=dict(tokens),
        spans=spans,
        lengths={key: Summary.of(values, PERCENTS) for key, values in lengths.items()},
        fill={key: float(np.mean(lengths[key])) / fit.lengths[n] if lengths[key] else None for n, key in enumerate(TOKEN_FEATURES)},
        unusable=dict(made.unusable.counts),
        first=made.unusable.first,
    )
