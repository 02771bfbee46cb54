"""Loops over tokens as machine code: Numba compiles them, from functions that are Python."""

from __future__ import annotations

import functools
import os
import pickle
from collections.abc import Callable
from typing import Any

import numba
from numba.core.compiler_lock import global_compiler_lock


def compiled(function: Callable) -> Callable:
    """The function as machine code, which lets other Python threads run meanwhile.

    It is compiled when it is first called, for seconds, and kept beside its file, or in the user's own cache where that folder
    cannot be written. Where neither can, or what is kept cannot be read, each process compiles for itself. The function is of
    arrays and numbers.
    """
    try:
        machine_code = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # there is no folder to keep it in
        machine_code = numba.njit(nogil=True)(function)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        nonlocal machine_code
        try:
            return machine_code(*arguments)
        # It has not run yet: it does nothing that raises these.
        except (OSError, EOFError, pickle.UnpicklingError):
            machine_code = numba.njit(nogil=True)(function)
            return machine_code(*arguments)

    return call


def part_of_compiled(function: Callable) -> Callable:
    """A function that compiled functions call. It is of their file, as old as what is kept of them, or one that never changes."""
    return numba.njit(nogil=True)(function)


# A process that was forked while another thread compiled would wait for that thread, which it does not have.
os.register_at_fork(
    before=global_compiler_lock.acquire,
    after_in_parent=global_compiler_lock.release,
    after_in_child=global_compiler_lock.release,
)
