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
    """The kind that all that is described is of; else the first kind that some is of, which skips others.

    Raises a UsageError where the kind cannot do what is asked.
    """
    kind = next(kind for among in (all, any) for kind in KINDS if among(map(kind.owns, _leaves(data))))
    if refusal := kind.refusal(data):
        raise click.UsageError(refusal)
    return kind


def corpora_of(data: Data) -> list[Any]:
    """The corpora of all that is described, each once."""
    kind_of(data)  # which raises where there are none
    return list({(corpus := part.corpus()).name: corpus for part in data.description.leaves}.values())


def left_out(kind: Kind, data: Data) -> list[str]:
    """Says which tasks of a mixture have no tokens that are exported beside those of a kind."""
    others = [part for part in data.description.leaves if not kind.owns(part)]
    said = (sentence for each in KINDS for sentence in each.left_out([part for part in others if each.owns(part)]))
    return [f"left out, because they are {sentence}" for sentence in said]


def tell_others(kind: Kind, data: Data) -> None:
    """Says on stderr which tasks of a mixture a command leaves out, because they are of another kind."""
    others = [name for part in _leaves(data) if not kind.owns(part) for name in part.rates]
    if others and str(data.command.name) not in kind.tells_others:
        click.echo(f"left out, because they are not {kind.name}: {', '.join(others)}. Name the mixtures that have them.", err=True)


def _leaves(data: Data) -> Any:
    """The descriptions of one kind each; or the recipe of image rows."""
    return getattr(data.description, "leaves", (data.description,))
