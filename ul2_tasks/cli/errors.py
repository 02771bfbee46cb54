"""Turns what goes wrong into one line for users, and an exit status. `--debug` shows tracebacks instead."""

from __future__ import annotations

import dis
import logging
import os
import pathlib
import sys
import sysconfig
import traceback
import types

import click

from ul2_tasks.cli.help import write_options

PROBLEMS_FOUND, BAD_INPUT, INTERRUPTED = 1, 2, 130  # exit statuses; shells use the last for SIGINT
RESUMABLE = ("cache", "export")  # the commands that resume

_PACKAGE = f"{pathlib.Path(__file__).parents[1]}{os.sep}"
_LIBRARIES = ("<", *{f"{sysconfig.get_path(each)}{os.sep}" for each in ("stdlib", "platstdlib", "purelib", "platlib")})


class Command(click.Command):
    """A command that turns exceptions into sentences, unless --debug asks for tracebacks."""

    allow_extra_args = True  # click's own error lists all of them

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.params.append(click.Option(["--debug"], is_flag=True, help="Show tracebacks and the logs of TensorFlow and Beam."))

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        write_options(self, context, formatter)

    def invoke(self, context: click.Context) -> object:
        debug = context.params.pop("debug")
        if more := context.args:
            raise click.UsageError(
                f"arguments must be those of {self.name}, got {len(more):,} more, the first {more[0]!r}. Quote a glob: --corpus"
                " 'texts/*.jsonl'."
            )
        try:
            if not debug:
                _quiet_libraries()
            return super().invoke(context)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            if debug:
                traceback.print_exc()
            again = ". Re-run the same command to resume" if self.name in RESUMABLE else ""
            click.echo(f"Interrupted{again}.", err=True)
            sys.exit(INTERRUPTED)
        except Exception as error:
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

    def list_commands(self, context: click.Context) -> list[str]:
        return list(self.commands)


def _quiet_libraries() -> None:
    """Hides Beam's logs and TensorFlow's warnings.

    The few lines that TensorFlow writes before it reads that setting stay: if it then ends the process, they say why.
    """
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)  # it logs the traceback of an error, and then raises the error too
    logging.getLogger("tensorflow").setLevel(logging.ERROR)  # it warns of a function that is made for each denoiser
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # nothing is lost by it: an error that ends a command is also raised


def sentence_of(error: BaseException) -> str:
    """What a command says of an error.

    One that this package raised on purpose, one of the operating system, and a package that is missing are for users, whose message
    is shown with the line of the user's own code that was reached, if there is one. Any other error is a bug.
    """
    reached = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if not _is_of_a_library(frame.f_code)]
    own = [_place(frame, line) for frame, line in reached if not _is_here(frame.f_code)]
    if isinstance(error, OSError | ImportError) or _is_raised_here(error):
        return f"{error} ({own[-1]})" if own else str(error)
    place = f" ({_place(*reached[-1])})" if reached else ""
    return f"{type(error).__name__}: {error}{place}. This is a bug in ul2_tasks or in your code. Add --debug for the traceback."


def _is_raised_here(error: BaseException) -> bool:
    """Whether a `raise` of this package made it, and not an operation that failed there: those of NumPy raise ValueErrors, too."""
    last = error.__traceback__
    while last and last.tb_next:
        last = last.tb_next
    if last is None or isinstance(error, AssertionError | NotImplementedError):
        return False
    code = last.tb_frame.f_code
    return _is_here(code) and dis.opname[code.co_code[last.tb_lasti]] == "RAISE_VARARGS"


def _is_here(code: types.CodeType) -> bool:
    return code.co_filename.startswith(_PACKAGE)


def _is_of_a_library(code: types.CodeType) -> bool:
    """Python's own, or what is installed, but for this package."""
    return code.co_filename.startswith(_LIBRARIES) and not _is_here(code)


def _place(frame: types.FrameType, line: int) -> str:
    return f"{frame.f_code.co_filename}, line {line}"
