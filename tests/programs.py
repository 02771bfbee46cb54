"""Python programs in processes of their own, which import this checkout, and the tests as the package `tests`."""

import os
import pathlib
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).parents[1]


def environment(*folders: object, **variables: str) -> dict[str, str]:
    """The variables of a program that finds this checkout, and what else is in these folders."""
    paths = [str(REPOSITORY), *map(str, folders), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **variables}


def start(*arguments: object, cwd: object = None, env: dict[str, str] | None = None) -> subprocess.Popen:
    """A program that runs; `communicate()` gives what it printed, as text."""
    command = [sys.executable, *map(str, arguments)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=cwd, env=env or environment(), text=True, **pipes)


def run(
    *arguments: object, cwd: object = None, env: dict[str, str] | None = None, check: bool = False, timeout: float = 600
) -> subprocess.CompletedProcess:
    """A program that has ended. With `check` another status than 0 fails the test."""
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(
        command, cwd=cwd, env=env or environment(), text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout
    )
    assert not (check and done.returncode), f"{command} ended with {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done
