"""The code of a user's own functions, in words that are equal in each process and differ once a function is edited.

They are made of the bytecode, not of the source text: that is what runs, also where a file was edited after it was imported, and
also where there is no file. Comments, names of files and numbers of lines are not in it. Another version of Python compiles the
same text to other bytecode. So the words name the version, which says why they differ.
"""

from __future__ import annotations

import functools
import hashlib
import re
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

# Their versions say what they do.
_LIBRARIES = {"seqio", "t5", "tensorflow", "tensorflow_datasets", "ul2_tasks", "builtins", *sys.stdlib_module_names} - {"__main__"}
_CACHED: Any = type(functools.cache(len))
_FOLLOWED = (type, types.FunctionType, _CACHED)  # of what a function names; to ask other objects for a module may import it
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def code_in_words(values: Iterable[object]) -> str:
    """The code of functions and classes, with those of the same module that they call; empty where all are of libraries.

    What is no function, class or `functools.partial` of such says nothing.
    """
    found = "\n".join(_parts(list(values), set()))
    return f"python {sys.version_info[0]}.{sys.version_info[1]}, sha256 {_digest(found)}" if found else ""


def _parts(value: Any, seen: set[int]) -> Iterator[str]:
    value = getattr(value, "python_function", value)  # of a tf.function
    if isinstance(value, list):
        for one in value:
            yield from _parts(one, seen)
    elif isinstance(value, functools.partial):
        yield from _parts(list(filter(callable, [value.func, *value.args, *value.keywords.values()])), seen)
    elif isinstance(value, types.MethodType | staticmethod | classmethod):
        yield from _parts(value.__func__, seen)
    elif isinstance(value, _CACHED):
        yield from _parts(value.__wrapped__, seen)
    elif isinstance(value, property):
        yield from _parts([value.fget], seen)
    elif isinstance(value, functools.cached_property):
        yield from _parts(value.func, seen)
    elif isinstance(value, type | types.FunctionType) and id(value) not in seen:
        seen.add(id(value))
        yield from _of_class(value, seen) if isinstance(value, type) else _of_function(value, seen)


def _of_class(value: type, seen: set[int]) -> Iterator[str]:
    for base in value.__mro__:
        if _is_own(base):
            yield base.__qualname__
            yield from _parts([member for _, member in sorted(vars(base).items())], seen)


def _of_function(value: types.FunctionType, seen: set[int]) -> Iterator[str]:
    if _is_own(value):
        defaults = _plain((value.__defaults__, value.__kwdefaults__))
        yield f"{value.__qualname__}{defaults}{_of_code(value.__code__, value.__doc__)}"
        named = [value.__globals__.get(name) for name in sorted(_names(value.__code__))]
        yield from _parts([one for one in named if isinstance(one, _FOLLOWED) and _module(one) == _module(value)], seen)
    yield from _parts(list(filter(callable, _enclosed(value))), seen)  # what a decorator was given


def _enclosed(value: types.FunctionType) -> Iterator[object]:
    for cell in value.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # it is empty
            continue


def _is_own(value: object) -> bool:
    return _module(value).split(".")[0] not in _LIBRARIES


def _module(value: object) -> str:
    """Where it was written: `functools.wraps` gives a function within a library the `__module__` of the one that it wraps."""
    return str(value.__globals__.get("__name__") if isinstance(value, types.FunctionType) else getattr(value, "__module__", ""))


def _of_code(code: types.CodeType, doc: str | None = None) -> str:
    constants = [_plain(one) for one in code.co_consts if doc is None or one != doc]
    names = [*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], *code.co_names]
    return repr((code.co_code.hex(), getattr(code, "co_exceptiontable", b"").hex(), code.co_flags, names, constants))


def _plain(value: object) -> str:
    if isinstance(value, types.CodeType):
        return _of_code(value)
    if isinstance(value, tuple):
        return repr(list(map(_plain, value)))
    if isinstance(value, frozenset | set):
        return repr(sorted(map(_plain, value)))
    return _ADDRESS.sub("", repr(value))


def _names(code: types.CodeType) -> set[str]:
    """The global names of a function and of those within it."""
    return set(code.co_names).union(*(_names(one) for one in code.co_consts if isinstance(one, types.CodeType)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
