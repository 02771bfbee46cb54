"""Loops over tokens as machine code: Numba compiles them, from functions that are Python."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic


def compiled(function: Callable) -> Callable:
    """The function as machine code, which lets other Python threads run meanwhile.

    It is compiled when it is first called, for seconds, and kept beside its file, or in the user's own cache where that folder
    cannot be written. Where neither can, or what is kept cannot be read, each process compiles for itself.

    Args:
        function: of arrays and numbers.
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
    """A function that compiled functions of the same file call."""
    return numba.njit(nogil=True)(function)


def address_of(values: np.ndarray) -> int:
    """Where in memory the values of a contiguous array begin, for `values_at`; the array has to live until they were read."""
    return values.__array_interface__["data"][0]


@part_of_compiled
def values_at(address, count, of_dtype):
    """For compiled functions: the `count` values from an address on, which are of the dtype of the array `of_dtype`."""
    return numba.carray(_pointer(address, of_dtype), count)


@intrinsic
def _pointer(typing, address, of_dtype):
    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(of_dtype.dtype)(types.int64, of_dtype), generate
