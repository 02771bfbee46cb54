"""The command `ul2`, run in this process, and files of Python that describe data."""

import itertools
import pathlib

from click.testing import CliRunner

from ul2_tasks.cli import main

_numbers = itertools.count()


def ul2(*arguments, stdin=None, columns=600):
    done = CliRunner().invoke(main, list(map(str, arguments)), env={"COLUMNS": str(columns)}, input=stdin)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def described(folder: pathlib.Path, description: str, more: str = "") -> str:
    """FILE.py:mine, where `mine` is this description, as Python; the file has a name of its own."""
    file = folder / f"described_{next(_numbers)}.py"
    file.write_text(f"import ul2_tasks\nfrom ul2_tasks import *\n{more}\nmine = {description}\n")
    return f"{file}:mine"
