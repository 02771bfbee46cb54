"""Examples of each denoiser to look at: as ids, as text, in numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from ul2_tasks.denoising.dissection import dissect, places
from ul2_tasks.example_features import TOKEN_FEATURES
from ul2_tasks.inspection.readable import Stretch, stretches
from ul2_tasks.statistics.drawing import marked_task, quick_tasks
from ul2_tasks.tasks.pictures import PicturesTask
from ul2_tasks.tasks.providers import DenoisingTask, denoising_tasks
from ul2_tasks.vocabulary.special_ids import SpecialTokens, id_shift


@dataclasses.dataclass(frozen=True)
class ExampleCounts:
    """The tokens of an example: of its chunk, its noise, its inputs and its targets; its noise spans; and noise / chunk."""

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
        number: 0, 1 .. within the task; or that of the example, or of its row, in a run.
        counts: the numbers of its tokens and spans.
        ids: {"inputs": [tokens] int, "targets": [tokens] int}, the tokenizer's own, EOS included.
        inputs, targets: the same to read, with a border before the first token of another document.
    """

    task: str
    denoiser: str
    mode: str | None
    number: int
    counts: ExampleCounts
    ids: Mapping[str, Sequence[int]]
    inputs: Sequence[Stretch]
    targets: Sequence[Stretch]


def draw(
    mixture: str,
    sequence_length: Mapping[str, int],
    count: int,
    seed: int = 0,
    split: str = "train",
    denoisers: Collection[str] | None = None,
    num_epochs: int | None = None,
) -> Iterator[Sample]:
    """Draws examples of each denoising task of a registered mixture, task by task, in the order of the mixture.

    Args:
        mixture: the name of a mixture that `register` or `mix` returned, or of one of its tasks.
        sequence_length: {"inputs": int, "targets": int}, the budgets in tokens.
        count: how many examples of each task are drawn.
        seed: the same seed draws the same examples.
        split: of the corpus.
        denoisers: the names of the denoisers whose examples are drawn; by default all.
        num_epochs: how often the corpus is read; there may then be fewer than `count` examples. None for as often as it takes,
            each time with other noise. Where that would mean to read very many documents, the first ones are read, in memory.

    Raises:
        ValueError: there is no such denoiser; the corpus has no token; the lengths do not fit, see `lengths.chunk_length`.
    """
    tasks = {task.name: task for task in denoising_tasks(mixture, denoisers)}
    quick, _ = quick_tasks(list(tasks.values()), sequence_length, split, dict.fromkeys(tasks, count))
    tasks = tasks if num_epochs else quick
    return (
        sample_of(task, special, number, example)
        for task in map(marked_task, tasks.values())
        for special in [task.special_tokens()]  # once a task: it looks at all ids
        for number, example in enumerate(
            task.get_dataset(sequence_length, split=split, seed=seed, num_epochs=num_epochs).take(count).as_numpy_iterator()
        )
    )


def sample_of(task: DenoisingTask, special: SpecialTokens, number: int, example: Mapping[str, np.ndarray]) -> Sample:
    """A sample of an example.

    Args:
        task: that made it.
        special: `task.special_tokens()`.
        number: of the sample.
        example: {"inputs": [tokens] int, "targets": [tokens] int, with SeqIO's ids, "starts_document": [L] bool, which tokens of
            the chunk begin a document}.
    """
    vocabulary = task.output_features["targets"].vocabulary

    def read(feature: str, ids: Sequence[int], borders: Sequence[int]) -> Sequence[Stretch]:
        return stretches(vocabulary, ids, special, feature, borders)

    return dissected(task, special, number, example, np.flatnonzero(example["starts_document"]), read)


def dissected(
    task: DenoisingTask | PicturesTask,
    special: SpecialTokens,
    number: int,
    example: Mapping[str, np.ndarray],
    begins: np.ndarray,
    read: Callable[[str, Sequence[int], Sequence[int]], Sequence[Stretch]],
) -> Sample:
    """A sample of an example.

    Args:
        task, special, number: see `sample_of`.
        example: {"inputs": [tokens] int, "targets": [tokens] int}, with SeqIO's ids.
        begins: [documents] int, the tokens of the chunk that begin a document.
        read: gives "inputs" or "targets", of these ids, SeqIO's, as stretches with borders before these places.
    """
    whole = dissect(example, task.denoiser, special)
    begins = begins[(begins > 0) & (begins < len(whole.chunk))]
    noise_begins, at = whole.is_noise[begins], places(whole, task.denoiser, special)[begins]
    noise, chunk = int(whole.is_noise.sum()), len(whole.chunk)
    shift = id_shift(task.output_features["targets"].vocabulary)
    ids = {feature: [int(id) for id in example[feature]] for feature in TOKEN_FEATURES}
    return Sample(
        task=task.name,
        denoiser=task.denoiser.name,
        mode=task.denoiser.mode,
        number=number,
        counts=ExampleCounts(chunk, noise, len(whole.spans), len(ids["inputs"]), len(ids["targets"]), noise / chunk),
        ids={feature: [id - shift for id in of_feature] for feature, of_feature in ids.items()},
        inputs=read("inputs", ids["inputs"], at[~noise_begins].tolist()),
        targets=read("targets", ids["targets"], at[noise_begins].tolist()),
    )
