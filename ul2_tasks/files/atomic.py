"""Files that are written whole or not at all: under a temporary name beside their place, and renamed when all is in them.

An object store needs no temporary name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator

from ul2_tasks.files.systems import exists, is_local, is_of_object_store, move, open_to_write, remove

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def write_atomically(path: str | os.PathLike, content: str | bytes, is_lasting: bool = True) -> None:
    """Writes a file so that what is at the path is always whole.

    For `is_lasting` see `systems.move`.

    What is there and is neither a file nor a folder, such as /dev/stdout, is written as it is.

    Raises:
        OSError: there is no room, or the path cannot be written. Nothing is left.
    """
    path = os.fspath(path)
    data = content.encode() if isinstance(content, str) else content
    if is_local(path) and os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        with open(path, "wb") as device:
            device.write(data)
        return
    if is_of_object_store(path):
        with open_to_write(path) as file:
            file.write(data)
        return
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    with removed_on_failure(temporary, where=path):
        with open_to_write(temporary) as file:
            file.write(data)
        move(temporary, path, is_lasting)


def check_folder_of(path: str) -> None:
    """Raises a ValueError if the folder of a local file is not there. A command calls this before it works for minutes."""
    if is_local(path) and not os.path.isdir(os.path.dirname(path) or "."):
        raise ValueError(f"--output must be in a folder that exists, got {path!r}. Make it, or name another.")


@contextlib.contextmanager
def removed_on_failure(*paths: str, where: str) -> Iterator[None]:
    """Removes these files if the block raises anything, even a KeyboardInterrupt. That there is no room names what is written."""
    try:
        yield
    except BaseException as error:
        for path in filter(exists, paths):
            remove(path)
        if isinstance(error, OSError) and error.errno in _NO_ROOM and error.filename is None:
            raise OSError(error.errno, error.strerror, where) from error
        raise
