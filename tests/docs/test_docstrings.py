"""The examples in the docstrings run, and print what they say."""

import doctest
import importlib
import pathlib

import pytest

import ul2_tasks

pytestmark = pytest.mark.docs

PACKAGE = pathlib.Path(ul2_tasks.__file__).parent
MODULES = [
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    for path in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in path.read_text()
]


@pytest.mark.t5x
@pytest.mark.parametrize("module", MODULES)
def test_the_examples_in_the_docstrings_run(module):
    if ".pytorch." in module or module == "ul2_tasks.image_rows.batch":
        pytest.importorskip("torch", reason="the extra torch is not installed")
    if module == "ul2_tasks.t5x.losses":
        pytest.importorskip("t5x", reason="t5x is not importable (docs/guides/train_with_t5x.md)")
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted > 0
    assert results.failed == 0
