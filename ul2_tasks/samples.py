"""Examples of each denoiser to look at: as ids, as text, in numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence

from ul2_tasks.dissection import dissect
from ul2_tasks.providers import DenoisingTask, denoising_tasks
from ul2_tasks.readable import Segment, segments
from ul2_tasks.vocabularies import SpecialTokens


@dataclasses.dataclass(frozen=True)
class Counts:
    """The tokens of an example: of its chunk, of its noise, of its inputs and targets; its spans; noise / chunk."""

    chunk: int
    noise: int
    spans: int
    inputs: int
    targets: int
    corruption_rate: float


@dataclasses.dataclass(frozen=True)
class Sample:
    """An example of one denoiser; `dataclasses.asdict` makes JSON of it.

    Attributes:
        task: the task's name.
        denoiser: the denoiser's name.
        mode: the mode's name, or None.
        number: 0, 1 .. within the task.
        counts: its numbers.
        ids: {"inputs": [tokens] int, "targets": [tokens] int}, EOS included.
        inputs, targets: the same to read.
    """

    task: str
    denoiser: str
    mode: str | None
    number: int
    counts: Counts
    ids: Mapping[str, Sequence[int]]
    inputs: Sequence[Segment]
    targets: Sequence[Segment]


def draw(
    mixture: str,
    sequence_length: Mapping[str, int],
    count: int,
    seed: int = 0,
    split: str = "train",
    denoisers: Collection[str] | None = None,
    num_epochs: int | None = None,
) -> Iterator[Sample]:
    """Draws examples of each denoising task of a registered mixture, task by task, in the mixture's order.

    Args:
        mixture: the name of a mixture that `register` or `mix` returned, or of one of its tasks.
        sequence_length: {"inputs": int, "targets": int}, the budgets in tokens.
        count: how many of each task.
        seed: the same one draws the same examples.
        split: the corpus's.
        denoisers: the names of those to draw of; by default all.
        num_epochs: how often the corpus is read; None for as often as it takes, each time with other noise. With a number
            there may be fewer than `count`.

    Raises:
        ValueError: there is no such denoiser; the corpus has no token; the lengths do not fit, see `lengths.chunk_length`.
    """
    tasks = denoising_tasks(mixture, denoisers)
    for corpus in {task.source.corpus.name: task for task in tasks}.values():
        _check_has_tokens(corpus, split)
    return (
        _sample(task, special, number, example)
        for task in tasks
        for special in [task.special_tokens()]  # once a task: it looks at all ids
        for number, example in enumerate(
            task.get_dataset(sequence_length, split=split, seed=seed, num_epochs=num_epochs).take(count).as_numpy_iterator()
        )
    )


def _check_has_tokens(task: DenoisingTask, split: str) -> None:
    """Without any, a corpus that is read again and again would be read for ever."""
    documents = task.source.get_dataset(split=split, shuffle=False)
    if not any(document["targets"].size for document in documents.as_numpy_iterator()):
        raise ValueError(f"{task.source.corpus.name!r} has no text in split {split!r}: there is nothing to draw examples from")


def _sample(task: DenoisingTask, special: SpecialTokens, number: int, example: Mapping[str, Sequence[int]]) -> Sample:
    vocabulary = task.output_features["targets"].vocabulary
    whole = dissect(example, task.denoiser, special)
    noise, chunk = int(whole.is_noise.sum()), len(whole.chunk)
    return Sample(
        task=task.name,
        denoiser=task.denoiser.name,
        mode=task.denoiser.mode,
        number=number,
        counts=Counts(chunk, noise, len(whole.spans), len(example["inputs"]), len(example["targets"]), noise / chunk),
        ids={feature: [int(id) for id in example[feature]] for feature in ("inputs", "targets")},
        inputs=segments(vocabulary, example["inputs"], special, "inputs"),
        targets=segments(vocabulary, example["targets"], special, "targets"),
    )
