"""The task of a corpus, and the view through which each denoiser of a mixture reads it in an order of its own."""

from __future__ import annotations

import functools
import types
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.corpus import cache
from ul2_tasks.corpus.configuration import CorpusConfiguration, settings, text_tokenizer
from ul2_tasks.corpus.identity import cannot_tell, describe_source, reads, source_identity, vocabulary_tells
from ul2_tasks.corpus.tokenization import check_texts, tokenize, tokenize_batches, unbatch
from ul2_tasks.sources.dataset_records import record_batches
from ul2_tasks.sources.megatron import MegatronSource
from ul2_tasks.sources.memory import MemoryDataSource
from ul2_tasks.sources.records import Record
from ul2_tasks.sources.shard_records import shard_records
from ul2_tasks.store.documents import DOCUMENTS_PER_BATCH, read_store
from ul2_tasks.store.read import Store
from ul2_tasks.vocabulary.batches import encode_batch
from ul2_tasks.vocabulary.special_ids import id_shift


class Encoded(NamedTuple):
    """Some records as tokens.

    Attributes:
        texts: of each; empty where a record is skipped.
        tokens: [tokens] int32, ids of the corpus's vocabulary, one document's after the other's.
        lengths: [documents] int64, how many tokens each has.
        are_whole: [documents] bool, which are documents.
        columns: what a corpus has of its documents beside tokens, by name: [values] integers, one document's after the other's,
            and [documents] int64, how many each has.
    """

    texts: list[bytes]
    tokens: np.ndarray
    lengths: np.ndarray
    are_whole: np.ndarray
    columns: Mapping[str, tuple[np.ndarray, np.ndarray]] = types.MappingProxyType({})


class CorpusTask(seqio.Task):
    """The task `NAME_corpus` of `register`: records to texts to tokens, which a cache keeps.

    `columns` are the dtypes of what its cache has beside the tokens, by name, see `Encoded`. `counts_ids` says whether a cache
    counts the documents whose id another one has.
    """

    columns: Mapping[str, np.dtype] = types.MappingProxyType({})
    counts_ids = False

    def __init__(
        self,
        name: str,
        source: seqio.DataSource,
        output_features: Mapping[str, seqio.Feature],
        *,
        configuration: CorpusConfiguration,
        step: Callable[..., tf.data.Dataset] = tokenize,
        shuffle_buffer_size: int | None = None,
    ):
        if shuffle_buffer_size is None and not source.performs_internal_shuffling:
            shuffle_buffer_size = seqio.SHUFFLE_BUFFER_SIZE
        super().__init__(
            name,
            source,
            output_features,
            preprocessors=[
                functools.partial(step, configuration=configuration, source=source),
                seqio.CacheDatasetPlaceholder(),
            ],
            shuffle_buffer_size=shuffle_buffer_size,
        )
        self.configuration = configuration

    @functools.cached_property
    def tokenizer(self) -> seqio.Vocabulary:
        """See `configuration.text_tokenizer`. Finding the special ids takes milliseconds, and a job asks for each of its shards."""
        return text_tokenizer(self.output_features["targets"].vocabulary, self.configuration)

    def encode(self, records: Sequence[Record]) -> Encoded:
        """Tokenizes some records. One that is no document raises a ValueError, if the corpus is to raise it."""
        texts, problems = [record.text for record in records], [record.problem.encode() for record in records]
        are_whole = check_texts(describe_source(self.source), self.configuration.on_error, texts, problems)
        texts = [text if is_whole else b"" for text, is_whole in zip(texts, are_whole)]
        return Encoded(texts, *encode_batch(self.tokenizer, texts), are_whole)

    def shard_records(self, splits: Sequence[str], shard: int, num_shards: int) -> Iterator[tuple[str, Record]]:
        """The records of a shard of the source, see `shard_records`, as `encode` takes them."""
        return shard_records(self.source, splits, shard, num_shards, self.configuration.text_key)

    def settings(self, source: str) -> dict[str, str]:
        """Describes all that decides the tokens of a document; see `configuration.settings`."""
        return settings(self.output_features["targets"].vocabulary, source, self.configuration)

    @property
    def read_as(self) -> tuple[str, dict[str, int]]:
        """The mixture or task that reads the corpus, and lengths for an example of use."""
        return f"{self.name.removesuffix('_corpus')}_mix", {"inputs": 512, "targets": 512}

    @property
    def is_for_t5x(self) -> bool:
        """Whether t5x's models take what its examples have."""
        return True

    @property
    def is_tokens(self) -> bool:
        """Whether the source has tokens, so that nothing is tokenized, and nothing is cached."""
        return isinstance(self.source, MegatronSource)

    @property
    def cache_folder(self) -> str:
        """The folder of its cache. Raises a ValueError if it is in none of SeqIO's cache directories."""
        if not self.cache_dir:
            raise ValueError(
                f"use_cached: {self.name!r} is in none of the cache directories {seqio.get_global_cache_dirs()}; write it"
                " with `ul2 cache` and name its folder (seqio.add_global_cache_dirs, or t5x's --seqio_additional_cache_dirs),"
                " or read the source itself (use_cached=False, or t5x's USE_CACHED_TASKS = False)"
            )
        return self.cache_dir

    def stored(self, split: str) -> Store:
        """The documents of a corpus that is tokens; see `MegatronSource.documents`."""
        vocabulary = self.output_features["targets"].vocabulary
        shift = id_shift(vocabulary)
        eos = None if vocabulary.eos_id is None else vocabulary.eos_id - shift
        return self.source.documents(split, vocabulary.vocab_size - shift, eos)

    def batches(self, split: str, shuffle: bool, seed: int | None, shard_info: seqio.ShardInfo | None) -> tf.data.Dataset:
        """Reads the source, and tokenizes it in batches: the documents of `get_dataset`, in its order, for less."""
        source, vocabulary = self.source, self.output_features["targets"].vocabulary
        if self.is_tokens:
            store, hosts = self.stored(split), shard_info.num_shards if shard_info else 1
            if store.documents < hosts:
                raise ValueError(f"{self.name!r} has {store.documents} documents in split {split!r}, too few for {hosts} hosts")
            return read_store(store, id_shift(vocabulary), shuffle, seed, shard_info)
        if isinstance(source, MemoryDataSource):
            batches = source.get_batches(split, shuffle, seed, shard_info, DOCUMENTS_PER_BATCH)
        else:
            if shard_info and not source.supports_arbitrary_sharding and len(source.list_shards(split)) < shard_info.num_shards:
                # Hosts share out records where there are not shards enough, as SeqIO's tasks do.
                records = source.get_dataset(split=split, shuffle=shuffle, seed=seed)
                records = records.shard(shard_info.num_shards, shard_info.index)
            else:
                records = source.get_dataset(split=split, shuffle=shuffle, seed=seed, shard_info=shard_info)
            if shuffle and self.shuffle_buffer_size:
                records = records.shuffle(self.shuffle_buffer_size, seed=seed)
            batches = record_batches(records, self.configuration.text_key)
        return tokenize_batches(batches, vocabulary, self.configuration, source)

    def get_dataset(self, sequence_length=None, split: str = "train", *arguments, **keywords) -> tf.data.Dataset:
        """See `seqio.Task.get_dataset`. Refuses a corpus of tokens, which only its denoisers read."""
        if self.is_tokens:
            raise ValueError(f"{self.name!r} has tokens, no records; read one of its denoisers, or its mixture")
        return super().get_dataset(sequence_length, split, *arguments, **keywords)

    def cached_documents(self, split: str, shuffle: bool, seed: int | None, shard_info: seqio.ShardInfo | None) -> tf.data.Dataset:
        """The documents of the cache one by one, as a stock task reads its cache; see `cache.read`."""
        return unbatch(cache.read(self.cache_dir, self, corpus_settings(self), split, shuffle, seed, shard_info))

    def _get_cached_source(self, split: str, file_shuffle_buffer_size: int | None = None) -> seqio.DataSource:
        """What `get_dataset(use_cached=True)` reads. SeqIO's own reads TFRecords alone."""
        self.assert_cached()
        return _CachedDocuments(self)


class CorpusView(seqio.DataSource):
    """A source that reads a tokenized corpus in an order of its own.

    SeqIO hands one seed to all tasks of a mixture, so that five stock tasks read the same documents in the same order. Here the
    seed of the order is salted. The corpus is cached, not this view, so all denoisers share one cache. The salt is the name of the
    denoiser.
    """

    def __init__(self, corpus: CorpusTask, salt: str, use_cached: bool = False):
        super().__init__(splits=(), caching_permitted=False)
        self._corpus = corpus
        self._salt = salt
        self._use_cached = use_cached

    def __repr__(self) -> str:
        return f"CorpusView({self._corpus.name!r}, salt={self._salt!r}, use_cached={self._use_cached})"

    @property
    def corpus(self) -> CorpusTask:
        return self._corpus

    @property
    def splits(self) -> Sequence[str]:
        return self._corpus.splits

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return True

    def list_shards(self, split: str) -> Sequence[str]:
        return self._corpus.source.list_shards(split)

    def num_input_examples(self, split: str) -> int | None:
        return self._corpus.num_input_examples(split)

    def cached(self) -> CorpusView:
        """The same view over the corpus's cache."""
        return CorpusView(self._corpus, self._salt, use_cached=True)

    def cache_identity(self, split: str) -> str:
        """What the tokens of a split are read from; see `cache.identity`."""
        if self._corpus.is_tokens:
            store = self._corpus.source.store(split)
            return f"{len(store.prefixes)} pairs, {store.documents} documents, {store.tokens} tokens"
        return cache.identity(self._corpus.cache_folder, split)

    def reads(self, split: str) -> str | None:
        """What a split is read from, by its content, see `identity.reads`; None where `cache_identity` tells that."""
        return None if self._use_cached and not self._corpus.is_tokens else reads(self._corpus.source, split)

    def get_dataset(
        self,
        split: str = "train",
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        **unused_kwargs,
    ) -> tf.data.Dataset:
        """Reads the documents; see `seqio.DataSource.get_dataset`.

        Gives batches {"targets": RaggedTensor [documents, tokens] int32}, see `tokenization.tokenize_batches` and, also for errors,
        `cache.read`. A split without a document is refused, and so is a cache that is in none of SeqIO's cache directories.
        """
        seed = salted(seed, self._salt)
        if not self._use_cached or self._corpus.is_tokens:
            if self._corpus.source.num_input_examples(split) == 0:
                raise ValueError(
                    f"{self._corpus.name!r} has no document in split {split!r}; name another, or change how it is split"
                )
            return self._corpus.batches(split, shuffle, seed, shard_info)
        return cache.read(
            self._corpus.cache_folder,
            self._corpus,
            corpus_settings(self._corpus),
            split=split,
            shuffle=shuffle,
            seed=seed,
            shard_info=shard_info,
        )


class _CachedDocuments(seqio.DataSource):
    """The documents of a corpus's cache one by one, as a stock task reads its cache."""

    def __init__(self, corpus: CorpusTask):
        super().__init__(splits=corpus.splits)
        self._corpus = corpus

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return True

    def list_shards(self, split: str) -> Sequence[str]:
        return [split]

    def get_dataset(
        self,
        split: str = "train",
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        **unused_kwargs,
    ) -> tf.data.Dataset:
        return self._corpus.cached_documents(split, shuffle, seed, shard_info)


def corpus_settings(corpus: CorpusTask) -> dict[str, str]:
    """Describes all that decides the tokens of a corpus; see `configuration.settings`.

    A source or a vocabulary that cannot tell what it is raises a ValueError: a cache or an export of it could be another's.
    """
    vocabulary = corpus.output_features["targets"].vocabulary
    identity = source_identity(corpus.source)
    if identity is None:
        raise ValueError(f"{corpus.name!r} can have no cache and no export, which could be another's: {cannot_tell(corpus.source)}")
    if not vocabulary_tells(vocabulary):
        raise ValueError(
            f"{corpus.name!r} can have no cache and no export, which could be another's: {vocabulary!r} cannot tell what its ids"
            " mean; give a vocabulary of open_vocabulary, or give its class an attribute `identity`, a text that tells it"
        )
    return corpus.settings(identity)


def salted(seed: int | None, salt: str) -> int | None:
    """Another seed for each salt, the same in every process. None, for no seed, stays None."""
    return None if seed is None else zlib.crc32(f"{salt}/{int(seed)}".encode())
