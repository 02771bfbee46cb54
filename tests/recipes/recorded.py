"""Runs a recipe as it is, and keeps what its model reads: recorded.py FOLDER MODULE:CLASS NAME,NAME.. RECIPE [ARGUMENT..].

FOLDER/RANK.npz has for each NAME, an argument of the model's `forward`, the values of all calls, one after the other.
"""

import functools
import importlib
import inspect
import os
import pathlib
import runpy
import sys

import numpy as np

REPOSITORY = pathlib.Path(__file__).parent.parent.parent


def run(run_recipe, folder: pathlib.Path, model: str, names: str, recipe: str, *arguments: object, processes: int = 1):
    """Runs a recipe in a folder, and returns what it prints, and what each process reads: {rank: {name: [examples, tokens]}}."""
    code = [__file__, ".", model, names]
    output = run_recipe(recipe, *arguments, processes=processes, folder=folder, code=code)
    return output, {rank: dict(np.load(folder / f"{rank}.npz")) for rank in range(processes)}


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
