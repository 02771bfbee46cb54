"""`ul2 show` of tasks of `register_image_text`: examples as text, in which each image has its place."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.text import Text

from ul2_tasks.images.interleaved import ImageCodes, ImageTokens
from ul2_tasks.images.pixels import size_of
from ul2_tasks.looking.images.measure import ImageTextExample, look_at_corpus, make_examples
from ul2_tasks.looking.printing import print_head, visible
from ul2_tasks.looking.readable import Stretch, stretches
from ul2_tasks.looking.samples import DenoisedTask, Sample, reconstructed, shown_sample
from ul2_tasks.mixtures.mixture import with_denoisers
from ul2_tasks.tasks.image_text import ImageTextTask, image_text_tasks
from ul2_tasks.vocabulary.special_ids import SpecialTokens

_LOOKED_AT = 100  # records, of which the first examples are shown
_RECORDS_SHOWN = 4


class Shown(NamedTuple):
    """An example to look at: as text, and the places of the records that it has tokens of."""

    task: ImageTextTask
    sample: Sample
    records: Sequence[str]


def show_image_tasks(
    name: str,
    sequence_length: Mapping[str, int],
    console: Console | None = None,
    *,
    seed: int = 0,
    split: str = "train",
    **options: Any,
) -> None:
    """Prints examples of each task of a mixture of `register_image_text`; see `draw_image_tasks` for the options.

    An image is `[image 1024x768]`, of so many pixels as it has in its record, or `[codes 256]`.
    """
    console = console or Console()
    print_head(console, name, sequence_length, split, seed)
    drawn = draw_image_tasks(name, sequence_length, seed=seed, split=split, **options)
    for task, group in itertools.groupby(drawn, key=lambda shown: shown.task):
        console.rule(Text(task.name, "bold"), style="dim", align="left")
        fields = ", ".join(f"{field} {value}" for field, value in dataclasses.asdict(task.denoiser).items())
        console.print(Text(f"{fields}; {_what_an_example_is(task)}"), "")
        for shown in group:
            console.print(shown_sample(shown.sample, f"example {shown.sample.number + 1}", _from(shown.records), console.width), "")


def as_plain(shown: Shown) -> dict[str, Any]:
    """An example as JSON has it: a `samples.Sample` with the places of its `records`."""
    return {**dataclasses.asdict(shown.sample), "records": list(shown.records)}


def draw_image_tasks(
    name: str,
    sequence_length: Mapping[str, int],
    *,
    count: int = 2,
    seed: int = 0,
    split: str = "train",
    denoisers: Collection[str] | None = None,
) -> Iterator[Shown]:
    """Yields `count` examples of each task of a mixture, task by task, of the first records of its corpus."""
    tasks = with_denoisers(name, image_text_tasks(name), denoisers or None)
    corpora = dict.fromkeys(task.corpus for task in tasks)
    looked = {corpus: look_at_corpus(corpus, split, max(_LOOKED_AT, count)) for corpus in corpora}
    for task in tasks:
        found = looked[task.corpus]
        made = make_examples(task, found, sequence_length, seed)
        special, number = task.special_tokens(), -1
        for number, example in enumerate(itertools.islice(made.examples, count)):
            yield Shown(task, _sample(task, special, number, example), [where for _, where in example.source.records])
        if number < 0:
            causes = [*found.problems.first.values(), *(f"{cause}: {first}" for cause, first in made.unusable.first.items())]
            raise ValueError(f"{task.name!r} makes no example of {found.records} records: {'; '.join(causes) or 'there is none'}")


def _what_an_example_is(task: ImageTextTask) -> str:
    return "records are joined, and cut into chunks" if task.joins_records else "a record is an example"


def _from(records: Sequence[str]) -> str:
    more = len(records) - _RECORDS_SHOWN
    return "from " + ", ".join([*map(visible, records[:_RECORDS_SHOWN]), *([f"{more} more"] if more > 0 else [])])


def _sample(task: ImageTextTask, special: SpecialTokens, number: int, example: ImageTextExample) -> Sample:
    begins = np.array([place for place, _ in example.source.records], np.int64)
    vocabulary, images = task.output_features["targets"].vocabulary, iter(example.source.images)

    def read(feature: str, ids: Sequence[int], borders: Sequence[int]) -> list[Stretch]:
        """Inputs or targets as `readable.stretches` has them, with a stretch for each image token sequence."""
        found, end, image_tokens = list[Stretch](), 0, task.corpus.seqio_image_tokens
        while end < len(ids):
            start, stop = end, ids.index(image_tokens.boi_id, end) if image_tokens.boi_id in ids[end:] else len(ids)
            mode_first = special if start == 0 else dataclasses.replace(special, mode=())
            of_text = [border - start for border in borders if start <= border < stop]
            found += stretches(vocabulary, ids[start:stop], mode_first, feature, of_text)
            end = stop
            if stop < len(ids):
                end = ids.index(image_tokens.eoi_id, stop) + 1
                if stop in borders:
                    found.append(Stretch("border", "", 0, None))
                said = _in_words(image_tokens, end - stop, images)
                found.append(Stretch("image", said, end - stop, 0 if feature == "targets" else None))
        return found

    shown = DenoisedTask(task.name, task.denoiser, special, vocabulary)
    return reconstructed(shown, number, {"inputs": example.inputs, "targets": example.targets}, begins, read)


def _in_words(image_tokens: ImageTokens | ImageCodes, tokens: int, images: Iterator[object]) -> str:
    """What a sequence of that many tokens, its marks among them, stands for."""
    if isinstance(image_tokens, ImageCodes):
        return f"[codes {tokens - 2}]"
    return "[image {}x{}]".format(*size_of(next(images)))
