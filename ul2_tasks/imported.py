"""What is known of SeqIO and TensorFlow without importing them, because some of the package needs neither."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import TypeVar

import wrapt

_Class = TypeVar("_Class", bound=type)


def is_instance(value: object, library: str, *names: str) -> bool:
    """Whether a value is an instance of one of a library's classes, by their names. Nothing is before it is imported."""
    found = sys.modules.get(library)
    return found is not None and isinstance(value, tuple(each for name in names if (each := getattr(found, name, None))))


def is_seqio(value: object, *names: str) -> bool:
    """`is_instance` of SeqIO's classes."""
    return is_instance(value, "seqio", *names)


def subclass_of_seqio(name: str, module: str) -> Callable[[_Class], _Class]:
    """Makes a class a virtual subclass of one of SeqIO's, once SeqIO is imported: `isinstance` takes it for one."""

    def decorate(made: _Class) -> _Class:
        def register(_: object) -> None:
            getattr(importlib.import_module(module), name).register(made)  # waits where another thread is still importing it

        wrapt.register_post_import_hook(register, module)
        return made

    return decorate


def failures(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """What reading and writing raises: OSError, TensorFlow's errors where that is imported, and others that are given."""
    errors = getattr(sys.modules.get("tensorflow"), "errors", None)
    return (OSError, *others) if errors is None else (OSError, *others, errors.OpError)


def message_of(error: Exception) -> str:
    """What an error says; of TensorFlow's its message alone, without the operation."""
    return getattr(error, "message", None) or str(error)
