"""The command `ul2`, also `python -m ul2_tasks`.

It is a package of its own, and imports `ul2_tasks`, which brings TensorFlow, only in a command that needs it: so `ul2 --help`
and the completion in a shell answer at once.
"""

from ul2_command.commands import main

__all__ = ["main"]
