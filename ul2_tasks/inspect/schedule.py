"""`ul2 schedule`: what each stage of a run reads, before the run starts."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.text import Text

from ul2_tasks.inspect.printing import list_table, print_head
from ul2_tasks.inspect.run import Run
from ul2_tasks.order.order import Order
from ul2_tasks.order.rows import Rows
from ul2_tasks.order.steps import Steps
from ul2_tasks.random_access.numbering import Numbering


@dataclasses.dataclass(frozen=True)
class StageOfCorpus:
    """What a stage reads of a corpus.

    Attributes:
        stage: its index, from 0.
        first_step, stop_step: its steps [first_step, stop_step).
        corpus: the name of the corpus's task.
        fraction: its part of the stage's examples or packed sequences.
        elements, examples, tokens: how many it reads; of tokens, and of the examples of packed sequences, about so many, and
            exactly those of whole epochs. `ul2 audit` counts them.
        epochs: how many epochs of the corpus were read before the stage, and are after it.
        epoch_ends: the steps in which it reads the last token of an epoch of the corpus.
        denoisers: the steps from which on the corpus has other denoisers, or other weights of them, with their fractions.
        batch_size: the global batch size.
        lengths: those of its examples and rows.
    """

    stage: int
    first_step: int
    stop_step: int
    corpus: str
    fraction: float
    elements: int
    examples: int
    tokens: int
    epochs: tuple[float, float]
    epoch_ends: list[int]
    denoisers: dict[int, dict[str, float]]
    batch_size: int
    lengths: dict[str, int | None]


def schedule_of(run: Run) -> list[StageOfCorpus]:
    """What each stage of a run reads of each corpus. Raises a ValueError where its mixture has no schedule."""
    found = run.examples()
    told = found.describe().get("schedule")
    if not isinstance(told, dict):
        raise ValueError(f"the mixture must have a schedule, and {run.name!r} has none. Pass mix(.., schedule=[..]).")
    numbering, steps, first_step = found.numbering, Steps.of_record(told), run.first_step
    rows, mix = [], numbering.mix
    sizes = {corpus.name: corpus.store.tokens for corpus in numbering.corpora}
    all_begins = [
        [(int(mix.numbers(corpus, np.array([part.first]))[0]), _denoisers(numbering, part.order)) for part in parts]
        for corpus, parts in enumerate(numbering.parts)
    ]
    all_ends = [_epoch_ends(numbering, corpus, len(found)) for corpus in range(len(numbering.names))]
    for number, (stage, following) in enumerate(zip(mix.stages, [*(stage.first for stage in mix.stages[1:]), len(found)])):
        stop = min(following, len(found))
        for corpus in sorted(stage.corpora) if stage.first < stop else ():
            before, after = (_read(numbering, corpus, element) for element in (stage.first, stop))
            begins, ends = all_begins[corpus], all_ends[corpus]
            rows.append(
                StageOfCorpus(
                    number,
                    first_step + steps.step(stage.first),
                    first_step + steps.step(stop - 1) + 1,
                    numbering.names[corpus],
                    (after[0] - before[0]) / (stop - stage.first),
                    after[0] - before[0],
                    round(after[2] - before[2]),
                    round((after[1] - before[1]) * sizes[numbering.names[corpus]]),
                    (before[1], after[1]),
                    [first_step + steps.step(end) for end in ends if stage.first <= end < stop],
                    {
                        first_step + steps.step(element): now
                        for before, (element, now) in itertools.pairwise([(-1, {}), *begins])
                        if stage.first <= element < stop and now != before[1]
                    },
                    steps.size(steps.step(stage.first)),
                    dict(numbering.by_lengths(np.array([stage.first]), found.budgets)[0][0]),
                )
            )
    return rows


def print_schedule(run: Run, rows: Sequence[StageOfCorpus], console: Console) -> None:
    """Prints a table of the stages of a run."""
    print_head(console, run.name, run.sequence_length, run.split, run.seed)
    left = ("steps", "corpus", "epochs", "ends at step")
    counts = [f"{run.unit}s", *(["examples, about"] if run.unit != "example" else [])]
    table = list_table("stage", "steps", "corpus", "fraction", *counts, "tokens, about", "epochs", "ends at step", left=left, gap=2)
    last = -1
    for row in rows:
        is_new, last = row.stage != last, row.stage
        ends = [f"{step:,}" for step in row.epoch_ends]
        table.add_row(
            f"{row.stage}" if is_new else "",
            f"{row.first_step:,} to {row.stop_step - 1:,}" if is_new else "",
            row.corpus,
            f"{row.fraction:.3g}" if row.fraction < 0.001 else f"{row.fraction:.1%}",
            *(f"{count:,}" for count in (row.elements, row.examples)[: len(counts)]),
            f"{row.tokens:,}",
            f"{row.epochs[0]:.3f} to {row.epochs[1]:.3f}",
            ", ".join(ends[:3]) + (f" and {len(ends) - 3} more" if len(ends) > 3 else ""),
        )
    console.print(table)
    for before, row in itertools.pairwise(rows):
        if (before.batch_size, before.lengths) != (row.batch_size, row.lengths):
            lengths = ", ".join(f"{key} of {most} tokens" for key, most in row.lengths.items())
            console.print(Text(f"from step {row.first_step:,} on: {row.batch_size:,} {run.unit}s a step, {lengths}"))
    for row in rows:
        for step, fractions in row.denoisers.items():
            by_name = ", ".join(f"{name} {fraction:.3g}" for name, fraction in fractions.items())
            console.print(Text(f"{row.corpus} from step {step:,} on: {by_name}"))


def _read(numbering: Numbering, corpus: int, element: int) -> tuple[int, float, float]:
    """How many elements of a corpus come before one of the run, how many epochs these are, and examples."""
    read, epochs, examples = int(numbering.mix.before(element)[corpus]), 0.0, 0.0
    for part, stop in numbering.parts_until(corpus, read):
        order = numbering.orders[part.order]
        epochs += _epochs(order, part.start + stop - part.first) - _epochs(order, part.start)
        examples += (stop - part.first) * (order.order.examples / order.rows_about if isinstance(order, Rows) else 1)
    return read, epochs, examples


def _epochs(order: Order | Rows, index: int) -> float:
    """How many epochs come before an element of an order; within a round all elements count the same."""
    begun = order.round_of(index)
    first, stop = order.first_of(begun), order.first_of(begun + 1)
    part = order.order.part if isinstance(order, Rows) else order.part
    return (begun + 1 - part * (stop - index) / (stop - first)) / order.rounds


def _epoch_ends(numbering: Numbering, corpus: int, stop: int) -> list[int]:
    """The elements that are the last of an epoch of a corpus, of those that may end before an element."""
    last = []
    for epoch in range(1, int(_read(numbering, corpus, stop)[1]) + 2):
        for part, end in numbering.parts_until(corpus):
            order = numbering.orders[part.order]
            if not order.reaches(epoch * order.rounds):
                continue
            position = order.first_of(epoch * order.rounds) - part.start + part.first
            if part.first < position <= end:
                last.append(position - 1)
    ends = numbering.mix.numbers(corpus, np.unique(np.array(last, np.int64)))
    return ends[ends >= 0].tolist()


def _denoisers(numbering: Numbering, order: int) -> dict[str, float]:
    corpus = numbering.corpora[order]
    counts = corpus.order.cycle.counts
    return {corpus.members[kind].task: count / sum(counts) for kind, count in enumerate(counts)}
