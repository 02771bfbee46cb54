"""The package's folders are layers above each other: who may import whom."""

import ast
import pathlib

import pytest

import ul2_tasks

PACKAGE = pathlib.Path(ul2_tasks.__file__).parent
GROUND = {
    "aligned",
    "cached",
    "compiled",
    "counting",
    "example_features",
    "extras",
    "scalars",
    "version",
}  # files beside the layers, which all may import

# From the ground up.
LAYERS = (
    *("files", "order", "images", "store", "tokenizers", "sources", "jobs", "chat", "denoisers", "models", "corpus"),
    *("random_access", "mixtures", "tasks", "pytorch", "export", "inspect", "t5x", "image_rows", "cli"),
)
DOORS = {"tasks", "pytorch", "t5x", "image_rows"}  # what may import SeqIO, TensorFlow or PyTorch
BEYOND = {"absl", "gin", "jax", "seqio", "t5", "t5x", "tensorflow", "tensorflow_datasets", "tensorflow_text", "torch"}


def imported(path: pathlib.Path, package: str = "ul2_tasks") -> set[str]:
    """What a file imports of a package, by default this one, such as "sources.files"; "" is the package itself."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{name.name}" if is_file(f"{node.module}.{name.name}") else node.module for name in node.names}
    return {name.removeprefix(package).removeprefix(".") for name in names if name.split(".")[0] == package}


def is_file(module: str) -> bool:
    return (PACKAGE.parent / module.replace(".", "/")).with_suffix(".py").exists()


def layers_of(path: pathlib.Path) -> set[str]:
    return {name.split(".")[0] for name in imported(path)}


def test_every_folder_is_a_layer():
    assert {path.relative_to(PACKAGE).parts[0] for path in PACKAGE.glob("*/**/*.py")} == {*LAYERS}


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_from_those_below_it_alone(layer):
    below = {*LAYERS[: LAYERS.index(layer) + 1]}
    for path in (PACKAGE / layer).rglob("*.py"):
        assert layers_of(path) <= below | GROUND, path


@pytest.mark.parametrize("layer", LAYERS)
def test_no_circle_within_a_room(layer):
    paths = (PACKAGE / layer).rglob("*.py")
    files = {".".join(path.relative_to(PACKAGE).with_suffix("").parts): imported(path) for path in paths}
    while files:
        first = [name for name, names in files.items() if not names & files.keys()]
        assert first, f"a circle among {sorted(files)}"
        files = {name: names for name, names in files.items() if name not in first}


def test_the_ground_imports_nothing_of_the_package_and_only_the_top_imports_it_whole():
    for name in GROUND:
        assert not imported(PACKAGE / f"{name}.py"), name
    whole = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if "" in layers_of(path)}
    assert whole <= {"__main__.py"}


def test_the_core_imports_neither_seqio_nor_tensorflow_nor_torch():
    """Not within functions either, nor for type checkers. tests/package/core.py runs the core where nothing of them is there."""
    for path in PACKAGE.rglob("*.py"):
        folder = path.relative_to(PACKAGE).parts[0]
        names = {name.split(".")[0] for node in ast.walk(ast.parse(path.read_text())) for name in _imports(node)}
        assert folder in DOORS or not names & BEYOND, path


def _imports(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [name.name for name in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def test_nothing_imports_image_rows_but_the_command():
    for path in PACKAGE.glob("*/**/*.py"):
        may = path.relative_to(PACKAGE).parts[0] in ("cli", "image_rows")
        assert may or "image_rows" not in layers_of(path), path
    lines = [
        line
        for path in (PACKAGE / "cli").rglob("*.py")
        for line in path.read_text().splitlines()
        if "import" in line and "image_rows" in line
    ]
    assert lines == ["    from ul2_tasks.image_rows.inspect import command"]
