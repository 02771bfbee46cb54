"""What docs/reference/api_stability.md says will stay: promised.txt has each name, argument, command, option and macro of gin.

A line may be added to the file in any version, and may change or go in a new major version alone.
"""

import difflib
import inspect
import pathlib
import re
from collections.abc import Iterator

import click
import pytest

import ul2_command

REPOSITORY = pathlib.Path(__file__).parent.parent
PROMISED = pathlib.Path(__file__).parent / "promised.txt"
NAMES = sorted(set(re.findall(r"^::: (ul2_tasks\.\S+)", (REPOSITORY / "docs/reference/python.md").read_text(), re.MULTILINE)))


@pytest.fixture(autouse=True)
def all_of_it():
    for package in ("torch", "transformers", "megatron.core"):
        pytest.importorskip(package, reason=f"{package} is not installed, and names that need it are public, too")


def test_what_is_public_is_what_is_promised(request):
    found = [*python(), *commands("ul2", ul2_command.main), *gin_files()]
    if request.config.getoption("--update-golden"):
        PROMISED.write_text("\n".join(found) + "\n")
    changed = list(difflib.unified_diff(PROMISED.read_text().splitlines(), found, lineterm="", n=0))
    assert not changed, "what is public has changed; see docs/reference/api_stability.md:\n" + "\n".join(changed)


def test_every_public_argument_and_result_is_typed():
    untyped = []
    for name, call in callables():
        signature = inspect.signature(call)
        arguments = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        untyped += [f"{name}: {each.name}" for each in arguments if each.annotation is each.empty and each.name != "self"]
        is_made = inspect.isclass(call)
        untyped += [f"{name}: what it returns"] if signature.return_annotation is signature.empty and not is_made else []
    assert not untyped


def python() -> list[str]:
    """Each public name with the names of its arguments; `=` stands after those that may be left out."""
    lines = [f"{name}{without_types(inspect.signature(call))}" for name, call in callables()]
    return sorted(lines + [name for name in NAMES if not callable(public(name))])


def without_types(signature: inspect.Signature) -> str:
    bare = [
        parameter.replace(annotation=parameter.empty, default=parameter.empty if parameter.default is parameter.empty else ...)
        for parameter in signature.parameters.values()
    ]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty)).replace("=Ellipsis", "=")


def callables() -> Iterator[tuple[str, object]]:
    """The public functions and classes, and what the package's own classes have as public methods and properties."""
    for name in NAMES:
        thing = public(name)
        if callable(thing):
            yield name, thing
        if inspect.isclass(thing):
            for key, value in inspect.getmembers(thing):
                value = value.fget if isinstance(value, property) else value
                if inspect.isfunction(value) and value.__module__.startswith("ul2_tasks") and not key.startswith("_"):
                    yield f"{name}.{key}", value


def public(name: str) -> object:
    module, _, last = name.rpartition(".")
    return getattr(__import__(module, fromlist=[last]), last)


def commands(name: str, command: click.Command) -> Iterator[str]:
    """Each command with its arguments and options."""
    known = [" ".join(each.opts) if isinstance(each, click.Option) else each.human_readable_name for each in command.params]
    yield f"{name}: {', '.join(known)}"
    for key, each in sorted(getattr(command, "commands", {}).items()):
        yield from commands(f"{name} {key}", each)


def gin_files() -> list[str]:
    """Each file of gin with the macros that it binds."""
    files = sorted((REPOSITORY / "gin").rglob("*.gin"))
    macros = {file: re.findall(r"^([A-Z][A-Z0-9_]*) = ", file.read_text(), re.MULTILINE) for file in files}
    return [f"{file.relative_to(REPOSITORY).as_posix()}: {', '.join(found)}" for file, found in macros.items()]
