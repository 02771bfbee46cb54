"""Files that are written whole or not at all: under a temporary name beside their place, and renamed when all is in them."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator

import tensorflow as tf


def write_atomically(path: str | os.PathLike, content: str | bytes) -> None:
    """Writes a temporary file beside the path and then renames it, so that a file at the path is always whole.

    What is there and is neither a file nor a folder, such as /dev/stdout, is written as it is. Raises an OSError or a
    tf.errors.OpError where there is no room, or the path cannot be written. Then nothing is left.
    """
    path = os.fspath(path)
    data = content.encode() if isinstance(content, str) else content
    if "://" not in path and os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        with open(path, "wb") as device:
            device.write(data)
        return
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    with removed_on_failure(temporary):
        with tf.io.gfile.GFile(temporary, "wb") as file:
            file.write(data)
        if (written := tf.io.gfile.stat(temporary).length) != len(data):
            raise OSError(f"{path} has {written} of its {len(data)} bytes: is the disk full?")
        tf.io.gfile.rename(temporary, path, overwrite=True)


@contextlib.contextmanager
def removed_on_failure(*paths: str) -> Iterator[None]:
    """Removes these files if the block raises anything, even a KeyboardInterrupt."""
    try:
        yield
    except BaseException:
        for path in filter(tf.io.gfile.exists, paths):
            tf.io.gfile.remove(path)
        raise
