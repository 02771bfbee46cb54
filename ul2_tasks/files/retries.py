"""Requests of remote file systems, which are tried again where they fail: a limited number of times, with growing waits."""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from ul2_tasks.files.answers import in_short, is_changed, is_lasting, is_refused, without_disguise

_WAITS = (0.1, 0.4, 1, 3, 8, 20)  # seconds before each further try: an object store that stops for half a minute is no error
# A file is not there, or not for this user: these keep their types.
_ABSENT = {
    FileNotFoundError: errno.ENOENT,
    PermissionError: errno.EACCES,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
}
# What another try would not change. Each package for fsspec has errors of its own, so all others are tried again.
_LASTING = (
    *_ABSENT,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
    NotImplementedError,
    TypeError,
    ValueError,
)
_LASTING_NUMBERS = {errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.EOPNOTSUPP}
_SEE = "See docs/guides/operate.md#give-a-stores-address-and-keys."
_random = random.Random()  # of its own, so that no one's sequence of random numbers is another one
_Found = TypeVar("_Found")


class ReadError(OSError):
    """A file could not be read, after all tries: that is neither its end, nor anything that is wrong with what it holds."""


class ShortReadError(ReadError):
    """A request was answered with fewer bytes than were asked for. Its message says what to do if that does not change."""


def wait_after(failed: int, error: Exception, path: str) -> float:
    """How many seconds to wait after a request for a file has failed that many times; many that failed together wait unequally.

    Raises the error, if another try would not change it, or a `ReadError` that names the file, after the last try.
    """
    error = error if "://" not in path else _of_store(error, path)
    if isinstance(error, _LASTING) or getattr(error, "errno", None) in _LASTING_NUMBERS or type(error) is ReadError:
        raise error
    if failed <= len(_WAITS):
        return _WAITS[failed - 1] * _random.uniform(0.75, 1.25)
    if isinstance(error, ShortReadError):
        raise error
    raise ReadError(
        f"{path} must answer a request within {min(failed, len(_WAITS) + 1)} tries in {sum(_WAITS):.0f} seconds, got errors, the"
        f" last of them {in_short(error)}."
        " Check the object store and the network, then resume. See"
        " docs/help/troubleshooting.md#an-object-store-does-not-answer."
    ) from error


def _of_store(error: Exception, path: str) -> Exception:
    """What an error of a remote file system means, in a sentence that names the object, where another try changes nothing."""
    error = without_disguise(error, path)
    if isinstance(error, ReadError) or (isinstance(error, tuple(_ABSENT)) and path in str(error)):
        return error
    said = in_short(error)
    if is_changed(error, path):
        meant: OSError = ReadError(f"{path} was changed while it was read. Let nothing write there, and start again.")
    elif is_refused(error, path):
        meant = PermissionError(
            f"{path} must be open to the keys of this process, got {said}. Give it keys that may read there, and write what is"
            f" written, and that have not expired. {_SEE}"
        )
    elif isinstance(error, FileNotFoundError):
        meant = FileNotFoundError(f"{path} must be there, got {said}. Check its name, and that of its bucket.")
    elif is_lasting(error, path):
        meant = ReadError(f"{path} must be taken by the server, got {said}. Check the address, the region and the keys. {_SEE}")
    else:
        return error
    meant.__cause__ = error
    return meant


def named(error: Exception, path: str) -> OSError:
    """An error of a file system as one that names the file: a `ReadError`, unless the file is not there, or not for this user."""
    if isinstance(error, ReadError):
        return error
    found: OSError = ReadError(f"{path} cannot be read: {type(error).__name__}: {error}")
    for kind, number in _ABSENT.items():
        if isinstance(error, kind):
            if error.filename or path in str(error):
                return error
            found = kind(error.errno or number, error.strerror or str(error), path)
    found.__cause__ = error
    return found


def retried(request: Callable[[], _Found], path: str) -> _Found:
    """The result of a request for a file, see `wait_after`."""
    failed = 0
    while True:
        try:
            return request()
        except Exception as error:
            failed += 1
            time.sleep(wait_after(failed, error, path))


def retried_items(items_from: Callable[[int], Iterator[_Found]], path: str) -> Iterator[_Found]:
    """Yields what `items_from(0)` does. Where that fails, `items_from` the number of the next one goes on, see `wait_after`."""
    number = failed = 0
    while True:
        try:
            for item in items_from(number):
                yield item
                number, failed = number + 1, 0
            return
        except Exception as error:
            failed += 1
            time.sleep(wait_after(failed, error, path))
