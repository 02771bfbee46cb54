"""Values, functions and classes in words that are the same in each process: what identities of sources are made of."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ul2_tasks.scalars import digest_of

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
# Their versions say what their functions do.
_LIBRARIES = {"seqio", "t5", "tensorflow", "tensorflow_datasets", "ul2_tasks", "builtins", *sys.stdlib_module_names} - {"__main__"}


class CannotTellError(Exception):
    """A value, or another one within it, has no such words."""


def plain(words: str) -> str:
    """The words. Raises a CannotTellError where they have an address, which is another one in each process."""
    if _ADDRESS.search(words):
        raise CannotTellError
    return words


@functools.singledispatch
def words_of(value: Any) -> str:
    """A value in words, see above: of a function or class see `named`. Raises a CannotTellError where there are none."""
    if value is None or isinstance(value, bool | int | float | str | bytes | os.PathLike):
        return plain(repr(value))
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}({', '.join(map(words_of, value))})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{words_of(key)}: {words_of(item)}' for key, item in value.items())}}}"
    if isinstance(value, functools.partial):
        return f"partial({words_of(value.func)}, {words_of(value.args)}, {words_of(value.keywords)})"
    if callable(value):
        return named(value)
    raise CannotTellError


def named(function: Any) -> str:
    """The name of a function or class, with `code_of`."""
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}{code_of(function)}"


def code_of(function: Any) -> str:
    """The `version` that a function or class states, or a hash of its source text; nothing of a library, whose version says it.

    What it calls is not looked at. Raises a CannotTellError where pickle would not find it by its name, such as a lambda or a
    function of the program itself, whose module is `__main__` in every program; or where it has no source text.
    """
    if isinstance(version := getattr(function, "version", None), str | int):
        return f" version {version}"
    module: str = getattr(function, "__module__", None) or ""
    found: Any = sys.modules.get(module)
    for part in getattr(function, "__qualname__", "").split("."):
        found = getattr(found, part, None)
    if found is not function or module == "__main__":
        raise CannotTellError
    if module.split(".")[0] in _LIBRARIES:
        return ""
    try:
        return f" sha256 {digest_of(inspect.getsource(getattr(function, 'python_function', function)))}"  # of a tf.function, too
    except (OSError, TypeError):
        raise CannotTellError from None


def code_in_words(functions: Iterable[object]) -> str:
    """A hash of what can be told of functions, such as the preprocessors of a task.

    Another process need not find them, so of one that has no name there, such as a lambda, the source text counts. Of one without
    source text nothing does.
    """
    told = []
    for function in functions:
        with contextlib.suppress(OSError, TypeError):
            told.append(_told(function))
    return f"code, sha256 {digest_of(repr(told))}"


def _told(function: Any) -> str:
    try:
        return words_of(function)
    except CannotTellError:
        return _told(function.func) if isinstance(function, functools.partial) else inspect.getsource(function)


def name_of(function: Callable) -> str:
    """The name of a function, which may have some of its arguments; as SeqIO has it."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    return type(function).__name__ if isinstance(function, type) else getattr(function, "__name__", "")
