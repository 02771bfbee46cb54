"""Files of lines: text, and JSON Lines. Lines are counted from 1, as editors do, and without those before the shard."""

from __future__ import annotations

import codecs
import functools
import itertools
import os
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from ul2_tasks.files.opening import COMPRESSIONS, open_file
from ul2_tasks.sources.files import At, Layout, Rows, Shard
from ul2_tasks.sources.json_values import json_object

_MAX_COUNTED = 1 << 30  # at most so many bytes are read to find the number of a line


class Line(NamedTuple):
    """Where a line is: its number, from 1, within its shard; and the byte of the file at which it begins."""

    shard: Shard
    number: int
    byte: int

    @property
    def row(self) -> int:
        return self.number

    def __str__(self) -> str:
        """The line's number in the file. The lines before the shard are counted for it, unless that is too much to read."""
        return self._named(row_in_file(self))

    @property
    def brief(self) -> str:
        """The same, by its byte where lines would have to be counted."""
        is_known = not self.shard.start or self.shard.before is not None
        return self._named(row_in_file(self) if is_known else None)

    def _named(self, line: int | None) -> str:
        return f"{self.shard.path}, the line at byte {self.byte}" if line is None else f"{self.shard.path}, line {line}"


def row_in_file(where: object) -> int | None:
    """The row of a record in its file; None where it is not known, or too much would have to be read to know it."""
    if isinstance(where, Line) and where.shard.start:
        if where.shard.before is not None:
            return where.shard.before + where.number
        if where.shard.start > _MAX_COUNTED:
            return None
        return _lines_before(where.shard.path, where.shard.start) + where.number
    return getattr(where, "row", None)


@functools.lru_cache(maxsize=1024)
def _lines_before(path: str, start: int) -> int:
    """How many lines of a file begin before the byte `start`."""
    with open_file(path) as file:
        ends, left = 0, start - 1  # the byte before `start` is left out: a line end there begins the line at `start`
        while left > 0 and (block := file.read(min(left, 1 << 22))):
            ends, left = ends + block.count(b"\n"), left - len(block)
    return ends + 1


def ranges(path: str, size: int, length: int) -> list[Shard]:
    """Shards of about equal size, at most `length` bytes each; a single one of a compressed file, which has no middle."""
    if size <= length or os.path.splitext(path)[1] in COMPRESSIONS:
        return [Shard(path)]
    count = -(-size // length)
    bounds = [size * index // count for index in range(count + 1)]
    return [Shard(path, start, stop, before=None) for start, stop in itertools.pairwise(bounds)]


def lines_in(file: BinaryIO, shard: Shard) -> Iterator[tuple[Line, bytes]]:
    """Yields each line that begins in the shard, and where it is. Line ends and a byte order mark are removed."""
    position = shard.start
    if position:
        file.seek(position - 1)
        position += len(file.readline()) - 1  # skips the end of a line that began before, or only "\n" where one begins here
    number = 0
    while shard.stop is None or position < shard.stop:
        line = file.readline()
        if not line:
            return
        number += 1
        text = line if position else line.removeprefix(codecs.BOM_UTF8)
        yield Line(shard, number, position), text.removesuffix(b"\n").removesuffix(b"\r")
        position += len(line)


def text_rows(file: BinaryIO, shard: Shard, layout: Layout) -> Rows:
    """The documents of a text file: its lines, its paragraphs, or all of it."""
    if layout.documents == "file":
        yield At(shard.path, 1), {layout.text_key: file.read().removeprefix(codecs.BOM_UTF8)}
    elif layout.documents == "line":
        yield from ((where, {layout.text_key: line}) for where, line in lines_in(file, shard))
    else:
        for is_blank, lines in itertools.groupby(lines_in(file, shard), key=lambda line: not line[1].strip()):
            if not is_blank:
                wheres, texts = zip(*lines)
                first = wheres[0].number
                yield At(f"{shard.path}, the paragraph at line {first}", first), {layout.text_key: b"\n".join(texts)}


def json_rows(file: BinaryIO, shard: Shard, layout: Layout) -> Rows:
    """The objects of JSON, one a line."""
    return ((where, json_object(line)) for where, line in lines_in(file, shard) if line.strip())
