"""`ul2 show` of texts with images: examples as text, in which each image has its place."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.text import Text

from ul2_tasks.corpus.image_text import checked
from ul2_tasks.inspect.image_samples import ImageTextShown, image_text_sample
from ul2_tasks.inspect.images.measure import ImageTextExample, Looked, look_at_corpora, make_examples
from ul2_tasks.inspect.printing import print_head, visible
from ul2_tasks.inspect.samples import DenoisedTask, Sample, shown_sample
from ul2_tasks.inspect.tasks import ImageTextTask, image_tasks
from ul2_tasks.tokenizers.special_ids import SpecialTokens

if TYPE_CHECKING:
    from ul2_tasks.mixtures.description import Description
    from ul2_tasks.mixtures.mix import Mix

_LOOKED_AT = 100  # records, of which the first examples are shown


class Shown(NamedTuple):
    """An example to look at: as text, the place of its record, and its images."""

    task: ImageTextTask
    sample: Sample
    record: str
    images: Sequence[object]


def show_image_tasks(
    images: Description | Mix,
    sequence_length: Mapping[str, int],
    console: Console | None = None,
    *,
    seed: int = 0,
    split: str = "train",
    **options: Any,
) -> None:
    """Prints examples of each task; see `draw_image_tasks` for the options.

    An image is `[image 1024x768]`, of so many pixels as it has in its record.
    """
    console = console or Console()
    print_head(console, images.registered_name(sequence_length), sequence_length, split, seed)
    drawn = draw_image_tasks(images, sequence_length, seed=seed, split=split, **options)
    for task, group in itertools.groupby(drawn, key=lambda shown: shown.task):
        console.rule(Text(task.name, "bold"), style="dim", align="left")
        fields = ", ".join(f"{field} {value}" for field, value in dataclasses.asdict(task.denoiser).items())
        console.print(Text(f"{fields}; a record is an example"), "")
        for shown in group:
            console.print(
                shown_sample(shown.sample, f"example {shown.sample.number + 1}", f"from {visible(shown.record)}", console.width), ""
            )


def as_plain(shown: Shown) -> dict[str, Any]:
    """An example as JSON has it: a `samples.Sample` with the place of its record."""
    return {**dataclasses.asdict(shown.sample), "records": [shown.record]}


def draw_image_tasks(
    images: Description | Mix,
    sequence_length: Mapping[str, int],
    *,
    count: int = 2,
    seed: int = 0,
    split: str = "train",
    denoisers: Collection[str] | None = None,
) -> Iterator[Shown]:
    """Draws `count` examples of each task of a mixture, task by task, of the first records of its corpus."""
    tasks = image_tasks(images, denoisers or None)
    return draw_looked(
        images, look_at_corpora(tasks, split, max(_LOOKED_AT, count)), tasks, sequence_length, count=count, seed=seed
    )


def draw_looked(
    images: Description | Mix,
    looked: Mapping[str, Looked],
    tasks: Sequence[ImageTextTask],
    sequence_length: Mapping[str, int],
    *,
    count: int,
    seed: int,
) -> Iterator[Shown]:
    """Yields `count` examples of some tasks of a mixture, of the records that were read, by corpus."""
    for task in tasks:
        found = looked[task.corpus.name]
        made = make_examples(task, image_tasks(images), found, sequence_length, seed)
        special, number = task.special_tokens(), -1
        for number, example in enumerate(itertools.islice(made.examples, count)):
            yield Shown(task, _sample(task, special, number, example), example.where, example.source.images)
        if number < 0:
            causes = [*found.problems.first.values(), *(f"{cause}: {first}" for cause, first in made.unusable.first.items())]
            raise ValueError(f"{task.name!r} makes no example of {found.records} records: {'; '.join(causes) or 'there is none'}")


def _sample(task: ImageTextTask, special: SpecialTokens, number: int, example: ImageTextExample) -> Sample:
    shown = DenoisedTask(task.name, task.denoiser, special, task.vocabulary)
    made = {"inputs": example.inputs, "targets": example.targets}
    image_tokens = checked(task.configuration.image_tokens, shown.vocabulary)
    return image_text_sample(ImageTextShown(shown, image_tokens), number, made, example.source.images)
