"""`Corpus`: what makes tokens of records, and whether a cache or an export of it is its own."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.corpus.cached_files import folder_of, is_cache
from ul2_tasks.corpus.check_texts import find_problems
from ul2_tasks.corpus.configuration import CorpusConfiguration, digest, settings
from ul2_tasks.corpus.identity import cannot_tell
from ul2_tasks.corpus.token_files import check_token_files
from ul2_tasks.example_features import LOSS_WEIGHT
from ul2_tasks.sources.records import Record
from ul2_tasks.sources.tokens import TokenSource
from ul2_tasks.store.columns import TOKENS
from ul2_tasks.store.read import Store
from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.batches import encode_batch
from ul2_tasks.tokenizers.special_ids import SpecialTokensRequest, TextIds, Token, special_tokens, vocabulary_identity

_SHOWN = 10  # tokens in an error


class Encoded(NamedTuple):
    """Some records as documents.

    `columns` have their tokens, ids of the corpus's vocabulary, and what a corpus has beside these: of each column [values]
    integers, of one document after the other, and [documents] int64, how many each has. `problems` say what is wrong with records
    that are none, which have no values, and are empty for documents.
    """

    columns: Mapping[str, tuple[np.ndarray, np.ndarray]]
    problems: Sequence[bytes]


class Encoder(Protocol):
    """What makes documents of the records of a kind.

    Attributes:
        columns: the dtypes of what documents have beside tokens, by name.
        counts_ids: whether a cache counts the documents whose id another one has.
        read_as: what the name of the mixture or task that reads the corpus ends with, and lengths for an example of use.
    """

    @property
    def columns(self) -> Mapping[str, np.dtype]: ...
    @property
    def counts_ids(self) -> bool: ...
    @property
    def read_as(self) -> tuple[str, dict[str, int]]: ...

    def encode(self, corpus: Corpus, records: Sequence[Record], /) -> Encoded:
        """Makes documents of some records. One that is none raises a ValueError, if the corpus is to raise it."""

    def hashed(self, record: Record, /) -> bytes:
        """What is hashed of a record, so that one of the same content has the same hash; see `provenance.hash_of`."""

    def own_ids(self, vocabulary: Vocabulary, /) -> frozenset[int]:
        """Ids that no text becomes, beside sentinels and modes."""

    def settings(self, vocabulary: Vocabulary, /) -> dict[str, str]:
        """Describes what else decides the tokens of a document."""


@dataclasses.dataclass(frozen=True)
class Texts:
    """The `Encoder` of texts, and of documents that are ids of tokens already.

    With a `loss_weight_key` the weights of tokens in the loss, float32, are beside these, by their bits: as int32.
    The texts of a group of records are one document, with the token `separator` between each two.
    """

    loss_weight_key: str | None = None
    separator: Token | None = None

    counts_ids = False
    read_as: ClassVar[tuple[str, dict[str, int]]] = ("mix", {"inputs": 512, "targets": 512})

    @property
    def columns(self) -> Mapping[str, np.dtype]:
        return {LOSS_WEIGHT: np.dtype(np.int32)} if self.loss_weight_key else {}

    def encode(self, corpus: Corpus, records: Sequence[Record]) -> Encoded:
        """See `Encoder.encode`."""
        if self.separator is None:
            return self._encode(corpus, records)
        parts = [record.parts or (record,) for record in records]
        found, of = self._encode(corpus, [*itertools.chain(*parts)]), np.repeat(np.arange(len(parts)), [*map(len, parts)])
        (separator,), columns = self.own_ids(corpus.vocabulary), {}
        if not corpus.text_ids.are_in(np.array([separator])).all():
            raise ValueError(
                f"separator must be no sentinel, mode or padding of {corpus.name!r}, got {self.separator!r}. Choose another token,"
                " or list sentinels without it."
            )
        problems = [
            next(filter(None, each), b"") for each in np.split(np.array(found.problems, object), np.flatnonzero(np.diff(of)) + 1)
        ]
        is_whole = np.array([not problem for problem in problems], bool)[of]
        for key, (values, lengths) in found.columns.items():
            values, lengths = values[np.repeat(is_whole, lengths)], lengths * is_whole
            has_some = np.flatnonzero(lengths)
            are_before = has_some[:-1][of[has_some[:-1]] == of[has_some[1:]]]
            ends = np.cumsum(lengths)[are_before]
            joined = np.insert(values, ends, separator if key == TOKENS else values[ends - 1])
            counts = np.bincount(of, lengths, len(parts)) + np.bincount(of[are_before], minlength=len(parts))
            columns[key] = joined, counts.astype(np.int64)
        return Encoded(columns, problems)

    def _encode(self, corpus: Corpus, records: Sequence[Record]) -> Encoded:
        """The same of records alone. A text that is not UTF-8 is no document, and neither are ids that the vocabulary lacks."""
        told = [_problem_of(record, corpus) for record in records]
        problems = [problem.encode(errors="backslashreplace") for problem in told]  # a path may be of any bytes
        texts = [b"" if record.is_ids else record.text for record in records]
        problems = find_problems(corpus.configuration.on_error, texts, problems)
        texts = [b"" if problem else text for text, problem in zip(texts, problems)]
        tokens, lengths = encode_batch(corpus.tokenizer, texts)
        if any(record.is_ids for record in records):
            each, eos = np.split(tokens, np.cumsum(lengths)[:-1]), corpus.vocabulary.eos_id
            for number, record in enumerate(records):
                if record.is_ids and not problems[number]:
                    ids = np.frombuffer(record.text, np.int32)
                    each[number] = ids[: len(ids) - (ids[-1:] == eos).sum()]  # a denoiser's examples have their own EOS
            tokens, lengths = np.concatenate(each), np.array([*map(len, each)], np.int64)
        columns = {TOKENS: (tokens, lengths)}
        if self.loss_weight_key:
            weights = [np.resize(record.weights, length) for record, length in zip(records, lengths.tolist())]
            columns[LOSS_WEIGHT] = np.concatenate([np.zeros(0, np.float32), *weights]).view(np.int32), lengths
        return Encoded(columns, problems)

    def hashed(self, record: Record) -> bytes:
        return record.text

    def own_ids(self, vocabulary: Vocabulary) -> frozenset[int]:
        own = () if self.separator is None else (self.separator,)
        return frozenset(special_tokens(vocabulary, None, own=own).sentinels if own else ())

    def settings(self, vocabulary: Vocabulary) -> dict[str, str]:
        weights = {"loss_weight_key": self.loss_weight_key} if self.loss_weight_key else {}
        return weights | ({} if self.separator is None else {"separator": str(*self.own_ids(vocabulary))})


def _problem_of(record: Record, corpus: Corpus) -> str:
    """What is wrong with a record, such as ids that are no text of the vocabulary; empty for a document."""
    if record.is_ids and not record.problem:
        try:
            corpus.text_ids.check(
                np.frombuffer(record.text, np.int32), f"{record.where}:", "Register the vocabulary that made them"
            )
        except ValueError as error:
            return str(error)
    return record.problem


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """Records to documents of tokens, which a cache keeps.

    `encoder` is what makes documents of records of its kind. `cache_dirs` are where its cache may be.
    """

    name: str
    source: Any  # a `RecordSource`, or tokens
    vocabulary: Vocabulary
    configuration: CorpusConfiguration
    encoder: Any = Texts()  # an `Encoder`, with what else its kind has
    cache_dirs: tuple[str, ...] = ()

    def __reduce__(self) -> tuple:
        return Corpus, (self.name, self.source, self.vocabulary, self.configuration, self.encoder, self.folders)

    @property
    def folders(self) -> tuple[str, ...]:
        """Where its cache may be now."""
        return self.cache_dirs

    @property
    def splits(self) -> Sequence[str]:
        return self.source.splits

    @property
    def columns(self) -> Mapping[str, np.dtype]:
        """See `Encoder.columns`."""
        return self.encoder.columns

    @cached_property
    def tokenizer(self) -> Vocabulary:
        """The vocabulary, by which no text becomes a sentinel, a mode, or another special id; see `Vocabulary.never_encoding`.

        Finding these takes milliseconds, and a job asks for each of its shards.
        """
        special = self.configuration.special_tokens.ids(self.vocabulary)
        return self.vocabulary.never_encoding(special | self.encoder.own_ids(self.vocabulary))

    @cached_property
    def text_ids(self) -> TextIds:
        """The ids that its documents may have."""
        padding = set() if self.vocabulary.uses_0 else {0}
        return TextIds(self.vocabulary.vocab_size, self.configuration.special_tokens.ids(self.vocabulary) | padding)

    def check_keeps_out(self, task: str, special_tokens: SpecialTokensRequest) -> None:
        """Raises a ValueError where its text could become a special token of a task, which is of a mixture that shares the corpus.

        The tokens of a corpus that is tokens are checked as they are read.
        """
        own = self.configuration.special_tokens
        if special_tokens == own or self.is_tokens:
            return
        vocabulary = self.vocabulary
        if ids := vocabulary.encodable_ids(special_tokens.ids(vocabulary) - own.ids(vocabulary)):
            names = [vocabulary.id_to_piece(id) for id in ids[:_SHOWN]]
            more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
            raise ValueError(
                f"the sentinels and modes of {task!r} must be kept out of the text of {self.name!r}, got"
                f" {names}{more}, which a text that spells them would become. Name them as"
                f" sentinels or modes of {self.read_as[0]!r} too, or use control pieces."
            )

    def settings(self, source: str) -> dict[str, str]:
        """Describes all that decides the tokens of a document; `source` is the identity of its source. Opens the vocabulary."""
        return settings(self.vocabulary, source, self.configuration) | self.encoder.settings(self.vocabulary)

    @property
    def made_of(self) -> str:
        """What decides its documents, in 16 hexadecimal digits."""
        identity = self.source.identity or f"{self.source}, which cannot tell what it reads"
        return digest(self.settings(identity))

    @property
    def read_as(self) -> tuple[str, dict[str, int]]:
        """The mixture or task that reads the corpus, and lengths for an example of use."""
        ending, lengths = self.encoder.read_as
        return f"{self.name.removesuffix('_corpus')}_{ending}", dict(lengths)

    @property
    def is_tokens(self) -> bool:
        """Whether the source has tokens, so that nothing is tokenized, and nothing is cached."""
        return isinstance(self.source, TokenSource)

    @property
    def cache_dir(self) -> Any:
        """The folder of its cache, the first that is found; None where there is none."""
        return next(filter(is_cache, (folder_of(folder, self.name) for folder in self.folders)), None)

    @property
    def cache_folder(self) -> str:
        """The same. Raises a ValueError where there is none."""
        if (folder := self.cache_dir) is None:
            raise no_cache(
                self.name,
                self.folders,
                "`ul2 cache` and name its folder (seqio.add_global_cache_dirs, or t5x's --seqio_additional_cache_dirs), or read the"
                " source itself (use_cached=False, or t5x's USE_CACHED_TASKS = False)",
            )
        return folder

    def stored(self, split: str) -> Store:
        """The documents of a corpus that is tokens; see `TokenSource.documents`."""
        vocabulary = self.vocabulary
        check_token_files(self.source, split, vocabulary_identity(vocabulary))
        return self.source.documents(split, vocabulary.vocab_size, vocabulary.eos_id)


def no_cache(name: str, cache_dirs: Sequence[str], what_to_do: str) -> ValueError:
    """What is said of a cache that is to be used and is not there."""
    return ValueError(
        f"use_cached: {name!r} is in none of the cache directories {cache_dirs}. Write it with {what_to_do}. See"
        " docs/help/troubleshooting.md#the-cache-is-not-found."
    )


def corpus_settings(corpus: Corpus) -> dict[str, str]:
    """Describes all that decides the tokens of a corpus; see `configuration.settings`.

    A source or a vocabulary that cannot tell what it is raises a ValueError: a cache or an export of it could be another's.
    """
    vocabulary = corpus.vocabulary
    identity = corpus.source.identity
    if identity is None:
        raise ValueError(f"{corpus.name!r} cannot be cached or exported: {cannot_tell(corpus.source)}")
    if vocabulary.identity is None:
        raise ValueError(
            f"{corpus.name!r} cannot be cached or exported: {vocabulary!r} does not say what its ids mean. Use a vocabulary of"
            " open_vocabulary, or give its class an attribute `identity`, a text that says it."
        )
    return corpus.settings(identity)
