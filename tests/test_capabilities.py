"""The tables of docs/explanation/kinds_of_data.md: each cell is tried, and the page is what its source says."""

import importlib
import pathlib
import re
import shlex
import shutil
import sys

import pytest
import seqio
from test_command_line import ul2

from ul2_command import main
from ul2_tasks.tasks import image_text, providers

pytestmark = pytest.mark.docs  # of what a page says
DOCS = pathlib.Path(__file__).parent.parent / "docs"
PAGE = DOCS / "explanation" / "kinds_of_data.md"


def _of_docs(name: str):
    """A module of docs/, which is no package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS))
        return importlib.import_module(name)


capabilities = _of_docs("capabilities")
CELLS = {
    f"{row.heading}, {capabilities.KINDS[kind].heading}": cell
    for table in capabilities.TABLES.values()
    for row in table
    for kind, cell in row.cells.items()
}
TRIED = {cell.run: (where, cell) for where, cell in reversed(CELLS.items())}  # two kinds that are mixed have one line in two rows
NEEDED = {  # packages that not all have, by what needs them
    "t5x": (r"\bt5x\b", "t5x is not importable"),
    "grain": (r"\bgrain\b", "grain is not installed"),
    "torch": (r"\bUL2IterableDataset\b|\btorch\b|\brows\(", "the extra torch is not installed"),
}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """The names that lines of Python have, of which `folder` has a cache of each kind."""
    pytest.importorskip("PIL", reason="the extra images is not installed")
    folder = tmp_path_factory.mktemp("kinds")
    shutil.copy(capabilities.MY_KINDS, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        names = {"folder": folder}
        exec(capabilities.BEFORE, names)
        for kind in capabilities.KINDS.values():
            if kind.module:
                ul2("cache", kind.name, "--module", "my_kinds", "--output", "CACHE")
        yield names
    sys.modules.pop("my_kinds", None)


def _tried():
    for run, (where, cell) in TRIED.items():
        needed = {package: why for package, (pattern, why) in NEEDED.items() if re.search(pattern, run)}
        yield pytest.param(cell, needed, id=where, marks=[pytest.mark.t5x] if "t5x" in needed else [])


@pytest.mark.parametrize(("cell", "needed"), _tried())
@pytest.mark.usefixtures("quick_advice")
def test_a_cell_is_as_the_table_says(cell, needed, kinds, tmp_path, monkeypatch):
    for package, why in needed.items():
        pytest.importorskip(package, reason=why, exc_type=ImportError)
    monkeypatch.setattr(image_text, "SHUFFLED_TOKENS", providers.SHUFFLED_TOKENS)  # see conftest.py
    monkeypatch.setattr(seqio.utils, "_GLOBAL_CACHE_DIRECTORIES", [])
    (tmp_path / "CACHE").symlink_to(kinds["folder"] / "CACHE")
    (tmp_path / "LIST.jsonl").write_text('{"document": 3}\n')
    (tmp_path / "benchmark.txt").write_text(
        "Which of the seven herons had carried twelve stones over the frozen harbour before dawn?"
    )
    monkeypatch.chdir(tmp_path)
    if cell.run.startswith("ul2 "):
        done = ul2(*shlex.split(cell.run)[1:])
        assert (done.exit_code, cell.error in done.stderr) == (2 if cell.error else 0, True), done.output
    elif cell.error:
        with pytest.raises(ValueError, match=re.escape(cell.error)):
            exec(cell.run, dict(kinds))
    else:
        exec(cell.run, dict(kinds))


def test_each_cell_that_cannot_be_has_an_error_and_a_sentence():
    for where, cell in CELLS.items():
        assert bool(cell.error) == (cell.word == capabilities.NO), where
        assert bool(cell.error) == bool(re.fullmatch(r"\S.+\.", cell.why)), where


def test_the_tables_have_each_command_of_data():
    of_data = {name for name, command in main.commands.items() if any(one.name == "name" for one in command.params)}
    assert {re.match(r"`ul2 (\w+)", row.heading)[1] for row in capabilities.COMMANDS[:-1]} == {*of_data, "verify"}


def test_the_page_is_written_from_its_source():
    assert PAGE.read_text() == capabilities.page(PAGE.read_text()), "python docs/generated_pages.py writes it again"
