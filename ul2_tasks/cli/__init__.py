"""The command `ul2`, also `python -m ul2_tasks`.

What each command needs is imported when it runs, so that `ul2 --help` and completion in a shell answer at once.
"""

from ul2_tasks.cli.commands import main as main
