"""The names that version 1 gave to classes, fields and arguments, where a fingerprint, a state or a manifest holds them.

Data that were saved by an earlier version must load, so what is written has these names for as long as it is read.
"""

from __future__ import annotations

import dataclasses

SAVED_NAMES: dict[str, str] = {}  # name today -> name that is saved


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
