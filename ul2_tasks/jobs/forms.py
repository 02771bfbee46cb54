"""What the values of a file of JSON have to be, so that one that was altered is refused in a sentence.

A form is a type (`str`, `int | None`); `NAME`, a text that names a file of the folder itself; `[form]`, a list of such; or
`{key: form}`, an object that has these fields and may have others. The key `EACH` stands for all of an object's fields, which
are then names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

NAME, EACH = "a name without a folder", "of each name"


def check_form(value: object, form: object, path: str, remedy: str) -> None:
    """Raises a ValueError where a value of JSON has not this form.

    For the form see the top of this file. `path` is the file's, and `remedy` what to do about it, both for the error.

    >>> check_form({"files": [{"bytes": "7"}]}, {"files": [{"bytes": int}]}, "manifest.json", "Write it again.")
    Traceback (most recent call last):
    ..
    ValueError: manifest.json is not as it was written: files.0.bytes must be int, got '7'. Write it again.
    """
    if wrong := next(_faults(value, form, ""), None):
        raise ValueError(f"{path} is not as it was written: {wrong}. {remedy}")


def _faults(value: Any, form: Any, place: str) -> Iterator[str]:
    if isinstance(form, Mapping):
        yield from _of_object(value, form, place)
    elif isinstance(form, list):
        if not isinstance(value, list):
            yield _said(place, value, "a list")
        else:
            for number, each in enumerate(value):
                yield from _faults(each, form[0], _below(place, str(number)))
    elif form is NAME:
        if not isinstance(value, str) or not _is_name(value):
            yield _said(place, value, NAME)
    elif not isinstance(value, form) or (isinstance(value, bool) and form is not bool):
        yield _said(place, value, getattr(form, "__name__", str(form)))


def _of_object(value: Any, form: Mapping, place: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield _said(place, value, "an object")
        return
    for key, each in form.items():
        if key is EACH:
            for name, one in value.items():
                if not _is_name(name):
                    yield _said(place, {name: ".."}, f"fields that are {NAME}")
                yield from _faults(one, each, _below(place, name))
        elif key not in value:
            yield f"it has no field {_below(place, key)!r}"
        else:
            yield from _faults(value[key], each, _below(place, key))


def _is_name(text: str) -> bool:
    return text not in ("", ".", "..") and "/" not in text and "\\" not in text and text.isprintable()


def _below(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _said(place: str, value: object, expected: str) -> str:
    shown = repr(value)
    return f"{place or 'it'} must be {expected}, got {shown if len(shown) <= 60 else f'{shown[:60]}..'}"
