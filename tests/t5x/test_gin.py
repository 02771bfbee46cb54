"""The gin files without t5x: what they say of this package and of each other is there."""

import ast
import inspect
import pathlib

import pytest
import seqio
from gin import config_parser

import ul2_tasks
from tests import programs

REPOSITORY = pathlib.Path(__file__).parents[2]
FILES = sorted((REPOSITORY / "gin").rglob("*.gin"))
PACKAGE = REPOSITORY / "ul2_tasks"
MODULES = {"ul2_tasks": ul2_tasks, "seqio": seqio}


class Recorder(config_parser.ParserDelegate):
    """Keeps what a file refers to."""

    def __init__(self):
        self.references: list[str] = []
        self.macros: list[str] = []

    def configurable_reference(self, scoped_configurable_name, evaluate):
        self.references.append(scoped_configurable_name.split("/")[-1])

    def macro(self, scoped_name):
        self.macros.append(scoped_name)


def parse(path):
    recorder = Recorder()
    return list(config_parser.ConfigParser(path.read_text(), recorder)), recorder


def arguments_of(name, imported) -> set[str] | None:
    """The arguments of a name of ours or of SeqIO, by the file's imports; None for a name whose arguments are another package's."""
    module, attribute = name.split(".", 1)
    if module in imported:  # read, not imported: one of these modules needs t5x
        tree = ast.parse((PACKAGE / f"{module}.py").read_text())
        (found,) = (node for node in tree.body if getattr(node, "name", None) == attribute)
        if isinstance(found, ast.ClassDef):
            found = next((node for node in found.body if getattr(node, "name", None) == "__init__"), None)
        if found is None:  # a model of t5x, made of another one
            return None
        return {argument.arg for argument in found.args.args + found.args.kwonlyargs}
    if module not in MODULES:
        return None
    return set(inspect.signature(getattr(MODULES[module], attribute)).parameters)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_every_name_and_argument_that_a_file_binds_exists(path):
    statements, recorder = parse(path)
    imports = [statement.module for statement in statements if isinstance(statement, config_parser.ImportStatement)]
    imported = {module.split(".")[1] for module in imports if module.startswith("ul2_tasks.")}
    for name in recorder.references:
        arguments_of(name, imported)  # fails if there is no such name
    for constant in (name for name in recorder.macros if name.startswith("ul2_tasks.")):
        assert constant in ("ul2_tasks.T5GEMMA2", "ul2_tasks.UL2", "ul2_tasks.UL2R")
    for statement in statements:
        if isinstance(statement, config_parser.BindingStatement) and "." in statement.selector:
            arguments = arguments_of(statement.selector, imported)
            assert arguments is None or statement.arg_name in arguments, f"{statement.selector}.{statement.arg_name}"
        elif isinstance(statement, config_parser.IncludeStatement) and statement.filename.startswith("gin/"):
            assert (REPOSITORY / statement.filename).exists()


def test_a_command_prints_the_folder_for_the_search_path():
    done = programs.run("-m", "ul2_tasks.t5x.gin_files", check=True)
    assert (pathlib.Path(done.stdout.strip()) / "gin" / "ul2.gin").is_file()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_a_run_from_a_checkpoint_counts_the_steps_of_its_data_from_there(path):
    """With `elastic.gin`, which knows of no checkpoint but t5x's own."""
    text = path.read_text()
    binds = "ul2_tasks.get_dataset_at_step.initial_checkpoint = %INITIAL_CHECKPOINT_PATH"
    assert ("@initial_checkpoint.FromCheckpoint" in text) == (binds in text)
