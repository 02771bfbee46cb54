"""The kinds of data. Each answers for itself what a command asks; a new kind is one more in this tuple."""

from __future__ import annotations

from typing import Any

import click

from ul2_tasks.cli.kinds.conversations import Conversations
from ul2_tasks.cli.kinds.image_text import ImageText
from ul2_tasks.cli.kinds.rows import Rows
from ul2_tasks.cli.kinds.seam import Kind
from ul2_tasks.cli.kinds.texts import Texts
from ul2_tasks.cli.kinds.texts import print_overview as print_overview
from ul2_tasks.cli.options import Data

KINDS: tuple[Kind, ...] = (Texts(), ImageText(), Conversations(), Rows())


def kind_of(data: Data) -> Kind:
    """The kind that options name, or that all tasks of a mixture are of; else the first kind that some are of, which skips others.

    Raises a UsageError where the kind cannot do what is asked.
    """
    named = (kind for kind in KINDS if kind.is_named(data))
    of_tasks = (kind for among in (all, any) for kind in KINDS if among(map(kind.owns, data.tasks)))
    kind = next(named, None) or next(of_tasks, KINDS[0])
    if refusal := kind.refusal(data):
        raise click.UsageError(refusal)
    return kind


def corpora_of(data: Data) -> list[Any]:
    """The corpora of all tasks of a mixture, each once, whatever their kinds."""
    kind = kind_of(data)
    others = (other for other in KINDS if other is not kind and any(map(other.owns, data.tasks)))
    return list(dict.fromkeys(corpus for each in (kind, *others) for corpus in each.corpora(data)))


def left_out(kind: Kind, data: Data) -> list[str]:
    """Says which tasks of a mixture have no tokens that are exported beside those of a kind."""
    others = [task for task in data.tasks if not kind.owns(task)]
    said = {each: each.left_out([task for task in others if each.owns(task)]) for each in KINDS}
    others_left = [task.name for task in others if not any(each.owns(task) for each in KINDS if said[each])]
    without = [f"left out, because they have no corpus of {kind.name}: {', '.join(others_left)}"] if others_left else []
    return without + [f"left out, because they are {sentence}" for sentences in said.values() for sentence in sentences]


def tell_others(kind: Kind, data: Data) -> None:
    """Says on stderr which tasks of a mixture a command leaves out, because they are of another kind."""
    others = [] if kind.is_named(data) else [task.name for task in data.tasks if not kind.owns(task)]
    if others and str(data.command.name) not in kind.tells_others:
        click.echo(f"left out, because they are not {kind.name}: {', '.join(others)}. Name the mixtures that have them.", err=True)


def unknown_tasks(data: Data) -> list[str]:
    """The names of the tasks of a mixture that are of no kind."""
    return [task.name for task in data.tasks if not any(kind.owns(task) for kind in KINDS)]
