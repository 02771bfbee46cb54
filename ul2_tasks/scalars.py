"""Arguments as users give them. Numbers are Python's or NumPy's, and a bool is not a number here."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeGuard, TypeVar

import numpy as np

T = TypeVar("T")


def is_integer(value: object, at_least: float) -> TypeGuard[int]:
    """Whether `value` is an integer of at least `at_least`."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= at_least)


def is_finite(value: object) -> TypeGuard[float]:
    """Whether `value` is a finite number."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool) and math.isfinite(value)


def is_empty(value: object) -> bool:
    """Whether a field says nothing: records of one file have the same fields, whether they need them or not."""
    return value is None or (isinstance(value, str | bytes | Sequence | Mapping) and not value)


def as_python(value: T) -> T:
    """A number of NumPy as a number of Python, which JSON can write; anything else as it is.

    >>> as_python(np.int64(512)), as_python(0.15)
    (512, 0.15)
    """
    return value.item() if isinstance(value, np.generic) else value


def fractions(weights: Mapping[T, float]) -> dict[T, float]:
    """Weights as parts of their sum, to 12 digits, so that any multiple of them has the same.

    They are the same on all versions of Python, of which some round `sum` otherwise.

    >>> fractions({"web": 3, "code": 1}) == fractions({"web": 0.3, "code": 0.1})
    True
    """
    total = math.fsum(weights.values())
    return {each: float(f"{weight / total:.12g}") for each, weight in weights.items()}


def short(value: object) -> str:
    """What it is in an error: its repr; where that is long, its type alone.

    >>> short(5), short(dict.fromkeys(range(100)))
    ('5', 'a value of type dict')
    """
    return text if len(text := repr(value)) <= 100 else f"a value of type {type(value).__name__}"


def check_flag(value: bool, name: str) -> bool:
    """The value, which is True or False. Raises a ValueError for another one."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}.")
    return value


def epochs_of(num_epochs: int | None) -> int | None:
    """The number of epochs as one of Python's integers; None for no end."""
    if num_epochs is not None and not is_integer(num_epochs, at_least=1):
        raise ValueError(f"num_epochs must be an integer of at least 1, or None for no end, got {num_epochs!r}.")
    return None if num_epochs is None else int(num_epochs)


def check_on_error(on_error: object, name: str = "on_error") -> None:
    """Raises a ValueError where an argument does not say what becomes of bad records."""
    if on_error not in ("raise", "skip"):
        raise ValueError(f"{name} must be 'raise' or 'skip', got {on_error!r}.")


def check_split(split: str, splits: Iterable[str], of: object) -> None:
    """Raises a ValueError where there is no such split."""
    if split not in splits:
        raise ValueError(f"split must be one of {sorted(splits)} in {of!r}, got {split!r}.")


def digest_of(value: object) -> str:
    """16 hexadecimal digits: the first 64 bits of the SHA-256 of a text, or of another value as Python shows it."""
    text = value if isinstance(value, str) else repr(value)
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:16]
