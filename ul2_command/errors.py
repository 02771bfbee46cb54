"""What goes wrong with a user's input ends in one sentence and exit status 2; `--debug` shows where it happened.

Ctrl-C ends a command in one sentence, too, with exit status 130.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import traceback
from collections.abc import Iterator

import click

PROBLEMS_FOUND, BAD_INPUT, INTERRUPTED = 1, 2, 130  # exit statuses; the last is what a shell has for SIGINT
RESUMABLE = ("cache", "export")

_EXPECTED = (ImportError, OSError, RuntimeError, ValueError)  # their messages are for users
# Beam says where in its pipeline it happened, TensorFlow in which op and Python code; none is the user's.
_INNER = (
    r"\nTraceback.*|\[while running .*|\{\{.*?\}\}|\[\[.*?\]\]|\[Op:.*"
    r"|(\w+Error: )?Error in user-defined function passed to \S+ transformation with iterator: \S+: (ValueError: )?"
)


class Command(click.Command):
    """A command that uses `ul2_tasks`, and turns exceptions into sentences, unless it is asked for the traceback."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, epilog="In names of options - is the same as _.", **kwargs)
        self.params.append(click.Option(["--debug"], is_flag=True, help="Show tracebacks, and the logs of TensorFlow and Beam."))

    def invoke(self, context: click.Context) -> object:
        debug = context.params.pop("debug")
        try:
            if not debug:
                _quiet_libraries()
            return super().invoke(context)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except (Exception, KeyboardInterrupt) as error:
            if _is_interrupt(error):
                if debug:
                    traceback.print_exc()
                again = "; the same command goes on where it stopped" if self.name in RESUMABLE else ""
                click.echo(f"Interrupted{again}.", err=True)
                sys.exit(INTERRUPTED)
            if debug:
                raise
            click.echo(f"Error: {_in_one_sentence(error)}", err=True)
            sys.exit(BAD_INPUT)


def plain(name: str) -> str:
    """The same for --text-key and --text_key, for --preset ul2 and --preset UL2: all names that click looks up pass here."""
    return name.replace("-", "_").lower()


class Group(click.Group):
    """A group of such commands, listed in the order in which they are written."""

    command_class = Command
    group_class = type

    def list_commands(self, context: click.Context) -> list[str]:
        return list(self.commands)


def _quiet_libraries() -> None:
    """Lets TensorFlow and Beam say what they say at their start where nobody reads it, and nothing else of theirs."""
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)  # it logs tracebacks of what it then raises
    logging.getLogger().addFilter(_is_no_missing_client)
    with _quiet_stderr():
        import tensorflow as tf

        import ul2_tasks  # noqa: F401

        tf.config.list_physical_devices()  # it looks for GPUs now, and not when the first op runs


def _is_no_missing_client(record: logging.LogRecord) -> bool:
    """Beam warns, when it is imported, that it lacks a client for BigQuery, which no command uses."""
    return "apitools not found" not in record.getMessage()


def _is_interrupt(error: BaseException) -> bool:
    """Ctrl-C, also where it met Python code within TensorFlow, which makes an error of its own of it."""
    return isinstance(error, KeyboardInterrupt) or (_is_of_tensorflow(error) and "KeyboardInterrupt" in str(error))


def _is_of_tensorflow(error: BaseException) -> bool:
    return type(error).__module__.startswith("tensorflow")


@contextlib.contextmanager
def _quiet_stderr() -> Iterator[None]:
    """TensorFlow's libraries tell the terminal about oneDNN and GPUs when they are loaded, whatever they are asked."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # an error that ends a command is raised, too
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
    if isinstance(error, _EXPECTED) or _is_of_tensorflow(error):
        return message
    return f"{type(error).__name__}: {message} (an error of the program; --debug shows where)"
