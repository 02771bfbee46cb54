"""The documents of a split with random access: where they are stored, or in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ul2_tasks.corpus import cache
from ul2_tasks.corpus.check_texts import count_skipped
from ul2_tasks.corpus.corpus import Corpus, corpus_settings
from ul2_tasks.corpus.token_batches import Documents, corpus_documents
from ul2_tasks.example_features import LOSS_WEIGHT
from ul2_tasks.store.columns import TOKENS, Columns, in_memory, joined
from ul2_tasks.store.write import REPEATED, with_ends


class Bound(NamedTuple):
    """How much is held in memory: so many tokens, and so many bytes of all columns, such as those of images."""

    tokens: int
    size: int

    def is_reached(self, tokens: int, size: int) -> bool:
        return tokens >= self.tokens or size >= self.size


IN_MEMORY = Bound(1 << 26, 1 << 31)  # of a corpus without a cache: some 250 MB of text, or 2 GB of images


def stored(corpus: Corpus, split: str, use_cached: bool, separate_documents: bool = False) -> Columns | None:
    """The documents of a corpus where they are: in its cache, if that is to be used, or in the files that it is; else None.

    With `separate_documents` an EOS follows each document, as it was written. A cache that is another corpus's, or not whole,
    raises a ValueError, and so do tokens that were written with or without EOS, if it is to be otherwise.
    """
    if corpus.is_tokens:
        store = corpus.stored(split)
        weights = corpus.source.weights(split)
        found = Columns({TOKENS: store, **({LOSS_WEIGHT: weights} if weights else {})})
    elif use_cached and corpus.cache_dir:
        check = cache.check_stored if corpus.columns else cache.check
        manifest = check(corpus.cache_dir, corpus, corpus_settings(corpus))
        if not manifest or not manifest["splits"].get(split, {}).get("documents"):
            return None  # what reads it says what is wrong
        store = cache.open_store(corpus.cache_dir, manifest, split)
        found = cache.open_columns(corpus, corpus.cache_dir, manifest, split)
    else:
        return None
    has_ends = store.end is not None
    if separate_documents != has_ends and (separate_documents or not corpus.is_tokens):
        raise ValueError(
            f"separate_documents must be {has_ends} for {corpus.name!r}, whose tokens were written so, got {separate_documents}."
            " Write them again for the other value."
        )
    if separate_documents and store.end == corpus.vocabulary.eos_id:
        return Columns({**found.stores, TOKENS: store.whole}, found.names)
    return found if store.end is None else None  # to leave out its ends it has to be read again


def documents_of(corpus: Corpus, split: str, use_cached: bool, separate_documents: bool = False) -> Columns:
    """The documents of a split, as they are stored, or read into memory, which raises a ValueError where they are too many."""
    found = stored(corpus, split, use_cached, separate_documents)
    if found is None:
        found, is_whole = beginning_of(corpus, split, use_cached, separate_documents, IN_MEMORY)
        if not is_whole:
            raise ValueError(
                f"{corpus.name!r} must have at most {IN_MEMORY.tokens:,} tokens and {IN_MEMORY.size:,} bytes in split {split!r} to"
                " be read into memory, but has more. Write its cache first, with `ul2 cache`, and name its folder"
                " (seqio.add_global_cache_dirs). See docs/help/troubleshooting.md#a-corpus-too-large-for-memory."
            )
    return found


def beginning_of(corpus: Corpus, split: str, use_cached: bool, separate_documents: bool, most: Bound) -> tuple[Columns, bool]:
    """The first documents, until they are so many, and whether they are all: then records that are skipped are counted.

    Raises a ValueError where the cache is to be used, and there is none, or it is another corpus's.
    """
    parts, problems, tokens, size = list[Documents](), list[bytes](), 0, 0
    for documents in corpus_documents(corpus, split, use_cached and not corpus.is_tokens, counts=False):
        if most.is_reached(tokens, size):
            return of_parts(corpus, parts, separate_documents), False
        parts.append(documents)
        problems += documents.problems
        tokens, size = tokens + len(documents.tokens), size + documents.size
    count_skipped(str(corpus.source), problems)
    return of_parts(corpus, parts, separate_documents), True


def of_parts(corpus: Corpus, parts: Sequence[Documents], separate_documents: bool) -> Columns:
    """Documents in memory, each with an EOS after it, or without."""
    dtypes = {TOKENS: np.int32, **corpus.columns}
    nothing = {column: (np.zeros([0], dtype), np.zeros([0], np.int64)) for column, dtype in dtypes.items()}
    columns = joined([nothing, *(documents.columns for documents in parts)])
    if separate_documents:
        eos: Any = corpus.vocabulary.eos_id  # a solution refuses vocabularies that have none where it is asked for
        columns = {key: with_ends(*column, eos if key == TOKENS else REPEATED, of_all=False) for key, column in columns.items()}
    return in_memory(columns, [name for documents in parts for name in documents.names])
