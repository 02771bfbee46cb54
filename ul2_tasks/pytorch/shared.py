"""Integers that the copies of an object in workers share, whether they are forked or spawned."""

from __future__ import annotations

import copy
import ctypes
import multiprocessing
from collections.abc import Iterable
from typing import Any, TypeVar

Shared = TypeVar("Shared")


class SharedIntegers:
    """Integers in memory that workers share. Any other copy has its own."""

    def __init__(self, values: Iterable[int]):
        self._values = multiprocessing.RawArray(ctypes.c_int64, list(values))

    def __getitem__(self, which: Any) -> Any:
        return self._values[which]

    def __setitem__(self, which: Any, values: Any) -> None:
        self._values[which] = values

    def __getstate__(self) -> dict[str, Any]:
        return {"_values": self._values if starts_worker() else list(self._values)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        values = state["_values"]
        self._values = multiprocessing.RawArray(ctypes.c_int64, values) if isinstance(values, list) else values


def for_copy(shared: Shared) -> Shared:
    """What the copy of an object has that holds shared integers: the same in a worker that is started, else its own."""
    return shared if starts_worker() else copy.deepcopy(shared)


def starts_worker() -> bool:
    """Whether a process is being started, to which what is pickled now is sent."""
    return multiprocessing.context.get_spawning_popen() is not None
