"""What is installed is what was meant: package data, the wanted seqio, nothing that shadows gin."""

import ast
import base64
import hashlib
import importlib.metadata
import pathlib
import re
import subprocess
import sys
import sysconfig

import pytest
import seqio

import ul2_tasks

REPOSITORY = pathlib.Path(__file__).parents[2]


def installed_or_skip() -> importlib.metadata.Distribution:
    # Looked for in site-packages alone: pip leaves an egg-info in the folder that it builds from.
    found = list(importlib.metadata.distributions(name="ul2_tasks", path=[sysconfig.get_path("purelib")]))
    if not found:
        pytest.skip("ul2_tasks is not installed here: this is a checkout on the path, not an installation")
    return found[0]


def test_the_wanted_seqio_is_the_one_that_is_imported():
    """t5 brings seqio-nightly, which writes into seqio's folder: each file must be the one that seqio itself installed."""
    distribution = importlib.metadata.distribution("seqio")
    assert distribution.version == "0.0.20"
    sources = [file for file in distribution.files if file.suffix == ".py" and file.parts[0] == "seqio"]
    assert len(sources) > 20
    different = [str(file) for file in sources if digest(file.locate()) != file.hash.value]
    assert different == [], "other files than seqio's own; install all of the project at once, in a fresh environment"
    assert pathlib.Path(seqio.__file__).parent == pathlib.Path(distribution.locate_file("seqio"))


def digest(path) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(pathlib.Path(path).read_bytes()).digest()).rstrip(b"=").decode()


def test_pip_finds_no_conflict_in_what_the_project_asks_for():
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_installed_package_has_its_vocabulary_and_its_version():
    distribution = installed_or_skip()
    assert distribution.version == ul2_tasks.__version__
    files = {str(file) for file in distribution.files}
    modules = {str(path.relative_to(REPOSITORY)) for path in REPOSITORY.glob("ul2_*/**/*.py")}
    assert len(modules) > 30
    assert files >= {
        *modules,
        *(f"ul2_tasks/data/{name}" for name in ("default.model", "default.json", "report.html", "chat.jsonl")),
    }
    assert "ul2_tasks/py.typed" in files
    assert files >= {f"ul2_tasks/{path.relative_to(REPOSITORY)}" for path in (REPOSITORY / "gin").rglob("*.gin")}
    shipped = distribution.locate_file("ul2_tasks/data/default.model")
    assert digest(shipped) == digest(REPOSITORY / "ul2_tasks/data/default.model")
    assert distribution.metadata["License-Expression"] == "Apache-2.0"
    assert any(name.endswith("licenses/LICENSE") for name in files)


def test_what_is_imported_is_declared():
    """In pyproject.toml, alone or in an extra; t5x is in no registry, and Megatron-LM brings its own environment."""
    of_module = importlib.metadata.packages_distributions()
    declared = {re.split(r"[^\w.-]", each)[0].lower().replace("_", "-") for each in installed_or_skip().requires}
    found = {}
    for path in REPOSITORY.glob("ul2_*/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            found.update(dict.fromkeys((name.partition(".")[0] for name in names), path))
    own = {"ul2_tasks", "t5x", "megatron", *sys.stdlib_module_names}
    assert len(found.keys() - own) > 20
    of = {name: {each.lower().replace("_", "-") for each in of_module.get(name, [name])} for name in found.keys() - own}
    assert {name: found[name] for name in of if not of[name] & declared} == {}
