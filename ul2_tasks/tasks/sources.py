"""Sources of this package as those of SeqIO, and sources of SeqIO, also a user's, as those of this package.

To import it tells `sources.base.as_source` of SeqIO's.
"""

from __future__ import annotations

import functools
import itertools
import os
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import seqio
import tensorflow as tf

from ul2_tasks.example_features import DOCUMENTS_PER_BATCH, IMAGES
from ul2_tasks.files import listing
from ul2_tasks.scalars import short
from ul2_tasks.sources.base import DataSource, RecordSource, TfdsName, as_source
from ul2_tasks.sources.files import At, Shard, numbered
from ul2_tasks.sources.image_examples import TEXTS, WHERE, serialized
from ul2_tasks.sources.image_text import ImageTextSource
from ul2_tasks.sources.records import PROBLEM, Record
from ul2_tasks.sources.words import CannotTellError, code_of, named, plain, words_of
from ul2_tasks.tasks.graphs import no_autograph
from ul2_tasks.tasks.streams import dataset_of
from ul2_tasks.tasks.tfds import TfdsSource

_process: int | None = None  # in which TensorFlow reads


def seqio_source(source: DataSource) -> seqio.DataSource:
    """A source of this package as one of SeqIO's, for stock tasks: `seqio.Task(.., source=seqio_source(open_source("*.jsonl")))`.

    It shards, shuffles from a seed, and iterators over it can be saved. It gives {text_key, "problem", id_key if there is one:
    string scalars}; `problem` says what is wrong with a record, and is empty where nothing is. Of texts and images it gives
    {"texts", "images": [places] strings, "where", "problem": string scalars}.

    Raises a ValueError for what is no source of this package.
    """
    if not isinstance(source, DataSource):
        raise ValueError(f"source must be one of ul2_tasks, got {short(source)}. Pass ul2_tasks.open_source(..) of it.")
    return source.inner if isinstance(source, SeqioRecords) else OurSource(source)


class OurSource(seqio.DataSource):
    """A source of this package as one of SeqIO's, see `seqio_source`."""

    def __init__(self, source: DataSource):
        super().__init__(splits=())
        self.source = source

    def __repr__(self) -> str:
        return repr(self.source)

    @property
    def splits(self) -> Sequence[str]:
        return self.source.splits

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return self.source.any_number_of_shards

    def num_input_examples(self, split: str) -> int | None:
        return self.source.count(split)

    def list_shards(self, split: str) -> Sequence[str]:
        return self.source.list_shards(split)

    def get_dataset(
        self,
        split: str = "train",
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        **unused_kwargs: Any,
    ) -> tf.data.Dataset:
        """See `seqio.DataSource.get_dataset`. Raises a ValueError where there are tokens and no text."""
        if not isinstance(self.source, RecordSource):
            raise ValueError(f"{self!r} has tokens and no text. Register it, and read its mixture.")
        records = dataset_of(self.source, split, shuffle, seed, shard_info)
        return _places_of(records) if isinstance(self.source, ImageTextSource) else records


@no_autograph
def _places_of(records: tf.data.Dataset) -> tf.data.Dataset:
    """The places of records of texts and images, each of which is a tf.Example."""
    places = tf.io.FixedLenSequenceFeature([], tf.string, allow_missing=True)
    features = {TEXTS: places, IMAGES: places, WHERE: tf.io.FixedLenFeature([], tf.string)}

    def parse(record: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        (example,) = (value for key, value in record.items() if key != PROBLEM)
        return {**tf.io.parse_single_example(example, features), PROBLEM: record[PROBLEM]}

    return records.map(parse, num_parallel_calls=tf.data.AUTOTUNE)


class SeqioRecords(RecordSource):
    """The documents of a source of SeqIO's, in its order, numbered from 1 in each shard.

    The text is the feature `text_key`, and the id `id_key`; with `has_images` the features are `texts` and `images`.
    """

    def __init__(self, source: seqio.DataSource, text_key: str = "text", id_key: str | None = None, has_images: bool = False):
        super().__init__((), text_key, id_key)
        self.inner, self._has_images = source, has_images
        self.knows_splits = not isinstance(source, seqio.TfdsDataSource)

    def __repr__(self) -> str:
        return repr(self.inner)

    def __eq__(self, other: object) -> bool:
        """Whether it reads the same object, in the same way; two such are made of a source that is registered twice."""
        return isinstance(other, SeqioRecords) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple:
        return id(self.inner), self.text_key, self.id_key, self._has_images

    @property
    def splits(self) -> Sequence[str]:
        return self.inner.splits

    @property
    def kind(self) -> str:
        return type(self.inner).__name__

    @property
    def any_number_of_shards(self) -> bool:
        return self.inner.supports_arbitrary_sharding

    def count(self, split: str) -> int | None:
        return self.inner.num_input_examples(split)

    @property
    def identity(self) -> str | None:
        """The source's attribute `identity`; or its `repr`, its class and functions, and the sources that it reads."""
        return self._in_words(lambda: repr(self.inner))

    def reads(self, split: str) -> str | None:
        found = self.contents(split)
        return self._in_words(lambda: f"{self.kind}({found})" if found else repr(self.inner))

    def contents(self, split: str) -> str:
        """The files of SeqIO's own sources of files, and what the sources hold that it reads."""
        if getattr(self.inner, "identity", None) is not None:
            return ""
        inner = [_contents_of(value, split) for value in vars(self.inner).values()]
        return "; ".join(dict.fromkeys(filter(None, [_contents(*files) if (files := self.files(split)) else "", *inner])))

    def _in_words(self, shown: Callable[[], str]) -> str | None:
        source = self.inner
        if (identity := getattr(source, "identity", None)) is not None:
            return identity
        held: list[Any] = [
            value for value in vars(source).values() if callable(value) or isinstance(value, seqio.DataSource | DataSource)
        ]
        if isinstance(source, seqio.TfdsDataSource):  # whose repr does not say what its splits are
            held.append(repr(source.tfds_dataset))
        try:
            words = plain(shown()) + code_of(type(source))
            return "; ".join([words, *(more for more in map(words_of, held) if more not in words)])
        except CannotTellError:
            return None

    def shards(self, split: str, at_least: int = 0) -> Sequence[Shard]:
        names = self.list_shards(split)
        missing = at_least - len(names) if self.any_number_of_shards else 0
        return numbered(split, [*map(Shard, names), *[Shard()] * missing])

    def list_shards(self, split: str) -> Sequence[str]:
        return list(self.inner.list_shards(split))

    def files(self, split: str) -> list[str]:
        return list(dict.fromkeys(self.list_shards(split))) if isinstance(self.inner, seqio.FileDataSource) else []

    def read(self, shard: Shard) -> Iterator[Record]:
        """See `RecordSource.read`. What TensorFlow cannot read raises an OSError."""
        _check_process()
        found = self.inner.get_dataset(split=shard.split, shuffle=False, shard_info=seqio.ShardInfo(shard.number, shard.of))
        try:
            yield from _image_records(found) if self._has_images else _records(found, self.text_key, self.id_key)
        except tf.errors.OpError as error:
            raise OSError(f"{type(error).__name__}: {error.message}") from error


@as_source.register(seqio.DataSource)
def our_source(value: seqio.DataSource, text_key: str = "text", id_key: str | None = None, has_images: bool = False) -> DataSource:
    """A source of SeqIO as one of this package, see `as_source`."""
    return value.source if isinstance(value, OurSource) else SeqioRecords(value, text_key, id_key, has_images)


@as_source.register(TfdsName)
def _of_tfds(value: TfdsName, text_key: str = "text", id_key: str | None = None, has_images: bool = False) -> DataSource:
    return SeqioRecords(TfdsSource(str(value), text_key), text_key, id_key, has_images)


@words_of.register(seqio.DataSource)
def _words_of_source(value: seqio.DataSource) -> str:
    return words_of(our_source(value))


@words_of.register(tf.DType)
def _words_of_dtype(value: tf.DType) -> str:
    return repr(value)


def _contents_of(value: Any, split: str) -> str:
    """The contents of a source that another one reads; none of what is no source."""
    source = our_source(value) if isinstance(value, seqio.DataSource) else value
    return source.contents(split if split in source.splits else "train") if isinstance(source, DataSource) else ""


@words_of.register(types.FunctionType)
def _words_of_function(value: types.FunctionType) -> str:
    """SeqIO's sources of files read with a function within another one: what it closes over says how it reads."""
    if value.__module__ == "seqio.dataset_providers" and value.__closure__:
        return f"{value.__qualname__}({', '.join(words_of(cell.cell_contents) for cell in value.__closure__)})"
    return named(value)


@functools.lru_cache
def _contents(*paths: str) -> str:
    """Asked once of a listing, which SeqIO makes once in a process, too; all tasks of a mixture ask."""
    return listing.contents(paths)


def _check_process() -> None:
    """Raises a RuntimeError in a process that was forked from one in which TensorFlow has read, because it would hang."""
    global _process
    if _process not in (None, os.getpid()):
        raise RuntimeError(
            f"process {os.getpid()} was forked from one in which TensorFlow read this source, and would hang. Pass"
            ' multiprocessing_context="spawn" (or "forkserver") to the DataLoader, or write a cache with `ul2 cache`. See'
            " docs/help/troubleshooting.md#hangs-in-a-forked-worker."
        )
    _process = os.getpid()


@no_autograph
def record_batches(dataset: tf.data.Dataset, text_key: str, id_key: str | None = None) -> tf.data.Dataset:
    """The records of a source, 128 at a time. Features that are not asked for are left behind.

    The dataset is of string scalars, as `seqio.TextLineDataSource` gives them; or of dictionaries with the text, and perhaps
    `problem`, see `seqio_source`, and the id, a string or an integer. Batches are {"text": [records] strings, "problem": [records]
    strings}, and "id" where it is wanted.
    """
    spec = dataset.element_spec
    if not isinstance(spec, Mapping):
        return dataset.batch(DOCUMENTS_PER_BATCH).map(lambda texts: {"text": texts, PROBLEM: tf.zeros_like(texts)})
    for name, key in {"text_key": text_key, "id_key": id_key}.items():
        if key is not None and key not in spec:
            raise ValueError(
                f"{name} must be a feature of the source, one of {sorted(spec)}, got {key!r}. See"
                " docs/help/troubleshooting.md#a-field-is-missing."
            )
    kept = {text_key, id_key, PROBLEM} & spec.keys()
    if spec.keys() - kept:  # a map over single records costs more than all else, so none is made unless it has to be
        dataset = dataset.map(lambda record: {key: record[key] for key in kept})

    def named(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        texts = batch[text_key]
        return {"text": texts, PROBLEM: batch.get(PROBLEM, tf.zeros_like(texts))} | ({"id": batch[id_key]} if id_key else {})

    return dataset.batch(DOCUMENTS_PER_BATCH).map(named)


def _records(dataset: tf.data.Dataset, text_key: str, id_key: str | None) -> Iterator[Record]:
    """The records of a source, which are numbered from 1; see `record_batches`."""
    rows = itertools.count(1)
    for batch in record_batches(dataset, text_key, id_key).as_numpy_iterator():
        texts, problems = batch["text"].tolist(), batch[PROBLEM].tolist()
        ids = batch["id"].tolist() if id_key else [b""] * len(texts)
        for text, id, problem in zip(texts, ids, problems):
            id = id if isinstance(id, bytes) else str(id).encode()
            yield Record(text, id, problem.decode(errors="replace"), At("", next(rows)))


def _image_records(dataset: tf.data.Dataset) -> Iterator[Record]:
    """The records of a dataset of texts and images, each serialized; see `seqio_source`, and `where` may be missing."""
    if missing := sorted({TEXTS, IMAGES} - dataset.element_spec.keys()):
        raise ValueError(f"source must have the features texts and images, got {sorted(dataset.element_spec)}, without {missing}.")
    for row, record in enumerate(dataset.as_numpy_iterator(), 1):
        where, problem = (record.get(key, b"") for key in (WHERE, PROBLEM))
        text = serialized(record[TEXTS].tolist(), record[IMAGES].tolist(), where)
        yield Record(text, problem=problem.decode(errors="replace"), where=At(where.decode(errors="replace"), row))
