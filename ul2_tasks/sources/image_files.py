"""Files of records of texts and images, and the paths that these hold."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ul2_tasks.files.listing import list_files
from ul2_tasks.files.opening import COMPRESSIONS
from ul2_tasks.files.systems import is_folder
from ul2_tasks.images.paths import located
from ul2_tasks.sources.dataset_objects import is_dataset
from ul2_tasks.sources.files import Layout

WHOLE = Layout(whole=True)  # each file is of the format that its name ends with
_SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".tar")
_NAMES = f"{' '.join(_SUFFIXES)}, also compressed ({' '.join(COMPRESSIONS)})"
_OF_FILES = ("image", "images", "image_list", "video")  # the fields that hold images, or paths


def record_files(files: str | os.PathLike | Sequence[str | os.PathLike]) -> list[str]:
    """The files that paths, globs and folders name. Of a folder those are taken that are Parquet, JSON Lines or tar.

    Raises a ValueError where there are no files, or one has another format.
    """
    check_no_dataset(files)
    paths = list(dict.fromkeys(itertools.chain(*map(_listed, [files] if isinstance(files, str | os.PathLike) else files))))
    if not paths:
        raise ValueError("files must be paths, globs or folders, got none.")
    if others := [path for path in paths if not _is_of_records(path)]:
        raise ValueError(f"files must end in one of {_NAMES}, got {others[0]!r}.")
    return paths


def with_paths(record: Mapping[str, Any], folder: str, record_file: str = "") -> dict[str, Any]:
    """A record, in which each path of an image or a video begins in a folder, and stays in it; see `paths.located`."""

    def joined(path: Any) -> Any:
        return located(path, folder, record_file) if isinstance(path, str) and path not in ("", "None") else path

    def whole(value: Any) -> Any:
        is_object = isinstance(value, dict) and not value.get("bytes")
        return value | {"path": joined(value.get("path"))} if is_object else joined(value)

    found = {name: record[name] for name in _OF_FILES if name in record}
    return {**record, **{name: [*map(whole, value)] if isinstance(value, list) else whole(value) for name, value in found.items()}}


def check_no_dataset(files: object) -> None:
    """Raises a ValueError for a dataset of Hugging Face's `datasets`, whose images would be decoded."""
    if is_dataset(files):
        raise ValueError(
            f"files must be paths, globs or folders, got a {type(files).__name__} of the package datasets. Write it with"
            " dataset.to_parquet('records.parquet'), and pass that file."
        )


def plain_name(where: object) -> str:
    """The place of a record. Names of files may be any bytes, which Python has as surrogates; those are no Unicode."""
    return str(where).encode(errors="backslashreplace").decode()


def _listed(pattern: str | os.PathLike) -> list[str]:
    found = list_files(pattern)
    pattern = os.path.expanduser(os.fspath(pattern))
    if not is_folder(pattern):
        return found
    of_records = list(filter(_is_of_records, found))
    if not of_records:
        raise ValueError(f"files must be files, a folder or a glob of {_NAMES}, got {pattern!r}, a folder without such files.")
    return of_records


def _is_of_records(path: str) -> bool:
    name, suffix = os.path.splitext(path)
    return (os.path.splitext(name)[1] if suffix in COMPRESSIONS else suffix).lower() in _SUFFIXES
