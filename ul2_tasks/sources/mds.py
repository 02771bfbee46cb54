"""Shards of MosaicML Streaming, `.mds`: records of columns that the shard itself describes.

A shard, little-endian, has the number n of its records, uint32; at which byte each begins, and the last ends, [n + 1] uint32; the
names, encodings and sizes of its columns, in JSON; and the records. A record has the size of each column that varies, uint32, and
then the values of all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from ul2_tasks.files.opening import CorruptFileError
from ul2_tasks.files.systems import place, read, sizes
from ul2_tasks.sources.files import At, Layout, Rows, Shard

INDEX = "index.json"
_DTYPES = {8: "u1", 9: "i1", 16: "<u2", 17: "<i2", 32: "<u4", 33: "<i4", 64: "<u8", 65: "<i8"}


def mds_rows(file: BinaryIO, shard: Shard, layout: Layout) -> Rows:
    """The records of a shard, which are counted from 0, with the columns that are read."""

    def taken(count: int) -> bytes:
        if len(found := file.read(count)) < count:
            raise EOFError("it ends before its records do")
        return found

    (count,) = np.frombuffer(taken(4), "<u4").tolist()
    ends = np.frombuffer(taken(4 * count + 4), "<u4").tolist()
    try:
        said = json.loads(taken(ends[0] - 4 * count - 8))
        columns = [*zip(said["column_names"], said["column_encodings"], said["column_sizes"], strict=True)]
    except (ValueError, LookupError, TypeError) as error:
        raise CorruptFileError(f"it does not say its columns: {error!r}") from error
    for row in range(count):
        record = taken(ends[row + 1] - ends[row])
        varying = sum(size is None for _, _, size in columns)
        lengths, place, values = iter(np.frombuffer(record, "<u4", varying).tolist()), 4 * varying, {}
        for name, encoding, size in columns:
            stop = place + (next(lengths) if size is None else size)
            if layout.wants(name):
                values[name] = _value(encoding, record[place:stop])
            place = stop
        if place != len(record):
            raise CorruptFileError(f"record {row} has other bytes than its columns")
        yield At(f"{shard.path}, record {row}", row), values
    if file.read(1):
        raise CorruptFileError("other bytes follow its records")


def _value(encoding: str, value: bytes) -> Any:
    """A text, bytes, an integer, or an array of one dimension; None of another encoding."""
    kind, _, rest = encoding.partition(":")
    if kind in ("str", "bytes"):
        return value
    if kind == "int":
        return int.from_bytes(value, "little", signed=True)
    if kind != "ndarray":
        return None
    dtype, _, shape = rest.partition(":")
    if not dtype:
        dtype, value = _DTYPES.get(value[0], "f8"), value[1:]
    if not shape:  # of which the number of dimensions and the size of each are said before the values
        value = value[1 + (value[0] >> 2) * (1 << (value[0] & 3)) :]
    return np.frombuffer(value, np.dtype(dtype).newbyteorder("<"))


def with_shards(paths: list[str]) -> list[str]:
    """The paths, of which each index of shards stands for those that it lists, in its order, and no other file of its folder.

    Raises a ValueError where one of these is not among the paths, or has another size.
    """
    indexes = {path: listed for path in paths if os.path.basename(path) == INDEX and (listed := _listed(path))}
    folders, found = {os.path.dirname(path) for path in indexes}, dict[str, int | None]()
    all_present = {*paths}
    for path in paths:
        if os.path.dirname(path) not in folders:
            found[path] = None
        for shard in indexes.get(path, ()):
            files = [file for file in (shard.get("zip_data"), shard.get("raw_data")) if file]
            own = {place(os.path.dirname(path), file["basename"]): file["bytes"] for file in files}
            if not (present := own.keys() & all_present):
                raise ValueError(f"{path} must list files that are there, but {' or '.join(own)} is not. Copy the folder again.")
            found |= {min(present): own[min(present)]}
    expected = {path: size for path, size in found.items() if size is not None}
    for path, size in zip(expected, sizes([*expected])):
        if size != expected[path]:
            raise ValueError(f"{path} must have {expected[path]} bytes, as its {INDEX} says, got {size}. Copy both again.")
    return [*found]


def _listed(path: str) -> list[Mapping[str, Any]]:
    """The shards that an index lists; none of a file that is no index of shards."""
    try:
        found = json.loads(read(path))["shards"]
        return found if all(file["basename"] and file["bytes"] for shard in found for file in [shard["raw_data"]]) else []
    except (ValueError, LookupError, TypeError):
        return []
