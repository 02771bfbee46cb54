"""`ul2 show`: examples of each denoiser, as text in the terminal or as JSON for programs."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import sys
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TextIO

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ul2_tasks.addresses.sequence import Address
from ul2_tasks.example_features import TOKEN_FEATURES
from ul2_tasks.inspection.readable import Stretch
from ul2_tasks.inspection.run import Run
from ul2_tasks.inspection.samples import Sample, draw
from ul2_tasks.inspection.steps import fed_at
from ul2_tasks.tasks.providers import DenoisingTask, denoising_tasks, other_tasks

# Noise spans take these in turn: of the 256 colours of terminals some that are about as far from black as from white.
_COLOURS = ("#008700", "#d700af", "#0087af", "#af5f00", "#875fd7", "#ff0000")
_SIDE_BY_SIDE = 100  # from so many columns on a terminal has room for inputs beside targets
_NARROWEST = 0.3  # the least share of the room that inputs, or targets, get

_MOVING = ("Cc", "Zl", "Zp")  # the Unicode categories of characters that move the cursor
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # the direction of writing
_LINE_END = "⏎\n"
_BORDER = "‖"
# Japanese and Chinese letters, around which a line may break without a space.
_IDEOGRAPH = "[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
_ATOMS = {  # what a line does not break
    "text": re.compile(rf"{_LINE_END}|[^\S\n]+|{_IDEOGRAPH}|(?:(?!{_IDEOGRAPH}|{_LINE_END})\S)+"),
    "bytes": re.compile(r"<0x..>|.+?(?=<0x|$)"),
}


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

    Args:
        mixture, sequence_length, count, seed, split, denoisers: see `samples.draw`.
        console: where the examples go; by default standard output. From 100 columns on inputs and targets are side by side.

    Raises:
        ValueError: see `samples.draw`.
    """
    console = console or Console()
    samples = draw(mixture, sequence_length, count, seed, split, denoisers)
    print_head(console, mixture, sequence_length, split, seed)
    if any(task.configuration.merge_examples for task in denoising_tasks(mixture, denoisers)):
        console.print(Text(f"{_BORDER} stands where another document begins", "dim"))
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
    """Prints examples of each denoiser of the batch that a run is fed at a step, each with its address.

    Args:
        run: what it is fed.
        step: of the model, see `Run.numbers`.
        host: which host, and of how many; by default all.
        count, denoisers: see `steps.fed_at`.
        console: see `show`.

    Raises:
        ValueError: see `Run.numbers`, `Run.examples` and `steps.fed_at`.
    """
    console = console or Console()
    numbers = run.numbers(step, host or (0, 1))
    found = run.examples()
    fed = fed_at(run, found, numbers, count, denoisers)
    print_head(console, run.mixture, run.sequence_length, run.split, run.seed)
    console.print(Text(_batch(run, step, host, len(found))))
    console.print(Text(f"{_BORDER} stands where another document begins", "dim"))
    if absent := {task.name for task in denoising_tasks(run.mixture, denoisers)} - {each.sample.task for each in fed}:
        console.print(Text(f"no example in it: {', '.join(sorted(absent))}", "dim"))
    samples = ((each.sample, each.name, in_words(each.address)) for each in fed)
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
    """Writes the same examples as JSON Lines, each a `samples.Sample` with its step, segment and `addresses.Address`.

    Args:
        run, step, host, count, denoisers: see `show_step`.
        file: where to; by default standard output.

    Raises:
        ValueError: see `show_step`.
    """
    for each in fed_at(run, run.examples(), run.numbers(step, host or (0, 1)), count, denoisers):
        line = {"step": step, "segment": each.segment, "address": dataclasses.asdict(each.address)}
        print(json.dumps({**dataclasses.asdict(each.sample), **line}, ensure_ascii=False), file=file or sys.stdout)


def in_words(address: Address) -> str:
    """Where an example is from, for people.

    >>> in_words(Address("web_corpus", "web_r1", "r1", epoch=3, slot=0, tokens=((90, 100), (0, 5)), documents=((7, 9), (0, 1))))
    'epoch 3 of web_corpus, documents 7 to 8 and 0, tokens 90 to 99 and 0 to 4'
    """
    documents, tokens = map(ranges_in_words, (address.documents, address.tokens))
    return f"epoch {address.epoch} of {address.corpus}, documents {documents}, tokens {tokens}"


def ranges_in_words(ranges: Iterable[tuple[int, int]]) -> str:
    """Ranges (start, stop) with their last numbers, for people.

    >>> ranges_in_words([(90, 100), (0, 1)])
    '90 to 99 and 0'
    """
    return " and ".join(f"{start} to {stop - 1}" if stop > start + 1 else f"{start}" for start, stop in ranges)


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


def print_head(console: Console, mixture: str, sequence_length: Mapping[str, int], split: str, seed: int) -> None:
    """Prints what is shown: the mixture, its budgets, the split and the seed."""
    budgets = f"inputs of at most {sequence_length['inputs']} tokens, targets of at most {sequence_length['targets']}"
    console.print(Text.assemble((mixture, "bold"), f": {budgets}; split {split}, seed {seed}"))


def _print_samples(
    console: Console, mixture: str, sequence_length: Mapping[str, int], samples: Iterable[tuple[Sample, str, str]]
) -> None:
    """Prints samples, which come task by task, each with its name and with where it is from."""
    tasks = {task.name: task for task in denoising_tasks(mixture)}
    for task, group in itertools.groupby(samples, key=lambda each: each[0].task):
        console.rule(Text(task, "bold"), style="dim", align="left")
        console.print(_description(tasks[task], sequence_length), "")
        for sample, name, place in group:
            console.print(as_shown(sample, name, place, console.width), "")


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
    """Writes the same examples as JSON Lines, each a `samples.Sample`.

    Args:
        mixture, sequence_length, count, seed, split, denoisers: see `samples.draw`.
        file: where to; by default standard output.

    Raises:
        ValueError: see `samples.draw`.
    """
    for sample in draw(mixture, sequence_length, count, seed, split, denoisers):
        print(json.dumps(dataclasses.asdict(sample), ensure_ascii=False), file=file or sys.stdout)


@dataclasses.dataclass(frozen=True)
class Flow:
    """Stretches that rich prints: a span in its colour; sentinels, the mode and EOS so that they stand out.

    Lines break at spaces, between two spans and around ideographs. They break within a word only if it is too long for a line,
    and never within a sentinel.
    """

    stretches: Sequence[Stretch]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.wrapped(options.max_width)

    @property
    def width(self) -> int:
        """The columns that all stretches take in one line."""
        return sum(cell_len(atom) for stretch in self.stretches for atom, _ in _atoms(stretch))

    def wrapped(self, width: int) -> Text:
        """The text in lines of at most `width` columns."""
        lines, used = Text(), 0
        for word in self._words():
            if word[0][0].isspace() and used + cell_len(word[0][0]) > width:
                continue  # at the end of a line nobody sees it
            if used + sum(cell_len(atom) for atom, _ in word) > width and used:
                lines.append("\n")
                used = 0
            for atom, style in word:
                for fitting in chop_cells(atom, width):
                    if used + cell_len(fitting) > width and used:
                        lines.append("\n")
                        used = 0
                    lines.append(fitting, style)
                    used = 0 if fitting.endswith("\n") else used + cell_len(fitting)
        return lines

    def _words(self) -> Iterator[list[tuple[str, str]]]:
        """Words: lists of atoms, with their styles, between which no line should break."""
        word: list[tuple[str, str]] = []
        for before, stretch in zip([None, *self.stretches], self.stretches):
            next_span = stretch.kind == "sentinel" and before is not None and before.span is not None
            for atom, style in _atoms(stretch):
                if word and (next_span or atom.isspace() or word[-1][0][-1].isspace() or re.match(_IDEOGRAPH, atom)):
                    yield word
                    word = []
                word.append((atom, style))
        if word:
            yield word


def visible(text: str) -> str:
    """The text without characters that move the cursor or turn the direction of writing.

    A line end becomes ⏎ and a new line, a tab becomes ⇥, and any other such character becomes its number.

    >>> visible("tab\\there, bell\\x07")
    'tab⇥here, bell\\\\u0007'
    """
    return "".join(map(_visible, text.replace("\r\n", "\n")))


def _visible(character: str) -> str:
    if character in "\n\t":
        return {"\n": _LINE_END, "\t": "⇥"}[character]
    is_text = unicodedata.category(character) not in _MOVING and character not in _TURNING
    return character if is_text else f"\\u{ord(character):04x}"


def _atoms(stretch: Stretch) -> list[tuple[str, str]]:
    text = _BORDER if stretch.kind == "border" else visible(stretch.text)
    return [(atom, _style(stretch)) for atom in (_ATOMS[stretch.kind].findall(text) if stretch.kind in _ATOMS else [text])]


def _style(stretch: Stretch) -> str:
    colour = "" if stretch.span is None else _COLOURS[stretch.span % len(_COLOURS)]
    marks = dict.fromkeys(("mode", "sentinel"), "bold reverse") | dict.fromkeys(("border", "picture"), "bold")
    marks |= {"eos": "dim", "bytes": "italic"}
    return f"{marks.get(stretch.kind, '')} {colour}".strip()


def _description(task: DenoisingTask, sequence_length: Mapping[str, int]) -> Text:
    full = task.full_chunk(sequence_length)
    fields = ", ".join(f"{field} {value}" for field, value in dataclasses.asdict(task.denoiser).items())
    return Text(
        f"{fields}\n"
        f"full chunks: {full.length} tokens, {full.noise} noise ({full.noise / full.length:.1%}), spans: {full.spans};"
        f" inputs of {full.inputs} tokens, targets of {full.targets}"
    )


def as_shown(sample: Sample, name: str, place: str, width: int) -> RenderableType:
    """A sample with its numbers, its name and where it is from, for a terminal of some columns."""
    counts = sample.counts
    head = Text.assemble(
        (name, "bold"),
        f": {counts.chunk} tokens, {counts.noise} noise ({counts.corruption_rate:.1%}), spans: {counts.spans}",
        (f"\n{place}" if place else "", "dim"),
    )
    titles = [Text(f"{feature}, {getattr(counts, feature)} tokens", "dim") for feature in TOKEN_FEATURES]
    inputs, targets = Flow(sample.inputs), Flow(sample.targets)
    if width < _SIDE_BY_SIDE:
        return Group(head, titles[0], Padding(inputs, (0, 0, 0, 2)), titles[1], Padding(targets, (0, 0, 0, 2)))
    of_inputs = min(max(inputs.width / (inputs.width + targets.width), _NARROWEST), 1 - _NARROWEST)
    table = Table.grid(padding=(0, 3), expand=True)
    for share in (of_inputs, 1 - of_inputs):
        table.add_column(ratio=round(100 * share))
    table.add_row(*titles)
    table.add_row(inputs, targets)
    return Group(head, table)
