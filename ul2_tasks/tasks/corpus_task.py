"""The task of a corpus, and the view through which each denoiser of a mixture reads it in an order of its own, in tf.data."""

from __future__ import annotations

import dataclasses
import functools
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.corpus.token_batches import DocumentShards, document_shards
from ul2_tasks.sources.base import RecordSource, kept
from ul2_tasks.sources.files import Shard, numbered
from ul2_tasks.sources.records import Record
from ul2_tasks.tasks.graphs import no_autograph
from ul2_tasks.tasks.sources import OurSource, seqio_source
from ul2_tasks.tasks.streams import dataset_of
from ul2_tasks.tasks.tokenization import tokenize
from ul2_tasks.tasks.vocabulary import id_shift, seqio_vocabulary


class RegisteredCorpus(Corpus):
    """A corpus whose cache may be in SeqIO's cache directories, too, as these are when it is read."""

    @property
    def folders(self) -> tuple[str, ...]:
        return (*self.cache_dirs, *map(os.fspath, seqio.get_global_cache_dirs()))


def registered(corpus: Corpus) -> RegisteredCorpus:
    """The corpus of a description, for SeqIO."""
    return RegisteredCorpus(**{field.name: getattr(corpus, field.name) for field in dataclasses.fields(corpus)})


class CorpusTask(seqio.Task):
    """The task `NAME_corpus` of a corpus, which `seqio_cache_tasks` caches, if its documents have tokens alone."""

    def __init__(self, corpus: Corpus):
        steps = [
            functools.partial(tokenize, configuration=corpus.configuration, source=corpus.source),
            seqio.CacheDatasetPlaceholder(),
        ]
        features = {"targets": seqio.Feature(seqio_vocabulary(corpus.vocabulary), add_eos=True)}
        super().__init__(corpus.name, seqio_source(corpus.source), features, steps)
        self.corpus = corpus

    def get_dataset(self, sequence_length=None, split: str = "train", *arguments, **keywords) -> tf.data.Dataset:
        """See `seqio.Task.get_dataset`. Raises a ValueError where documents are not tokens alone, or are not made of records."""
        if self.corpus.columns or self.corpus.is_tokens:
            raise ValueError(
                f"mixture or task must be one of examples, got {self.name!r}, whose documents become examples in other tasks. Read"
                f" {self.corpus.read_as[0]!r}."
            )
        return super().get_dataset(sequence_length, split, *arguments, **keywords)

    def preprocess_precache(self, dataset: tf.data.Dataset, seed: int | None = None) -> tf.data.Dataset:
        """See `seqio.Task.preprocess_precache`. Raises a ValueError where a cache has more than tokens."""
        if self.corpus.columns:
            raise ValueError(
                f"seqio_cache_tasks must cache texts alone, got {self.name!r}, whose cache has {', '.join(self.corpus.columns)}."
                f" Cache it with `ul2 cache {self.name.removesuffix('_corpus')}`."
            )
        return super().preprocess_precache(dataset, seed)

    def _get_cached_source(self, split: str, file_shuffle_buffer_size: int | None = None) -> seqio.DataSource:
        """What `get_dataset(use_cached=True)` reads. SeqIO's own reads TFRecords alone."""
        self.assert_cached()
        return CorpusView(self.corpus, salt="", use_cached=True)


class _Documents(RecordSource):
    """The documents of a corpus that have a token, each as the bytes of its ids."""

    any_number_of_shards = True

    def __init__(self, corpus: Corpus, use_cached: bool):
        super().__init__(splits=())
        self.corpus, self.use_cached = corpus, use_cached

    @property
    def splits(self) -> Sequence[str]:
        return self.corpus.splits

    @kept  # as opening a cache looks at all of its files
    def _documents(self, split: str, at_least: int) -> DocumentShards:
        return document_shards(self.corpus, split, self.use_cached, at_least)

    def shards(self, split: str, at_least: int = 0) -> Sequence[Shard]:
        return numbered(split, [Shard()] * self._documents(split, at_least).shards)

    def read(self, shard: Shard) -> Iterator[Record]:
        shift = np.int32(id_shift(self.corpus.vocabulary))
        for documents, _ in self._documents(shard.split, shard.of).read(shard.number, 0, True):
            for ids in np.split(documents.tokens + shift, np.cumsum(documents.lengths)[:-1]):
                yield Record(ids.tobytes())


class CorpusView(OurSource):
    """A source of the documents of a corpus, {"targets": [tokens] int32}, in an order of its own.

    SeqIO hands one seed to all tasks of a mixture, so that five stock tasks read the same documents in the same order. Here the
    seed of the order is salted. The corpus is cached, not this view, so all denoisers share one cache. The salt is the name of the
    denoiser, or of the task where several mixtures share a corpus and may have the same denoiser.
    """

    caching_permitted = False

    def __init__(self, corpus: Corpus, salt: str, use_cached: bool = False):
        super().__init__(corpus.source)
        self.corpus, self.salt, self._documents = corpus, salt, _Documents(corpus, use_cached)

    def __repr__(self) -> str:
        return f"CorpusView({self.corpus.name!r}, salt={self.salt!r}, use_cached={self._documents.use_cached})"

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return True

    @no_autograph
    def get_dataset(
        self,
        split: str = "train",
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        **unused_kwargs: Any,
    ) -> tf.data.Dataset:
        """The documents; hosts share them out where there are more of these than shards. Raises a ValueError without a document."""
        documents = self._documents
        if not documents.use_cached and self.num_input_examples(split) == 0:
            raise ValueError(
                f"{self.corpus.name!r} has no document in split {split!r}. Name another split, or change how documents are split."
                " See docs/help/troubleshooting.md#a-split-has-no-document."
            )
        own_seed = None if seed is None else zlib.crc32(f"{self.salt}/{int(seed)}".encode())
        if shard_info and shard_info.num_shards > len(documents.shards(split, at_least=shard_info.num_shards)):
            records = dataset_of(documents, split, shuffle, own_seed, None).shard(shard_info.num_shards, shard_info.index)
        else:
            records = dataset_of(documents, split, shuffle, own_seed, shard_info)
        found = records.map(lambda record: {"targets": tf.io.decode_raw(record[documents.text_key], tf.int32)})
        return found.shuffle(seqio.SHUFFLE_BUFFER_SIZE, seed=own_seed) if shuffle else found
