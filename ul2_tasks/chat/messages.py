"""Reads the messages of a conversation, as data sets have them, and refuses what no renderer would show."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ul2_tasks.chat.segments import ROLES

Message = Mapping[str, Any]

# Fields beside `messages` that are meant to be rendered, which no renderer here does.
_RENDERED_ELSEWHERE = ("tools", "functions", "tool_choice", "system", "prompt", "documents")


def parse(text: str | bytes) -> list[Message]:
    """The messages in a text of JSON: a list of them, or an object with the field `messages`.

    Other fields of the object are no part of the conversation, and ignored. Tools are refused: a renderer would have to show them.

    >>> parse('{"messages": [{"role": "user", "content": "Hello"}]}')
    [{'role': 'user', 'content': 'Hello'}]
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the messages are not JSON, {error}; they begin with {text[:40]!r}") from error
    return messages_in(value)


def messages_in(value: object) -> list[Message]:
    """See `parse`; of what JSON or Arrow has."""
    if isinstance(value, Mapping):
        if "messages" not in value:
            raise ValueError(f"the conversation has the fields {sorted(value)}, expected 'messages'")
        if present := [key for key in _RENDERED_ELSEWHERE if value.get(key)]:
            raise ValueError(
                f"the conversation has {present} beside 'messages', which would be left out; put what the model is to see into a"
                " system or developer message"
            )
        value = value["messages"]
    if not isinstance(value, list) or not all(isinstance(message, Mapping) for message in value):
        raise ValueError(f"the messages are {_short(value)}, expected a list of objects")
    if not value:
        raise ValueError("the conversation has no message")
    return value


def check_fields(message: Message, known: Collection[str]) -> None:
    """Raises a ValueError where a message has a field that would be left out, or no known role. Empty fields may be there."""
    unknown = message.keys() - known
    if unknown and (others := sorted(key for key in unknown if message[key] not in (None, "", [], {}))):
        raise ValueError(f"has the fields {others}, which would be left out; it may have {sorted(known)}")
    if message.get("role") not in ROLES:
        raise ValueError(f"has the role {message.get('role')!r}, expected one of {list(ROLES)}")


def check_nothing_lost(given: object, parsed: object, path: str = "") -> None:
    """Raises a ValueError where something has a field that is not in what was parsed of it. Empty fields may be there.

    >>> check_nothing_lost({"tools": [{"name": "f", "strict": True}]}, {"tools": [{"name": "f"}]})
    Traceback (most recent call last):
    ValueError: has the field 'tools.0.strict', which would be left out; it may have ['name']
    """
    if isinstance(given, list) and isinstance(parsed, list):
        given, parsed = dict(enumerate(given)), dict(enumerate(parsed))
    if not isinstance(given, Mapping) or not isinstance(parsed, Mapping):
        return
    for key, value in given.items():
        if key in parsed:
            check_nothing_lost(value, parsed[key], f"{path}{key}.")
        elif value not in (None, "", [], {}):
            raise ValueError(f"has the field {f'{path}{key}'!r}, which would be left out; it may have {sorted(parsed)}")


def weight_of(message: Message) -> int:
    """Its `weight`, 1 by default. Raises a ValueError where it is neither 0 nor 1."""
    weight = message.get("weight")
    if weight is None:
        return 1
    if isinstance(weight, bool) or weight not in (0, 1):
        raise ValueError(f"has the weight {weight!r}, expected 0 or 1")
    return int(weight)


def text_of(value: object, what: str) -> str:
    """A text, which UTF-8 can say. Raises a ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"{what} is {_short(value)}, expected a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} is not Unicode, {error.reason}") from error
    return value


def parts_of(message: Message) -> Sequence[str | Message]:
    """The parts of a message's content: texts, and objects of a type other than "text"."""
    content = message.get("content")
    if isinstance(content, str):
        return [text_of(content, "content")]
    if not isinstance(content, list) or not all(isinstance(part, Mapping) for part in content):
        raise ValueError(f"has the content {_short(content)}, expected a text, or a list of parts")
    return [part if part.get("type") != "text" else _text_part(part) for part in content]


def _text_part(part: Message) -> str:
    if others := sorted(key for key in part.keys() - {"type", "text"} if part[key] is not None):
        raise ValueError(f"has a part of its content with the fields {others}, which would be left out")
    return text_of(part.get("text"), "a part of its content")


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}.."
