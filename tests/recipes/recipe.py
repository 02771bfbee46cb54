"""What the tests of recipes share: a recipe as a module, and a run of its command at its tiny size."""

import importlib.util
import os
import pathlib
import subprocess
import sys

RECIPES = pathlib.Path(__file__).parent.parent.parent / "recipes"
ALONE = """
import runpy, sys
for name in ("seqio", "t5", "tensorflow", "tensorflow_datasets", "tensorflow_text"):
    sys.modules[name] = None  # so that an import raises
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def imported(name):
    """A recipe as a module, which runs nothing."""
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(name, *options, folder):
    """What a recipe prints, run in a folder, in a process in which neither SeqIO nor TensorFlow can be imported."""
    command = [sys.executable, "-c", ALONE, str(RECIPES / f"{name}.py"), *options]
    environment = {**os.environ, "PYTHONPATH": str(RECIPES.parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
