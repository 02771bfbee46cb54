"""Reads the messages of a conversation, as datasets have them, and rejects fields that no renderer would show.

An error has no location, and no full stop: whoever reads the record puts the file and row before it."""

from __future__ import annotations

import json
import types
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ul2_tasks.chat.segments import ROLES
from ul2_tasks.example_features import CONVERSATION_FIELDS, SYSTEM_FIELDS, TEMPLATE_FIELDS
from ul2_tasks.scalars import is_empty

Message = Mapping[str, Any]
_MESSAGES = "messages"
# Other names that templates have for what is not the model's and begins no turn; here it is a tool's.
_OF_TOOLS = ("function", "ipython", "observation", "environment")
TEMPLATE_ROLES = (*ROLES, *_OF_TOOLS)


class Conversation(NamedTuple):
    """The messages of a record, and what it has beside them.

    Attributes:
        messages: with the system message that the record has in a field of its own.
        settings: what a chat template writes beside messages, by the names of its variables: `tools`, `documents` and others.
        unread: the names of other fields, which nothing reads.
    """

    messages: Sequence[Message]
    settings: Mapping[str, Any] = types.MappingProxyType({})
    unread: tuple[str, ...] = ()


def parse(text: str | bytes) -> Conversation:
    """The conversation in a string of JSON: a list of messages, or an object with the field `messages`.

    The other fields of the object are used or raise an error, where a model would have to see them. See `conversation_in`.

    >>> parse('{"messages": [{"role": "user", "content": "Hello"}], "source": "web"}')
    Conversation(messages=[{'role': 'user', 'content': 'Hello'}], settings={}, unread=('source',))
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"messages must be JSON ({error}), got a text that begins with {text[:40]!r}") from error
    return conversation_in(value)


def conversation_in(value: object) -> Conversation:
    """See `parse`; of what JSON or Arrow has, where `messages` may be JSON, too.

    A field `system` becomes the first message; `tools`, `documents` and `chat_template_kwargs` go to the chat template. Raises a
    ValueError where another field of `CONVERSATION_FIELDS` says what no message says.
    """
    if not isinstance(value, Mapping):
        return Conversation(_checked(value))
    if _MESSAGES not in value:
        raise ValueError(f"the conversation must have the field 'messages', got {sorted(value)}")
    inner = value[_MESSAGES]
    found = parse(inner) if isinstance(inner, str | bytes) else Conversation(_checked(inner))
    given = {key: each for key, each in value.items() if key != _MESSAGES and not is_empty(each)}
    messages = _with_system(found.messages, [given.pop(key) for key in SYSTEM_FIELDS if key in given])
    settings = {key: _parsed(key, given.pop(key)) for key in TEMPLATE_FIELDS if key in given}
    settings |= settings.pop("chat_template_kwargs", {})
    lost = [key for key in CONVERSATION_FIELDS if key in given and not _is_said(given[key], messages)]
    if lost:
        raise ValueError(
            f"the conversation must not have {lost} beside its messages, because it would be lost. Put what the model must see"
            " into a message"
        )
    unread = tuple(key for key in given if key not in CONVERSATION_FIELDS)
    return Conversation(messages, {**found.settings, **settings}, (*found.unread, *unread))


def without_nulls(value: Any) -> Any:
    """A value without the fields that are null: Parquet and Arrow add them to all records where one has them."""
    if isinstance(value, Mapping):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def _checked(messages: object) -> list[Message]:
    if not isinstance(messages, list) or not all(isinstance(message, Mapping) for message in messages):
        raise ValueError(f"messages must be a list of objects, got {_short(messages)}")
    if not messages:
        raise ValueError("messages must not be empty, got an empty list")
    return messages


def _with_system(messages: Sequence[Message], given: Sequence[object]) -> Sequence[Message]:
    """The messages, the first of which is the system message that is given, if one is."""
    texts = list(dict.fromkeys(text_of(text, "the field 'system'") for text in given))
    if not texts or (len(texts) == 1 and messages[0].get("role") == "system" and messages[0].get("content") == texts[0]):
        return messages
    if len(texts) > 1 or messages[0].get("role") == "system":
        raise ValueError("the conversation must have one system message, got another one in a field beside its messages")
    return [{"role": "system", "content": texts[0]}, *messages]


def _parsed(key: str, value: object) -> Any:
    """The value of a field for a chat template; it may be a string of JSON."""
    try:
        parsed = json.loads(value) if isinstance(value, str | bytes) else value
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{key} must be JSON ({error}), got a text that begins with {_short(value)}") from error
    kind, expected = (Mapping, "an object") if key == "chat_template_kwargs" else (list, "a list")
    if not isinstance(parsed, kind):
        raise ValueError(f"{key} must be {expected}, got {_short(parsed)}")
    return without_nulls(parsed)


def _is_said(value: object, messages: Sequence[Message]) -> bool:
    """Whether messages have what a field beside them has: the text of one of them, or some of them."""
    if isinstance(value, str):
        return any(message.get("content") == value for message in messages)
    return isinstance(value, list) and all(without_nulls(each) in map(without_nulls, messages) for each in value)


def role_of(message: Message) -> str:
    """The role of a message, one of `ROLES`."""
    role = str(message.get("role"))
    return "tool" if role in _OF_TOOLS else role


def check_fields(message: Message, known: Collection[str], roles: Sequence[str] = ROLES) -> None:
    """Raises a ValueError where a message has a field that would be lost, or an unknown role. Empty fields are ignored."""
    unknown = message.keys() - known
    if unknown and (others := sorted(key for key in unknown if not is_empty(message[key]))):
        raise ValueError(
            f"fields must be among {sorted(known)}, got {others}, which would be lost. See"
            " docs/help/troubleshooting.md#a-field-of-a-message-is-rejected"
        )
    if message.get("role") not in roles:
        raise ValueError(f"role must be one of {list(roles)}, got {message.get('role')!r}")


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
        elif not is_empty(value):
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
