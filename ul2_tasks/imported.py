"""What is known of a library without importing it, because not everyone has it."""

from __future__ import annotations

import sys


def is_instance(value: object, library: str, *names: str) -> bool:
    """Whether a value is an instance of one of a library's classes, by their names. Nothing is before it is imported."""
    found = sys.modules.get(library)
    return found is not None and isinstance(value, tuple(each for name in names if (each := getattr(found, name, None))))
