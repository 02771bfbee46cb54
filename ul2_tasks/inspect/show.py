"""`ul2 show`: examples of a step of a run, as people read them in a terminal, and as JSON Lines."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ul2_tasks.example_features import LOSS_WEIGHT
from ul2_tasks.inspect.printing import print_head, visible
from ul2_tasks.inspect.readable import Stretch
from ul2_tasks.inspect.run import Run
from ul2_tasks.inspect.view import View, group_name, viewers_of, views

# Noise spans, and loss groups, take these in turn: of the 256 colours of terminals some that are about as far from black as from
# white.
_COLOURS = ("#008700", "#d700af", "#0087af", "#af5f00", "#875fd7", "#ff0000")
_STYLES = {"mode": "bold reverse", "sentinel": "bold reverse", "border": "bold", "image": "bold", "bytes": "italic"}
_STYLES |= {"eos": "dim", "header": "italic"}
_SIDE_BY_SIDE = 100  # from so many columns on a terminal has room for inputs beside targets
_NARROWEST = 0.3  # the least share of the room that inputs, or targets, get
BORDER = "‖"


@dataclasses.dataclass(frozen=True)
class Shown:
    """Examples of a step of a run.

    Attributes:
        step: which one.
        batch: which examples it has, in words; empty without a batch size.
        tasks: what each of the tasks is that were looked for, by its name.
        views: the first examples of each, task by task.
    """

    step: int
    batch: str
    tasks: Mapping[str, str]
    views: Sequence[View]

    def as_plain(self) -> Iterator[dict[str, Any]]:
        """What JSON has of it, a line for each example."""
        return ({"step": self.step, **view.as_plain()} for view in self.views)


def show(
    run: Run, step: int | None = None, host: tuple[int, int] = (0, 1), *, count: int = 2, denoisers: Collection[str] = ()
) -> Shown:
    """The first examples of each task that a run is fed at a step, by default its first one.

    Args:
        run: the run. Without a batch size the first step has as many examples as are needed.
        step: takes the model from step n to n + 1.
        host: which host, and of how many, reads them.
        count: how many of each task there are at most.
        denoisers: the names of those whose examples are looked at, or the formats of conversations; none for all.

    Raises:
        ValueError: there is no such step or denoiser; or see `mixtures.examples.examples`.
    """
    step = run.first_step if step is None else step
    numbers = run.numbers(step, host)
    found = run.examples_at(numbers[0])
    viewers = viewers_of(found, denoisers)
    tasks = {task: viewer.in_words for task, viewer in viewers.items()}
    return Shown(step, run.in_words(step, host), tasks, views(found, numbers, count, viewers))


def print_shown(run: Run, shown: Shown, console: Console) -> None:
    """Prints examples of a run, task by task.

    Each noise span has one colour in inputs and targets. Without colours its sentinel says which it is. From 100 columns on inputs
    and targets are side by side. Conversations are printed message by message: tokens that are not trained on are dim, each loss
    group has its colour, and below each message's kind is how many of its tokens are trained on.
    """
    print_head(console, run.name, run.sequence_length, run.split, run.seed)
    if shown.batch:
        console.print(Text(shown.batch))
    if any(stretch.kind == "border" for view in shown.views for feature in view.features.values() for stretch in feature):
        console.print(Text(f"{BORDER} = document boundary", "dim"))
    if absent := shown.tasks.keys() - {view.task for view in shown.views}:
        console.print(Text(f"no example in it: {', '.join(sorted(absent))}", "dim"))
    for task, of_task in itertools.groupby(shown.views, key=lambda view: view.task):
        console.rule(Text(task, "bold"), style="dim", align="left")
        console.print(Text(shown.tasks[task]), "")
        for view in of_task:
            console.print(printed(view, console.width), "")


def printed(view: View, width: int) -> RenderableType:
    """An example with its numbers, its title and where it is from, for a terminal of some columns."""
    head = [Text.assemble((view.title, "bold"), f": {in_words(view.numbers)}", (f"\n{visible(view.place)}", "dim"))]
    if "messages" in view.numbers:
        of_features = {key: [_messages(stretches)] for key, stretches in view.features.items()}
        return Group(*head, *_under_titles(view, of_features))
    flows = {key: flow(stretches) for key, stretches in view.features.items()}
    if width < _SIDE_BY_SIDE:
        return Group(*head, *_under_titles(view, {key: [Padding(of_feature, (0, 0, 0, 2))] for key, of_feature in flows.items()}))
    widths = [of_feature.cell_len for of_feature in flows.values()]
    table = Table.grid(padding=(0, 3), expand=True)
    for of_feature in widths:
        table.add_column(ratio=round(100 * min(max(of_feature / sum(widths), _NARROWEST), 1 - _NARROWEST)))
    table.add_row(*(_title(view, key) for key in flows))
    table.add_row(*flows.values())
    return Group(*head, table)


def in_words(numbers: Mapping[str, float]) -> str:
    """The numbers of an example, see `View.numbers`."""
    if "noise" not in numbers:
        return ", ".join(f"{count:,} {name}" for name, count in numbers.items())
    masked = f"{numbers['noise']} masked ({numbers['noise'] / numbers['chunk']:.1%})"
    if "lowest t" in numbers:
        low, high = numbers["lowest t"], numbers["highest t"]
        return f"{numbers['chunk']} tokens, {masked}, t: {low}{f' to {high}' if low < high else ''}"
    images = f", images: {numbers['images']}" if "images" in numbers else ""
    weights = f", loss weights: {numbers[LOSS_WEIGHT]:,} in all" if LOSS_WEIGHT in numbers else ""
    return f"{numbers['chunk']} tokens, {masked}, spans: {numbers['spans']}{images}{weights}"


def _under_titles(view: View, of_features: Mapping[str, list[Any]]) -> list[RenderableType]:
    """What is printed of features, each under its title if there are several."""
    titles = {key: [_title(view, key)] if len(of_features) > 1 else [] for key in of_features}
    return [each for key, of_feature in of_features.items() for each in (*titles[key], *of_feature)]


def _title(view: View, feature: str) -> Text:
    return Text(f"{feature}, {view.numbers[feature]:,} tokens", "dim")


def _messages(of_feature: Sequence[Stretch]) -> Table:
    """The messages of a conversation, each beside its kind, and how many of its tokens are trained on."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for kind, own in _by_message(of_feature):
        groups = sorted({each.group for each in own if each.group})
        tokens, trained = sum(each.tokens for each in own), sum(each.tokens for each in own if each.group)
        told = f"\n  {trained:,} of {tokens:,}" + (f": {', '.join(map(group_name, groups))}" if groups else "")
        text = Text.assemble(*((visible(each.text), _style(each, "dim")) for each in own))
        table.add_row(Text.assemble((kind, "bold"), (told, "dim")), text)
    return table


def _by_message(of_feature: Sequence[Stretch]) -> Iterator[tuple[str, list[Stretch]]]:
    """The kind and the stretches of each message; of what is none, such as the mode and the EOD, the kind of the stretch."""
    kind, own = "", list[Stretch]()
    for stretch in of_feature:
        if own and stretch.kind in ("message", "mode", "eos"):
            yield kind, own
            own = []
        if stretch.kind == "message":
            kind = stretch.text
        else:
            kind = stretch.kind if stretch.kind in ("mode", "eos") else kind or "tokens"
            own.append(stretch)
    if own:
        yield kind, own


def flow(stretches: Iterable[Stretch]) -> Text:
    """Stretches as a text: a span in its colour; sentinels, the mode and EOS so that they stand out."""
    return Text.assemble(*((BORDER if each.kind == "border" else visible(each.text), _style(each)) for each in stretches))


def _style(stretch: Stretch, without_group: str = "") -> str:
    """`without_group` is that of text without a group."""
    colour = without_group if stretch.group is None else _COLOURS[stretch.group % len(_COLOURS)]
    is_trained_stop = stretch.kind == "stop" and stretch.group is not None
    return f"{'reverse' if is_trained_stop else _STYLES.get(stretch.kind, '')} {colour}".strip()
