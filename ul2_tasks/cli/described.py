"""What NAME and the options of a command describe: data, without SeqIO unless something is registered with it."""

from __future__ import annotations

import dataclasses
import importlib
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ul2_tasks.chat.objective import CHAT, FORMATS, PROMPT_COMPLETION
from ul2_tasks.mixtures.chat import Chat, open_conversations
from ul2_tasks.mixtures.description import Description
from ul2_tasks.mixtures.mix import Mix
from ul2_tasks.mixtures.mixture import Mixture
from ul2_tasks.sources.by_name import open_source
from ul2_tasks.sources.memory import texts_in_memory

_EMBEDDED = {"ul2": Mixture, "ul2_mix": Mixture, **dict.fromkeys(("chat", *(f"chat_{each}" for each in FORMATS)), Chat)}
_LENGTHS = {CHAT: {"tokens": None}, PROMPT_COMPLETION: {"inputs": None, "targets": None}}


def describe(
    name: str, modules: Sequence[str], source: Mapping[str, Any], arguments: Mapping[str, Any]
) -> tuple[Description | Mix, str | None]:
    """What a command is about; and the format of conversations that the name asks for, None where it leaves that open.

    `name` is FILE.py:OBJECT, or that of an object in one of the modules, of what the options describe, of what comes with the
    package, or of what is registered. `source` are arguments of `open_source`, and `arguments` of `Mixture`, with `preset` for the
    name of a preset; with `renderer` of `Chat`.

    Raises a ValueError where there is no such thing; and see `open_source`, `Mixture` and `Chat`.
    """
    if ".py:" in name:
        return _checked(*name.split(".py:", 1)), None
    held = [found for each in modules if isinstance(found := getattr(_module(each), name, None), Description | Mix)]
    if held:
        return held[0], None
    plain, format = _name_and_format(name)
    if source or arguments:
        return _of_options(name if "renderer" not in arguments else plain, dict(source), dict(arguments)), format
    if name in _EMBEDDED and not modules:
        return _EMBEDDED[name](), format or CHAT
    return _registered(name), format


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


def _checked(path: str, name: str) -> Description | Mix:
    """The object of a name in a file."""
    file = pathlib.Path(f"{path}.py")
    if not file.exists():
        raise ValueError(f"NAME must be FILE.py:OBJECT with a file that exists, got {str(file)!r}. Name another file.")
    sys.path.insert(0, os.fspath(file.parent.absolute()))  # as Python does for a program, and workers by PYTHONPATH
    found = getattr(importlib.import_module(file.stem), name, None)
    if not isinstance(found, Description | Mix):
        raise ValueError(
            f"NAME must be FILE.py:OBJECT of a Mixture, a Chat, an ImageText or a Mix, got {found!r:.100} for {name!r} in {file}."
            " Name another object."
        )
    return found


def _module(name: str) -> Any:
    return importlib.import_module(name)


def _of_options(name: str, source: dict[str, Any], arguments: dict[str, Any]) -> Mixture | Chat:
    if "renderer" in arguments:
        if source:
            spec, key = source.pop("spec", "embedded"), source.pop("text_key", "messages")
            arguments["source"] = open_conversations(spec, key, **source)
        return Chat(name, **arguments)
    if "preset" in arguments:
        arguments["denoisers"] = arguments.pop("preset")
    return Mixture(name.removesuffix("_mix"), open_source(**{"spec": "embedded", **source}), **arguments)


def _registered(name: str) -> Description | Mix:
    """What is registered with SeqIO under this name, or under NAME_mix or NAME_chat."""
    try:
        from ul2_tasks.tasks.names import description_of, known
    except ImportError as error:
        raise ImportError(
            f"{name!r} must be registered, which needs SeqIO. Run `pip install 'ul2_tasks[seqio]'`; or name ul2, chat or"
            " FILE.py:OBJECT, or pass --corpus."
        ) from error
    names = known()
    for each in (f"{name}_mix", name, f"{name}_{CHAT}"):
        if each in names:
            return description_of(each)
    raise ValueError(
        f"nothing named {name!r} is registered (known: {sorted(names)}). Pass --corpus to create it, --module for the module that"
        " has it or registers it, or FILE.py:OBJECT."
    )


def _name_and_format(name: str) -> tuple[str, str | None]:
    """NAME and the format, of NAME_chat or NAME_prompt_completion; of any other name the name and None."""
    for each in FORMATS:
        if name.endswith(f"_{each}"):
            return name.removesuffix(f"_{each}"), each
    return name, None
