"""Records of texts and images: in which files they are, and any stretch of them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ul2_tasks.files.kept_counts import beside
from ul2_tasks.files.listing import contents, list_files, local_path, real_path
from ul2_tasks.files.opening import COMPRESSIONS, CORRUPT, is_of_content, is_unreachable
from ul2_tasks.files.retries import retried
from ul2_tasks.files.systems import is_folder, parallel_map
from ul2_tasks.images.paths import folder_of, located
from ul2_tasks.images.problems import sentence_of
from ul2_tasks.imported import is_instance
from ul2_tasks.scalars import digest_of
from ul2_tasks.sources.image_files import FORMATS, Named, Piece, may_hold

_LOOKED_AT = 64  # of records in memory
_OF_FILES = ("image", "images", "image_list", "video")  # the fields that hold images, or paths
_NAMES = f"{' '.join(FORMATS)}, also compressed ({' '.join(COMPRESSIONS)})"


@dataclasses.dataclass(frozen=True)
class Records:
    """Records in pieces.

    A piece can be read from its beginning, such as a row group, and `read` gives its records from one of them on. `what` is another
    text if there are other files, or other numbers of records; `content` gives another one where files of these names, or records
    of this number, have another content. `folder` is that of the first file, if they are files, and `root` is what all of their
    paths begin with, up to a folder.
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
        named = [number for number, piece in enumerate(self.pieces) if may_hold(piece, name)]
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
    check_no_dataset(files)
    paths = list(dict.fromkeys(itertools.chain(*map(_listed, [files] if isinstance(files, str | os.PathLike) else files))))
    if not paths:
        raise ValueError("files must be paths, globs or folders, got none.")
    stamped = contents(paths)  # before they are read: what is changed meanwhile is another file then
    pieces = list(itertools.chain(*parallel_map(_pieces, paths)))
    if not pieces:
        raise ValueError(
            f"files must have at least one record, got none in {len(paths)} files, of which the first is {paths[0]!r}."
        )
    what = f"{len(paths)} files, {sum(piece.records for piece in pieces)} records, {digest_of([tuple(piece) for piece in pieces])}"
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
    starts = range(0, len(records), 64)
    pieces = [Piece(name, start, start, min(64, len(records) - start)) for start in starts]
    what = f"{name}, {len(records)} records"
    return Records(pieces, functools.partial(_read_list, records=records), what, functools.partial(_in_words, records))


def within(records: Records, folder: str) -> Records:
    """The same records, whose paths begin in a folder and stay in it.

    >>> records = within(listed_records([{"image": "a.png"}]), "/images")
    >>> next(records.read(records.pieces[0], 0))
    ('records, record 0', {'image': '/images/a.png'})
    """
    return dataclasses.replace(records, read=functools.partial(_read_within, read=records.read, folder=folder))


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


def check_no_dataset(files: object) -> None:
    """Raises a ValueError for a dataset of Hugging Face's `datasets`, whose images would be decoded."""
    if is_instance(files, "datasets", "Dataset", "IterableDataset"):
        raise ValueError(
            f"files must be paths, globs or folders, got a {type(files).__name__} of the package datasets. Write it with"
            " dataset.to_parquet('records.parquet'), and pass that file."
        )


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


def _listed(pattern: str | os.PathLike) -> list[str]:
    found = list_files(pattern)
    pattern = os.path.expanduser(os.fspath(pattern))
    if not is_folder(pattern):
        return found
    of_records = [path for path in found if _format(path) in FORMATS]
    if not of_records:
        raise ValueError(f"files must be files, a folder or a glob of {_NAMES}, got {pattern!r}, a folder without such files.")
    return of_records


def _format(path: str) -> str:
    """What the name of a file ends with, but for how it is compressed."""
    name, suffix = os.path.splitext(path)
    return (os.path.splitext(name)[1] if suffix in COMPRESSIONS else suffix).lower()


def _pieces(path: str) -> list[Piece]:
    if _format(path) not in FORMATS:
        raise ValueError(f"files must end in one of {_NAMES}, got {path!r}.")
    pieces_of, _ = FORMATS[_format(path)]
    try:
        return pieces_of(path)
    except (*CORRUPT, tarfile.TarError, OSError) as error:
        if is_unreachable(error):
            raise
        raise ValueError(f"{path!r} must be of the format in its name, got another: {error}") from error


def _read_file(piece: Piece, start: int, folder: str | None) -> Iterator[Named]:
    _, read = FORMATS[_format(piece.path)]
    beside = folder_of(piece.path) if folder is None else folder
    for name, record in read(piece, start):
        yield name, record if isinstance(record, ValueError) else record | _located(record, beside, piece.path)


def _read_within(piece: Piece, start: int, read: Callable[[Piece, int], Iterator[Named]], folder: str) -> Iterator[Named]:
    for name, record in read(piece, start):
        yield name, record if isinstance(record, ValueError) else record | _located(record, folder)


def _located(record: Mapping[str, Any], folder: str, record_file: str = "") -> dict[str, Any]:
    """The fields that may hold paths, each of them from the folder on; see `paths.located`."""

    def joined(path: Any) -> Any:
        return located(path, folder, record_file) if isinstance(path, str) and path not in ("", "None") else path

    def whole(value: Any) -> Any:
        is_object = isinstance(value, dict) and not value.get("bytes")
        return value | {"path": joined(value.get("path"))} if is_object else joined(value)

    found = {name: record[name] for name in _OF_FILES if name in record}
    return {name: [*map(whole, value)] if isinstance(value, list) else whole(value) for name, value in found.items()}


def _read_list(piece: Piece, start: int, records: Sequence[Mapping[str, Any]]) -> Iterator[Named]:
    for number in range(piece.start + start, piece.start + piece.records):
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
