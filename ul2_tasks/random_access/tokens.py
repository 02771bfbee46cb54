"""The tokens of a corpus, where they lie or in memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ul2_tasks.corpus import cache
from ul2_tasks.corpus.corpus import Corpus, corpus_settings
from ul2_tasks.corpus.token_batches import MOST_TOKENS_IN_MEMORY, corpus_tokens
from ul2_tasks.store.read import MemoryStore, TokenStore
from ul2_tasks.vocabulary.special_ids import id_shift


def stored_tokens(corpus: Corpus, split: str, use_cached: bool, separate_documents: bool) -> TokenStore | None:
    """The tokens of a corpus where they lie: in its cache, if that is to be used, or in the files that it is; else None.

    With `separate_documents` an EOS follows each document, as it was written. A cache that is another corpus's, or not whole,
    raises a ValueError, and so do tokens that were written with or without EOS, if it is to be otherwise.
    """
    if corpus.is_tokens:
        store = corpus.stored(split)
    elif use_cached and corpus.cache_dir:
        manifest = cache.check(corpus.cache_dir, corpus, corpus_settings(corpus))
        if not manifest or not manifest["splits"].get(split, {}).get("documents"):
            return None  # the stream says what is wrong
        store = cache.open_store(corpus.cache_dir, manifest, split)
    else:
        return None
    has_ends = store.end is not None
    if separate_documents != has_ends and (separate_documents or not corpus.is_tokens):
        raise ValueError(
            f"separate_documents must be {has_ends} for {corpus.name!r}, whose tokens were written so, got {separate_documents}."
            " Write them again for the other value."
        )
    if separate_documents and store.end == _eos(corpus):
        return store.whole
    return store if store.end is None else None  # to leave out its ends it has to be read as a stream


def _eos(corpus: Corpus) -> int:
    """The tokenizer's own id of EOS; `why_a_stream` has refused vocabularies that have none where it is asked for."""
    vocabulary = corpus.vocabulary
    return vocabulary.eos_id - id_shift(vocabulary)


def tokens_in_memory(
    corpus: Corpus, split: str, separate_documents: bool, first: int | None = None, *, use_cached: bool = True
) -> TokenStore:
    """As `stored_tokens`, in memory: tokenizes a corpus, or reads a cache that is no store, or tokens with other ends.

    With `first` it stops after the first documents that have so many tokens.
    """
    most = MOST_TOKENS_IN_MEMORY + 1 if first is None else first
    found, is_whole = beginning_of(corpus, split, separate_documents, most, use_cached and bool(corpus.cache_dir))
    if first is None and not is_whole:
        raise ValueError(
            f"{corpus.name!r} must have at most {MOST_TOKENS_IN_MEMORY:,} tokens in split {split!r} to be tokenized into"
            " memory, but has more. Write its cache first, with `ul2 cache`, and name its folder"
            " (seqio.add_global_cache_dirs). See docs/help/troubleshooting.md#a-corpus-too-large-for-memory."
        )
    return found


def beginning_of(corpus: Corpus, split: str, separate_documents: bool, most: int, use_cached: bool) -> tuple[TokenStore, bool]:
    """The first documents that have so many tokens, and whether they are all.

    Raises a ValueError where the cache is to be used, and there is none, or it is another corpus's.
    """
    tokens, lengths, count = [np.zeros([0], np.int32)], [np.zeros([0], np.int64)], 0
    for of_batch, of_each in corpus_tokens(corpus, split, use_cached and not corpus.is_tokens):
        if count >= most:
            return in_memory(corpus, tokens, lengths, separate_documents), False
        tokens.append(of_batch)
        lengths.append(of_each)
        count += len(of_batch)
    return in_memory(corpus, tokens, lengths, separate_documents), True


def in_memory(corpus: Corpus, tokens: Sequence[np.ndarray], lengths: Sequence[np.ndarray], separate_documents: bool) -> MemoryStore:
    """Documents in memory: their tokens, and how many each has."""
    all_tokens, all_lengths = np.concatenate(tokens), np.concatenate(lengths)
    all_lengths = all_lengths[all_lengths > 0]
    if separate_documents:
        all_tokens, all_lengths = np.insert(all_tokens, np.cumsum(all_lengths), _eos(corpus)), all_lengths + 1
    return MemoryStore(all_tokens, all_lengths)
