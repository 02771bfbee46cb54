"""What goes wrong with a user's input ends in one sentence and exit status 2; `--debug` shows where it happened."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterator

import click

PROBLEMS_FOUND, BAD_INPUT = 1, 2  # exit statuses

_EXPECTED = (ImportError, OSError, RuntimeError, ValueError)  # their messages are for users
# Beam says where in its pipeline it happened, TensorFlow in which op and Python code; none is the user's.
_INNER = (
    r"\nTraceback.*|\[while running .*|\{\{.*?\}\}|\[\[.*?\]\]|\[Op:.*"
    r"|(\w+Error: )?Error in user-defined function passed to \S+ transformation with iterator: \S+: (ValueError: )?"
)


class Command(click.Command):
    """A command that uses `ul2_tasks`, and turns exceptions into sentences, unless it is asked for the traceback."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.params.append(click.Option(["--debug"], is_flag=True, help="Show tracebacks, and the logs of TensorFlow and Beam."))

    def invoke(self, context: click.Context) -> object:
        if context.params.pop("debug"):
            return super().invoke(context)
        logging.getLogger("apache_beam").setLevel(logging.CRITICAL)  # it logs tracebacks of what it then raises
        try:
            with _quiet_stderr():
                import ul2_tasks  # noqa: F401
            return super().invoke(context)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            click.echo(f"Error: {_in_one_sentence(error)}", err=True)
            sys.exit(BAD_INPUT)


class Group(click.Group):
    """A group of such commands, listed in the order in which they are written."""

    command_class = Command
    group_class = type

    def list_commands(self, context: click.Context) -> list[str]:
        return list(self.commands)


@contextlib.contextmanager
def _quiet_stderr() -> Iterator[None]:
    """TensorFlow's libraries tell the terminal about oneDNN and GPUs when they are loaded, whatever they are asked."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


def _in_one_sentence(error: Exception) -> str:
    message = " ".join(re.sub(_INNER, "", str(error), flags=re.DOTALL).split())
    if isinstance(error, _EXPECTED) or type(error).__module__.startswith("tensorflow"):
        return message
    return f"{type(error).__name__}: {message} (an error of the program; --debug shows where)"
