"""Requests of remote file systems, which are tried again where they fail: a limited number of times, with growing waits."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

_WAITS = (0.1, 0.4, 1, 3, 8, 20)  # seconds before each further try: an object store that stops for half a minute is no error
# What another try would not change. Each package for fsspec has errors of its own, so all others are tried again.
_LASTING = (
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
    NotImplementedError,
    TypeError,
    ValueError,
)
_random = random.Random()  # of its own, so that no one's sequence of random numbers is another one
_Found = TypeVar("_Found")


class ShortReadError(OSError):
    """A request was answered with fewer bytes than were asked for. Its message says what to do if that does not change."""


def wait_after(failed: int, error: Exception, path: str) -> float:
    """How many seconds to wait after a request for a file has failed that many times; many that failed together wait unequally.

    Raises the error, if another try would not change it, or an OSError that names the file, after the last try.
    """
    if isinstance(error, _LASTING):
        raise error
    if failed <= len(_WAITS):
        return _WAITS[failed - 1] * _random.uniform(0.75, 1.25)
    if isinstance(error, ShortReadError):
        raise error
    said = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    raise OSError(
        f"{path} must answer a request within {failed} tries in {sum(_WAITS):.0f} seconds, got errors, the last of them {said}."
        " Check the object store and the network, then resume. See"
        " docs/help/troubleshooting.md#an-object-store-does-not-answer."
    ) from error


def retried(request: Callable[[], _Found], path: str) -> _Found:
    """The result of a request for a file, see `wait_after`."""
    failed = 0
    while True:
        try:
            return request()
        except Exception as error:
            failed += 1
            time.sleep(wait_after(failed, error, path))
