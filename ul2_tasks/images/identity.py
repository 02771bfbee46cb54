"""What decides rows and stands in no name: which files are read, and the code of functions. A state is known by it."""

from __future__ import annotations

import functools
import hashlib
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ul2_tasks.files.listing import local_path, mark, real_path
from ul2_tasks.files.systems import infos

_PLAIN = (bool, int, float, str, bytes, type(None))
_LOOKED_AT = 64  # of records in memory


class FileFacts(NamedTuple):
    """A file as it is now.

    `path` is where its path leads to, and `size` is in bytes. `changed` is when it changed; or what else its file system has that
    another content would not have.
    """

    path: str
    size: int
    changed: str


def facts_of(paths: Sequence[str]) -> list[FileFacts]:
    """Files of any file system. An OSError says that one cannot be reached."""
    return [
        FileFacts(real_path(local_path(path)), int(found.get("size") or 0), mark(found)) for path, found in zip(paths, infos(paths))
    ]


def files_in_words(files: Iterable[FileFacts], folders: Iterable[str]) -> str:
    """Files, and the folders where the paths in them begin; another text where one is another, or was changed.

    >>> files_in_words([FileFacts("/a.jsonl", 70, "2026-01-02T03:04:05"), FileFacts("/b.jsonl", 7, "2025-01-02")], ["/pictures"])
    '77 bytes, the last changed 2026-01-02T03:04:05, 14286aee6e9b200a'
    """
    files = sorted(files)
    size, newest = sum(file.size for file in files), max((file.changed for file in files), default="")
    return f"{size} bytes, the last changed {newest}, {digest([*map(tuple, files), *sorted(set(folders))])}"


def records_in_words(records: Sequence[Mapping[str, Any]]) -> str:
    """Records in memory by the content of some of them, evenly from the first to the last; another text for others."""
    last = len(records) - 1
    numbers = sorted({last * step // (_LOOKED_AT - 1) for step in range(_LOOKED_AT)})
    return f"contents {digest([_plainly(records[number]) for number in numbers])}"


def function_in_words(function: Callable) -> str:
    """The module and the name of a function; of an object that is called those of its class, and the numbers and texts in it.

    >>> function_in_words(functools.partial(re.sub, "a"))
    're.sub'
    """
    if isinstance(function, functools.partial):
        return function_in_words(function.func)
    if not hasattr(function, "__qualname__"):
        settings = [(key, value) for key, value in sorted(vars(function).items()) if isinstance(value, _PLAIN)]
        return f"{function_in_words(type(function))} with {digest(settings)}"
    return function.__qualname__ if is_own(function) else f"{_module(function)}.{function.__qualname__}"


def code_of(function: Callable) -> str:
    """The code of a function in 16 hexadecimal digits, without that of functions that it calls; "" where it has none, or is ours.

    It is the compiled code: spaces and comments do not count, but another version of Python has another one.
    """
    if isinstance(function, functools.partial):
        return "".join(code_of(part) for part in (function.func, *function.args, *function.keywords.values()) if callable(part))
    found = function if isinstance(function, types.FunctionType) else getattr(function, "__func__", type(function).__call__)
    if not isinstance(found, types.FunctionType) or is_own(found):
        return ""
    closed = [cell.cell_contents for cell in found.__closure__ or () if _is_full(cell)]
    settings = [value for value in (*closed, *(found.__defaults__ or ())) if isinstance(value, _PLAIN)]
    return digest([_code(found.__code__), settings, [code_of(value) for value in closed if isinstance(value, types.FunctionType)]])


def is_own(function: object) -> bool:
    """Whether a function or class is of this package."""
    return _module(function).split(".")[0] == __name__.split(".")[0]


def python_version() -> str:
    """Of which Python `code_of` is."""
    return "Python {}.{}".format(*sys.version_info)


def digest(value: object) -> str:
    """16 hexadecimal digits of a value's words, which are the same in any process."""
    return hashlib.blake2b(_without_addresses(value).encode(errors="backslashreplace"), digest_size=8).hexdigest()


def _code(code: types.CodeType) -> object:
    return code.co_code, code.co_names, [_constant(value) for value in code.co_consts]


def _constant(value: object) -> object:
    if isinstance(value, types.CodeType):
        return _code(value)
    return sorted(map(repr, value)) if isinstance(value, frozenset) else value  # whose order differs from process to process


def _is_full(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # of a function that is not yet there
        return False


def _module(function: object) -> str:
    module = getattr(function, "__module__", None) or ""
    return "__main__" if module == "__mp_main__" else module  # as a worker that is spawned has it


def _plainly(value: Any) -> Any:
    """A record with lists for arrays, of which NumPy shows only the ends."""
    if isinstance(value, Mapping):
        return sorted((str(key), _plainly(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return [_plainly(each) for each in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _without_addresses(value: object) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
