"""Python programs in processes of their own, which import this checkout, and the tests as the package `tests`."""

import os
import pathlib
import socket
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


def run_two(module: str, function: str, *arguments: object, timeout: float = 590) -> None:
    """Calls a function of a module in two processes of `torch.distributed`, which know each other as torchrun's do."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    code = f"import sys; from {module} import {function}; {function}(*sys.argv[1:])"
    ranks = ({"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2))
    processes = [start("-c", code, *arguments, env=environment(**group, **rank)) for rank in ranks]
    for process in processes:
        _, errors = process.communicate(timeout=timeout)
        assert process.returncode == 0, errors[-3000:]
