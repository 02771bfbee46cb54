"""`ul2 show`: examples of each denoiser, as text in the terminal or as JSON for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ul2_tasks.inspect.printing import print_head, print_json_lines
from ul2_tasks.inspect.samples import BORDER
from ul2_tasks.inspect.steps import description, print_samples
from ul2_tasks.inspect.tasks import text_tasks
from ul2_tasks.inspect.texts.draw import draw

if TYPE_CHECKING:
    from ul2_tasks.mixtures.description import Description
    from ul2_tasks.mixtures.mix import Mix


def show(
    mixture: Description | Mix,
    sequence_length: Mapping[str, int],
    *,
    count: int = 2,
    seed: int = 0,
    split: str = "train",
    denoisers: Collection[str] | None = None,
    console: Console | None = None,
    as_json: bool = False,
) -> None:
    """Prints examples of each denoiser of a mixture, see `draw.draw`; as JSON Lines, each a `samples.Sample`.

    Each noise span has one colour in inputs and targets. Without colours its sentinel says which it is.

    From 100 columns on inputs and targets are side by side.
    """
    console = console or Console()
    samples = draw(mixture, sequence_length, count, seed=seed, split=split, denoisers=denoisers)
    if as_json:
        print_json_lines(map(dataclasses.asdict, samples), console.file)
        return
    print_head(console, mixture.registered_name(sequence_length), sequence_length, split, seed)
    if any(task.configuration.merge_examples for task in text_tasks(mixture, denoisers)):
        console.print(Text(f"{BORDER} = document boundary", "dim"))
    tasks = {task.name: description(task.denoiser, task.solve(sequence_length).full) for task in text_tasks(mixture, denoisers)}
    print_samples(console, tasks, ((sample, f"example {sample.number + 1}", "") for sample in samples))
