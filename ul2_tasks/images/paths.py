"""Paths that records name: they stay in their folder, and no address is asked that the folder is not on."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from urllib.parse import unquote


@dataclasses.dataclass(frozen=True)
class Outside(os.PathLike):
    """A path that leads out of its folder. It raises a ValueError where it is to be opened, and no other field is lost by it.

    `path` is as the record has it, and `folder` where it was to stay.
    """

    path: str
    folder: str

    def __fspath__(self) -> str:
        raise ValueError(
            f"a path must stay within the folder {self.folder!r}, got {self.path!r}. Pass folder=, the folder of the images and"
            " videos."
        )


class Address(str):
    """An address of a file below a folder on the same file system. No other address is read."""


def located(path: str, folder: str, record_file: str = "") -> str | Outside:
    """A path of a record, from its folder on.

    Links are followed: it stays in the folder, or beside the file of the record, where that really lies (a cache of the Hugging
    Face Hub is of links to one folder). On another file system it is below the folder by its name. `record_file` is the file of the
    record; "" for none.

    >>> located("a.png", "/images"), located("../a.png", "/images"), located("https://a.org/b/c.png", "https://a.org/b")
    ('/images/a.png', Outside(path='../a.png', folder='/images'), 'https://a.org/b/c.png')
    """
    folder = re.sub(r"^(file|local)://", "", folder)
    if is_address(folder):
        found = path if is_address(path) else f"{_root(folder)}{path}"
        return Address(found) if not path.startswith("/") and is_below(found, folder) else Outside(path, folder)
    found = os.path.join(folder, path)
    roots = [_real(folder), *([os.path.dirname(_real(record_file))] if record_file and not is_address(record_file) else [])]
    try:
        real = os.path.realpath(found)
    except ValueError:  # a byte of 0, with which nothing can be opened
        return found
    stays = not is_address(path) and any(real.startswith(root.rstrip("/") + "/") for root in roots)
    return found if stays else Outside(path, folder)


def folder_of(file: str) -> str:
    """The folder of a file.

    >>> folder_of("/images/a.jsonl"), folder_of("s3://bucket/a.jsonl"), folder_of("memory://a.jsonl")
    ('/images', 's3://bucket', 'memory://')
    """
    folder = file.rpartition("/")[0]
    return f"{folder}/" if folder.endswith(":/") else folder if is_address(file) else os.path.dirname(file)


def is_address(path: str) -> bool:
    """Whether it is one on a file system that is named, such as https or s3."""
    return "://" in path


def is_below(address: str, folder: str) -> bool:
    """Whether an address is that of a file below a folder on the same file system.

    >>> is_below("s3://a/b/c", "s3://a/b/"), is_below("s3://a/bc", "s3://a/b"), is_below("s3://a/b/%2e%2e/c", "s3://a/b")
    (True, False, False)
    """
    if re.match("(file|local)://", folder):  # where links would lead on
        return False
    address, root = (
        path.replace(":///", "://") for path in (address, _root(folder))
    )  # fsspec writes memory:///a, people memory://a
    rest = unquote(address[len(root) :])
    return is_address(folder) and address.startswith(root) and "::" not in rest and ".." not in rest.replace("\\", "/").split("/")


def _root(folder: str) -> str:
    """An address that those of all files in a folder begin with: that of a whole file system, such as memory://, does so itself."""
    root = folder.rstrip("/")
    return f"{root}//" if root.endswith(":") else f"{root}/"


@functools.lru_cache(maxsize=64)
def _real(path: str) -> str:
    return os.path.realpath(path)
