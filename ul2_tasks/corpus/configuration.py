"""What decides the tokens of a corpus, in words: caches and exports keep these words, and are refused where they differ."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import zlib
from collections.abc import Mapping

from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.special_ids import SpecialTokensRequest, vocabulary_identity


@dataclasses.dataclass(frozen=True)
class CorpusConfiguration:
    """How records become tokens.

    `on_error` says what becomes of a record with a problem, or with a text that is not UTF-8 and that a tokenizer would change
    without a word: "raise", or "skip", which keeps it without tokens, so that a cache counts it. No text becomes one of the
    `special_tokens`. With `separate_documents` a cache has an EOS after each document.
    """

    text_key: str = "text"
    on_error: str = "raise"
    special_tokens: SpecialTokensRequest = dataclasses.field(default_factory=SpecialTokensRequest)
    separate_documents: bool = False

    def end(self, vocabulary: Vocabulary) -> int | None:
        """The id that a cache has after each document; None where it has none."""
        return vocabulary.eos_id if self.separate_documents else None


def text_tokenizer(vocabulary: Vocabulary, configuration: CorpusConfiguration) -> Vocabulary:
    """The vocabulary with which a corpus tokenizes its text; see `Vocabulary.never_encoding`."""
    return vocabulary.never_encoding(configuration.special_tokens.ids(vocabulary))


def settings(vocabulary: Vocabulary, source: str, configuration: CorpusConfiguration) -> dict[str, str]:
    """Describes all that decides the tokens of a document. Opens the vocabulary.

    A vocabulary of control pieces never finds a sentinel or a mode in a text. Otherwise those that it would find count. `source` is
    the identity of the source, see `DataSource.identity`.
    """
    end = configuration.end(vocabulary)
    in_text = vocabulary.encodable_ids(configuration.special_tokens.ids(vocabulary))
    return {
        "vocabulary": vocabulary_identity(vocabulary),
        "kept_out_of_text": f"{len(in_text)} ids, crc32 {zlib.crc32(repr(in_text).encode())}" if in_text else "none",
        "source": source,
        "text_key": configuration.text_key,
        "on_error": configuration.on_error,
    } | ({} if end is None else {"separate_documents": f"{end} after each"})


def digest(settings: Mapping[str, object]) -> str:
    """16 hexadecimal digits: the first 64 bits of the SHA-256 of the settings as JSON."""
    return hashlib.sha256(as_json(settings).encode()).hexdigest()[:16]


def as_json(settings: Mapping[str, object]) -> str:
    """The settings as JSON, equal for equal ones."""
    return json.dumps(dict(settings), sort_keys=True)
