"""Runs a recipe as it is, and keeps what its model reads: recorded.py FOLDER MODULE:CLASS NAME,NAME.. RECIPE [ARGUMENT..].

FOLDER/RANK.npz has for each NAME, an argument of the model's `forward`, the values of all calls, one after the other.
"""

import functools
import importlib
import inspect
import os
import pathlib
import runpy
import socket
import subprocess
import sys
from collections.abc import Sequence

import numpy as np

REPOSITORY = pathlib.Path(__file__).parent.parent.parent


def run(folder: pathlib.Path, model: str, names: str, recipe: str, *arguments: object, processes: int = 1):
    """Runs a recipe in a folder, and returns what it prints, and what each process reads: {rank: {name: [examples, tokens]}}."""
    output = output_of(folder, recipe, *arguments, processes=processes, recorder=[__file__, ".", model, names])
    return output, {rank: dict(np.load(folder / f"{rank}.npz")) for rank in range(processes)}


def output_of(folder: pathlib.Path, recipe: str, *arguments: object, processes: int = 1, recorder: Sequence[str] = ()) -> str:
    """Runs a recipe in a folder, in several processes with the variables that torchrun sets, and returns what the first prints."""
    folder.mkdir(exist_ok=True)
    with socket.socket() as found:
        found.bind(("localhost", 0))
        variables = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(found.getsockname()[1]), "WORLD_SIZE": str(processes)}
    # One thread, because sums of floats depend on how many there are.
    variables |= {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, *recorder, str(REPOSITORY / "recipes" / recipe), *map(str, arguments)]
    started = []
    for rank in range(processes):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank)} if processes > 1 else {}
        with (folder / f"stdout-{rank}").open("w") as stdout, (folder / f"stderr-{rank}").open("w") as stderr:
            environment = os.environ | variables | own
            started.append(subprocess.Popen(command, cwd=folder, env=environment, stdout=stdout, stderr=stderr))
    ended = [process.wait() for process in started]
    assert set(ended) == {0}, (folder / "stderr-0").read_text()[-3000:]
    return (folder / "stdout-0").read_text()


def main(folder: str, model: str, names: str, *recipe: str) -> None:
    module, _, name = model.partition(":")
    of_class = getattr(importlib.import_module(module), name)
    forward, signature, seen = of_class.forward, inspect.signature(of_class.forward), []

    @functools.wraps(forward)
    def recorded(*args, **kwargs):
        given = signature.bind(*args, **kwargs).arguments
        given |= given.get("kwargs", {})
        seen.append({name: given[name].numpy() for name in names.split(",")})
        return forward(*args, **kwargs)

    of_class.forward = recorded
    sys.argv = list(recipe)
    runpy.run_path(recipe[0], run_name="__main__")
    np.savez(os.path.join(folder, os.environ.get("RANK", "0")), **{key: np.concatenate([s[key] for s in seen]) for key in seen[0]})


if __name__ == "__main__":
    main(*sys.argv[1:])
