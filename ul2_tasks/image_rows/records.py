"""Records of texts and images with random access: in which files they are, and any stretch of them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import pyarrow.parquet as pq

from ul2_tasks.files.kept_counts import beside
from ul2_tasks.files.listing import contents, local_path, real_path
from ul2_tasks.files.opening import COMPRESSIONS, CORRUPT, is_unreachable, open_file
from ul2_tasks.files.retries import retried
from ul2_tasks.files.systems import parallel_map
from ul2_tasks.images.paths import folder_of
from ul2_tasks.images.problems import is_of_content, sentence_of
from ul2_tasks.scalars import digest_of
from ul2_tasks.sources.files import Shard
from ul2_tasks.sources.formats import named_format, rows
from ul2_tasks.sources.image_files import WHOLE, plain_name, record_files, with_paths
from ul2_tasks.sources.tar import places_of

_LINES, _SAMPLES, _HELD = 256, 64, 64  # records of a piece
_LOOKED_AT = 64  # of records in memory

Named: TypeAlias = tuple[str, dict[str, Any] | ValueError]


class Piece(NamedTuple):
    """A part of a file that can be read from its beginning, and how many records it has."""

    shard: Shard
    records: int

    @property
    def path(self) -> str:
        return self.shard.path


@dataclasses.dataclass(frozen=True)
class Records:
    """Records in pieces.

    A piece can be read from its beginning, such as a row group, and `read` gives its records from one of them on, each with its
    name, which is its own and stays the same; in the place of one that is wrong there is a ValueError. `what` is another text if
    there are other files, or other numbers of records; `content` gives another one where files of these names, or records of this
    number, have another content. `folder` is that of the first file, if they are files, and `root` is what all of their paths begin
    with, up to a folder.
    """

    pieces: Sequence[Piece]
    read: Callable[[Piece, int], Iterator[Named]] = dataclasses.field(repr=False)
    what: str
    content: Callable[[], str] = dataclasses.field(repr=False, default=str)
    folder: str | None = None
    root: str = ""

    def __len__(self) -> int:
        return sum(piece.records for piece in self.pieces)

    def find(self, name: str) -> tuple[int, int] | None:
        """The number of the piece and the number in it of the record of a name; None if there is no such record.

        Of a sample in a tar its key, in parentheses, may be left out.
        """
        named = [number for number, piece in enumerate(self.pieces) if _may_hold(piece.shard, name)]
        for piece in named[-1:]:  # the others begin before it
            for number, (found, _) in enumerate(self.read(self.pieces[piece], 0)):
                if found == name or found.startswith(f"{name} ("):
                    return piece, number
        return None


def open_records(files: str | os.PathLike | Sequence[str | os.PathLike], folder: str | None = None) -> Records:
    """Opens files of records: Parquet, JSON Lines or WebDataset tar, also compressed.

    It reads the footer of each Parquet file, all of each JSON Lines file, and the header of each file in a tar, to know how many
    records there are.

    Args:
        files: paths, globs and folders, on any file system that fsspec has; see `listing.list_files`. Of a folder
            the files of these formats are taken.
        folder: where the paths in `image`, `images`, `image_list` and `video` begin, and stay, also by links; by default the folder
            of the record's file.

    Raises:
        ValueError: there are no files or no records; a file is not of these formats, or not of the format in its name.
    """
    paths = record_files(files)
    stamped = contents(paths)  # before they are read: what is changed meanwhile is another file then
    pieces = list(itertools.chain(*parallel_map(_pieces, paths)))
    if not pieces:
        raise ValueError(
            f"files must have at least one record, got none in {len(paths)} files, of which the first is {paths[0]!r}."
        )
    told = [(piece.path, piece.shard.start, piece.shard.before, piece.records) for piece in pieces]
    what = f"{len(paths)} files, {sum(piece.records for piece in pieces)} records, {digest_of(told)}"
    folders = sorted({real_path(local_path(folder_of(path) if folder is None else folder)) for path in paths})
    content = functools.partial("{}, folders {}".format, stamped, digest_of(folders))
    return Records(pieces, functools.partial(_read_file, folder=folder), what, content, beside(paths[0]), _root(paths))


def listed_records(records: Sequence[Mapping[str, Any]], name: str = "records") -> Records:
    """Returns records in memory, or in any object with a length that returns record i for `[i]`.

    Args:
        records: at least one.
        name: of all of them; record i is "NAME, record i".

    Raises:
        ValueError: there are no records.

    >>> records = listed_records([{"captions": "a cat"}, {"captions": "a dog"}], "pets")
    >>> list(records.read(records.pieces[0], 1))
    [('pets, record 1', {'captions': 'a dog'})]
    """
    if not len(records):
        raise ValueError("records must have at least one record, got none.")
    starts = range(0, len(records), _HELD)
    pieces = [Piece(Shard(name, start, before=start), min(_HELD, len(records) - start)) for start in starts]
    what = f"{name}, {len(records)} records"
    return Records(pieces, functools.partial(_read_list, records=records), what, functools.partial(_in_words, records))


class Reader:
    """Reads stretches of pieces. One that begins where the last ended, or after it, goes on in the same file.

    The last `whole` pieces are kept in memory instead, for stretches in any order; 0 is for none.
    """

    def __init__(self, records: Records, whole: int = 0):
        self._records = records
        self._kept = functools.lru_cache(maxsize=whole)(self._all_of) if whole else None
        self._piece: int | None = None
        self._at = 0
        self._rest: Iterator[Named] = iter(())

    def read(self, piece: int, start: int, stop: int) -> list[Named]:
        """The records from `start` to `stop` of the piece of this number. A file with fewer than it had is refused."""
        if self._kept:
            return self._kept(piece)[start:stop]
        found = self._records.pieces[piece]
        if piece != self._piece or start < self._at:
            self._piece, self._at, self._rest = piece, start, self._records.read(found, start)
        named = list(itertools.islice(self._rest, start - self._at, stop - self._at))
        if len(named) < stop - start:
            raise ValueError(f"{found.path} must have the records that it had when it was opened, got fewer.")
        self._at = stop
        return named

    def _all_of(self, piece: int) -> list[Named]:
        return Reader(self._records).read(piece, 0, self._records.pieces[piece].records)


def _root(paths: Sequence[str]) -> str:
    """What all paths begin with, up to a folder, as names of records have it.

    >>> _root(["/data/edits/a/0.jsonl", "/data/edits/b/0.jsonl"]), _root(["/data/edits/0.jsonl"]), _root(["s3://b/0.tar"])
    ('/data/edits/', '/data/edits/', 's3://b/')
    """
    common = os.path.commonprefix(paths)  # noqa: RUF071 (which addresses have, too)
    return common[: common.rfind("/") + 1].encode(errors="backslashreplace").decode()


def plainly(value: Any) -> Any:
    """A record with lists for arrays, of which NumPy shows only the ends, and its fields in order."""
    if isinstance(value, Mapping):
        return sorted((str(key), plainly(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return [plainly(each) for each in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _in_words(records: Sequence[Mapping[str, Any]]) -> str:
    """Records in memory by the content of some of them, evenly from the first to the last; another text for others."""
    last = len(records) - 1
    numbers = sorted({last * step // (_LOOKED_AT - 1) for step in range(_LOOKED_AT)})
    return f"contents {digest_of([plainly(records[number]) for number in numbers])}"


def _pieces(path: str) -> list[Piece]:
    """The pieces of a file: row groups, 256 lines, or 64 samples. A compressed one is one piece: it has no middle."""
    try:
        return _PIECES[named_format(path)](path)
    except (*CORRUPT, tarfile.TarError, OSError) as error:
        if is_unreachable(error):
            raise
        raise ValueError(f"{path!r} must be of the format in its name, got another: {error}") from error


def _groups(path: str) -> list[Piece]:
    """The row groups that are not empty."""
    with open_file(path) as file:
        metadata = pq.ParquetFile(file).metadata
        rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    befores = itertools.accumulate(rows, initial=0)
    return [Piece(Shard(path, group, group + 1, before), own) for group, (own, before) in enumerate(zip(rows, befores)) if own]


def _stretches(path: str) -> list[Piece]:
    """Stretches of lines. Those that are blank are no records."""
    pieces, offset = [], 0
    with open_file(path) as file:
        if _is_compressed(path):
            records = sum(1 for line in file if line.strip())
            return [Piece(Shard(path), records)] if records else []
        for number, lines in enumerate(iter(lambda: list(itertools.islice(file, _LINES)), [])):
            if records := sum(1 for line in lines if line.strip()):
                pieces.append(Piece(Shard(path, offset, before=number * _LINES), records))
            offset += sum(map(len, lines))
    return pieces


def _samples(path: str) -> list[Piece]:
    with open_file(path) as file:
        starts = places_of(file, path)
    most = len(starts) if _is_compressed(path) else _SAMPLES
    firsts = range(0, len(starts), most or 1)
    return [Piece(Shard(path, starts[first], before=first), min(most, len(starts) - first)) for first in firsts]


_PIECES: Mapping[str | None, Callable[[str], list[Piece]]] = {"parquet": _groups, "jsonl": _stretches, "tar": _samples}


def _is_compressed(path: str) -> bool:
    return os.path.splitext(path)[1] in COMPRESSIONS


def _may_hold(shard: Shard, name: str) -> bool:
    """Whether a shard is of the file of a record's name, and does not begin after it.

    >>> shards = [Shard("a.jsonl", start, before=before) for start, before in ((0, 0), (7000, 256), (9000, 512))]
    >>> [_may_hold(shard, "a.jsonl, line 257") for shard in shards]
    [True, True, False]
    """
    path = plain_name(f"{shard.path}, ")
    place = re.match(r"(row group|line|sample|record) (\d+)", name[len(path) :]) if name.startswith(path) else None
    if place is None:
        return False
    number = int(place[2]) - (place[1] == "line")
    return shard.start == number if place[1] == "row group" else (shard.before or 0) <= number


def _read_file(piece: Piece, start: int, folder: str | None) -> Iterator[Named]:
    beside = folder_of(piece.path) if folder is None else folder
    for where, record in itertools.islice(rows(piece.shard, WHOLE), start, piece.records):
        yield plain_name(where), record if isinstance(record, ValueError) else with_paths(record, beside, piece.path)


def _read_list(piece: Piece, start: int, records: Sequence[Mapping[str, Any]]) -> Iterator[Named]:
    for number in range(piece.shard.start + start, piece.shard.start + piece.records):
        name = f"{piece.path}, record {number}"
        record = retried(functools.partial(_record_of, records, number), name)
        if isinstance(record, ValueError):
            yield name, record
            continue
        wrong = ValueError(f"a record must be a dictionary, got a value of type {type(record).__name__}.")
        yield name, dict(record) if isinstance(record, Mapping) else wrong


def _record_of(records: Sequence[Mapping[str, Any]], number: int) -> Any:
    """A record; what is wrong with it, where it has an error that is no read that failed."""
    try:
        return records[number]
    except Exception as error:
        if isinstance(error, MemoryError | ImportError) or not is_of_content(error):
            raise
        return ValueError(f"the record cannot be read: {sentence_of(error)}")
