"""What each source of this package is: one of SeqIO's by its methods, and in `isinstance`, which needs no SeqIO to be used.

Only `get_dataset` imports TensorFlow. What it makes is in `streams`.
"""

from __future__ import annotations

import abc
import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, cast

from ul2_tasks.imported import is_seqio, subclass_of_seqio
from ul2_tasks.sources.files import Shard
from ul2_tasks.sources.records import Record

if TYPE_CHECKING:
    import seqio
    import tensorflow as tf
    from seqio import DataSource as _Base
else:
    _Base = abc.ABC


@subclass_of_seqio("DataSource", "seqio.dataset_providers")
class DataSource(_Base):
    """A base with what SeqIO asks of each source. Of a source whose records nobody has counted, `num_input_examples` is None."""

    def __init__(self, splits: Iterable[str], performs_internal_shuffling: bool = False):
        self._splits = tuple(splits)
        self._performs_internal_shuffling = performs_internal_shuffling

    @property
    def splits(self) -> Sequence[str]:
        return self._splits

    @property
    def caching_permitted(self) -> bool:
        return True

    @property
    def performs_internal_shuffling(self) -> bool:
        return self._performs_internal_shuffling

    @property
    @abc.abstractmethod
    def supports_arbitrary_sharding(self) -> bool:
        """Whether there may be more shards than `list_shards` has."""

    def num_input_examples(self, split: str) -> int | None:
        return None

    def contents(self, split: str) -> str:
        """What the files of a split hold, in words: others once one of them is changed. Empty where there are no files to tell."""
        return ""

    @abc.abstractmethod
    def list_shards(self, split: str) -> Sequence[str]:
        """The names of the shards."""

    def get_dataset(
        self,
        split: str = "train",
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        **unused_kwargs: Any,
    ) -> tf.data.Dataset:
        """See `seqio.DataSource.get_dataset`."""
        return self._as_dataset(split, shuffle, seed, shard_info)

    @abc.abstractmethod
    def _as_dataset(self, split: str, shuffle: bool, seed: int | None, shard_info: seqio.ShardInfo | None) -> tf.data.Dataset:
        """The records of a split."""


class RecordSource(DataSource):
    """A corpus that Python reads, in shards that hosts and workers share out.

    `groups` are the splits that one reading gives. `inner` is the source whose records these are, where there is one.
    """

    inner: seqio.DataSource | None = None

    def __init__(self, splits: Iterable[str], text_key: str = "text", id_key: str | None = None):
        super().__init__(splits)
        self.text_key, self.id_key = text_key, id_key

    @abc.abstractmethod
    def shards(self, split: str, at_least: int = 0) -> Sequence[Shard]:
        """The shards of a split, in the order of the corpus; at least so many, where the source can be read in any number."""

    @abc.abstractmethod
    def read(self, shard: Shard) -> Iterator[Record]:
        """Yields the records of a shard, from its beginning, and the same ones each time."""

    @property
    def groups(self) -> list[tuple[str, ...]]:
        return [(split,) for split in self.splits]

    def read_group(self, shard: Shard) -> Iterator[tuple[str, Record]]:
        """Yields the records of a shard of all splits of its group, each with its split."""
        return ((shard.split, record) for record in self.read(shard))

    def files(self, split: str) -> list[str]:
        """The files that the shards of a split are of; none of a source that reads no files of its own."""
        return []

    def rows_of(self, shard: Shard, records: int, last: object) -> int:
        """How many rows a shard has that was read to its end: so many `records`, and `last` is where a late one is."""
        return records

    def around(self, inner: str) -> str:
        """What it is in words, with those of the inner source."""
        return inner

    def list_shards(self, split: str) -> Sequence[str]:
        return list(map(str, self.shards(split)))

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return False

    def _as_dataset(self, split: str, shuffle: bool, seed: int | None, shard_info: seqio.ShardInfo | None) -> tf.data.Dataset:
        """A dataset of string scalars: the text and the id under their keys, and the problem; see `streams.dataset_of`."""
        from ul2_tasks.sources.streams import dataset_of

        return dataset_of(self, split, shuffle, seed, shard_info)


_Method = TypeVar("_Method", bound=Callable[..., Any])


def kept(method: _Method) -> _Method:
    """A method whose results are kept, by its arguments, as long as the object lives; they do not go along to another process."""
    of_each: weakref.WeakKeyDictionary[Any, dict[tuple, Any]] = weakref.WeakKeyDictionary()

    @functools.wraps(method)
    def call(self: Any, *arguments: Any) -> Any:
        found = of_each.setdefault(self, {})
        if arguments not in found:
            found[arguments] = method(self, *arguments)
        return found[arguments]

    return cast(_Method, call)


def name_of(function: Any) -> str:
    """The name of a function, which may have some of its arguments; as SeqIO has it, since caches know sources by it."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    return type(function).__name__ if isinstance(function, type) else getattr(function, "__name__", "")


def is_source(value: object) -> TypeGuard[seqio.DataSource]:
    """Whether a value is a source, of this package or of SeqIO's kind."""
    return isinstance(value, DataSource) or is_seqio(value, "DataSource")
