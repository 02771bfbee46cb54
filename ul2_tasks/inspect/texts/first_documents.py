"""The first documents of a corpus: their tokens, and what tokenizing made of their text."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np

from ul2_tasks.corpus.check_texts import count_skipped
from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.corpus.token_batches import corpus_documents
from ul2_tasks.store.columns import TOKENS

DOCUMENTS = 1000  # that are read; more, until they have the next number of tokens, if they are short
TOKENS_OF_SHORT_DOCUMENTS = 1 << 18
MOST_DOCUMENTS, MOST_TOKENS = 20_000, 1 << 22
_DOCUMENTS_AT_A_TIME = 128
DECODED_TOKENS = 1 << 18  # of the documents that are decoded, to see whether their text comes back


@dataclasses.dataclass(frozen=True)
class FirstDocuments:
    """The first documents of a split, in the order of the corpus. Empty and skipped ones are documents without tokens.

    Attributes:
        tokens: [N] int32, the tokens of all documents, one document after the other.
        lengths: [D] int64, the number of tokens of each document.
        is_all: whether the split has no other documents.
        characters: the number of characters of all texts.
        unknown: how many tokens are the vocabulary's unknown.
        decoded: how many documents with text were decoded.
        come_back: how many of these had the same text as before.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    is_all: bool
    characters: int
    unknown: int
    decoded: int
    come_back: int


def first_documents(corpus: Corpus, split: str) -> FirstDocuments:
    """Reads a thousand documents, or more if they are short. Raises a ValueError where no document has a token."""
    vocabulary = corpus.vocabulary
    tokens: list[np.ndarray] = []
    total = characters = decoded_tokens = decoded = come_back = 0
    is_all = True
    for text, ids in _texts_and_tokens(corpus, split):
        if _enough(len(tokens), total):
            is_all = False
            break
        tokens.append(ids)
        total += ids.size
        characters += len(text)
        if text and decoded_tokens < DECODED_TOKENS:
            decoded_tokens += ids.size
            decoded += 1
            come_back += vocabulary.decode(ids.tolist()) == text
    if is_all and not total:
        raise ValueError(f"{corpus.name!r} has {len(tokens)} documents in split {split!r}, and no token. Name another split.")
    all_tokens = np.concatenate(tokens)
    lengths = np.array([ids.size for ids in tokens], np.int64)
    unknown = int((all_tokens == vocabulary.unk_id).sum())
    return FirstDocuments(all_tokens, lengths, is_all, characters, unknown, decoded, come_back)


def _enough(documents: int, tokens: int) -> bool:
    if documents >= MOST_DOCUMENTS or tokens >= MOST_TOKENS:
        return True
    return documents >= DOCUMENTS and tokens >= TOKENS_OF_SHORT_DOCUMENTS


def _texts_and_tokens(corpus: Corpus, split: str) -> Iterator[tuple[str, np.ndarray]]:
    """The text and the tokens, [tokens] int32, of each document."""
    if corpus.source.count(split) == 0:
        raise ValueError(
            f"{corpus.name!r} has no document in split {split!r}. Name another split, or change how documents are split. See"
            " docs/help/troubleshooting.md#a-split-has-no-document."
        )
    if corpus.is_tokens:
        for documents in corpus_documents(corpus, split, use_cached=False):
            for ids in np.split(documents.tokens, np.cumsum(documents.lengths)[:-1]):
                yield corpus.vocabulary.decode(ids.tolist()), ids
        return
    records = (record for shard in corpus.source.shards(split) for record in corpus.source.read(shard))
    while batch := list(itertools.islice(records, _DOCUMENTS_AT_A_TIME)):
        columns, problems = corpus.encoder.encode(corpus, batch)
        count_skipped(str(corpus.source), problems)
        tokens, lengths = columns[TOKENS]
        texts = ("" if problem else record.text.decode() for record, problem in zip(batch, problems))
        yield from zip(texts, np.split(tokens, np.cumsum(lengths)[:-1]))
