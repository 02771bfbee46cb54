"""What the model will see: examples of each denoiser as text, and the mixture's measured rates."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import seqio
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from ul2_tasks.providers import DENOISER, DenoisingTask
from ul2_tasks.vocabularies import SpecialTokens, piece_names

_STYLES = itertools.cycle(["red", "green", "yellow", "blue", "magenta", "cyan"])


def show(mixture: str, sequence_length: Mapping[str, int], examples: int = 2, mixed_examples: int = 4000, seed: int = 0) -> None:
    """Prints examples of each denoiser of a registered mixture, then the rates of `mixed_examples` mixed ones."""
    console = Console()
    provider = seqio.get_mixture_or_task(mixture)
    budgets = f"inputs of at most {sequence_length['inputs']} tokens, targets of at most {sequence_length['targets']}"
    console.print(f"[bold]{mixture}[/]: {budgets}")
    for task in provider.tasks:
        _show_task(console, task, sequence_length, examples, seed)
    _show_rates(console, provider, sequence_length, mixed_examples, seed)


def _show_task(console: Console, task: DenoisingTask, sequence_length: Mapping[str, int], examples: int, seed: int) -> None:
    denoiser, special = task.denoiser, task.special_tokens()
    vocabulary = task.output_features["targets"].vocabulary
    full = task.full_chunk(sequence_length)
    console.rule(f"[bold]{task.name}", align="left")
    console.print(", ".join(f"{field} {value}" for field, value in dataclasses.asdict(denoiser).items()), highlight=False)
    console.print(
        f"full chunks: {full.length} tokens, {full.noise} noise ({full.noise / full.length:.1%}), spans: {full.spans};"
        f" inputs of {full.inputs} tokens, targets of {full.targets}",
        highlight=False,
    )
    dataset = task.get_dataset(sequence_length, split="train", seed=seed)
    for example in dataset.take(examples).as_numpy_iterator():
        sentinels = int(np.isin(example["targets"], special.sentinels).sum())
        grid = Table.grid(padding=(0, 2))
        for feature in ("inputs", "targets"):
            counts = f"{feature}\n{len(example[feature])} tokens\nsentinels: {sentinels}"
            grid.add_row(Text(counts, style="dim"), as_text(vocabulary, example[feature], special))
        console.print(grid, "")


def as_text(vocabulary: seqio.Vocabulary, ids: Sequence[int], special: SpecialTokens) -> Text:
    """Ids as text: what was tokenized decoded, sentinels, mode and EOS by name, and coloured."""
    colours = dict(zip(special.sentinels, _STYLES)) | {id: "bold reverse" for id in special.mode} | {special.eos: "dim"}
    parts = []
    for is_special, run in itertools.groupby((int(id) for id in ids), key=colours.__contains__):
        run = list(run)
        if is_special:
            parts += [Text(name, style=colours[id]) for id, name in zip(run, piece_names(vocabulary, run))]
        else:
            parts.append(Text(vocabulary.decode(run)))
    return Text(" ").join(parts)


def _show_rates(console: Console, mixture: seqio.Mixture, sequence_length: Mapping[str, int], examples: int, seed: int) -> None:
    dataset = mixture.get_dataset(sequence_length, split="train", seed=seed, passthrough_features=[DENOISER])
    drawn: collections.Counter[str] = collections.Counter()
    tokens = {feature: collections.Counter() for feature in ("inputs", "targets")}
    for example in track(
        dataset.take(examples).as_numpy_iterator(),
        "drawing mixed examples",
        total=examples,
        console=console,
        transient=True,
    ):
        name = example[DENOISER].decode()
        drawn[name] += 1
        for feature, counter in tokens.items():
            counter[name] += len(example[feature])

    table = Table(title=f"{mixture.name}: {examples} mixed examples", title_justify="left")
    for column in ("task", "weight", "wanted", "measured", "standard errors", "of input tokens", "of target tokens"):
        table.add_column(column, justify="left" if column == "task" else "right")
    for task in mixture.tasks:
        name, wanted = task.denoiser.name, mixture.get_rate(task) / mixture.total_rate
        measured = drawn[name] / examples
        errors = (measured - wanted) / math.sqrt(wanted * (1 - wanted) / examples)
        shares = [f"{counter[name] / counter.total():.1%}" for counter in tokens.values()]
        table.add_row(task.name, f"{mixture.get_rate(task):g}", f"{wanted:.2%}", f"{measured:.2%}", f"{errors:+.1f}", *shares)
    console.print(table)
