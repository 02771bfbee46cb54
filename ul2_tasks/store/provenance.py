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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.files.systems import infos_of_present, is_local, parallel_map, read
from ul2_tasks.store.write import HashedFile

if TYPE_CHECKING:
    import pyarrow as pa

TABLE = "origins.arrow"  # what the name of a table ends with
_ROWS_AT_A_TIME = 1 << 16  # of a record batch, and some more
_MOST_ROWS = 1 << 62  # of a file


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
    digests = b"".join([hashlib.blake2b(text, digest_size=8).digest() for text in texts])
    return np.frombuffer(digests, ">u8").astype(np.uint64)


class TableWriter:
    """Writes the table of a pair, of one file, or of the list of those that it was made of.

    There is no table where there is no document, as there is no pair.

    with TableWriter(path, "web-0003.jsonl.zst") as table:
        table.add(np.array([1, 3]), [b"77f2", b"77f3"], hashes_of([b"a text", b"another"]))
    entry = table.entry

    At the end of the block `entry` has the "bytes" and "sha256"; it is None where there is no document.
    """

    def __init__(self, path: str, file: str | Sequence[str]):
        import pyarrow as pa

        self._file: HashedFile | None = None
        self._path = path
        self._waiting: list[pa.RecordBatch] = []
        fields = {"row": pa.int64(), "id": pa.string(), "hash": pa.uint64()} | (
            {} if isinstance(file, str) else {"file": pa.int32()}
        )
        about = {"file": file.encode(errors="backslashreplace")} if isinstance(file, str) else {"files": json.dumps([*file])}
        self._schema = pa.schema([pa.field(name, kind, False) for name, kind in fields.items()], metadata=about)
        self.entry: dict[str, int | str] | None = None

    def add(self, rows: np.ndarray, ids: Sequence[bytes], hashes: np.ndarray, *files: np.ndarray) -> None:
        """Adds documents, with the numbers of their files in the list, if it is one.

        Ids are texts in UTF-8; of others the bytes that are not are escaped.
        """
        import pyarrow as pa

        columns = rows, [id.decode(errors="backslashreplace") for id in ids], hashes, *files
        self._waiting.append(pa.record_batch(list(map(pa.array, columns, self._schema.types)), self._schema))
        if sum(map(len, self._waiting)) >= _ROWS_AT_A_TIME:
            self._write()

    def _write(self) -> None:
        import pyarrow as pa

        if self._file is None:
            self._file = HashedFile(self._path)
            self._writer = pa.ipc.new_file(pa.PythonFile(self._file, mode="w"), self._schema)
        self._writer.write_table(pa.Table.from_batches(self._waiting).combine_chunks())
        self._waiting = []

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None and any(map(len, self._waiting)):
            self._write()
        if self._file is not None:
            if kind is None:
                self._writer.close()
                self.entry = self._file.entry
            self._file.__exit__(kind, *error)


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
    def has_ids(self) -> bool:
        """Whether ids and hashes are recorded of some documents."""
        return any(table.path for table in self.tables)

    @property
    def files(self) -> list[str]:
        """The files of all documents."""
        return list(dict.fromkeys(itertools.chain(*map(_files, self.tables))))

    def with_ids(self, ids: Sequence[str]) -> Found:
        """The documents that have one of these ids."""
        return self._search({"id": [id.encode(errors="backslashreplace").decode() for id in ids]})

    def in_files(self, files: Sequence[str]) -> Found:
        """The documents of files, each by its path, or by the last parts of it, such as its name alone."""
        return self._search({}, files)

    def in_rows(self, rows: Sequence[tuple[str, int]]) -> Found:
        """The documents of rows, (file, row) each, with files as in `in_files`."""
        return self._search({"row": np.array([min(row, _MOST_ROWS) for _, row in rows], np.int64)}, [file for file, _ in rows])

    def _search(self, values: Mapping[str, Sequence | np.ndarray], files: Sequence[str] | None = None) -> Found:
        """The documents that have the values of one place, and are of the file there, if files are given."""
        import pyarrow as pa

        by_name: dict[str, list[int]] = {}
        for number, file in enumerate(files or ()):
            by_name.setdefault(posixpath.basename(posixpath.normpath(file)), []).append(number)

        def match(table: Table, border: int) -> tuple[np.ndarray, np.ndarray]:
            wanted = pa.table({**values, "which": np.arange(len(next(iter(values.values()), files or ())))})
            if files is not None:
                of_names = enumerate((name, by_name.get(posixpath.basename(name), ())) for name in _files(table))
                meant = [(which, number) for number, (name, own) in of_names for which in own if is_file(name, files[which])]
                which, numbers = np.array(meant, np.int64).reshape(-1, 2).T
                wanted = wanted.take(which).append_column("file", pa.array(numbers, pa.int32()))
            keys, columns = [name for name in wanted.column_names if name != "which"], _columns(table) if len(wanted) else {}
            if not columns.keys() >= {*keys}:
                return np.zeros(0, np.int64), np.zeros(0, np.int64)
            held = pa.table({name: columns[name] for name in keys} | {"document": border + np.arange(table.documents)})
            found = held.join(wanted, keys, join_type="inner")
            return found["document"].to_numpy(), found["which"].to_numpy()

        parts = parallel_map(lambda each: match(*each), zip(self.tables, self._borders.tolist()))
        documents, which = (np.concatenate([np.zeros(0, np.int64), *each]) for each in (zip(*parts) if parts else ((), ())))
        order = np.lexsort((which, documents))
        return Found(documents[order], which[order])

    @cached_property
    def _borders(self) -> np.ndarray:
        """The first document of each pair, and at the end how many there are."""
        return np.concatenate([[0], np.cumsum(np.array([table.documents for table in self.tables], np.int64))]).astype(np.int64)


def is_file(path: str, given: str) -> bool:
    """Whether a file is meant by a path, or by the last parts of one.

    >>> [is_file("corpus/web/a.jsonl", given) for given in ("a.jsonl", "web/a.jsonl", "./corpus/web/a.jsonl", "b/a.jsonl", "")]
    [True, True, True, False, False]
    """
    given = posixpath.normpath(given) if given and is_local(given) else given
    return bool(given) and (path == given or (path.endswith(f"/{given.lstrip('/')}") and not given.startswith("/")))


def provenance_of_pairs(prefixes: Sequence[str], documents: Sequence[int]) -> Provenance:
    """Where the documents of pairs of files are from that no manifest of a cache lists: by their tables, where they have them."""
    paths = [f"{prefix}.{TABLE}" for prefix in prefixes]
    present = [found is not None for found in infos_of_present(paths)]
    readers = iter(parallel_map(_reader, [path for path, is_there in zip(paths, present) if is_there]))
    tables = [
        Table(path, (next(readers).schema.metadata or {}).get(b"file", b"").decode(), 0, count)
        if is_there
        else Table("", prefix, 0, count)
        for prefix, path, is_there, count in zip(prefixes, paths, present, documents)
    ]
    return Provenance(tuple(tables))


def _origins(table: Table, numbers: np.ndarray) -> Iterator[Origin]:
    if not table.path:
        return (Origin(table.file, number, "", 0) for number in numbers.tolist())
    found, names = _opened(table).take(numbers), _files(table)
    files = found["file"].to_pylist() if "file" in found.column_names else [0] * len(found)
    columns = zip(files, *(found[name].to_pylist() for name in ("row", "id", "hash")))
    return (Origin(names[file], table.before + row, id, hash) for file, row, id, hash in columns)


def _files(table: Table) -> list[str]:
    """The files of a table."""
    if table.file or not table.path:
        return [table.file]
    return json.loads((_opened(table).schema.metadata or {}).get(b"files", b'[""]'))


def _columns(table: Table) -> dict[str, Any]:
    """What is known of each document: its row, the number of its file, and its id and hash where there is a table."""
    columns: dict[str, Any] = {"row": np.arange(table.documents), "file": np.zeros(table.documents, np.int32)}
    if table.path:
        columns |= zip(_opened(table).column_names, _opened(table).columns)
    return columns | {"row": np.add(columns["row"], table.before)}


@functools.lru_cache(maxsize=64)
def _opened(table: Table) -> pa.Table:
    """A table, memory-mapped where it is a local file. Raises a ValueError where it is not of so many documents."""
    import pyarrow as pa

    path = table.path
    try:
        found = _reader(path).read_all()
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} must be a table of Arrow, got another file: {error}. Write the cache again.") from error
    held = {field.name: str(field.type) for field in found.schema}
    if len(found) != table.documents or not {"row": "int64", "id": "string", "hash": "uint64"}.items() <= held.items():
        raise ValueError(
            f"{path} must have the rows, ids and hashes of {table.documents} documents, got {len(found)} of {held}. Write the"
            " cache again."
        )
    return found


def documents_in(path: str) -> int:
    """How many documents a table has."""
    reader = _reader(path)
    return sum(reader.get_batch(number).num_rows for number in range(reader.num_record_batches))


def _reader(path: str) -> pa.RecordBatchFileReader:
    import pyarrow as pa

    return pa.ipc.open_file(pa.memory_map(path) if is_local(path) else pa.BufferReader(read(path)))
