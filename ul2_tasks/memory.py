"""Documents in memory, and those that every Python has."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Sequence

import seqio
import tensorflow as tf

from ul2_tasks.graphs import no_autograph
from ul2_tasks.splits import check_fraction, hash_fraction, split_rule

EMBEDDED_VALIDATION = 0.05
_DOCUMENT_CHARACTERS = 500  # embedded documents are at least this long, but for the end of a topic


class MemoryDataSource(seqio.DataSource):
    """Documents in memory, split by a hash of their text.

    A document's split depends on nothing but its text: the same on every machine, in every order. Each epoch has an
    order of its own, perfectly shuffled, at the cost of one integer a document in an iterator's checkpoint.
    """

    def __init__(self, load: Callable[[], Iterable[str]], validation: float):
        """
        Args:
            load: returns the documents; called when they are first needed, not before.
            validation: the fraction of documents in the split `validation`, in [0, 1); the rest is `train`.
        """
        check_fraction(validation)
        super().__init__(splits=("train", "validation") if validation else ("train",), performs_internal_shuffling=True)
        self._load = load
        self._validation = validation
        self._documents: dict[str, list[str]] | None = None

    def __repr__(self) -> str:
        return f"MemoryDataSource({seqio.utils.function_name(self._load)}, validation={self._validation})"

    @functools.cached_property
    def identity(self) -> str:
        """What it reads: how many documents, and their SHA-256. Loads them."""
        found = hashlib.sha256()
        for split in self.splits:
            for text in self.documents(split):
                found.update(hashlib.sha256(text.encode()).digest())
        count = sum(map(self.num_input_examples, self.splits))
        return f"MemoryDataSource({count} documents, sha256 {found.hexdigest()}, validation={self._validation})"

    @property
    def split_rule(self) -> str:
        """How documents are split, in words."""
        return split_rule(self._validation, "text")

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
                self._documents["validation" if hash_fraction(text.encode()) < self._validation else "train"].append(text)
        if split not in self._documents:
            raise ValueError(f"there is no split {split!r}, only {sorted(self._documents)}")
        return self._documents[split]

    @no_autograph
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


@functools.cache
def embedded_corpus() -> MemoryDataSource:
    """English prose that every Python has, the topics of `pydoc`; about 450 kB, which differ a little between versions."""
    return MemoryDataSource(embedded_documents, validation=EMBEDDED_VALIDATION)


def texts_in_memory(texts: Sequence[str]) -> MemoryDataSource:
    """A corpus of these texts, each of them a document of `train`."""
    return MemoryDataSource(lambda: texts, validation=0)


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
