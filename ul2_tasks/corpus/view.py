"""The task of a corpus, and the view through which each denoiser of a mixture reads it in an order of its own."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import seqio
import tensorflow as tf

from ul2_tasks.corpus import cache
from ul2_tasks.corpus.configuration import CorpusConfiguration
from ul2_tasks.corpus.corpus import Corpus, TextCorpus, corpus_settings
from ul2_tasks.corpus.identity import reads
from ul2_tasks.corpus.read_cache import read_cache
from ul2_tasks.corpus.tokenization import tokenize, tokenize_batches, unbatch
from ul2_tasks.order.stream_keys import salted
from ul2_tasks.sources.base import DataSource
from ul2_tasks.sources.dataset_records import record_batches
from ul2_tasks.store.documents import read_store
from ul2_tasks.vocabulary.special_ids import id_shift


class CorpusTask(seqio.Task, Corpus):
    """The task `NAME_corpus` of `register`; see `Corpus`.

    `columns` are the dtypes of what its cache has beside the tokens, by name, see `Encoded`. `counts_ids` says whether a cache
    counts the documents whose id another one has.
    """

    def __init__(
        self,
        name: str,
        source: seqio.DataSource,
        output_features: Mapping[str, seqio.Feature],
        *,
        configuration: CorpusConfiguration,
        shuffle_buffer_size: int | None = None,
    ):
        if shuffle_buffer_size is None and not source.performs_internal_shuffling:
            shuffle_buffer_size = seqio.SHUFFLE_BUFFER_SIZE
        super().__init__(
            name,
            source,
            output_features,
            preprocessors=[
                functools.partial(tokenize, configuration=configuration, source=source),
                seqio.CacheDatasetPlaceholder(),
            ],
            shuffle_buffer_size=shuffle_buffer_size,
        )
        self.configuration = configuration

    def __reduce__(self) -> tuple:
        """For another process, in which it is not registered."""
        return TextCorpus, (self.name, self.source, self.vocabulary, self.configuration, (*self._cache_dirs,))

    @property
    def vocabulary(self) -> seqio.Vocabulary:
        return self.output_features["targets"].vocabulary

    @property
    def _cache_dirs(self) -> list[str]:
        return seqio.get_global_cache_dirs()

    def batches(self, split: str, shuffle: bool, seed: int | None, shard_info: seqio.ShardInfo | None) -> tf.data.Dataset:
        """Reads the source, and tokenizes it in batches: the documents of `get_dataset`, in its order, for less."""
        source, vocabulary = self.source, self.vocabulary
        if self.is_tokens:
            store, hosts = self.stored(split), shard_info.num_shards if shard_info else 1
            if store.documents < hosts:
                raise ValueError(
                    f"{self.name!r} must have a document of split {split!r} for each of {hosts} hosts, got {store.documents}. Use"
                    " fewer hosts. See docs/help/troubleshooting.md#too-few-documents-for-the-hosts."
                )
            return read_store(store, id_shift(vocabulary), shuffle, seed, shard_info)
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
            raise ValueError(f"{self.name!r} has tokens, and no records. Read one of its denoisers, or its mixture.")
        return super().get_dataset(sequence_length, split, *arguments, **keywords)

    def cached_documents(self, split: str, shuffle: bool, seed: int | None, shard_info: seqio.ShardInfo | None) -> tf.data.Dataset:
        """The documents of the cache one by one, as a stock task reads its cache; see `read_cache`."""
        return unbatch(
            read_cache(self.cache_dir, self, corpus_settings(self), split, shuffle=shuffle, seed=seed, shard_info=shard_info)
        )

    def _get_cached_source(self, split: str, file_shuffle_buffer_size: int | None = None) -> seqio.DataSource:
        """What `get_dataset(use_cached=True)` reads. SeqIO's own reads TFRecords alone."""
        self.assert_cached()
        return _CachedDocuments(self)


class CorpusView(DataSource):
    """A source that reads a tokenized corpus in an order of its own.

    SeqIO hands one seed to all tasks of a mixture, so that five stock tasks read the same documents in the same order. Here the
    seed of the order is salted. The corpus is cached, not this view, so all denoisers share one cache. The salt is the name of the
    denoiser, or of the task where several mixtures share a corpus and may have the same denoiser.
    """

    def __init__(self, corpus: CorpusTask, salt: str, use_cached: bool = False):
        super().__init__(splits=())
        self._corpus = corpus
        self._salt = salt
        self._use_cached = use_cached

    def __repr__(self) -> str:
        return f"CorpusView({self._corpus.name!r}, salt={self._salt!r}, use_cached={self._use_cached})"

    @property
    def corpus(self) -> CorpusTask:
        return self._corpus

    @property
    def salt(self) -> str:
        return self._salt

    @property
    def splits(self) -> Sequence[str]:
        return self._corpus.splits

    @property
    def caching_permitted(self) -> bool:
        return False

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
        """What the tokens of a split are read from; see `cache.identity_of`."""
        corpus = self._corpus
        return cache.identity_of(corpus, "" if corpus.is_tokens else corpus.cache_folder, split)

    def reads(self, split: str) -> str | None:
        """What a split is read from, by its content, see `identity.reads`; None where `cache_identity` tells that."""
        return None if self._use_cached and not self._corpus.is_tokens else reads(self._corpus.source, split)

    def _as_dataset(self, split: str, shuffle: bool, seed: int | None, shard_info: seqio.ShardInfo | None) -> tf.data.Dataset:
        """Reads the documents.

        Gives batches {"targets": RaggedTensor [documents, tokens] int32}, see `tokenization.tokenize_batches` and, also for errors,
        `read_cache`. A split without a document is refused, and so is a cache that is in none of SeqIO's cache directories.
        """
        seed = salted(seed, self._salt)
        if not self._use_cached or self._corpus.is_tokens:
            if self._corpus.source.num_input_examples(split) == 0:
                raise ValueError(
                    f"{self._corpus.name!r} has no document in split {split!r}. Name another split, or change how documents are"
                    " split. See docs/help/troubleshooting.md#a-split-has-no-document."
                )
            return self._corpus.batches(split, shuffle, seed, shard_info)
        return read_cache(
            self._corpus.cache_folder,
            self._corpus,
            corpus_settings(self._corpus),
            split=split,
            shuffle=shuffle,
            seed=seed,
            shard_info=shard_info,
        )


class _CachedDocuments(DataSource):
    """The documents of a corpus's cache one by one, as a stock task reads its cache."""

    def __init__(self, corpus: CorpusTask):
        super().__init__(splits=corpus.splits)
        self._corpus = corpus

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return True

    def list_shards(self, split: str) -> Sequence[str]:
        return [split]

    def _as_dataset(self, split: str, shuffle: bool, seed: int | None, shard_info: seqio.ShardInfo | None) -> tf.data.Dataset:
        return self._corpus.cached_documents(split, shuffle, seed, shard_info)
