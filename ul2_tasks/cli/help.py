"""How `--help` lists options: those of the command first, then those that commands share, under headings; and examples last."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

_Command = TypeVar("_Command", bound=click.Command)
_FIRST = ("Options", "Data", "Training run")  # and then all others
FILE = """\
from ul2_tasks import Mixture, open_source

source = open_source("texts/*.txt", documents="paragraph", validation=0.05)
mine = Mixture("mine", source, "bytes", "UL2", on_error="skip")
"""
_NAME = """\
ul2 (the default), chat or images, which are built in; a name of your own, beside --corpus, --vocabulary or --preset;
or FILE.py:OBJECT, where a Python file describes the data: a Mixture, Mix, Chat, ImageText, or ImageTextDataset, or a name
that it registers. All settings of the data are arguments there, such as in this my_data.py, whose data are my_data.py:mine:
"""


class _Headed(click.Option):
    """An option that is listed under a heading."""

    def __init__(self, *args, heading: str, **settings):
        super().__init__(*args, **settings)
        self.heading = heading


def headed(heading: str, *names: str, **settings) -> Callable:
    """`click.option`, listed under a heading."""
    return click.option(*names, cls=_Headed, heading=heading, **settings)


def examples(*lines: str) -> Callable[[_Command], _Command]:
    """Ends the help of a command with these lines, which run as they are."""

    def with_examples(command: _Command) -> _Command:
        command.epilog = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
        return command

    return with_examples


def write_options(command: click.Command, context: click.Context, formatter: click.HelpFormatter) -> None:
    """Writes what NAME may be, where a command has it, and the options of the command."""
    if any(parameter.name == "name" for parameter in command.params):
        with formatter.section("NAME"):
            formatter.write_text(" ".join(_NAME.split()))
            formatter.write_paragraph()
            for line in FILE.splitlines():
                formatter.write(f"{'':{formatter.current_indent + 4}}{line}".rstrip() + "\n")
    options = [option for option in command.get_params(context) if isinstance(option, click.Option)]
    under: dict[str, list[tuple[str, str]]] = {heading: [] for heading in _FIRST}
    for option in options:
        if record := option.get_help_record(context):
            under.setdefault(getattr(option, "heading", _FIRST[0]), []).append(record)
    for heading, records in under.items():
        if records:
            with formatter.section(heading):
                formatter.write_dl(records)
