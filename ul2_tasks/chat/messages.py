"""Reads the messages of a conversation, as datasets have them, and rejects fields that no renderer would show.

An error has no location, and no full stop: whoever reads the record puts the file and row before it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ul2_tasks.chat.segments import ROLES

Message = Mapping[str, Any]

# Fields beside `messages` that are meant to be rendered, which no renderer here does.
_RENDERED_ELSEWHERE = ("tools", "functions", "tool_choice", "system", "prompt", "documents")


def parse(text: str | bytes) -> list[Message]:
    """The messages in a string of JSON: a list of them, or an object with the field `messages`.

    Other fields of the object are ignored. Fields such as `tools` raise an error, because a renderer would have to show them.

    >>> parse('{"messages": [{"role": "user", "content": "Hello"}]}')
    [{'role': 'user', 'content': 'Hello'}]
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"messages must be JSON ({error}), got a text that begins with {text[:40]!r}") from error
    return messages_in(value)


def messages_in(value: object) -> list[Message]:
    """See `parse`; of what JSON or Arrow has."""
    if isinstance(value, Mapping):
        if "messages" not in value:
            raise ValueError(f"the conversation must have the field 'messages', got {sorted(value)}")
        if present := [key for key in _RENDERED_ELSEWHERE if value.get(key)]:
            raise ValueError(
                f"the conversation must not have {present} beside 'messages', because it would be lost. Put what the model must see"
                " into a system or developer message"
            )
        value = value["messages"]
    if not isinstance(value, list) or not all(isinstance(message, Mapping) for message in value):
        raise ValueError(f"messages must be a list of objects, got {_short(value)}")
    if not value:
        raise ValueError("messages must not be empty, got an empty list")
    return value


def check_fields(message: Message, known: Collection[str]) -> None:
    """Raises a ValueError where a message has a field that would be lost, or an unknown role. Empty fields are ignored."""
    unknown = message.keys() - known
    if unknown and (others := sorted(key for key in unknown if message[key] not in (None, "", [], {}))):
        raise ValueError(
            f"fields must be among {sorted(known)}, got {others}, which would be lost. See"
            " docs/help/troubleshooting.md#a-field-of-a-message-is-rejected"
        )
    if message.get("role") not in ROLES:
        raise ValueError(f"role must be one of {list(ROLES)}, got {message.get('role')!r}")


def check_nothing_lost(given: object, parsed: object, path: str = "") -> None:
    """Raises a ValueError where an object has a field that its parsed form lacks. Empty fields are ignored.

    >>> check_nothing_lost({"tools": [{"name": "f", "strict": True}]}, {"tools": [{"name": "f"}]})
    Traceback (most recent call last):
    ValueError: fields must be among ['name'], got 'tools.0.strict', which would be lost
    """
    if isinstance(given, list) and isinstance(parsed, list):
        given, parsed = dict(enumerate(given)), dict(enumerate(parsed))
    if not isinstance(given, Mapping) or not isinstance(parsed, Mapping):
        return
    for key, value in given.items():
        if key in parsed:
            check_nothing_lost(value, parsed[key], f"{path}{key}.")
        elif value not in (None, "", [], {}):
            raise ValueError(f"fields must be among {sorted(parsed)}, got {f'{path}{key}'!r}, which would be lost")


def weight_of(message: Message) -> int:
    """The `weight` of a message, 1 by default. Raises a ValueError where it is neither 0 nor 1."""
    weight = message.get("weight")
    if weight is None:
        return 1
    if isinstance(weight, bool) or weight not in (0, 1):
        raise ValueError(f"weight must be 0 or 1, got {weight!r}")
    return int(weight)


def text_of(value: object, what: str) -> str:
    """A string that UTF-8 can encode. Raises a ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"{what} must be a string, got {_short(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} must be valid Unicode, got a string with {error.reason}") from error
    return value


def parts_of(message: Message) -> Sequence[str | Message]:
    """The parts of a message's content: strings, and objects of a type other than "text"."""
    content = message.get("content")
    if isinstance(content, str):
        return [text_of(content, "content")]
    if not isinstance(content, list) or not all(isinstance(part, Mapping) for part in content):
        raise ValueError(f"content must be a string or a list of parts, got {_short(content)}")
    return [part if part.get("type") != "text" else _text_part(part) for part in content]


def _text_part(part: Message) -> str:
    if others := sorted(key for key in part.keys() - {"type", "text"} if part[key] is not None):
        raise ValueError(f"a part of the content must have the fields 'type' and 'text', got {others}, which would be lost")
    return text_of(part.get("text"), "a part of the content")


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}.."
