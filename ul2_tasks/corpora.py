"""Where documents come from: the embedded corpus, and the tokenized corpus that all denoisers of a mixture share."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Sequence

import seqio
import tensorflow as tf

from ul2_tasks import cache

EMBEDDED_VALIDATION = 0.05
_DOCUMENT_CHARACTERS = 500  # embedded documents are at least this long, but for the end of a topic


class MemoryDataSource(seqio.DataSource):
    """Documents in memory, split by a hash of their text.

    A document's split depends on nothing but its text: the same on every machine, in every order. Each epoch has an
    order of its own, perfectly shuffled, at the cost of one integer a document in an iterator's checkpoint.
    """

    def __init__(self, load: Callable[[], Sequence[str]], validation: float):
        """
        Args:
            load: returns the documents; called when they are first needed, not before.
            validation: the fraction of documents in the split `validation`, in [0, 1); the rest is `train`.
        """
        if not 0 <= validation < 1:
            raise ValueError(f"validation is {validation!r}, expected a fraction in [0, 1)")
        super().__init__(splits=("train", "validation") if validation else ("train",), performs_internal_shuffling=True)
        self._load = load
        self._validation = validation
        self._documents: dict[str, list[str]] | None = None

    def __repr__(self) -> str:
        return f"MemoryDataSource({seqio.utils.function_name(self._load)}, validation={self._validation})"

    @property
    def split_rule(self) -> str:
        """How documents are split, in words."""
        return f"validation: the first 64 bits of the SHA-256 of the text, as a fraction, are below {self._validation}"

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return True

    def list_shards(self, split: str) -> Sequence[str]:
        return [f"{split}-{shard}" for shard in range(max(1, min(16, self.num_input_examples(split))))]

    def num_input_examples(self, split: str) -> int:
        return len(self.documents(split))

    def documents(self, split: str) -> list[str]:
        """The documents of a split, in the order of the corpus."""
        if self._documents is None:
            self._documents = {name: [] for name in self.splits}
            for text in self._load():
                self._documents["validation" if hash_fraction(text) < self._validation else "train"].append(text)
        if split not in self._documents:
            raise ValueError(f"there is no split {split!r}, only {sorted(self._documents)}")
        return self._documents[split]

    def get_dataset(
        self,
        split: str = "train",
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        **unused_kwargs,
    ) -> tf.data.Dataset:
        """A dataset of {"text": string scalar}; see `seqio.DataSource.get_dataset`."""
        documents = tf.constant(self.documents(split), tf.string)
        index, num_shards = (shard_info.index, shard_info.num_shards) if shard_info else (0, 1)
        if num_shards > max(1, len(documents)):
            raise ValueError(f"split {split!r} has {len(documents)} documents, too few for {num_shards} shards; use fewer hosts")
        order = tf.data.Dataset.range(len(documents)).shard(num_shards, index)
        if shuffle:
            order = order.shuffle(max(1, len(documents)), seed=seed)
        return order.map(lambda document: {"text": documents[document]}, num_parallel_calls=tf.data.AUTOTUNE)


class CorpusView(seqio.DataSource):
    """One denoiser's own order over the tokenized corpus that it shares with the others.

    SeqIO hands one seed to all tasks of a mixture, so five stock tasks read the same documents in the same order. Here
    the order's seed is salted with the denoiser's name. The corpus, not this view, is what gets cached.
    """

    def __init__(self, corpus: seqio.Task, salt: str, use_cached: bool = False):
        super().__init__(splits=(), caching_permitted=False)
        self._corpus = corpus
        self._salt = salt
        self._use_cached = use_cached

    def __repr__(self) -> str:
        return f"CorpusView({self._corpus.name!r}, salt={self._salt!r}, use_cached={self._use_cached})"

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
        """See `cache.identity`."""
        return cache.identity(self._cache_dir(), split)

    def _cache_dir(self) -> str:
        if not self._corpus.cache_dir:
            raise ValueError(
                f"use_cached: {self._corpus.name!r} is in none of the cache directories {seqio.get_global_cache_dirs()}; write it"
                " with `ul2 cache` and name its folder (seqio.add_global_cache_dirs, or t5x's --seqio_additional_cache_dirs),"
                " or read the source itself (use_cached=False, or t5x's USE_CACHED_TASKS = False)"
            )
        return self._corpus.cache_dir

    def get_dataset(
        self,
        split: str = "train",
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        **unused_kwargs,
    ) -> tf.data.Dataset:
        """A dataset of {"targets": [tokens] int32}, or from a cache of batches of such; see `seqio.DataSource.get_dataset`.

        Raises:
            ValueError: the cache is asked for, and is in none of SeqIO's cache directories; names them. Or it is not that of
                this corpus and vocabulary, or not whole; see `cache.read`.
        """
        seed = salted(seed, self._salt)
        if not self._use_cached:
            if self._corpus.source.num_input_examples(split) == 0:
                raise ValueError(
                    f"{self._corpus.name!r} has no document in split {split!r}; name another, or change how it is split"
                )
            return self._corpus.get_dataset(
                split=split, shuffle=shuffle, seed=seed, shard_info=shard_info, trim_output_features=False, try_in_mem_cache=False
            )
        return cache.read(
            self._cache_dir(),
            self._corpus.name,
            corpus_settings(self._corpus),
            split=split,
            shuffle=shuffle,
            seed=seed,
            shard_info=shard_info,
        )


def corpus_settings(corpus: seqio.Task) -> dict[str, str]:
    """What decides the tokens of a corpus that `register` made; see `cache.settings`."""
    return cache.settings(corpus.output_features["targets"].vocabulary, **corpus.preprocessors[0].keywords)


def describe_source(source: seqio.DataSource) -> str:
    """A source in words: its own, or, where it has none but its address, its class."""
    return type(source).__name__ if re.search(r" at 0x[0-9a-f]+>", repr(source)) else repr(source)


def salted(seed: int | None, salt: str) -> int | None:
    """Another seed for each salt, the same everywhere; None, for no seed, stays None."""
    return None if seed is None else zlib.crc32(f"{salt}/{int(seed)}".encode())


def hash_fraction(text: str) -> float:
    """A number in [0, 1) from a text: the first 8 bytes of the SHA-256 of its UTF-8, as a fraction."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def embedded_corpus() -> MemoryDataSource:
    """English prose that every Python has, the topics of `pydoc`; about 450 kB, which differ a little between versions."""
    return MemoryDataSource(embedded_documents, validation=EMBEDDED_VALIDATION)


def embedded_documents() -> list[str]:
    """The paragraphs of each `pydoc` topic, without headings and code, joined to documents of at least 500 characters."""
    from pydoc_data.topics import topics  # only when it is wanted: `import ul2_tasks` opens no file

    documents = []
    for name in sorted(topics):
        document: list[str] = []
        for paragraph in topics[name].split("\n\n"):
            if is_prose(paragraph):
                document.append(" ".join(paragraph.split()))
            if sum(map(len, document)) >= _DOCUMENT_CHARACTERS:
                documents.append(" ".join(document))
                document = []
        if document:
            documents.append(" ".join(document))
    return documents


def is_prose(paragraph: str) -> bool:
    """Whether it reads as sentences, not as code, a grammar or a heading."""
    return paragraph.rstrip().endswith((".", "!", "?", ":")) and "::=" not in paragraph and len(paragraph.split()) >= 8
