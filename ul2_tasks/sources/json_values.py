"""Values of files: JSON, of which any line may be none; and bytes that are texts."""

from __future__ import annotations

import json
from typing import Any

_decode_json = json.JSONDecoder().raw_decode


def json_object(line: bytes) -> dict[str, Any] | ValueError:
    """The object that a text of JSON is, or what is wrong with it."""
    value = parsed_json(line)
    if isinstance(value, UnicodeDecodeError):
        return ValueError(f"is not UTF-8, {value.reason} at byte {value.start}")
    if isinstance(value, Exception):
        return ValueError(f"is not JSON, {value}; it begins with {line[:40].decode(errors='replace')!r}")
    if not isinstance(value, dict):
        return ValueError(f"must be an object, got a value of type {type(value).__name__}")
    return value


def parsed_json(line: str | bytes) -> object:
    """The value of a line of JSON; or the error, where it is not JSON."""
    try:  # what json.loads does with most lines, at half its cost
        text = line.decode() if isinstance(line, bytes) else line
        value, end = _decode_json(text)
        if end == len(text):
            return value
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return error


def as_text(value: object) -> object:
    """Bytes as a text; anything else as it is."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
