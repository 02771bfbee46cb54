"""Examples of texts with pictures as registered tasks make them of the first records of their corpus, and what they are like.

What is drawn is an epoch of these records under each denoiser. Each example is put together again, and held against what it was
made of.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.corpus.pictures_task import PictureCorpusTask
from ul2_tasks.denoising.dissection import dissect
from ul2_tasks.denoising.joined_pieces import cut, joined
from ul2_tasks.denoising.pieces import BEFORE_LAST_IMAGE, splits_once
from ul2_tasks.example_features import TOKEN_FEATURES
from ul2_tasks.images.interleaved import Interleaved
from ul2_tasks.looking.statistics import Checked, Law, Summary, without_particulars
from ul2_tasks.tasks.picture_fit import Fit, Problem, problem_of_chunk
from ul2_tasks.tasks.pictures import PicturesTask, pictures_tasks
from ul2_tasks.version import __version__

PERCENTS = (50, 90, 99)
RECORDS = 1000  # of a corpus, that are looked at
_LAWS = {
    "lost": "inputs and targets, put together again, are the records",
    "miscounted": "every text has exactly the noise tokens and spans of its length, and no picture has any",
    "long": "no inputs and no targets are longer than their budget",
}
_LAW_AT_A_PICTURE = " (where it is split at a picture: all after the split is noise, and nothing else)"


class Looked(NamedTuple):
    """What was read of a corpus.

    Attributes:
        is_all: whether it has no others.
        right: the place of each that is right, and what it is.
        problems: how many are not, by what it is, without numbers and texts.
        first: the first problem of each of these.
    """

    records: int
    is_all: bool
    right: Sequence[tuple[str, Interleaved]]
    problems: Mapping[str, int]
    first: Mapping[str, str]


class PictureExample(NamedTuple):
    """An example.

    Attributes:
        inputs, targets: [tokens] int32, EOS included.
        tokens: what it was made of.
        pieces: see `interleaved`.
        images: its pictures, encoded; none where they are codes.
        records: the place in `tokens` of the first token of each record of which it has some, and the place of the record.
    """

    inputs: np.ndarray
    targets: np.ndarray
    tokens: np.ndarray
    pieces: Sequence[int]
    images: Sequence[object]
    records: Sequence[tuple[int, str]]


class _Uncorrupted(NamedTuple):
    """The fields of a `PictureExample` before it is corrupted."""

    tokens: np.ndarray
    pieces: Sequence[int]
    images: Sequence[object]
    records: Sequence[tuple[int, str]]


class Made(NamedTuple):
    """What a task makes of records.

    Attributes:
        examples: in the order of the records; they are made as they are taken.
        unfit: how many records, or chunks of them, make none, by cause.
        first: the place and the numbers of the first of each cause.
    """

    examples: Iterator[PictureExample]
    unfit: Mapping[str, int]
    first: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class PictureTaskStatistics:
    """The measurements of a task.

    Attributes:
        rate: its share of the mixture's examples.
        joins_records: whether records are joined, and cut into chunks.
        examples: how many the records make.
        pictures: how many are in these.
        tokens: "text", "pictures" (their runs), and of both together "noise", which is what the targets ask for.
        spans: of noise.
        lengths: of "inputs", "targets" and "chunk", which is what an example is made of.
        fill: the mean part of each budget that an example takes; None without examples.
        unfit, first: see `Made`.
    """

    task: str
    denoiser: str
    rate: float
    joins_records: bool
    examples: int
    pictures: int
    tokens: Mapping[str, int]
    spans: int
    lengths: Mapping[str, Summary | None]
    fill: Mapping[str, float | None]
    unfit: Mapping[str, int]
    first: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class PictureCorpusStatistics:
    """The measurements of a corpus: its name and `Looked`, with the number of those that are right."""

    corpus: str
    records: int
    is_all: bool
    right: int
    problems: Mapping[str, int]
    first: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class PictureTasksStatistics(Checked):
    """The measurements of a mixture; `dataclasses.asdict` makes JSON of it."""

    mixture: str
    split: str
    seed: int
    sequence_length: Mapping[str, int]
    version: str
    corpora: Sequence[PictureCorpusStatistics]
    tasks: Sequence[PictureTaskStatistics]
    laws: Sequence[Law]


def look_at_corpus(corpus: PictureCorpusTask, split: str, records: int = RECORDS) -> Looked:
    """Reads the first records of a corpus."""
    if split not in corpus.splits:
        raise ValueError(f"there is no split {split!r} in {corpus.name!r}, only {sorted(corpus.splits)}")
    read = list(itertools.islice(corpus.read(split), records + 1))
    right: list[tuple[str, Interleaved]] = []
    problems, first = collections.Counter[str](), dict[str, str]()
    for where, found, problem in read[:records]:
        if not problem:
            right.append((where, found))
            continue
        kind = without_particulars(problem.removeprefix(f"{where}: "))
        problems[kind] += 1
        first.setdefault(kind, problem)
    return Looked(min(len(read), records), len(read) <= records, right, dict(problems), first)


def make_examples(task: PicturesTask, looked: Looked, sequence_length: Mapping[str, int], seed: int) -> Made:
    """Makes examples of the records that were read, in their order."""
    fit = task.fit(sequence_length)
    unfit, first = collections.Counter[str](), dict[str, str]()

    def fits(problem: Problem, where: str) -> bool:
        if problem.cause:
            unfit[problem.cause] += 1
            first.setdefault(problem.cause, f"{where}{problem.numbers}")
        return not problem.cause

    records = [(where, found) for where, found in looked.right if fits(fit.problem_of_record(found.pieces.tolist()), where)]
    if fit.joins_records:
        fitting = [chunk for chunk in _chunks(fit, records) if fits(problem_of_chunk(chunk.pieces), chunk.records[0][1])]
    else:
        fitting = [_Uncorrupted(found.tokens, found.pieces.tolist(), found.images, [(0, where)]) for where, found in records]
    corrupted = task.corrupted(fit)

    def examples() -> Iterator[PictureExample]:
        for number, each in enumerate(fitting):
            made = corrupted(tf.constant(each.tokens), tf.constant(each.pieces, tf.int32), tf.constant([seed, number], tf.int64))
            inputs, targets = (made[key].numpy() for key in TOKEN_FEATURES)
            yield PictureExample(inputs, targets, *each)

    return Made(examples(), dict(unfit), first)


def measure_picture_tasks(
    name: str, sequence_length: Mapping[str, int], split: str = "train", seed: int = 0, records: int = RECORDS
) -> PictureTasksStatistics:
    """Measures the tasks of a mixture of `register_pictures`.

    `name` may be one task's. `sequence_length` has the budgets in tokens, `seed` is of the noise, and `records` is per corpus.

    >>> from ul2_tasks import CodeRun, register_pictures, SequentialDenoiser
    >>> vocabulary, run = seqio.ByteVocabulary(extra_ids=40), CodeRun(start=259, end=260, first=261, codes=8)
    >>> records = [{"texts": ["Twice one:"], "images": [[1, 1]]}] * 4
    >>> denoiser = SequentialDenoiser(name="s", noise_density=0.5)
    >>> name = register_pictures("measured_codes", records, vocabulary, denoiser, picture=run, sentinels=range(298, 280, -1))
    >>> statistics = measure_picture_tasks(name, {"inputs": 64, "targets": 64})
    >>> statistics.tasks[0].examples, statistics.tasks[0].pictures, statistics.holds
    (1, 4, True)
    """
    provider, tasks = seqio.get_mixture_or_task(name), pictures_tasks(name)
    corpora = {task.corpus.name: task.corpus for task in tasks}
    looked = {corpus: look_at_corpus(corpora[corpus], split, records) for corpus in corpora}
    faults: dict[str, list[str]] = {kind: [] for kind in _LAWS}
    measured = []
    for task in tasks:
        rate = provider.get_rate(task) / provider.total_rate if isinstance(provider, seqio.Mixture) else 1.0
        measured.append(_measured(task, looked[task.corpus.name], rate, sequence_length, seed, faults))
    examples = sum(task.examples for task in measured)
    return PictureTasksStatistics(
        mixture=name,
        split=split,
        seed=seed,
        sequence_length={key: int(sequence_length[key]) for key in TOKEN_FEATURES},
        version=__version__,
        corpora=[
            PictureCorpusStatistics(corpus, found.records, found.is_all, len(found.right), found.problems, found.first)
            for corpus, found in looked.items()
        ],
        tasks=measured,
        laws=[_law(kind, tasks, faults[kind], examples) for kind in _LAWS],
    )


def _chunks(fit: Fit, records: Sequence[tuple[str, Interleaved]]) -> Iterator[_Uncorrupted]:
    """The chunks of records that are joined."""
    if not records:
        return
    pieces = functools.reduce(joined, (found.pieces.tolist() for _, found in records))
    tokens = np.concatenate([found.tokens for _, found in records])
    starts = np.cumsum([0, *(len(found.tokens) for _, found in records)])[:-1]
    end = 0
    for chunk in cut(pieces, fit.fits, sum(fit.lengths), is_end=True)[0]:
        start, end = end, end + sum(chunk)
        first, last = np.searchsorted(starts, [start, end - 1], side="right") - 1
        held = [(max(int(starts[number]) - start, 0), records[number][0]) for number in range(first, last + 1)]
        yield _Uncorrupted(tokens[start:end], chunk, [], held)


def _measured(
    task: PicturesTask,
    looked: Looked,
    rate: float,
    sequence_length: Mapping[str, int],
    seed: int,
    faults: Mapping[str, list[str]],
) -> PictureTaskStatistics:
    """The measurements of a task; adds to `faults`, by kind, what is wrong with which example."""
    fit, made = task.fit(sequence_length), make_examples(task, looked, sequence_length, seed)
    lengths: dict[str, list[int]] = {key: [] for key in (*TOKEN_FEATURES, "chunk")}
    tokens = collections.Counter[str](text=0, pictures=0, noise=0)
    spans = pictures = 0
    for number, example in enumerate(made.examples):
        for key, length in zip(lengths, (len(example.inputs), len(example.targets), len(example.tokens))):
            lengths[key].append(length)
        tokens.update(text=sum(example.pieces[::2]), pictures=sum(example.pieces[1::2]))
        pictures += len(example.pieces) // 2
        noise, of_example, wrong = _dissected(task, fit, example)
        tokens["noise"] += noise
        spans += of_example
        for kind, found in wrong:
            faults[kind].append(f"{task.name}, example {number + 1}: {found}")
    return PictureTaskStatistics(
        task=task.name,
        denoiser=task.denoiser.name,
        rate=rate,
        joins_records=fit.joins_records,
        examples=len(lengths["chunk"]),
        pictures=pictures,
        tokens=dict(tokens),
        spans=spans,
        lengths={key: Summary.of(values, PERCENTS) for key, values in lengths.items()},
        fill={key: float(np.mean(lengths[key])) / fit.lengths[n] if lengths[key] else None for n, key in enumerate(TOKEN_FEATURES)},
        unfit=made.unfit,
        first=made.first,
    )


def _dissected(task: PicturesTask, fit: Fit, example: PictureExample) -> tuple[int, int, list[tuple[str, str]]]:
    """The noise tokens of an example, its spans, and what is wrong with it, by kind."""
    wrong = []
    for key, tokens, length in zip(TOKEN_FEATURES, (example.inputs, example.targets), fit.lengths):
        if len(tokens) > length:
            wrong.append(("long", f"{key} of {len(tokens)} tokens, of {length}"))
    try:
        whole = dissect({"inputs": example.inputs, "targets": example.targets}, task.denoiser, fit.special)
    except ValueError as error:
        return 0, 0, [*wrong, ("lost", str(error))]
    if not np.array_equal(whole.chunk, example.tokens):
        return 0, 0, [*wrong, ("lost", "it has other tokens than its records")]
    found = _counts(whole.is_noise, example.pieces)
    wanted = list(_wanted(task, example.pieces))
    if len(found) != len(wanted) or any(
        not fewest <= noise <= most or spans != expected for (noise, spans), (fewest, most, expected) in zip(found, wanted)
    ):
        wrong.append(("miscounted", f"noise tokens and spans of its pieces are {found}, expected {wanted}"))
    return int(whole.is_noise.sum()), len(whole.spans), wrong


def _counts(is_noise: np.ndarray, pieces: Sequence[int]) -> list[tuple[int, int]]:
    """The noise tokens of each piece, and the spans that begin in it."""
    begins = is_noise & ~np.append(False, is_noise[:-1])
    edges = np.cumsum(pieces)[:-1]
    return [(int(noise.sum()), int(first.sum())) for noise, first in zip(np.split(is_noise, edges), np.split(begins, edges))]


def _wanted(task: PicturesTask, pieces: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """The fewest and the most noise tokens of each piece, and how many spans begin in it."""
    denoiser, split = task.denoiser, task.configuration.split
    if splits_once(denoiser, split):
        noise = [0] * len(pieces)
        last = 2 if split == BEFORE_LAST_IMAGE else 1
        noise[-last:] = pieces[-last:]
        for number, length in enumerate(noise):
            yield length, length, int(number == len(pieces) - last)
        return
    for number, length in enumerate(pieces):
        is_text = number % 2 == 0 and length > 0
        yield (*denoiser.noise_range(length), denoiser.noise_counts(length)[1]) if is_text else (0, 0, 0)


def _law(kind: str, tasks: Iterable[PicturesTask], faults: Sequence[str], examples: int) -> Law:
    at_a_picture = kind == "miscounted" and any(splits_once(task.denoiser, task.configuration.split) for task in tasks)
    law = _LAWS[kind] + (_LAW_AT_A_PICTURE if at_a_picture else "")
    return Law.counted(law, len(faults), examples, faults[0] if faults else "")
