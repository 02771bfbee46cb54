"""`ul2 show`: examples of each denoiser, as text in the terminal or as JSON for programs."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Mapping
from typing import TextIO

from rich.console import Console
from rich.text import Text

from ul2_tasks.denoising.denoisers import Denoiser
from ul2_tasks.denoising.lengths import Chunk
from ul2_tasks.looking.printing import print_head, print_json_lines
from ul2_tasks.looking.run import Run
from ul2_tasks.looking.samples import BORDER, Sample, shown_sample
from ul2_tasks.looking.texts.draw import draw
from ul2_tasks.looking.texts.steps import fed_at, in_words, tasks_fed
from ul2_tasks.looking.texts.tasks import others_of, tasks_of
from ul2_tasks.mixtures.mixture import Mixture, name_of
from ul2_tasks.random_access.sequence import Examples


def show(
    mixture: str | Mixture,
    sequence_length: Mapping[str, int],
    *,
    count: int = 2,
    seed: int = 0,
    split: str = "train",
    denoisers: Collection[str] | None = None,
    console: Console | None = None,
) -> None:
    """Prints examples of each denoiser of a mixture, see `draw.draw`.

    Each noise span has one colour in inputs and targets. Without colours its sentinel says which it is.

    From 100 columns on inputs and targets are side by side.
    """
    console = console or Console()
    samples = draw(mixture, sequence_length, count, seed=seed, split=split, denoisers=denoisers)
    print_head(console, name_of(mixture), sequence_length, split, seed)
    if any(task.configuration.merge_examples for task in tasks_of(mixture, denoisers)):
        console.print(Text(f"{BORDER} = document boundary", "dim"))
    if others := others_of(mixture):
        console.print(Text(f"not shown, as they are no denoising tasks: {', '.join(others)}", "dim"))
    _print_samples(console, mixture, sequence_length, ((sample, f"example {sample.number + 1}", "") for sample in samples))


def show_step(
    run: Run,
    step: int,
    host: tuple[int, int] | None = None,
    *,
    count: int = 2,
    denoisers: Collection[str] | None = None,
    console: Console | None = None,
) -> None:
    """Prints examples of each denoiser of the batch that a run is fed at a step, each with its location."""
    console = console or Console()
    numbers = run.numbers(step, host or (0, 1))
    found = run.examples()
    fed = fed_at(found, numbers, count, denoisers)
    print_head(console, run.name, run.sequence_length, run.split, run.seed)
    console.print(Text(_batch(run, step, host, found)))
    console.print(Text(f"{BORDER} = document boundary", "dim"))
    if absent := {*tasks_fed(found, denoisers)} - {each.sample.task for each in fed}:
        console.print(Text(f"no example in it: {', '.join(sorted(absent))}", "dim"))
    samples = ((each.sample, each.name, in_words(each.location)) for each in fed)
    _print_samples(console, run.mixture, run.sequence_length, samples)


def show_step_json(
    run: Run,
    step: int,
    host: tuple[int, int] | None = None,
    *,
    count: int = 2,
    denoisers: Collection[str] | None = None,
    file: TextIO | None = None,
) -> None:
    """Writes the same examples as JSON Lines, each a `samples.Sample` with its step, segment and `sequence.Location`."""
    fed = fed_at(run.examples(), run.numbers(step, host or (0, 1)), count, denoisers)
    as_dict = dataclasses.asdict
    lines = ({**as_dict(each.sample), "step": step, "segment": each.segment, "location": as_dict(each.location)} for each in fed)
    print_json_lines(lines, file)


def _batch(run: Run, step: int, host: tuple[int, int] | None, found: Examples) -> str:
    """Which examples a step has."""
    numbers, length = run.numbers(step), len(found)
    first, last = (found.at(number)[0].number for number in (numbers[0], numbers[-1]))
    epochs = f"epoch {first}" if first == last else f"epochs {first} to {last}"
    of_host = f"; host {host[0]} of {host[1]} has those whose number mod {host[1]} is {host[0]}" if host else ""
    return (
        f"step {step}, batch of {len(numbers):,}: {run.unit}s {numbers[0]} to {numbers[-1]}, in {epochs}"
        f" ({length:,} {run.unit}s an epoch){of_host}"
    )


def _print_samples(
    console: Console, mixture: str | Mixture, sequence_length: Mapping[str, int], samples: Iterable[tuple[Sample, str, str]]
) -> None:
    """Prints samples, which come task by task, each with its name and with where it is from."""
    tasks = {task.name: task for task in tasks_of(mixture)}
    for task, group in itertools.groupby(samples, key=lambda each: each[0].task):
        console.rule(Text(task, "bold"), style="dim", align="left")
        console.print(_description(tasks[task].denoiser, tasks[task].solve(sequence_length).full), "")
        for sample, name, place in group:
            console.print(shown_sample(sample, name, place, console.width), "")


def show_json(
    mixture: str | Mixture,
    sequence_length: Mapping[str, int],
    *,
    count: int = 2,
    seed: int = 0,
    split: str = "train",
    denoisers: Collection[str] | None = None,
    file: TextIO | None = None,
) -> None:
    """Writes the same examples as JSON Lines, each a `samples.Sample`."""
    print_json_lines(
        map(dataclasses.asdict, draw(mixture, sequence_length, count, seed=seed, split=split, denoisers=denoisers)), file
    )


def _description(denoiser: Denoiser, full: Chunk) -> Text:
    fields = ", ".join(f"{field} {value}" for field, value in dataclasses.asdict(denoiser).items())
    return Text(
        f"{fields}\n"
        f"full-length chunk: {full.length} tokens, {full.noise} masked ({full.noise / full.length:.1%}), spans: {full.spans};"
        f" inputs of {full.inputs} tokens, targets of {full.targets}"
    )
