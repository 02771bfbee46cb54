"""Runs recipes as users do: as processes, in a folder of their own."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence

import pytest

REPOSITORY = pathlib.Path(__file__).parent.parent.parent
# Runs a script where some packages cannot be imported, and says at the end which of them were.
WITHOUT = """
import runpy, sys
from tests.package import core
core.BLOCKED = {blocked!r}
sys.meta_path.insert(0, core.Raises())
sys.argv[:] = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
assert not {{name.partition(".")[0] for name in sys.modules}} & set(core.BLOCKED)
"""


@pytest.fixture
def run_recipe(tmp_path):
    """Runs a recipe, and returns what it prints.

    With several `processes` each has the variables that torchrun sets, and "{rank}" and "{port}" in the arguments; `without` has
    packages that cannot be imported; once the first has printed a line that begins with `kill_at`, all are killed; `code` is a
    script that runs the recipe, with its arguments.
    """

    def run(name: str, *arguments: object, processes=1, without=(), kill_at=None, folder=tmp_path, code: Sequence[str] = ()) -> str:
        folder.mkdir(exist_ok=True)
        code = ["-c", WITHOUT.format(blocked=without)] if without else code
        command, port = [sys.executable, *code, str(REPOSITORY / "recipes" / name)], free_port()
        # One thread, because sums of floats depend on how many there are.
        path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        of_all = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": str(processes)}
        started = []
        for rank in range(processes):
            own = of_all | {"RANK": str(rank), "LOCAL_RANK": str(rank)} if processes > 1 else {"MASTER_PORT": str(port)}
            stdout = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
            with (folder / f"stderr-{rank}").open("w") as stderr:
                settings = {"stdout": stdout, "stderr": stderr, "text": True, "cwd": folder, "env": environment | own}
                of_rank = [str(argument).format(rank=rank, port=port) for argument in arguments]
                started.append(subprocess.Popen([*command, *of_rank], **settings))
        printed = []
        for line in started[0].stdout:
            printed.append(line)
            if kill_at is not None and line.startswith(kill_at):
                for process in started:
                    process.kill()
        output, ended = "".join(printed), [process.wait() for process in started]
        assert set(ended) == {0 if kill_at is None else -signal.SIGKILL}, output + (folder / "stderr-0").read_text()[-3000:]
        return output

    return run


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]
