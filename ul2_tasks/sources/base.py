"""What each source of this package is: documents in splits, which Python reads in shards; and the border where others come in."""

from __future__ import annotations

import abc
import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

from ul2_tasks.files.listing import stamps
from ul2_tasks.sources.files import Shard, numbered
from ul2_tasks.sources.records import Record
from ul2_tasks.sources.words import CannotTellError, code_of, plain, words_of


class DataSource(abc.ABC):
    """Documents in splits, which say in words what they are. Where `knows_splits` is false, only opening it tells the splits."""

    knows_splits = True
    loss_weight_key: Any = None  # see `open_source`, as for the next one
    group_by: str | None = None

    def __init__(self, splits: Iterable[str]):
        self._splits = tuple(splits)

    @property
    def splits(self) -> Sequence[str]:
        return self._splits

    @property
    def kind(self) -> str:
        """The name of its class."""
        return type(self).__name__

    @abc.abstractmethod
    def list_shards(self, split: str) -> Sequence[str]:
        """The names of the shards."""

    @property
    def any_number_of_shards(self) -> bool:
        """Whether there may be more shards than `list_shards` has."""
        return False

    def count(self, split: str) -> int | None:
        """How many records a split has; None where nobody has counted them."""
        return None

    @property
    def identity(self) -> str | None:
        """What it reads, in words that are the same in each process; None where it cannot tell.

        A cache must never be taken for one of other documents, so a source without these words equals only itself.
        """
        try:
            return plain(repr(self)) + code_of(type(self))
        except CannotTellError:
            return None

    @property
    def read_as(self) -> str | None:
        """The identity without the spelling of its files, where `RecordSource.files` has them all."""
        return self.identity

    def contents(self, split: str) -> str:
        """What the files of a split hold, in words: others once one of them is changed. Empty where there are no files to tell."""
        return ""

    def reads(self, split: str) -> str | None:
        """What a split is read from, in words, however paths are spelled; None where it cannot tell."""
        found = self.contents(split)
        return f"{self.kind}({found})" if found else self.identity

    def __str__(self) -> str:
        """For people: its `repr`, or only its class where the `repr` has an address in it."""
        try:
            return plain(repr(self))
        except CannotTellError:
            return self.kind


class RecordSource(DataSource):
    """A corpus that Python reads, in shards that hosts and workers share out.

    Another format of files needs no class, but a function: see `formats`. `groups` are the splits that one reading gives.
    """

    def __init__(self, splits: Iterable[str], text_key: str = "text", id_key: str | None = None):
        super().__init__(splits)
        self.text_key, self.id_key = text_key, id_key

    def shards(self, split: str, at_least: int = 0) -> Sequence[Shard]:
        """The shards of a split, in the order of the corpus; at least so many, where the source can be read in any number.

        By default one, so that all of a split is read by one `read`.
        """
        return numbered(split, [Shard()])

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

    def stamps(self, split: str) -> dict[str, str]:
        """The size of each of these files, and what else tells that it was changed, as they are now."""
        files = self.files(split)
        return dict(zip(files, stamps(files)))

    def bytes_of(self, shard: Shard) -> int | None:
        """How many bytes a shard has of its file; None of other parts than of bytes, and of no file."""
        return None

    def rows_of(self, shard: Shard, records: int, last: object) -> int:
        """How many rows a shard has that was read to its end: so many `records`, and `last` is where a late one is."""
        return records

    def list_shards(self, split: str) -> Sequence[str]:
        return list(map(str, self.shards(split)))


class TfdsName(str):
    """The name and version of a dataset of TensorFlow Datasets, such as "c4/en:3.1.0"."""


@functools.singledispatch
def as_source(value: Any, text_key: str = "text", id_key: str | None = None, has_images: bool = False) -> DataSource | None:
    """A source as this package reads it; None of what is none.

    `ul2_tasks.tasks` registers here what is SeqIO's, so that nothing below imports SeqIO. Its features are `text_key` and `id_key`;
    with `has_images` its records are of texts and images.
    """
    return None


as_source.register(DataSource, lambda value, *settings, **others: value)


@as_source.register(TfdsName)
def _of_tfds(value: TfdsName, *settings: Any, **others: Any) -> DataSource:
    raise ImportError(
        f"source 'tfds:{value}' is read by SeqIO. Run `pip install 'ul2_tasks[seqio]'`, and `import seqio` before it is opened."
    )


@words_of.register(DataSource)
def _words_of_source(value: DataSource) -> str:
    if (identity := value.identity) is None:
        raise CannotTellError
    return identity


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
