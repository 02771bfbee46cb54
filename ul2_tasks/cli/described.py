"""What NAME and the options of a command describe: data, without SeqIO unless something is registered with it."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from ul2_tasks.chat.objective import CHAT, FORMATS, PROMPT_COMPLETION
from ul2_tasks.cli.rows import packed_rows
from ul2_tasks.mixtures.chat import Chat
from ul2_tasks.mixtures.description import Description
from ul2_tasks.mixtures.mix import Mix
from ul2_tasks.mixtures.mixture import Mixture
from ul2_tasks.sources.memory import texts_in_memory

_BUILT_IN = {"ul2": Mixture, "ul2_mix": Mixture, **dict.fromkeys(("chat", *(f"chat_{each}" for each in FORMATS)), Chat)}
_PACKED_ROWS = "images"  # the built-in records
_INSTEAD = "Pass --corpus to create it, or FILE.py:OBJECT with the file that describes or registers it."
_LENGTHS = {CHAT: {"tokens": None}, PROMPT_COMPLETION: {"inputs": None, "targets": None}}


def describe(name: str | None, **given: Any) -> tuple[Any, str | None]:
    """What a command is about; and the format of conversations that the name asks for, None where it leaves that open.

    `name` is FILE.py:OBJECT, or that of what comes with the package, of what is registered, or with `given` of a mixture that these
    arguments of `Mixture` make. What is described is a description, or the `Recipe` of image rows.

    Raises a ValueError where there is no such thing; and see `Mixture`.
    """
    if ".py:" in (name or ""):
        return _in_file(*str(name).split(".py:", 1))
    if given:
        if name == _PACKED_ROWS or _BUILT_IN.get(name or "") is Chat:
            raise ValueError(
                f"NAME must be a name of your own beside --corpus, --vocabulary and --preset, which make text, got {name!r}."
                " Describe conversations and images in a FILE.py."
            )
        return Mixture((name or "own").removesuffix("_mix"), **given), None
    name = name or "ul2"
    format = next((each for each in FORMATS if name.endswith(f"_{each}")), None)
    if name in _BUILT_IN:
        return _BUILT_IN[name](), format or CHAT
    return (packed_rows().recipe_of(name) if name == _PACKED_ROWS else _registered(name)), format


def with_texts(description: Description | Mix, texts: Sequence[str]) -> Mixture:
    """The denoisers of a mixture on other documents, which are kept apart. Raises a ValueError where it has several corpora."""
    if not isinstance(description, Mixture):
        raise ValueError(
            f"NAME must be a mixture of one corpus of text, got {description.name!r}. Name one of those that it mixes to use its"
            " denoisers."
        )
    return dataclasses.replace(
        description,
        name=f"{description.name}_text",
        source=texts_in_memory(texts),
        text_key="text",
        merge_examples=False,
        separate_documents=False,
    )


def name_in(description: Description | Mix, format: str | None) -> str:
    """What a description is called, in a format of conversations if it has some."""
    return description.registered_name(_LENGTHS[format or CHAT])


def _in_file(path: str, name: str) -> tuple[Any, str | None]:
    """The object of a name in a file, or what is registered under that name or under the text that the object is."""
    file = pathlib.Path(f"{path}.py").absolute()
    if not file.exists():
        raise ValueError(f"NAME must be FILE.py:OBJECT with a file that exists, got {path + '.py'!r}. Name another file.")
    found = getattr(_module(file), name, name)
    if isinstance(found, Description | Mix):
        return found, None
    if isinstance(found, str):
        instead = f"Name an object of {file}, or what it registers."
        return _registered(found, instead), next((each for each in FORMATS if found.endswith(f"_{each}")), None)
    recipe = packed_rows().recipe_of(found)
    if recipe is None:
        raise ValueError(
            "NAME must be FILE.py:OBJECT of a Mixture, a Mix, a Chat, an ImageText, an ImageTextDataset or its sources, or a name"
            f" that is registered, got {found!r:.100} for {name!r} in {file}. Name another object."
        )
    return recipe, None


def _module(file: pathlib.Path) -> Any:
    """The module of a file: by its name, as workers import it again."""
    folder = os.fspath(file.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as Python does for a program
    with contextlib.redirect_stdout(sys.stderr):  # what the file prints is no part of the command's output
        module = importlib.import_module(file.stem)
    if pathlib.Path(str(module.__file__)).resolve() != file.resolve():
        raise ValueError(f"FILE.py must have a name of its own, got {file}, and {module.__file__} is imported already. Rename it.")
    return module


def _registered(name: str, instead: str = _INSTEAD) -> Description | Mix:
    """What is registered with SeqIO under this name, or under NAME_mix or NAME_chat: by FILE.py, or the program that calls this.

    Raises a ValueError where nothing is, which says what to do `instead`.
    """
    if (found := Mixture().tasks.get(name)) is not None:
        return found
    registry = sys.modules.get("ul2_tasks.tasks.names")  # which whatever registers a name imports
    names = registry.known() if registry else [*Mixture().tasks, *_BUILT_IN, _PACKED_ROWS]
    for each in (f"{name}_mix", name, f"{name}_{CHAT}"):
        if registry and each in names:
            return registry.description_of(each)
    raise ValueError(f"nothing is named {name!r} (known: {sorted(names)}). {instead}")
