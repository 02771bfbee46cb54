"""The names that version 1 gave to classes, fields and arguments, where a fingerprint, a state or a manifest holds them.

Data that were saved by an earlier version must load, so what is written has these names for as long as it is read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

SAVED_NAMES: dict[str, str] = {  # name today -> name that is saved
    "PromptCompletionFeatureConverter": "ReplyFeatureConverter",
}
# Of `register_chat`: arguments, and their values.
CHAT_ARGUMENTS = {"loss_groups": "spans", "train_on": "supervise", "truncation": "too_long", "format": "form"}
CHAT_VALUES = {
    "train_on": {"all": "whole", "generated": "sampled"},
    "truncation": {"drop_oldest_turns": "oldest"},
    "format": {"prompt_completion": "reply"},
}


def saved_name(name: str) -> str:
    """The name that is saved for a name of today."""
    return SAVED_NAMES.get(name, name)


def saved_repr(value: object) -> str:
    """`repr(value)` as version 1 wrote it: dataclasses, also within tuples, with the names that are saved."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (field.name for field in dataclasses.fields(value) if field.repr)
        inner = ", ".join(f"{saved_name(name)}={saved_repr(getattr(value, name))}" for name in fields)
        return f"{saved_name(type(value).__qualname__)}({inner})"
    if type(value) is tuple:
        return f"({', '.join(map(saved_repr, value))}{',' if len(value) == 1 else ''})"
    return repr(value)


def saved_chat_task(name: str) -> str:
    """The name that is saved for a task of conversations, from which the order of its examples is derived, too.

    >>> saved_chat_task("mine_prompt_completion"), saved_chat_task("mine_chat")
    ('mine_reply', 'mine_chat')
    """
    stem = name.removesuffix("_prompt_completion")
    return name if stem == name else f"{stem}_reply"


def saved_chat_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `register_chat`, in their order, as they are saved.

    >>> saved_chat_arguments({"train_on": "all", "turns": "each"})
    {'supervise': 'whole', 'turns': 'each'}
    """
    return {CHAT_ARGUMENTS.get(key, key): _replaced(value, CHAT_VALUES.get(key, {})) for key, value in arguments.items()}


def chat_arguments(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `register_chat`, of those that were saved by version 1 or later.

    >>> chat_arguments({"supervise": "sampled", "train_on": "content"})
    {'train_on': 'content'}
    """
    names = {old: new for new, old in CHAT_ARGUMENTS.items()}
    values = {key: {old: new for new, old in of_key.items()} for key, of_key in CHAT_VALUES.items()}
    return {(name := names.get(key, key)): _replaced(value, values.get(name, {})) for key, value in saved.items()}


def _replaced(value: Any, replacements: Mapping[str, str]) -> Any:
    return replacements.get(value, value) if isinstance(value, str) else value
