"""Loops over tokens as machine code: Numba compiles them, from functions that are Python."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import types
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.compiler_lock import global_compiler_lock


def compiled(function: Callable) -> Callable:
    """The function as machine code, which lets other Python threads run meanwhile.

    It is compiled when it is first called, for seconds, and kept beside its file, or in the user's own cache where that folder
    cannot be written. Where neither can, or what is kept cannot be read, each process compiles for itself. The function is of
    arrays and numbers.

    What is kept counts as old once the function has changed, or a function or a constant that it uses, of whatever file.
    """
    machine_code: Any = None

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        nonlocal machine_code
        machine_code = machine_code or _kept(function)
        try:
            return machine_code(*arguments)
        # It has not run yet: it does nothing that raises these.
        except (OSError, EOFError, pickle.UnpicklingError):
            machine_code = numba.njit(nogil=True)(function)
            return machine_code(*arguments)

    return call


def part_of_compiled(function: Callable) -> Callable:
    """A function that compiled functions call."""
    return numba.njit(nogil=True)(function)


class _Cache(FunctionCache):
    """Numba's cache of a function, whose own looks at the function's file alone, and only at its size and time."""

    def __init__(self, function: Callable):
        super().__init__(function)
        made_of = hashlib.sha256(repr(_made_of(function, set())).encode()).hexdigest()
        self._cache_file = IndexDataCacheFile(self._cache_path, self._impl.filename_base, made_of)


def _kept(function: Callable) -> Any:
    """The function as machine code, which is kept where there is a folder for it."""
    machine_code: Any = numba.njit(nogil=True)(function)
    with contextlib.suppress(RuntimeError):  # there is no folder to keep it in
        machine_code._cache = _Cache(function)
    return machine_code


def _made_of(value: Any, seen: set[int]) -> Any:
    """What of a function, or of a value that one uses, decides its machine code, in words that are the same in each process."""
    value = getattr(value, "py_func", value)  # of a function that is compiled already
    if id(value) in seen:
        return None
    if isinstance(value, types.FunctionType):
        seen.add(id(value))
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        used = [found for name, found in sorted(_used(value.__code__, value.__globals__).items())]
        return [_made_of(each, seen) for each in (value.__code__, value.__defaults__, *cells, *used)]
    if isinstance(value, types.CodeType):
        return [value.co_code, value.co_names, value.co_varnames, *(_made_of(each, seen) for each in value.co_consts)]
    if isinstance(value, tuple):
        return [_made_of(each, seen) for each in value]
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    return repr(value) if isinstance(value, str | bytes | int | float | np.generic | np.dtype | None) else type(value).__name__


def _used(code: types.CodeType, names: dict[str, Any]) -> dict[str, Any]:
    """The values that code names: global ones, and those of modules."""
    found = {name: names[name] for name in code.co_names if name in names}
    for module in [value for value in found.values() if isinstance(value, types.ModuleType)]:
        found |= {f"{module.__name__}.{name}": vars(module)[name] for name in code.co_names if name in vars(module)}
    for inner in code.co_consts:
        found |= _used(inner, names) if isinstance(inner, types.CodeType) else {}
    return found


# A process that was forked while another thread compiled would wait for that thread, which it does not have.
os.register_at_fork(
    before=global_compiler_lock.acquire,
    after_in_parent=global_compiler_lock.release,
    after_in_child=global_compiler_lock.release,
)
