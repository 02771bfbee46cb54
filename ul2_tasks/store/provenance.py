"""Where each document of a token store is from: tables beside its pairs of files, see `Provenance`.

Beside PREFIX.bin and PREFIX.idx is PREFIX.origins.arrow, a file of Arrow's IPC format with a row for each document of the pair, in
its order: `row` int64, `id` string, empty where the record has none, and `hash` uint64. The schema's metadata have `file`, which
all of them are from; or, of a pair that was made of several files, `files`, a list in JSON, and a column `file` int32 says which.
A table takes 20 bytes a document beside the ids, or 24, and is memory-mapped.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.files.systems import infos_of_present, is_local, parallel_map, read
from ul2_tasks.store.write import HashedFile

if TYPE_CHECKING:
    import pyarrow as pa

TABLE = "origins.arrow"  # what the name of a table ends with
_ROWS_AT_A_TIME = 1 << 16  # of a record batch
_ROWS_SEARCHED = 1 << 22  # at a time: what is looked for is hashed for each
_ROW_BITS = 40  # of a row, below the number of its file


class Origin(NamedTuple):
    """Where a document is from.

    Attributes:
        file: the file, as the source spelled it; or the name of the shard of a source without files; "" of records in memory.
        row: of text and JSON Lines the line, from 1; of Parquet and Arrow the row in the file, from 0; of others its number.
        id: the record's own; "" where it has none.
        hash: of its text, 64 bits, see `hash_of`; 0 where it is not known.
    """

    file: str
    row: int
    id: str
    hash: int

    def __str__(self) -> str:
        """In words.

        >>> str(Origin("web-0003.jsonl.zst", 1234, "77f2", 0))
        'web-0003.jsonl.zst, row 1,234, id 77f2'
        """
        return ", ".join([*([self.file] if self.file else []), f"row {self.row:,}", *([f"id {self.id}"] if self.id else [])])


class Found(NamedTuple):
    """Documents that were looked for, [n] int64, ascending, and which of the values that were given each has, [n] int64."""

    documents: np.ndarray
    which: np.ndarray


def hash_of(text: bytes) -> int:
    """The hash of a document's text: BLAKE2b of 8 bytes, as a number.

    >>> f"{hash_of(b'a text'):016x}" == hashlib.blake2b(b"a text", digest_size=8).hexdigest()
    True
    """
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def hashes_of(texts: Iterable[bytes]) -> np.ndarray:
    """`hash_of` of each, [n] uint64."""
    return np.frombuffer(b"".join([hashlib.blake2b(text, digest_size=8).digest() for text in texts]), ">u8").astype(np.uint64)


class TableWriter:
    """Writes the table of a pair, of one file, or of the list of those that it was made of.

    There is no table where there is no document, as there is no pair.

    with TableWriter(path, "web-0003.jsonl.zst") as table:
        table.add(np.array([1, 3]), [b"77f2", b"77f3"], hashes_of([b"a text", b"another"]))
    entry = table.entry

    At the end of the block `entry` has the "bytes" and "sha256"; it is None where there is no document.
    """

    def __init__(self, path: str, file: str | Sequence[str]):
        self._path, self._about = path, file
        self._waiting: list[pa.RecordBatch] = []
        self._count = 0
        self._file: HashedFile | None = None
        self._writer: pa.RecordBatchFileWriter | None = None
        self.entry: dict[str, int | str] | None = None

    def add(self, rows: np.ndarray, ids: Sequence[bytes], hashes: np.ndarray, files: np.ndarray | None = None) -> None:
        """Adds documents, with the numbers of their files in the list, if it is one.

        Ids are texts in UTF-8; of others the bytes that are not are escaped.
        """
        import pyarrow as pa

        columns = [_integers(rows.astype(np.int64)), _strings(ids), _integers(hashes.astype(np.uint64))]
        columns += [] if files is None else [_integers(files.astype(np.int32))]
        self._waiting.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._count += len(rows)
        while self._count >= _ROWS_AT_A_TIME:
            self._write(_ROWS_AT_A_TIME)

    def _write(self, rows: int) -> None:
        import pyarrow as pa

        if self._writer is None:
            self._file = HashedFile(self._path)
            self._writer = pa.ipc.new_file(pa.PythonFile(self._file, mode="w"), self._schema)
        table = pa.Table.from_batches(self._waiting, self._schema)
        for batch in table.slice(0, rows).combine_chunks().to_batches():
            self._writer.write_batch(batch)
        self._waiting = table.slice(rows).to_batches()
        self._count -= rows

    @cached_property
    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        fields = [pa.field("row", pa.int64(), False), pa.field("id", pa.string(), False), pa.field("hash", pa.uint64(), False)]
        if isinstance(self._about, str):
            return pa.schema(fields, metadata={"file": self._about.encode(errors="backslashreplace")})
        return pa.schema([*fields, pa.field("file", pa.int32(), False)], metadata={"files": json.dumps([*self._about])})

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None and self._count:
            self._write(self._count)
        if self._writer is None or self._file is None:
            return
        if kind is None:
            self._writer.close()
            self.entry = self._file.entry
        self._file.close()


def add_origins(table: TableWriter, files: Sequence[str], origins: Sequence[Origin]) -> None:
    """Adds documents of these files to a table, by their origins."""
    numbers = {file: number for number, file in enumerate(files)}
    rows, hashes = np.array([origin.row for origin in origins], np.int64), np.array([origin.hash for origin in origins], np.uint64)
    of_each = np.array([numbers[origin.file] for origin in origins], np.int32)
    table.add(rows, [origin.id.encode() for origin in origins], hashes, of_each)


class Table(NamedTuple):
    """Where the documents of a pair are from.

    Attributes:
        path: of the table; "" of a pair without one, whose documents are known by the pair's own prefix, `file`, and their number.
        file: what all of them are from; "" where the table says it of each.
        before: what is added to the rows, which may count from the middle of the file.
        documents: how many there are.
        sha256: of the table, where it is known: another one for one that was written anew.
    """

    path: str
    file: str
    before: int
    documents: int
    sha256: str = ""


@dataclasses.dataclass(frozen=True)
class Provenance:
    """Where the documents of a split are from, by their numbers in the order of the cache; and which documents are from where.

    Tables are opened when something of them is asked for. A search reads each table once, a part at a time.
    """

    tables: tuple[Table, ...]

    def of(self, documents: Sequence[int] | np.ndarray) -> list[Origin]:
        """The origins of documents, by their numbers in any order."""
        numbers = np.asarray(documents, np.int64).reshape(-1)
        if len(wrong := numbers[(numbers < 0) | (numbers >= len(self))]):
            raise IndexError(f"documents must be from 0 to {len(self) - 1}, got {wrong[0]}.")
        pairs = np.searchsorted(self._borders, numbers, side="right") - 1
        found: list[Origin] = [Origin("", 0, "", 0)] * len(numbers)
        for pair in np.unique(pairs).tolist():
            places, table = np.flatnonzero(pairs == pair), self.tables[pair]
            for place, origin in zip(places.tolist(), _origins(table, numbers[places] - self._borders[pair])):
                found[place] = origin
        return found

    def __len__(self) -> int:
        """How many documents there are."""
        return int(self._borders[-1])

    @property
    def hashes(self) -> np.ndarray:
        """The hashes of all documents, [documents] uint64, which takes 8 bytes each."""
        return np.concatenate([np.zeros(0, np.uint64), *parallel_map(_hashes, self.tables)])

    @property
    def has_ids(self) -> bool:
        """Whether ids and hashes are recorded of some documents."""
        return any(table.path for table in self.tables)

    @property
    def files(self) -> list[str]:
        """The files of all documents."""
        return list(dict.fromkeys(itertools.chain(*(_files(table)[0] for table in self.tables))))

    def with_ids(self, ids: Sequence[str]) -> Found:
        """The documents that have one of these ids."""
        return self._search("id", [id.encode(errors="backslashreplace") for id in ids])

    def with_hashes(self, hashes: Sequence[int] | np.ndarray) -> Found:
        """The documents whose text has one of these hashes, see `hash_of`."""
        return self._search("hash", np.asarray(hashes, np.uint64))

    def in_files(self, files: Sequence[str]) -> Found:
        """The documents of files, each by its path, or by the last parts of it, such as its name alone."""
        parts, meant = [], _meant_by(files)
        for pair, table in enumerate(self.tables):
            names, numbers = _files(table)
            for number, name in enumerate(names):
                for which in meant(name):
                    places = np.arange(table.documents) if numbers is None else np.flatnonzero(numbers == number)
                    parts.append((self._borders[pair] + places, np.full(len(places), which)))
        return _joined(parts)

    def in_rows(self, rows: Sequence[tuple[str, int]]) -> Found:
        """The documents of rows, (file, row) each, with files as in `in_files`."""
        parts, meant = [], _meant_by([file for file, _ in rows])
        for pair, table in enumerate(self.tables):
            names, numbers = _files(table)
            asked = [
                (number << _ROW_BITS | rows[which][1] - table.before, which)
                for number, name in enumerate(names)
                for which in meant(name)
                if 0 <= rows[which][1] - table.before < 1 << _ROW_BITS
            ]
            if asked:
                wanted, own = np.array(sorted(asked), np.int64).T
                held = _rows(table) if numbers is None else numbers.astype(np.int64) << _ROW_BITS | _rows(table)
                first = np.searchsorted(wanted, held)
                counts = np.searchsorted(wanted, held, "right") - first
                places = np.repeat(np.flatnonzero(counts), counts[counts > 0])
                starts = np.cumsum(counts) - counts
                which = own[np.arange(len(places)) + np.repeat((first - starts)[counts > 0], counts[counts > 0])]
                parts.append((self._borders[pair] + places, which))
        return _joined(parts)

    def _search(self, column: str, values: Sequence | np.ndarray) -> Found:
        parts = parallel_map(functools.partial(_matches, column=column, values=values), self.tables) if len(values) else []
        return _joined([(border + documents, which) for border, (documents, which) in zip(self._borders, parts)])

    @cached_property
    def _borders(self) -> np.ndarray:
        """The first document of each pair, and at the end how many there are."""
        return np.concatenate([[0], np.cumsum(np.array([table.documents for table in self.tables], np.int64))]).astype(np.int64)

    def __reduce__(self) -> tuple:
        return Provenance, (self.tables,)


_NONE = np.zeros(0, np.int64)


def is_file(path: str, given: str) -> bool:
    """Whether a file is meant by a path, or by the last parts of one.

    >>> [is_file("corpus/web/a.jsonl", given) for given in ("a.jsonl", "web/a.jsonl", "./corpus/web/a.jsonl", "b/a.jsonl", "")]
    [True, True, True, False, False]
    """
    given = posixpath.normpath(given) if given and is_local(given) else given
    return bool(given) and (path == given or (path.endswith(f"/{given.lstrip('/')}") and not given.startswith("/")))


def _meant_by(files: Sequence[str]) -> Callable[[str], list[int]]:
    """A function that gives the numbers of those that mean a path, see `is_file`, without looking at each."""
    by_name: dict[str, list[int]] = {}
    for number, file in enumerate(files):
        by_name.setdefault(posixpath.basename(posixpath.normpath(file)), []).append(number)
    return lambda path: [number for number in by_name.get(posixpath.basename(path), ()) if is_file(path, files[number])]


def provenance_of_pairs(prefixes: Sequence[str], documents: Sequence[int]) -> Provenance:
    """Where the documents of pairs of files are from that no manifest of a cache lists: by their tables, where they have them."""
    paths = [f"{prefix}.{TABLE}" for prefix in prefixes]
    present = [found is not None for found in infos_of_present(paths)]
    files = parallel_map(_file_of, [path for path, is_there in zip(paths, present) if is_there])
    named = iter(files)
    tables = [
        Table(path, next(named), 0, count) if is_there else Table("", prefix, 0, count)
        for prefix, path, is_there, count in zip(prefixes, paths, present, documents)
    ]
    return Provenance(tuple(tables))


def _integers(values: np.ndarray) -> pa.Array:
    """An array as Arrow has it. `pyarrow.array` would import pandas, which takes longer than a shard."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _strings(encoded: Sequence[bytes]) -> pa.Array:
    """Texts as Arrow has them; see `_integers`."""
    import pyarrow as pa

    try:
        b"\0".join(encoded).decode()
    except UnicodeDecodeError:
        encoded = [text.decode(errors="backslashreplace").encode() for text in encoded]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    return pa.Array.from_buffers(pa.string(), len(encoded), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))])


def _joined(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> Found:
    documents, which = zip((_NONE, _NONE), *parts)
    found = Found(np.concatenate(documents).astype(np.int64), np.concatenate(which).astype(np.int64))
    order = np.lexsort((found.which, found.documents))
    return Found(found.documents[order], found.which[order])


def _origins(table: Table, numbers: np.ndarray) -> Iterator[Origin]:
    if not table.path:
        return (Origin(table.file, number, "", 0) for number in numbers.tolist())
    found = _opened(table.path, table.sha256, table.documents).take(_integers(numbers))
    names, _ = _files(table)
    files = [names[number] for number in found["file"].to_pylist()] if "file" in found.column_names else names * len(found)
    columns = (found[name].to_pylist() for name in ("row", "id", "hash"))
    return (Origin(file, table.before + row, id, hash) for file, row, id, hash in zip(files, *columns))


def _files(table: Table) -> tuple[list[str], np.ndarray | None]:
    """The files of a table, and which each document is from; None where there is one."""
    if table.file or not table.path:
        return [table.file], None
    found = _opened(table.path, table.sha256, table.documents)
    names = (found.schema.metadata or {}).get(b"files")
    return ([""], None) if names is None else (json.loads(names), found["file"].to_numpy())


def _hashes(table: Table) -> np.ndarray:
    if not table.path:
        return np.zeros(table.documents, np.uint64)
    return _opened(table.path, table.sha256, table.documents)["hash"].to_numpy()


def _rows(table: Table) -> np.ndarray:
    """The rows as the table has them, ascending."""
    if not table.path:
        return np.arange(table.documents)
    return _opened(table.path, table.sha256, table.documents)["row"].to_numpy()


def _matches(table: Table, column: str, values: Sequence | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The documents of a pair that have one of these values in a column, and which."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = [(_NONE, _NONE)]
    if table.path:
        found = _opened(table.path, table.sha256, table.documents)[column]
        wanted = _strings(list(values)) if pa.types.is_string(found.type) else _integers(np.asarray(values, np.uint64))
        for first in range(0, len(found), _ROWS_SEARCHED):  # so that no more than the matches of these are in memory
            index = pc.index_in(found.slice(first, _ROWS_SEARCHED), wanted)
            if index.null_count < len(index):
                places = np.flatnonzero(index.is_valid().to_numpy())
                parts.append((first + places, index.drop_null().to_numpy().astype(np.int64)))
    documents, which = zip(*parts)
    return np.concatenate(documents), np.concatenate(which)


@functools.lru_cache(maxsize=64)
def _opened(path: str, sha256: str, documents: int) -> pa.Table:
    """A table, memory-mapped where it is a local file. Raises a ValueError where it is not of so many documents."""
    import pyarrow as pa

    del sha256  # under another one it is another table
    try:
        source = pa.memory_map(path) if is_local(path) else pa.BufferReader(read(path))
        found = pa.ipc.open_file(source).read_all()
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} must be a table of Arrow, got another file: {error}. Write the cache again.") from error
    held = {field.name: str(field.type) for field in found.schema}
    if len(found) != documents or not {"row": "int64", "id": "string", "hash": "uint64"}.items() <= held.items():
        raise ValueError(
            f"{path} must have the rows, ids and hashes of {documents} documents, got {len(found)} of {held}. Write the"
            " cache again."
        )
    return found


def documents_in(path: str) -> int:
    """How many documents a table has."""
    import pyarrow as pa

    with pa.memory_map(path) if is_local(path) else pa.BufferReader(read(path)) as source:
        reader = pa.ipc.open_file(source)
        return sum(reader.get_batch(number).num_rows for number in range(reader.num_record_batches))


def _file_of(path: str) -> str:
    """What a table says that all its documents are from; "" where it says it of each."""
    import pyarrow as pa

    with pa.memory_map(path) if is_local(path) else pa.BufferReader(read(path)) as source:
        return (pa.ipc.open_file(source).schema.metadata or {}).get(b"file", b"").decode()
