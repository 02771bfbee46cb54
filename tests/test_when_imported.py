"""`import ul2_tasks` brings no TensorFlow, and SeqIO and gin find all that is registered, whoever imports what first."""

import importlib.util
import os
import pathlib
import pkgutil
import subprocess
import sys

import new_process
import pytest

import ul2_tasks

PACKAGE = pathlib.Path(ul2_tasks.__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{PACKAGE.parent}:{os.environ.get('PYTHONPATH', '')}"}
OF_TORCH = {
    "ExamplesCollator",
    "GroupLossTrainer",
    "GroupLosses",
    "ImageTextDataset",
    "LossGroupWeights",
    "T5Gemma2Collator",
    "UL2IterableDataset",
    "accept_packed_sequences",
    "packed_attention_masks",
}


def run(program: str, *arguments: object, folder: pathlib.Path | None = None) -> str:
    """What a program prints in a Python that has imported nothing before; it is a file where a folder is given."""
    what = ["-c", program]
    if folder is not None:
        (folder / "program.py").write_text(program)
        what = [folder / "program.py"]
    done = subprocess.run([sys.executable, *what, *arguments], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


HIDDEN = """
import importlib.machinery, sys

class Without(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, *where):
        return None if name.partition(".")[0] in sys.argv[1:] else super().find_spec(name, *where)

sys.meta_path = [Without if finder is importlib.machinery.PathFinder else finder for finder in sys.meta_path]
"""


@pytest.mark.torch
@pytest.mark.parametrize("missing", [(), ("transformers",), ("torch", "transformers")])
def test_a_star_imports_what_can_be_imported(missing):
    """Where a package is not installed, the names that need it are left out, and each of them says what to install."""
    if not all(importlib.util.find_spec(name) for name in ("torch", "transformers")):
        pytest.skip("the extra torch is not installed")
    program = f"""{HIDDEN}
from ul2_tasks import *
import ul2_tasks
left_out = sorted(set(ul2_tasks._MODULES) - set(globals()))
print(left_out)
for name in left_out:
    try:
        getattr(ul2_tasks, name)
    except ImportError as error:
        print("pip install 'ul2_tasks[torch]'" in str(error) or error)
"""
    gone = {0: [], 1: ["GroupLossTrainer"], 2: sorted(OF_TORCH)}[len(missing)]
    assert run(program, *missing) == f"{gone}\n" + "True\n" * len(gone)


# What reads rows of images, and all in the room of images.
LIGHT = f"""
import sys
import ul2_tasks
from ul2_tasks import T5GEMMA2, ImageTokens
names = {sorted(f"ul2_tasks.images.{found.name}" for found in pkgutil.iter_modules([str(PACKAGE / "images")]))}
for name in names:
    __import__(name)
"""
HEAVY = """
print(sorted({"tensorflow", "seqio", "gin"} & sys.modules.keys()))
"""


def test_images_need_no_tensorflow():
    assert run(LIGHT + HEAVY) == "[]\n"


WHOLE = f"""
import importlib, pathlib
import seqio
from ul2_tasks import when_imported
for path in sorted(pathlib.Path({str(PACKAGE)!r}).rglob("[a-z]*.py")):
    name = ".".join(path.relative_to({str(PACKAGE.parent)!r}).with_suffix("").parts)
    try:
        importlib.import_module(name)
    except ImportError as error:
        assert (error.name or str(error)).split(".")[0] in ("t5x", "torch") or "needs the package" in str(error), error
print(when_imported._begun)
print("ul2_mix" in seqio.MixtureRegistry.names(), sorted(seqio.TaskRegistry.names()))
print(seqio.MixtureRegistry.names())
"""


def test_no_import_registers_anything():
    """So no import of SeqIO is in the middle of a module of this package that it would need, nor waits for another thread's."""
    assert new_process.run("-c", WHOLE, check=True).stdout.splitlines() == [
        "False",
        "True ['ul2_corpus', 'ul2_r1', 'ul2_r2', 'ul2_s', 'ul2_x1', 'ul2_x2']",
        "dict_keys(['ul2_mix'])",
    ]
