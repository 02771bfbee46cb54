"""Texts with pictures in places as a SeqIO source: records in memory."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.graphs import no_autograph
from ul2_tasks.sources.splits import check_fraction, hash_fraction

PictureRecord: TypeAlias = Sequence[str | bytes]  # texts, and the bytes of pictures


class PicturesInMemory(seqio.DataSource):
    """Records of texts and pictures in memory, split by a hash of what they hold.

    Each epoch is shuffled perfectly, into an order of its own.

    >>> source = PicturesInMemory(lambda: [["A cat: ", b"..", "It sleeps."]])
    >>> next(source.get_dataset("train").as_numpy_iterator())["texts"].tolist()
    [b'A cat: ', b'', b'It sleeps.']
    """

    def __init__(self, load: Callable[[], Iterable[PictureRecord]], validation: float = 0.0):
        """
        Args:
            load: returns the records, each a list of texts, `str`, and of pictures, their `bytes`. It is called when they are first
                needed.
            validation: the fraction of records that go to the split `validation`, in [0, 1). The others are `train`.
        """
        check_fraction(validation)
        super().__init__(splits=("train", "validation") if validation else ("train",), performs_internal_shuffling=True)
        self._load = load
        self._validation = validation

    def __repr__(self) -> str:
        return f"PicturesInMemory({seqio.utils.function_name(self._load)}, validation={self._validation})"

    @property
    def identity(self) -> str:
        """What it reads: a SHA-256 of all records. Loads them."""
        found = hashlib.sha256()
        for split in self.splits:
            for record in self._records[split]:
                found.update(_digest(record))
        return f"PicturesInMemory(sha256 {found.hexdigest()}, validation={self._validation})"

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return True

    def list_shards(self, split: str) -> Sequence[str]:
        return [f"{split}-{shard}" for shard in range(max(1, min(16, self.num_input_examples(split))))]

    def num_input_examples(self, split: str) -> int:
        return len(self._records[split])

    @no_autograph
    def get_dataset(
        self,
        split: str = "train",
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        **unused_kwargs,
    ) -> tf.data.Dataset:
        """A dataset of {"texts", "images": [places] strings, "where": string scalar}; see `seqio.DataSource.get_dataset`."""
        records = self._records[split]
        places = [place for record in records for place in record]
        texts = tf.constant([place if isinstance(place, str) else "" for place in places], tf.string)
        images = tf.constant([place if isinstance(place, bytes) else b"" for place in places], tf.string)
        ends = tf.constant(np.cumsum([0, *map(len, records)]), tf.int64)
        index, num_shards = (shard_info.index, shard_info.num_shards) if shard_info else (0, 1)
        if num_shards > max(1, len(records)):
            raise ValueError(f"split {split!r} has {len(records)} records, too few for {num_shards} shards; use fewer hosts")
        order = tf.data.Dataset.range(len(records)).shard(num_shards, index)

        def record(number: tf.Tensor) -> dict[str, tf.Tensor]:
            own = slice(ends[number], ends[number + 1])
            where = tf.strings.format("record {} of split " + split, number)
            return {"texts": texts[own], "images": images[own], "where": where}

        return (order.shuffle(max(1, len(records)), seed=seed) if shuffle else order).map(record)

    @functools.cached_property
    def _records(self) -> dict[str, list[PictureRecord]]:
        records: dict[str, list[PictureRecord]] = {split: [] for split in self.splits}
        for record in self._load():
            records["validation" if hash_fraction(_digest(record)) < self._validation else "train"].append(record)
        return records


def _digest(record: PictureRecord) -> bytes:
    """The SHA-256 of a record."""
    found = hashlib.sha256()
    for place in record:
        content = place.encode() if isinstance(place, str) else place
        found.update(f"{type(place).__name__} {len(content)} ".encode() + content)
    return found.digest()
