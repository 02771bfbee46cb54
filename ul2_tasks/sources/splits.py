"""Splits one corpus in two, by a hash of each document."""

from __future__ import annotations

import hashlib
import numbers
from collections.abc import Mapping, Sequence

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.graphs import python_op
from ul2_tasks.sources.records import PROBLEM, Record

_DOCUMENTS_PER_BATCH = 128


def hash_fraction(id: bytes) -> float:
    """A number in [0, 1) that depends on a document's id or text alone: the first 64 bits of its SHA-256, over 2**64.

    >>> hash_fraction(b"a") == 0xCA978112CA1BBDCA / 2**64
    True
    """
    return id_hash(id) / 2**64


def id_hash(id: bytes) -> int:
    """The first 64 bits of the SHA-256 of a document's id or text."""
    return int.from_bytes(hashlib.sha256(id).digest()[:8], "big")


def split_rule(validation: float, what: str) -> str:
    """How documents are split, in words; `what` is what is hashed."""
    return f"validation: the first 64 bits of the SHA-256 of the {what}, as a fraction, are below {validation}"


def check_fraction(validation: float) -> None:
    """Raises a ValueError unless it is a fraction in [0, 1)."""
    if not (isinstance(validation, numbers.Real) and 0 <= validation < 1):
        raise ValueError(f"validation is {validation!r}, expected a fraction in [0, 1)")


class HashSplit(seqio.DataSource):
    """The split `train` of a source, split in two, `train` and `validation`, by a hash of each document's id or text.

    Nothing else decides where a document goes: not the machine, the order, the files, nor the other documents. Either split
    reads the whole corpus to find its own documents; in a cache they are apart.
    """

    def __init__(self, source: seqio.DataSource, validation: float, *, text_key: str = "text", id_key: str | None = None):
        """Reads the split `train` of a source. `validation` is in [0, 1). The id is hashed; without `id_key` the text is."""
        check_fraction(validation)
        super().__init__(splits=("train", "validation"), performs_internal_shuffling=source.performs_internal_shuffling)
        self.source, self._validation = source, validation
        self.text_key, self.id_key = text_key, id_key

    def __repr__(self) -> str:
        key = "" if self.id_key is None else f", id_key={self.id_key!r}"
        return f"HashSplit({self.source!r}, {self._validation}{key})"

    def check_splits(self) -> None:
        """Raises a ValueError where the source has its own split `validation`, which nobody would read. May open the source."""
        if "validation" in self.source.splits:
            raise ValueError(
                f"validation={self._validation} splits documents off `train`, but {self.source!r} has a split 'validation' of its"
                f" own (it has {sorted(self.source.splits)}); leave out validation, or give the documents of `train` alone"
            )

    @property
    def split_rule(self) -> str:
        """How documents are split, in words."""
        return split_rule(self._validation, "text" if self.id_key is None else f"id ({self.id_key})")

    def assign(self, record: Record) -> tuple[str, Record]:
        """The split of a record, and the record, which is a problem where it lacks the id that is wanted."""
        key = record.id if self.id_key else record.as_text
        if self.id_key and not record.id and not record.problem:
            record = record._replace(problem=_no_id(self.id_key))
        return "validation" if hash_fraction(key) < self._validation else "train", record

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return self.source.supports_arbitrary_sharding

    def list_shards(self, split: str) -> Sequence[str]:
        self.check_splits()
        return self.source.list_shards("train")

    def get_dataset(
        self,
        split: str = "train",
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        **unused_kwargs,
    ) -> tf.data.Dataset:
        """A dataset of the source's text and, where it has them, ids and problems; see `seqio.DataSource.get_dataset`.

        Where ids are wanted, a document without one is a problem. A source that has a split `validation` of its own is refused.
        """
        if split not in self.splits:
            raise ValueError(f"there is no split {split!r} in {self!r}, only {sorted(self.splits)}")
        self.check_splits()
        dataset = self.source.get_dataset("train", shuffle=shuffle, seed=seed, shard_info=shard_info)
        if not isinstance(dataset.element_spec, Mapping):
            dataset = dataset.map(lambda text: {self.text_key: text})
        key = self.id_key or self.text_key
        kept = {self.text_key, key, PROBLEM} & set(dataset.element_spec)
        if key not in kept:
            raise ValueError(
                f"{self.source!r} has no feature {key!r}, it has {sorted(dataset.element_spec)}; give text_key or id_key"
            )

        def mask(ids: np.ndarray) -> np.ndarray:
            return np.array([(hash_fraction(id) < self._validation) == (split == "validation") for id in ids], bool)

        def own(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            ids = batch[key] if batch[key].dtype == tf.string else tf.strings.as_string(batch[key])
            if self.id_key:
                problem = batch.get(PROBLEM, tf.zeros_like(ids))
                batch = batch | {PROBLEM: tf.where((ids == "") & (problem == ""), _no_id(key), problem)}
            is_own = tf.ensure_shape(python_op(mask, [ids], tf.bool), [None])
            return {name: tf.boolean_mask(value, is_own) for name, value in batch.items()}

        batches = dataset.map(lambda document: {name: document[name] for name in kept}).batch(_DOCUMENTS_PER_BATCH)
        return batches.map(own, num_parallel_calls=tf.data.AUTOTUNE).unbatch()


def _no_id(key: str) -> str:
    return f"a document has no {key!r}, its id"
