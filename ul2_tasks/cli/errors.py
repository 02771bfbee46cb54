"""Turns what goes wrong into one line for users, and an exit status. `--debug` shows tracebacks instead."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import sys
import traceback
from collections.abc import Sequence

import click

from ul2_tasks.cli.help import write_options

PROBLEMS_FOUND, BAD_INPUT, INTERRUPTED = 1, 2, 130  # exit statuses; shells use the last for SIGINT
RESUMABLE = ("cache", "export")  # the commands that resume

_EXPECTED = (ImportError, OSError, RuntimeError, ValueError)  # their messages are for users
# Beam adds where in its pipeline it happened, and TensorFlow in which op and Python code. Nothing of that is the user's.
_INNER = (
    r"\nTraceback.*|\[while running .*|\{\{.*?\}\}|\[\[.*?\]\]|\[Op:.*"
    r"|(\w+Error: )?Error in user-defined function passed to \S+ transformation with iterator: \S+: (ValueError: )?"
)


class Command(click.Command):
    """A command that turns exceptions into sentences, unless --debug asks for tracebacks."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, epilog="Write - or _ in option names: --text-key is --text_key.", **kwargs)
        self.params.append(click.Option(["--debug"], is_flag=True, help="Show tracebacks and the logs of TensorFlow and Beam."))

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        write_options(self, context, formatter)

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
                again = ". Re-run the same command to resume" if self.name in RESUMABLE else ""
                click.echo(f"Interrupted{again}.", err=True)
                sys.exit(INTERRUPTED)
            if debug:
                raise
            click.echo(f"Error: {sentence_of(error)}", err=True)
            sys.exit(BAD_INPUT)


def plain(name: str) -> str:
    """The form in which click compares names: --text-key is --text_key, and --preset ul2 is --preset UL2."""
    return name.replace("-", "_").lower()


class Group(click.Group):
    """A group of such commands, which help lists in the order of the code."""

    command_class = Command
    group_class = type

    def list_commands(self, context: click.Context) -> list[str]:
        return list(self.commands)


def as_a_program(command: click.Command, *arguments: object) -> None:
    """Runs a command as a program of its own. After an error it ends at once: to tear down an iterator of tf.data can take minutes.

    A program that continues after a command calls the command itself.
    """
    ended: list[SystemExit] = []
    atexit.register(_end_at_once, ended)  # the first that is registered is the last that is called
    try:
        command(*arguments, prog_name="ul2")
    except SystemExit as end:
        ended.append(end)  # with its traceback, which holds what would be torn down before
        raise


def _end_at_once(ended: Sequence[SystemExit]) -> None:
    if ended and isinstance(ended[0].code, int) and ended[0].code:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # nobody reads it
                stream.flush()
        os._exit(ended[0].code)


def _quiet_libraries() -> None:
    """Hides Beam's logs and TensorFlow's warnings.

    The few lines that TensorFlow writes before it reads that setting stay: if it then ends the process, they say why.
    """
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)  # it logs the traceback of an error, and then raises the error too
    logging.getLogger("tensorflow").setLevel(logging.ERROR)  # it warns of a function that is made for each denoiser
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # nothing is lost by it: an error that ends a command is also raised


def _is_interrupt(error: BaseException) -> bool:
    """Whether it is Ctrl-C. In Python code that TensorFlow calls, TensorFlow turns it into an error of its own."""
    return isinstance(error, KeyboardInterrupt) or (_is_of_tensorflow(error) and "KeyboardInterrupt" in str(error))


def _is_of_tensorflow(error: BaseException) -> bool:
    return type(error).__module__.startswith("tensorflow")


def _last_message(text: str) -> str:
    """The message at the end of the tracebacks that Beam hands on from another process; else the text.

    >>> _last_message("Traceback (most recent call last):\\n  File 1\\nOSError: disk full\\n [while running 'Map']")
    "disk full\\n [while running 'Map']"
    """
    if not text.startswith("Traceback ("):
        return text
    of_last = text.split("\nTraceback (")[-1].splitlines()[1:]
    return re.sub(r"^[\w.]+: ", "", "\n".join(line for line in of_last if not line.startswith("  ")))


def sentence_of(error: BaseException) -> str:
    """What a command says of an error, in one line."""
    message = " ".join(re.sub(_INNER, "", _last_message(str(error)), flags=re.DOTALL).split())
    if isinstance(error, _EXPECTED) or _is_of_tensorflow(error):
        return message
    return f"{type(error).__name__}: {message} (a bug in ul2_tasks or in your code; add --debug for the traceback)"
