"""The command `ul2`, also `python -m ul2_tasks`.

It is a package of its own, so that `ul2 --help` and completion in a shell answer at once: `ul2_tasks` brings TensorFlow, and is
imported only by the commands that need it.
"""

from ul2_tasks.cli.commands import main
from ul2_tasks.cli.errors import as_a_program

__all__ = ["main", "program"]


def program() -> None:
    """The command in a process of its own."""
    as_a_program(main)
