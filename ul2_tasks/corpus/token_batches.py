"""The tokens of a corpus without tf.data, in lists of documents, as the tokenizer's own ids: what files of tokens hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ul2_tasks.corpus.identity import describe_source
from ul2_tasks.corpus.tokenization import check_texts
from ul2_tasks.corpus.view import CorpusTask, CorpusView
from ul2_tasks.sources.records import Record, in_lists
from ul2_tasks.sources.shard_records import shard_records, split_groups
from ul2_tasks.store.index import dtype_of
from ul2_tasks.vocabulary.batches import encode_batch
from ul2_tasks.vocabulary.special_ids import id_shift

_RECORDS_AT_A_TIME, _BYTES_AT_A_TIME = 1024, 1 << 20


class TokenBatch(NamedTuple):
    """Some documents.

    Attributes:
        splits: [documents] str.
        tokens: [tokens] int32, one document's after the other's.
        lengths: [documents] int64, how many tokens each has; 0 of a record that is skipped.
        are_whole: [documents] bool, which are documents; the others are records that are skipped.
    """

    splits: np.ndarray
    tokens: np.ndarray
    lengths: np.ndarray
    are_whole: np.ndarray

    def of(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        """The tokens and lengths of the documents of a split that have a token."""
        kept = (self.splits == split) & (self.lengths > 0)
        if kept.all():
            return self.tokens, self.lengths
        return self.tokens[np.repeat(kept, self.lengths)], self.lengths[kept]


def encode_records(corpus: CorpusTask, records: Sequence[Record]) -> tuple[list[bytes], np.ndarray, np.ndarray, np.ndarray]:
    """Tokenizes some records.

    Returns:
        The texts, empty where a record is skipped; [tokens] int32, ids of the corpus's vocabulary, one document's after the
        other's; [documents] int64, how many tokens each has; and [documents] bool, which are documents.

    Raises:
        ValueError: one is no document, and the corpus is to raise it.
    """
    texts, problems = [record.text for record in records], [record.problem.encode() for record in records]
    are_whole = check_texts(describe_source(corpus.source), corpus.configuration.on_error, texts, problems)
    texts = [text if is_whole else b"" for text, is_whole in zip(texts, are_whole)]
    return texts, *encode_batch(corpus.tokenizer, texts), are_whole


def tokenize_records(corpus: CorpusTask, records: Iterable[tuple[str, Record]]) -> Iterator[TokenBatch]:
    """Tokenizes records, each with its split, in lists of at most 1,024, or of a megabyte. The ids are the tokenizer's own.

    Raises:
        ValueError: see `encode_records`.
    """
    shift = id_shift(corpus.output_features["targets"].vocabulary)
    for batch in in_lists(records, _RECORDS_AT_A_TIME, _BYTES_AT_A_TIME, lambda item: len(item[1].text)):
        splits, of_each = zip(*batch)
        _, tokens, lengths, are_whole = encode_records(corpus, of_each)
        yield TokenBatch(np.array(splits), tokens - np.int32(shift), lengths, are_whole)


def corpus_tokens(corpus: CorpusTask, split: str, use_cached: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the documents of a split in the order of the corpus, or of its cache.

    Returns:
        Pairs of [tokens] int32, one document's after the other's, and [documents] int64, how many tokens each has.

    Raises:
        ValueError: there is no such split; a record is no document, and the corpus is to raise it; see `cache.read`.
    """
    if split not in corpus.splits:
        raise ValueError(f"there is no split {split!r} in {corpus.name!r}, only {sorted(corpus.splits)}")
    if use_cached or corpus.is_tokens:
        shift = id_shift(corpus.output_features["targets"].vocabulary)
        view = CorpusView(corpus, salt="", use_cached=use_cached)
        for batch in view.get_dataset(split, shuffle=False):
            documents = batch["targets"]
            yield documents.flat_values.numpy() - np.int32(shift), documents.row_lengths().numpy()
        return
    splits = next(group for group in split_groups(corpus.source) if split in group)
    num_shards = len(corpus.source.list_shards(split))
    for shard in range(num_shards):
        records = shard_records(corpus.source, splits, shard, num_shards, corpus.configuration.text_key)
        for batch in tokenize_records(corpus, ((name, record) for name, record in records if name == split)):
            yield batch.of(split)


def stored_dtype(corpus: CorpusTask) -> np.dtype:
    """The dtype in which the tokens of a corpus are stored; see `index.dtype_of`."""
    vocabulary = corpus.output_features["targets"].vocabulary
    return dtype_of(vocabulary.vocab_size - id_shift(vocabulary))
