"""`ul2 lengths` of interleaved image-text data: which records the lengths leave out, and how full they are."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ul2_tasks.denoisers.write import example_sizes
from ul2_tasks.example_features import TOKEN_FEATURES
from ul2_tasks.inspect.images.measure import Looked, Planned, look_at_corpora, plan_examples
from ul2_tasks.inspect.tasks import ImageTextTask, image_tasks
from ul2_tasks.order.permutation import mix

if TYPE_CHECKING:
    from ul2_tasks.mixtures.description import Description
    from ul2_tasks.mixtures.mix import Mix


@dataclasses.dataclass(frozen=True)
class ImageTaskLengths:
    """What lengths make of the records under a denoiser.

    Attributes:
        examples: how many there are.
        left_out: how many records make no example, by cause.
        tokens: the mean of an example, by feature; None without examples.
        fill: the same of each length.
    """

    task: str
    examples: int
    left_out: Mapping[str, int]
    tokens: Mapping[str, float | None]
    fill: Mapping[str, float | None]


@dataclasses.dataclass(frozen=True)
class ImageWay:
    """What lengths, which are "now", "half" or "double", make of a mixture."""

    name: str
    sequence_length: Mapping[str, int]
    tasks: Sequence[ImageTaskLengths]


@dataclasses.dataclass(frozen=True)
class ImageLengths:
    """What lengths make of a mixture. `corpora` says of each what was read, and `problems` are sentences."""

    name: str
    sequence_length: Mapping[str, int]
    corpora: Mapping[str, str]
    ways: Sequence[ImageWay]
    problems: Sequence[str]


def look_at_image_lengths(images: Description | Mix, sequence_length: Mapping[str, int], split: str = "train") -> ImageLengths:
    """Measures what lengths, half of them and twice as much make of the first 1,000 records of each corpus."""
    tasks = image_tasks(images)
    looked = look_at_corpora(tasks, split)
    ways = [_way("now", tasks, looked, {key: int(sequence_length[key]) for key in TOKEN_FEATURES})]
    for way, factor in (("half", 0.5), ("double", 2)):
        with contextlib.suppress(ValueError):  # a denoiser does not fit half of the lengths
            lengths = {key: max(1, int(sequence_length[key] * factor)) for key in TOKEN_FEATURES}
            ways.append(_way(way, tasks, looked, lengths))
    corpora = {task.corpus.name: f"{_read(looked[task.corpus.name])} of {task.corpus.source!s}" for task in tasks}
    return ImageLengths(
        images.registered_name(sequence_length), ways[0].sequence_length, corpora, ways, list(_problems(tasks, ways[0]))
    )


def _read(looked: Looked) -> str:
    wrong = f", of which {len(looked.right):,} are right," if looked.problems.counts else ""
    return f"{'all' if looked.is_all else 'the first'} {looked.records:,} records{wrong}"


def _problems(tasks: Sequence[ImageTextTask], way: ImageWay) -> Iterator[str]:
    said = set[str]()  # the corpora: all denoisers of one leave out the same
    for task, found in zip(tasks, way.tasks):
        left_out = sum(found.left_out.values())
        if task.configuration.on_unusable == "raise" and left_out and task.corpus.name not in said:
            said.add(task.corpus.name)
            yield (
                f"{task.name}: records that make no example, which raises an error: {left_out:,} ({', '.join(found.left_out)})."
                " Raise --lengths, fix the records, or register with on_unusable='skip'."
            )


def _way(way: str, tasks: Sequence[ImageTextTask], looked: Mapping[str, Looked], lengths: Mapping[str, int]) -> ImageWay:
    planned = [plan_examples(task, tasks, looked[task.corpus.name], lengths) for task in tasks]
    return ImageWay(way, dict(lengths), [_of_task(*each, lengths) for each in zip(tasks, planned)])


def _of_task(task: ImageTextTask, planned: Planned, lengths: Mapping[str, int]) -> ImageTaskLengths:
    sizes = sizes_of(task, planned, lengths)
    means = dict(zip(TOKEN_FEATURES, sizes.mean(axis=0).tolist() if len(sizes) else (None, None)))
    fill = {key: None if mean is None else mean / lengths[key] for key, mean in means.items()}
    return ImageTaskLengths(task.name, len(sizes), dict(planned.unusable.counts), means, fill)


def sizes_of(task: ImageTextTask, planned: Planned, lengths: Mapping[str, int]) -> np.ndarray:
    """The inputs and the targets of each example in tokens, [examples, 2] int64."""
    limits, pieces = task.limits(lengths), [found.pieces for _, found in planned.sources]
    firsts = np.cumsum([0, *map(len, pieces)])
    keys = mix(np.arange(len(pieces), dtype=np.uint64))
    flat = np.concatenate([np.zeros(0, np.int32), *pieces])
    sizes: np.ndarray = example_sizes(limits.recipe, flat, firsts, keys)
    return sizes


def print_image_lengths(lengths: ImageLengths, console: Console) -> None:
    """Prints a table with a column for each of the lengths, and the problems."""
    for corpus, read in lengths.corpora.items():
        console.print(Text.assemble((corpus, "bold"), f": {read}"))
    console.print(_table(lengths.ways), highlight=False)
    if any(task.examples for task in lengths.ways[0].tasks):
        console.print("Examples with images are padded, not packed.", highlight=False)
    for problem in lengths.problems:
        console.print(Text(problem, "bold red"), soft_wrap=True)


def _table(ways: Sequence[ImageWay]) -> Table:
    table = Table()
    table.add_column("", overflow="fold")
    for way in ways:
        table.add_column(way.name, justify="right", no_wrap=True)
    table.add_row("--lengths", *(",".join(map(str, way.sequence_length.values())) for way in ways))
    for of_ways in zip(*(way.tasks for way in ways)):
        table.add_section()
        table.add_row(Text(of_ways[0].task, "bold"))
        table.add_row("examples", *(f"{each.examples:,}" for each in of_ways))
        for cause in dict.fromkeys(cause for each in of_ways for cause in each.left_out):
            table.add_row(f"left out: {cause}", *(f"{each.left_out.get(cause, 0):,}" for each in of_ways))
        for key in TOKEN_FEATURES:
            table.add_row(f"{key} per example", *(_number(each.tokens[key]) for each in of_ways))
            table.add_row(f"{key} filled, padded", *(_share(each.fill[key]) for each in of_ways))
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"
