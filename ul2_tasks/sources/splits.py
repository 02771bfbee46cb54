"""Splits one corpus in two, by a hash of each document."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import numbers
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ul2_tasks.sources.base import RecordSource
from ul2_tasks.sources.files import Shard
from ul2_tasks.sources.records import Record


def hash_fraction(id: bytes) -> float:
    """A number in [0, 1) that depends on a document's id or text alone: the first 64 bits of its SHA-256, over 2**64.

    >>> hash_fraction(b"a") == 0xCA978112CA1BBDCA / 2**64
    True
    """
    return id_hash(id) / 2**64


def id_hash(id: bytes) -> int:
    """The first 64 bits of the SHA-256 of a document's id or text."""
    return int.from_bytes(hashlib.sha256(id).digest()[:8], "big")


def conversation_key(conversation: object) -> bytes:
    """What is hashed of a conversation, a value or JSON of one: its content, the same in each file format and order of keys.

    Parquet adds nulls for what other records have, and fractions to their integers. A text that is no JSON stays.

    >>> conversation_key(b'[{"b": null, "a": 1.0}]') == conversation_key([{"a": 1, "c": []}]) == b'[{"a": 1}]'
    True
    """
    value = _held(conversation)
    if isinstance(value, bytes):
        return value
    if isinstance(value, Mapping):  # of which the messages, too, may be a text
        value = {key: _held(item) for key, item in value.items()}
    try:
        return json.dumps(_bare(value), sort_keys=True, default=str).encode()
    except RecursionError:  # no messages are so deep
        return b""


def _held(value: object) -> object:
    """What a text of JSON holds, if that is a list or an object; any other value as it is."""
    try:
        parsed = json.loads(value) if isinstance(value, str | bytes) else None
    except (ValueError, RecursionError):
        parsed = None
    return parsed if isinstance(parsed, list | dict) else value


def _bare(value: object) -> object:
    if isinstance(value, Mapping):
        found = {str(key): _bare(item) for key, item in value.items()}
        return {key: item for key, item in found.items() if item is not None and item not in ([], {})}
    if isinstance(value, np.ndarray | np.generic):  # of a dataset that a function of the user makes
        return _bare(value.tolist())
    if isinstance(value, list | tuple):
        return list(map(_bare, value))
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_fraction(validation: float) -> None:
    """Raises a ValueError unless it is a fraction in [0, 1)."""
    if not (isinstance(validation, numbers.Real) and 0 <= validation < 1):
        raise ValueError(f"validation must be a fraction in [0, 1), got {validation!r}.")


class HashSplit(RecordSource):
    """The split `train` of a source, split in two, `train` and `validation`, by a hash of each document's id or text.

    Nothing else decides where a document goes: not the machine, the order, the files, nor the other documents. Either split
    reads the whole corpus to find its own documents; in a cache they are apart.
    """

    def __init__(
        self,
        source: RecordSource,
        validation: float,
        *,
        text_key: str = "text",
        id_key: str | None = None,
        as_json: bool = False,
    ):
        """Reads the split `train` of a source. `validation` is in [0, 1).

        The id is hashed; without `id_key` the text is. Of conversations (`as_json`) it is the `conversation_key` of the text.
        """
        check_fraction(validation)
        if id_key not in (None, source.id_key):
            raise ValueError(
                f"id_key must be that of the source, {source.id_key!r} of {source!r}, got {id_key!r}. See"
                " docs/help/troubleshooting.md#a-field-is-missing."
            )
        super().__init__(("train", "validation"), text_key, id_key)
        self.inner, self._validation = source, validation
        self._by_conversation = as_json and id_key in (None, text_key)

    def __repr__(self) -> str:
        return self._around(repr(self.inner)) or ""

    @property
    def identity(self) -> str | None:
        return self._around(self.inner.identity)

    @property
    def read_as(self) -> str | None:
        return self._around(self.inner.read_as)

    def reads(self, split: str) -> str | None:
        return self._around(self.inner.reads("train"))

    def _around(self, inner: str | None) -> str | None:
        """What it is in words, with those of the source that it splits."""
        key = "" if self.id_key is None else f", id_key={self.id_key!r}"
        key += ", as_json=True" if self._by_conversation else ""
        return inner and f"HashSplit({inner}, {self._validation}{key})"

    def check_splits(self) -> None:
        """Raises a ValueError where the source has its own split `validation`, which nobody would read. May open the source."""
        if "validation" in self.inner.splits:
            raise ValueError(
                f"validation must be left out for a source with a split 'validation', got {self._validation} for {self.inner!r},"
                f" which has {sorted(self.inner.splits)}. Leave it out, or pass the documents of `train` alone."
            )

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """Both splits: one reading gives both."""
        return [("train", "validation")]

    @property
    def any_number_of_shards(self) -> bool:
        return self.inner.any_number_of_shards

    def shards(self, split: str, at_least: int = 0) -> Sequence[Shard]:
        """Those of the source, each of which has documents of both splits. One with its own split `validation` is refused."""
        self.check_splits()
        return [dataclasses.replace(shard, split=split) for shard in self.inner.shards("train", at_least)]

    def contents(self, split: str) -> str:
        return self.inner.contents("train")

    def files(self, split: str) -> list[str]:
        return self.inner.files("train")

    def stamps(self, split: str) -> dict[str, str]:
        return self.inner.stamps("train")

    def bytes_of(self, shard: Shard) -> int | None:
        return self.inner.bytes_of(_of_train(shard))

    def rows_of(self, shard: Shard, records: int, last: object) -> int:
        return self.inner.rows_of(_of_train(shard), records, last)

    def read(self, shard: Shard) -> Iterator[Record]:
        return (record for split, record in self.read_group(shard) if split == shard.split)

    def read_group(self, shard: Shard) -> Iterator[tuple[str, Record]]:
        return map(self._assigned, self.inner.read(_of_train(shard)))

    def _assigned(self, record: Record) -> tuple[str, Record]:
        """The split of a record, and the record, which is a problem where it lacks the id that is wanted."""
        key = record.id if self.id_key else record.text if record.value is None else record.value
        if self.id_key and not record.id and not record.problem:
            record = record._replace(problem=f"a document has no {self.id_key!r}, its id")
        hashed = conversation_key(key) if self._by_conversation or not isinstance(key, bytes) else key
        return "validation" if hash_fraction(hashed) < self._validation else "train", record


def _of_train(shard: Shard) -> Shard:
    return dataclasses.replace(shard, split="train")
