"""UL2 pre-training data for encoder-decoder and decoder-only models.

Each public name stands in `__init__.pyi`, and is imported when it is asked for: few programs need all packages that some name
needs. Once SeqIO is imported, too, it has `ul2_corpus`, `ul2_r1` .. `ul2_s` and `ul2_mix`.
"""

import ast
import importlib
import importlib.util
import pathlib

import wrapt

from ul2_tasks.version import __version__ as __version__

_STUB = ast.parse(pathlib.Path(__file__).with_suffix(".pyi").read_text())
_FILES = {name.name: node.module for node in _STUB.body if isinstance(node, ast.ImportFrom) for name in node.names}
_NEEDED = {
    **{"tasks.": "seqio", "t5x.": "seqio", "pytorch.": "torch", "image_rows.": "torch"},
    "pytorch.group_trainer.": "transformers",
}
_ABSENT = tuple(f"{__name__}.{begin}" for begin, package in _NEEDED.items() if not importlib.util.find_spec(package))
__all__ = [name for name, file in _FILES.items() if not f"{file}.".startswith(_ABSENT)]  # what `from ul2_tasks import *` brings


def __getattr__(name: str) -> object:
    """A public name, of the file that has it."""
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    folder = _FILES[name].rpartition(".")[0]
    importlib.import_module(folder)  # first, as ul2_tasks/tasks/__init__.py says why
    return getattr(importlib.import_module(_FILES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_FILES})


@wrapt.when_imported("seqio")
def _register(_: object) -> None:
    importlib.import_module("ul2_tasks.tasks.built_in")
