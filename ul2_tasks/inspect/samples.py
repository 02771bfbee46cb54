"""Examples of each denoiser to look at: as ids, as text, in numbers, and as a terminal shows them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ul2_tasks.denoisers.denoisers import Denoiser
from ul2_tasks.denoisers.reconstruction import invert, places
from ul2_tasks.example_features import TOKEN_FEATURES
from ul2_tasks.inspect.printing import LINE_END, visible
from ul2_tasks.inspect.readable import Stretch, stretches
from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.special_ids import SpecialTokens

if TYPE_CHECKING:
    pass

# Noise spans take these in turn: of the 256 colours of terminals some that are about as far from black as from white.
_COLOURS = ("#008700", "#d700af", "#0087af", "#af5f00", "#875fd7", "#ff0000")
_SIDE_BY_SIDE = 100  # from so many columns on a terminal has room for inputs beside targets
_NARROWEST = 0.3  # the least share of the room that inputs, or targets, get
BORDER = "‖"
# Japanese and Chinese letters, around which a line may break without a space.
_IDEOGRAPH = "[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
_ATOMS = {  # what a line does not break
    "text": re.compile(rf"{LINE_END}|[^\S\n]+|{_IDEOGRAPH}|(?:(?!{_IDEOGRAPH}|{LINE_END})\S)+"),
    "bytes": re.compile(r"<0x..>|.+?(?=<0x|$)"),
}


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


class DenoisedTask(NamedTuple):
    """What is known of a task whose examples are looked at."""

    name: str
    denoiser: Denoiser
    special: SpecialTokens
    vocabulary: Vocabulary


def sample_of(task: DenoisedTask, number: int, example: Mapping[str, np.ndarray]) -> Sample:
    """A sample of an example that a task made.

    `example` is {"inputs": [tokens] int, "targets": [tokens] int, "starts_document": [L] bool, which
    tokens of the chunk begin a document}.
    """

    def read(feature: str, ids: Sequence[int], borders: Sequence[int]) -> Sequence[Stretch]:
        return stretches(task.vocabulary, ids, task.special, feature, borders)

    return reconstructed(task, number, example, np.flatnonzero(example["starts_document"]), read)


def reconstructed(
    task: DenoisedTask,
    number: int,
    example: Mapping[str, np.ndarray],
    begins: np.ndarray,
    read: Callable[[str, Sequence[int], Sequence[int]], Sequence[Stretch]],
) -> Sample:
    """A sample of an example.

    Args:
        task, number: see `sample_of`.
        example: {"inputs": [tokens] int, "targets": [tokens] int}.
        begins: [documents] int, the tokens of the chunk that begin a document.
        read: gives "inputs" or "targets", of these ids, as stretches with borders before these places.
    """
    whole = invert(example, task.denoiser, task.special)
    begins = begins[(begins > 0) & (begins < len(whole.chunk))]
    noise_begins, at = whole.is_noise[begins], places(whole, task.denoiser, task.special)[begins]
    noise, chunk = int(whole.is_noise.sum()), len(whole.chunk)
    ids = {feature: [int(id) for id in example[feature]] for feature in TOKEN_FEATURES}
    return Sample(
        task=task.name,
        denoiser=task.denoiser.name,
        mode=task.denoiser.mode,
        number=number,
        counts=ExampleCounts(chunk, noise, len(whole.spans), len(ids["inputs"]), len(ids["targets"]), noise / chunk),
        ids=ids,
        inputs=read("inputs", ids["inputs"], at[~noise_begins].tolist()),
        targets=read("targets", ids["targets"], at[noise_begins].tolist()),
    )


def shown_sample(sample: Sample, name: str, place: str, width: int) -> RenderableType:
    """A sample with its numbers, its name and where it is from, for a terminal of some columns."""
    counts = sample.counts
    head = Text.assemble(
        (name, "bold"),
        f": {counts.chunk} tokens, {counts.noise} masked ({counts.corruption_rate:.1%}), spans: {counts.spans}",
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


def _atoms(stretch: Stretch) -> list[tuple[str, str]]:
    text = BORDER if stretch.kind == "border" else visible(stretch.text)
    return [(atom, _style(stretch)) for atom in (_ATOMS[stretch.kind].findall(text) if stretch.kind in _ATOMS else [text])]


def _style(stretch: Stretch) -> str:
    colour = "" if stretch.span is None else _COLOURS[stretch.span % len(_COLOURS)]
    marks = dict.fromkeys(("mode", "sentinel"), "bold reverse") | dict.fromkeys(("border", "image"), "bold")
    marks |= {"eos": "dim", "bytes": "italic"}
    return f"{marks.get(stretch.kind, '')} {colour}".strip()
