"""`Corpus`: what makes tokens of records, and whether a cache or an export of it is its own."""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.corpus.cached_files import folder_of, is_cache
from ul2_tasks.corpus.check_texts import find_problems
from ul2_tasks.corpus.configuration import CorpusConfiguration, settings, text_tokenizer
from ul2_tasks.corpus.identity import cannot_tell, source_identity, vocabulary_tells
from ul2_tasks.corpus.token_files import check_token_files
from ul2_tasks.sources.base import RecordSource
from ul2_tasks.sources.megatron import MegatronSource
from ul2_tasks.sources.of_seqio import opened
from ul2_tasks.sources.records import Record
from ul2_tasks.store.columns import TOKENS
from ul2_tasks.store.read import Store
from ul2_tasks.vocabulary.batches import encode_batch
from ul2_tasks.vocabulary.special_ids import SpecialTokensRequest, encodable_ids, id_shift, piece_names, vocabulary_identity

if TYPE_CHECKING:
    import seqio

_SHOWN = 10  # tokens in an error


class Encoded(NamedTuple):
    """Some records as documents.

    `columns` have their tokens, ids of the corpus's vocabulary, and what a corpus has beside these: of each column [values]
    integers, of one document after the other, and [documents] int64, how many each has. `problems` say what is wrong with records
    that are none, which have no values, and are empty for documents.
    """

    columns: Mapping[str, tuple[np.ndarray, np.ndarray]]
    problems: Sequence[bytes]


class Corpus:
    """Records to texts to tokens, which a cache keeps: as it is described, or as the SeqIO task `NAME_corpus`.

    `columns` are the dtypes of what its cache has beside the tokens, by name, see `Encoded`. `counts_ids` says whether a cache
    counts the documents whose id another one has.
    """

    columns: Mapping[str, np.dtype] = types.MappingProxyType({})
    counts_ids = False

    configuration: CorpusConfiguration

    if TYPE_CHECKING:  # what either has in its own way

        @property
        def name(self) -> str: ...
        @property
        def source(self) -> seqio.DataSource: ...
        @property
        def vocabulary(self) -> seqio.Vocabulary: ...
        @property
        def splits(self) -> Sequence[str]: ...
        @property
        def cache_dir(self) -> Any: ...
        @property
        def _cache_dirs(self) -> list[str]: ...

    @cached_property
    def tokenizer(self) -> seqio.Vocabulary:
        """See `configuration.text_tokenizer`. Finding the special ids takes milliseconds, and a job asks for each of its shards."""
        return text_tokenizer(self.vocabulary, self.configuration)

    def encode(self, records: Sequence[Record]) -> Encoded:
        """Tokenizes some records. One that is no document raises a ValueError, if the corpus is to raise it."""
        texts = [record.text for record in records]
        problems = [record.problem.encode(errors="backslashreplace") for record in records]  # a path may be of any bytes
        problems = find_problems(self.configuration.on_error, texts, problems)
        texts = [b"" if problem else text for text, problem in zip(texts, problems)]
        return Encoded({TOKENS: encode_batch(self.tokenizer, texts)}, problems)

    def hashed(self, record: Record) -> bytes:
        """What is hashed of a record, so that one of the same content has the same hash; see `provenance.hash_of`."""
        return record.text

    def check_keeps_out(self, task: str, special_tokens: SpecialTokensRequest) -> None:
        """Raises a ValueError where its text could become a special token of a task, which is of a mixture that shares the corpus.

        The tokens of a corpus that is tokens are checked as they are read.
        """
        own = self.configuration.special_tokens
        if special_tokens == own or self.is_tokens:
            return
        vocabulary = self.vocabulary
        if ids := encodable_ids(vocabulary, special_tokens.ids(vocabulary) - own.ids(vocabulary)):
            more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
            raise ValueError(
                f"the sentinels and modes of {task!r} must be kept out of the text of {self.name!r}, got"
                f" {piece_names(vocabulary, ids[:_SHOWN])}{more}, which a text that spells them would become. Name them as"
                f" sentinels or modes of {self.read_as[0]!r} too, or use control pieces."
            )

    @property
    def reader(self) -> RecordSource:
        """What reads the records of the source, as `encode` takes them."""
        return opened(self.source, self.configuration.text_key)

    def settings(self, source: str) -> dict[str, str]:
        """Describes all that decides the tokens of a document; see `configuration.settings`."""
        return settings(self.vocabulary, source, self.configuration)

    @property
    def read_as(self) -> tuple[str, dict[str, int]]:
        """The mixture or task that reads the corpus, and lengths for an example of use."""
        return f"{self.name.removesuffix('_corpus')}_mix", {"inputs": 512, "targets": 512}

    @property
    def is_tokens(self) -> bool:
        """Whether the source has tokens, so that nothing is tokenized, and nothing is cached."""
        return isinstance(self.source, MegatronSource)

    @property
    def cache_folder(self) -> str:
        """The folder of its cache. Raises a ValueError if it is in none of SeqIO's cache directories."""
        if not self.cache_dir:
            raise no_cache(
                self.name,
                self._cache_dirs,
                "`ul2 cache` and name its folder (seqio.add_global_cache_dirs, or t5x's --seqio_additional_cache_dirs), or read the"
                " source itself (use_cached=False, or t5x's USE_CACHED_TASKS = False)",
            )
        return self.cache_dir

    def stored(self, split: str) -> Store:
        """The documents of a corpus that is tokens; see `MegatronSource.documents`."""
        vocabulary = self.vocabulary
        shift = id_shift(vocabulary)
        check_token_files(self.source, split, vocabulary_identity(vocabulary))
        eos = None if vocabulary.eos_id is None else vocabulary.eos_id - shift
        return self.source.documents(split, vocabulary.vocab_size - shift, eos)


class Described(Corpus):
    """A corpus that is registered nowhere. `cache_dirs` are where its cache may be, beside SeqIO's own cache directories."""

    cache_dirs: tuple[str, ...]

    @property
    def splits(self) -> Sequence[str]:
        return self.source.splits

    @property
    def cache_dir(self) -> Any:
        """The folder of its cache, the first that is found; None where there is none."""
        return next(filter(is_cache, (folder_of(folder, self.name) for folder in self._cache_dirs)), None)

    @property
    def _cache_dirs(self) -> list[str]:
        seqio = sys.modules.get("seqio")
        return [*self.cache_dirs, *(seqio.get_global_cache_dirs() if seqio else ())]


@dataclasses.dataclass(frozen=True, eq=False)
class TextCorpus(Described):
    """A corpus of texts as it is described."""

    name: str
    source: seqio.DataSource
    vocabulary: seqio.Vocabulary
    configuration: CorpusConfiguration
    cache_dirs: tuple[str, ...] = ()


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
    identity = source_identity(corpus.source)
    if identity is None:
        raise ValueError(f"{corpus.name!r} cannot be cached or exported: {cannot_tell(corpus.source)}")
    if not vocabulary_tells(vocabulary):
        raise ValueError(
            f"{corpus.name!r} cannot be cached or exported: {vocabulary!r} does not say what its ids mean. Use a vocabulary of"
            " open_vocabulary, or give its class an attribute `identity`, a text that says it."
        )
    return corpus.settings(identity)
