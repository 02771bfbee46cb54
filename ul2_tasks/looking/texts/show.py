"""`ul2 show`: examples of each denoiser, as text in the terminal or as JSON for programs."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Mapping
from typing import TextIO

from rich.console import Console
from rich.text import Text

from ul2_tasks.looking.printing import print_head, print_json_lines
from ul2_tasks.looking.run import Run
from ul2_tasks.looking.samples import BORDER, Sample, draw, shown_sample
from ul2_tasks.looking.texts.steps import fed_at, in_words
from ul2_tasks.tasks.providers import DenoisingTask, denoising_tasks, other_tasks


def show(
    mixture: str,
    sequence_length: Mapping[str, int],
    *,
    count: int = 2,
    seed: int = 0,
    split: str = "train",
    denoisers: Collection[str] | None = None,
    console: Console | None = None,
) -> None:
    """Prints examples of each denoiser of a registered mixture.

    Each noise span has one colour in inputs and targets. Without colours its sentinel says which it is.

    From 100 columns on inputs and targets are side by side.
    """
    console = console or Console()
    samples = draw(mixture, sequence_length, count, seed, split, denoisers)
    print_head(console, mixture, sequence_length, split, seed)
    if any(task.configuration.merge_examples for task in denoising_tasks(mixture, denoisers)):
        console.print(Text(f"{BORDER} stands where another document begins", "dim"))
    others = ", ".join(task.name for task in other_tasks(mixture))
    if others:
        console.print(Text(f"not shown, as they are no denoising tasks: {others}", "dim"))
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
    """Prints examples of each denoiser of the batch that a run is fed at a step, each with its address."""
    console = console or Console()
    numbers = run.numbers(step, host or (0, 1))
    found = run.examples()
    fed = fed_at(run, found, numbers, count, denoisers)
    print_head(console, run.name, run.sequence_length, run.split, run.seed)
    console.print(Text(_batch(run, step, host, len(found))))
    console.print(Text(f"{BORDER} stands where another document begins", "dim"))
    if absent := {task.name for task in denoising_tasks(run.name, denoisers)} - {each.sample.task for each in fed}:
        console.print(Text(f"no example in it: {', '.join(sorted(absent))}", "dim"))
    samples = ((each.sample, each.name, in_words(each.address)) for each in fed)
    _print_samples(console, run.name, run.sequence_length, samples)


def show_step_json(
    run: Run,
    step: int,
    host: tuple[int, int] | None = None,
    *,
    count: int = 2,
    denoisers: Collection[str] | None = None,
    file: TextIO | None = None,
) -> None:
    """Writes the same examples as JSON Lines, each a `samples.Sample` with its step, segment and `addresses.Address`."""
    fed = fed_at(run, run.examples(), run.numbers(step, host or (0, 1)), count, denoisers)
    as_dict = dataclasses.asdict
    lines = ({**as_dict(each.sample), "step": step, "segment": each.segment, "address": as_dict(each.address)} for each in fed)
    print_json_lines(lines, file)


def _batch(run: Run, step: int, host: tuple[int, int] | None, length: int) -> str:
    """Which examples a step has, of epochs of some length."""
    numbers = run.numbers(step)
    first, last = numbers[0] // length, numbers[-1] // length
    epochs = f"epoch {first}" if first == last else f"epochs {first} to {last}"
    of_host = f"; host {host[0]} of {host[1]} has those whose number mod {host[1]} is {host[0]}" if host else ""
    return (
        f"step {step}, batch of {len(numbers):,}: {run.unit}s {numbers[0]} to {numbers[-1]}, in {epochs}"
        f" ({length:,} {run.unit}s an epoch){of_host}"
    )


def _print_samples(
    console: Console, mixture: str, sequence_length: Mapping[str, int], samples: Iterable[tuple[Sample, str, str]]
) -> None:
    """Prints samples, which come task by task, each with its name and with where it is from."""
    tasks = {task.name: task for task in denoising_tasks(mixture)}
    for task, group in itertools.groupby(samples, key=lambda each: each[0].task):
        console.rule(Text(task, "bold"), style="dim", align="left")
        console.print(_description(tasks[task], sequence_length), "")
        for sample, name, place in group:
            console.print(shown_sample(sample, name, place, console.width), "")


def show_json(
    mixture: str,
    sequence_length: Mapping[str, int],
    *,
    count: int = 2,
    seed: int = 0,
    split: str = "train",
    denoisers: Collection[str] | None = None,
    file: TextIO | None = None,
) -> None:
    """Writes the same examples as JSON Lines, each a `samples.Sample`."""
    print_json_lines(map(dataclasses.asdict, draw(mixture, sequence_length, count, seed, split, denoisers)), file)


def _description(task: DenoisingTask, sequence_length: Mapping[str, int]) -> Text:
    full = task.full_chunk(sequence_length)
    fields = ", ".join(f"{field} {value}" for field, value in dataclasses.asdict(task.denoiser).items())
    return Text(
        f"{fields}\n"
        f"full chunks: {full.length} tokens, {full.noise} noise ({full.noise / full.length:.1%}), spans: {full.spans};"
        f" inputs of {full.inputs} tokens, targets of {full.targets}"
    )
