"""Sources that others made, SeqIO's and a user's, whose records only tf.data reads; as this package reads its own."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ul2_tasks.files import listing
from ul2_tasks.imported import is_seqio
from ul2_tasks.sources.base import RecordSource
from ul2_tasks.sources.files import Shard, numbered
from ul2_tasks.sources.records import Record

if TYPE_CHECKING:
    import seqio
    import tensorflow as tf


def opened(source: seqio.DataSource, text_key: str = "text", id_key: str | None = None) -> RecordSource:
    """The source, if Python reads it; otherwise one that reads it: the text is the feature `text_key`, and the id `id_key`."""
    return source if isinstance(source, RecordSource) else SeqioSource(source, text_key, id_key)


class SeqioSource(RecordSource):
    """The documents of a source of SeqIO's kind, in its order, numbered from 1 in each shard."""

    def __init__(self, source: seqio.DataSource, text_key: str = "text", id_key: str | None = None):
        super().__init__((), text_key, id_key)
        self.inner: Any = source

    @property
    def splits(self) -> Sequence[str]:
        return self.inner.splits

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return self.inner.supports_arbitrary_sharding

    def num_input_examples(self, split: str) -> int | None:
        return self.inner.num_input_examples(split)

    def shards(self, split: str, at_least: int = 0) -> Sequence[Shard]:
        names = list(self.inner.list_shards(split))
        missing = at_least - len(names) if self.supports_arbitrary_sharding else 0
        return numbered(split, [*map(Shard, names), *[Shard()] * missing])

    def files(self, split: str) -> list[str]:
        return list(dict.fromkeys(self.inner.list_shards(split))) if is_seqio(self.inner, "FileDataSource") else []

    def contents(self, split: str) -> str:
        return _contents(*files) if (files := self.files(split)) else ""

    def read(self, shard: Shard) -> Iterator[Record]:
        from ul2_tasks.sources.dataset_records import dataset_records

        return dataset_records(self._shard(shard), self.text_key, self.id_key)

    def _shard(self, shard: Shard) -> tf.data.Dataset:
        import seqio

        from ul2_tasks.sources.dataset_records import check_process

        check_process()
        return self.inner.get_dataset(split=shard.split, shuffle=False, shard_info=seqio.ShardInfo(shard.number, shard.of))


class SeqioImageText(SeqioSource):
    """Records of texts and images of such a source, see `ImageTextSource`."""

    def read(self, shard: Shard) -> Iterator[Record]:
        from ul2_tasks.sources.image_streams import records_of

        return records_of(self._shard(shard))


@functools.lru_cache
def _contents(*paths: str) -> str:
    """Asked once of a listing, which SeqIO makes once in a process, too; all tasks of a mixture ask."""
    return listing.contents(paths)
