"""How `--help` lists options: those of the command first, then those that commands share, under headings."""

from __future__ import annotations

from collections.abc import Callable

import click

_FIRST = ("Options", "Training run", "Corpus", "Mixture", "Conversations", "Image-text records")  # and then all others


class _Headed(click.Option):
    """An option that is listed under a heading."""

    def __init__(self, *args, heading: str, **settings):
        super().__init__(*args, **settings)
        self.heading = heading


def headed(heading: str, *names: str, **settings) -> Callable:
    """`click.option`, listed under a heading."""
    return click.option(*names, cls=_Headed, heading=heading, **settings)


def write_options(command: click.Command, context: click.Context, formatter: click.HelpFormatter) -> None:
    """Writes the options of a command."""
    options = [option for option in command.get_params(context) if isinstance(option, click.Option)]
    under: dict[str, list[tuple[str, str]]] = {heading: [] for heading in _FIRST}
    for option in options:
        if record := option.get_help_record(context):
            under.setdefault(getattr(option, "heading", _FIRST[0]), []).append(record)
    for heading, records in under.items():
        if records:
            with formatter.section(heading):
                formatter.write_dl(records)
