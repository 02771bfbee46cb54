"""Documents of the rows of files, of which each is a record.

A record that cannot be read, or a file whose rest cannot, gives a record too, whose `problem` says what is wrong. Only
`check_texts.check_texts` decides whether a problem ends the job or is counted and skipped.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from ul2_tasks.example_features import TEMPLATE_FIELDS
from ul2_tasks.scalars import is_empty
from ul2_tasks.sources.files import ID, MESSAGES, METADATA, Layout, Shard
from ul2_tasks.sources.formats import fields, rows
from ul2_tasks.sources.json_values import as_text, parsed_json

PROBLEM = "problem"  # the name of this feature in a dataset

Item = TypeVar("Item")


class Record(NamedTuple):
    """A document; or, where `problem` is not empty, what is wrong at the place of one, and where that is.

    `id` is the one that the record has, wanted or not; empty where there is none.
    `str(where)` is the place of the document, if it is known, and `where.row` its row, see `At`. `value` is what JSON or Arrow has
    in place of a text, see `Layout.as_json`.

    `unread` are the names of the fields of a conversation's record that nothing reads. With `is_ids` the text is tokenized already:
    it is the bytes of ids, int32. `weights` are those of its tokens in the loss, float32: one for each, or one for all.
    `group` is the value by which it is grouped, and `parts` the records of a group, whose texts are its text, one after the other.
    """

    text: bytes = b""
    id: bytes = b""
    problem: str = ""
    where: object = ""
    value: object = None
    unread: tuple[str, ...] = ()
    is_ids: bool = False
    weights: np.ndarray = np.ones(1, np.float32)
    group: object = None
    parts: tuple[Record, ...] = ()

    @property
    def as_text(self) -> bytes:
        """The document as a text: where it has a value, that as JSON. Raises a ValueError where it is tokenized already."""
        if self.is_ids or self.parts:
            got = "a group of records" if self.parts else "ids of tokens"
            raise ValueError(f"{self.where}: must be a text, got {got}. Read the mixture NAME_mix, or cache it by `ul2 cache`.")
        return self.text if self.value is None else json.dumps(self.value).encode()

    @property
    def size(self) -> int:
        """About how many bytes the document has.

        >>> Record(b"abc").size, Record(value=[{"role": "user", "content": "xyz"}]).size
        (3, 7)
        """
        if self.value is None:
            return len(self.text)
        size, parts = 0, [self.value]
        while parts:
            part = parts.pop()
            if isinstance(part, str | bytes):
                size += len(part)
            elif isinstance(part, Mapping | list):
                parts += part.values() if isinstance(part, Mapping) else part
        return size


def in_lists(items: Iterable[Item], most: int, most_bytes: int, bytes_of: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Lists of at most `most` items, or of fewer once they have so many bytes, so that a list fits into memory.

    >>> list(in_lists(["a", "b", "ccc", "d"], most=2, most_bytes=3, bytes_of=len))
    [['a', 'b'], ['ccc'], ['d']]
    """
    waiting: list[Item] = []
    size = 0
    for item in items:
        waiting.append(item)
        size += bytes_of(item)
        if len(waiting) == most or size >= most_bytes:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def grouped(records: Iterable[Record], layout: Layout) -> Iterator[Record]:
    """The records in groups, where there are such, each with the group for its id; a group that begins again is a problem."""
    if layout.group_by is None:
        yield from records
        return
    seen = set[object]()
    for group, each in itertools.groupby(records, key=lambda record: record.group):
        parts = tuple(each)
        problem, where = next(filter(None, (part.problem for part in parts)), ""), parts[0].where
        if group in seen:
            problem = problem or f"{where}: {group!r} must be in one place, got it again. Sort the records by {layout.group_by!r}"
        seen.add(group)
        text = b"".join(part.text for part in parts)
        yield Record(text, as_id(group), problem, where, parts=parts) if not problem else Record(problem=problem, where=where)


def read(shard: Shard, layout: Layout) -> Iterator[Record]:
    """Yields the documents of a shard, without holding it in memory, or more of it than a group."""
    yield from grouped(_read(shard, layout), layout)


def _read(shard: Shard, layout: Layout) -> Iterator[Record]:
    has_columns = layout.as_json and layout.format in ("parquet", "arrow")  # of which those that are read alone are looked at
    unread = tuple(name for name in fields(shard, layout) or () if name not in layout.read) if has_columns else ()
    is_plain = not (layout.as_json or layout.id_key or layout.loss_weight_key or layout.group_by)
    for where, row in rows(shard, layout):
        if is_plain and type(row) is dict and type(text := row.get(layout.text_key)) is str:
            yield _of_text(text, where, row, layout)
        elif isinstance(row, ValueError):
            yield Record(problem=f"{where}: {row}", where=where if hasattr(where, "row") else "")
        else:
            record = document_of(row, where, layout)
            yield record._replace(unread=unread) if unread else record


def _of_text(text: str, where: object, row: Mapping[str, object], layout: Layout) -> Record:
    """What `document_of` gives for a text without a field for its id, in half the time."""
    try:
        return Record(text.encode(), as_id(row.get(ID)), "", where)
    except UnicodeEncodeError:
        return document_of(row, where, layout)


def document_of(row: Mapping[str, object], where: object, layout: Layout) -> Record:
    """The document in a row of fields. `str(where)` says in error messages which row it is."""
    record, key = _document_of(row, where, layout), layout.loss_weight_key
    if layout.group_by and not record.problem:
        group = row[layout.group_by]
        if not as_id(group):
            return _with_problem(f"{layout.group_by!r} must be a text or an integer, got {group!r:.80}", where, row, layout)
        record = record._replace(group=group)
    if not key or record.problem:
        return record
    try:
        weights = np.asarray(row[key], np.float32)
        is_right = weights.ndim == 0 or (record.is_ids and weights.shape == (len(record.text) // 4,))
        is_right &= bool((np.isfinite(weights) & (weights >= 0)).all())
    except (ValueError, TypeError):  # lists of several lengths; words
        is_right = False
    if not is_right:
        ids = f"one for each of {len(record.text) // 4} ids, or " if record.is_ids else ""
        return _with_problem(
            f"{key!r} must be numbers of at least 0, {ids}one for all tokens, got {row[key]!r:.80}", where, row, layout
        )
    return record._replace(weights=weights.reshape(-1))


def _document_of(row: Mapping[str, object], where: object, layout: Layout) -> Record:
    if missing := layout.missing(row):
        return Record(problem=f"{where}: has no field {missing!r}, only {sorted(row)}", where=where)
    text = row[layout.text_key]
    if layout.as_json and isinstance(text, list | Mapping):
        return _with_id(Record(where=where, value=text), row, layout)
    if isinstance(text, list | np.ndarray) or (isinstance(text, bytes) and layout.dtype):
        if (ids := _ids(text, layout)) is None:
            return _with_problem(f"{layout.text_key!r} must be a text, or a list of integers, got others", where, row, layout)
        return _with_id(Record(ids.tobytes(), where=where, is_ids=True), row, layout)
    if isinstance(text, str):
        try:
            text = text.encode()
        except UnicodeEncodeError as error:
            return _with_problem(f"{layout.text_key!r} is not Unicode, {error.reason}", where, row, layout)
    elif not isinstance(text, bytes):
        kind = "null" if text is None else f"a value of type {type(text).__name__}"
        return _with_problem(f"{layout.text_key!r} must be a text, got {kind}", where, row, layout)
    else:
        try:
            text.decode()
        except UnicodeDecodeError as error:
            return _with_problem(f"is not UTF-8, {error.reason} at byte {error.start}", where, row, layout)
    return _with_id(Record(text, where=where), row, layout)


def _ids(value: Sequence | np.ndarray | bytes, layout: Layout) -> np.ndarray | None:
    """The ids of tokens, [n] int32; one beyond its range is at an end of it. None of what is no list of integers."""
    try:
        found = np.frombuffer(value, layout.dtype) if isinstance(value, bytes) else np.asarray(value)
    except (ValueError, OverflowError):  # bytes of half an id; lists of several lengths
        return None
    if found.shape == (0,):
        return np.zeros(0, np.int32)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        return None
    limits, own = np.iinfo(np.int32), np.iinfo(found.dtype)
    return np.clip(found, max(limits.min, own.min), min(limits.max, own.max)).astype(np.int32)


def _with_id(record: Record, row: Mapping[str, object], layout: Layout) -> Record:
    """The record with its id, if an id is wanted. A text becomes its UTF-8, bytes stay, and an integer becomes its digits.

    A record is a problem where its id is wrong, also if none is wanted; where there is none, if one is wanted. What is in the field
    "id" without anybody having said so is taken for what it is.
    """
    if layout.as_json:
        record = _with_beside(record, row, layout)
    key = layout.own_id_key
    if not key:
        return record._replace(id=as_id(row[ID])) if ID in row else record
    if record.problem:
        return record
    metadata = _metadata(row.get(METADATA)) if layout.as_json else {}
    found = {f"{key!r}": row[key]} if key in row else {}
    found |= {f"{key!r} in {METADATA!r}": metadata[key]} if key in metadata else {}
    if not found and not layout.id_key:
        return record
    if not found:
        return record._replace(problem=f"{record.where}: has no id: neither a field {key!r}, nor one in its {METADATA!r}")
    ids = {}
    for name, id in found.items():
        if id is None or id in ("", b""):
            return record._replace(problem=f"{record.where}: {name} must be an id, got {'null' if id is None else 'an empty one'}")
        if isinstance(id, bool) or not isinstance(id, str | bytes | int):
            kind = type(id).__name__
            return record._replace(
                problem=f"{record.where}: {name} must be a text, bytes or an integer, got a value of type {kind}"
            )
        ids[name] = as_id(id)
    if len({*ids.values()}) > 1:
        both = ", and ".join(f"{name} is {id.decode(errors='replace')!r}" for name, id in ids.items())
        return record._replace(problem=f"{record.where}: must have one id, but {both}")
    return record._replace(id=next(iter(ids.values())))


def _with_beside(record: Record, row: Mapping[str, object], layout: Layout) -> Record:
    """The record of a conversation with the fields that go with its messages, and the names of those that nothing reads."""
    read = layout.read
    unread = tuple(name for name in row if name not in read and not is_empty(row[name]))
    beside = {name: as_text(row[name]) for name in layout.beside if not is_empty(row.get(name))}
    if not beside or record.problem:
        return record._replace(unread=unread)
    beside[MESSAGES] = record.text.decode() if record.value is None else record.value
    for key in (MESSAGES, *TEMPLATE_FIELDS):  # so that a conversation is the same in all formats
        if isinstance(text := beside.get(key), str) and not isinstance(parsed := parsed_json(text), Exception):
            beside[key] = parsed
    return record._replace(value=beside, unread=unread)


def _with_problem(problem: str, where: object, row: Mapping[str, object], layout: Layout) -> Record:
    """What is wrong with a record, and the id that it has."""
    return Record(problem=f"{where}: {problem}", where=where, id=_with_id(Record(), row, layout).id)


def as_id(value: object) -> bytes:
    """An id as bytes, see `_with_id`; none of a value that is no id.

    >>> as_id(17), as_id("a"), as_id(None), as_id(["a"])
    (b'17', b'a', b'', b'')
    """
    if isinstance(value, str):
        return value.encode(errors="backslashreplace")
    if isinstance(value, bool) or not isinstance(value, bytes | int):
        return b""
    return value if isinstance(value, bytes) else str(value).encode()


def _metadata(value: object) -> Mapping[str, object]:
    """The fields of a record's metadata: an object, or a text of JSON of one; none of anything else."""
    parsed = parsed_json(value) if isinstance(value, str | bytes) else value
    return parsed if isinstance(parsed, Mapping) else {}
