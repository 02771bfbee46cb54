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
    "datasets",
    "example_features",
    "graphs",
    "imported",
    "measured_loader",
    "scalars",
    "version",
}  # files beside the layers, which all may import

# What each layer imports, from the ground up.
LAYERS = {
    "files": set(),
    "order": set(),
    "images": {"files", "order"},
    "store": {"files", "order"},
    "vocabulary": {"files"},
    "sources": {"files", "images", "store"},
    "jobs": {"files"},
    "chat": {"order", "store", "vocabulary"},
    "denoising": {"order", "vocabulary"},
    "converters": {"images", "order", "vocabulary"},
    "corpus": {"chat", "files", "images", "jobs", "order", "sources", "store", "vocabulary"},
    "random_access": {"corpus", "denoising", "files", "order", "store", "vocabulary"},
    "mixtures": {"random_access", "chat", "corpus", "denoising", "images", "order", "sources", "store", "vocabulary"},
    "tasks": {"random_access", "chat", "corpus", "denoising", "images", "mixtures", "order", "sources", "store", "vocabulary"},
    "pytorch": {"random_access", "converters", "corpus", "denoising", "images", "mixtures", "tasks", "vocabulary"},
    "export": {"chat", "corpus", "files", "jobs", "sources", "store", "tasks", "vocabulary"},
    "looking": {
        "random_access",
        "chat",
        "corpus",
        "denoising",
        "export",
        "files",
        "images",
        "jobs",
        "mixtures",
        "order",
        "sources",
        "store",
        "tasks",
        "vocabulary",
    },
}
REGISTRIES = {"TaskRegistry", "MixtureRegistry"}


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


def test_every_folder_is_a_layer_and_arrows_run_down():
    assert {path.relative_to(PACKAGE).parts[0] for path in PACKAGE.glob("*/**/*.py")} == LAYERS.keys()
    floors = list(LAYERS)
    for layer, below in LAYERS.items():
        assert all(floors.index(other) < floors.index(layer) for other in below), layer


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_from_the_rooms_below_it_alone(layer):
    found = set()
    for path in (PACKAGE / layer).rglob("*.py"):
        assert layers_of(path) <= LAYERS[layer] | {layer} | GROUND, path
        found |= layers_of(path)
    assert found - {layer} - GROUND == LAYERS[layer], "none that is not needed is allowed"


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


def test_rooms_below_tasks_know_no_registry():
    floors = list(LAYERS)
    for layer in floors[: floors.index("tasks")]:
        for path in (PACKAGE / layer).rglob("*.py"):
            used = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
            is_job = path.name == "build_cache.py"  # its workers look tasks up by their names
            assert is_job or not used & REGISTRIES, path
