"""`import ul2_tasks` brings no TensorFlow, and SeqIO and gin find all that is registered, whoever imports what first."""

import os
import pathlib
import subprocess
import sys

import pytest

import ul2_tasks

PACKAGE = pathlib.Path(ul2_tasks.__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{PACKAGE.parent}:{os.environ.get('PYTHONPATH', '')}"}


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


STAR = f"""{HIDDEN}
from ul2_tasks import *
import ul2_tasks
assert {{*ul2_tasks._FILES}} <= {{*dir(ul2_tasks)}}
print(sorted({{*ul2_tasks._FILES}} - {{*globals()}}))
"""


def test_a_star_imports_what_can_be_imported():
    """Where a package is not installed, the names of the folders that need it are left out."""
    doors = ("pytorch", "image_rows", "tasks", "t5x")
    of_doors = sorted(name for name, file in ul2_tasks._FILES.items() if file.split(".")[1] in doors)
    assert run(STAR, "seqio", "tensorflow", "torch", "transformers") == f"{of_doors}\n"


@pytest.mark.torch
def test_a_star_imports_all_but_the_trainer_where_transformers_is_missing():
    pytest.importorskip("torch", reason="the extra torch is not installed")
    assert run(STAR, "transformers") == "['GroupLossMixin', 'GroupLossTrainer']\n"


REGISTERED = """
import seqio
print(seqio.get_mixture_or_task("ul2_mix").name, *sorted(seqio.TaskRegistry.names()))
"""


def test_seqio_has_the_mixture_if_it_is_imported_first():
    assert run("import seqio, ul2_tasks" + REGISTERED) == "ul2_mix ul2_corpus ul2_r1 ul2_r2 ul2_s ul2_x1 ul2_x2\n"


THREADS = """
import sys, threading, time, wrapt
import ul2_tasks

@wrapt.when_imported("seqio.dataset_providers")
def start(_):  # in the middle of `import seqio`, which goes on when each of the others waits for it
    for program in sys.argv[1:]:
        others.append(threading.Thread(target=exec, args=[f"{program}; {FIND}", {"found": found}]))
        others[-1].start()
    time.sleep(2)

FIND = "import seqio; found.append(seqio.get_mixture_or_task('ul2_mix').name)"
found, others = [], []
exec(f"import seqio; {FIND}")
for thread in others:
    thread.join(60)
print(found)
"""


def test_threads_that_import_it_and_seqio_at_once_do_not_wait_for_each_other():
    """The thread that imports SeqIO finds the mixture at once, also while others import this package, who find it, too."""
    others = ["import ul2_tasks.tasks", "from ul2_tasks.tasks import mixing", "from ul2_tasks import register; register()"]
    others += ["import ul2_tasks, seqio", "from ul2_tasks.tokenizers import by_name"]
    assert run(THREADS, *others) == f"{['ul2_mix'] * 6}\n"


def test_after_a_reset_of_seqio_register_brings_it_back():
    import seqio

    seqio.TaskRegistry.reset()
    seqio.MixtureRegistry.reset()
    assert ul2_tasks.register() == "ul2_mix"
    assert seqio.get_mixture_or_task("ul2_mix").name == "ul2_mix"
