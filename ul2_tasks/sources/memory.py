"""Documents in memory, and the corpus that every Python has."""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import pickle
import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from ul2_tasks.cached import cached_property
from ul2_tasks.scalars import check_split
from ul2_tasks.sources.base import RecordSource
from ul2_tasks.sources.files import At, Shard, numbered
from ul2_tasks.sources.records import Record
from ul2_tasks.sources.splits import check_fraction, hash_fraction
from ul2_tasks.sources.words import name_of

_SHARDS = 16  # where no number is asked for
EMBEDDED_VALIDATION = 0.05
_DOCUMENT_CHARACTERS = 500  # embedded documents are at least this long, except at the end of a topic


class MemoryDataSource(RecordSource):
    """Documents in memory, split by a hash of their text.

    A document's split depends on its text alone, so it is the same on every machine and in every order.
    """

    def __init__(self, load: Callable[[], Iterable[str]], validation: float):
        """
        Args:
            load: a function that returns the documents. It is called when they are first needed.
            validation: the fraction of documents that go to the split `validation`, in [0, 1). The others are `train`.

        Raises:
            ValueError: `load` is not a function, or `validation` is not in [0, 1).
        """
        if not callable(load):
            raise ValueError(
                f"load must be a function that returns the documents, such as lambda: texts, got {reprlib.repr(load)}."
            )
        check_fraction(validation)
        super().__init__(splits=("train", "validation") if validation else ("train",))
        self._load = load
        self._validation = validation
        self._documents: dict[str, list[str]] | None = None

    def __repr__(self) -> str:
        return f"MemoryDataSource({name_of(self._load)}, validation={self._validation})"

    def __getstate__(self) -> dict:
        """Its documents go along to another process where their function cannot: it is a lambda, or within another function."""
        try:
            pickle.dumps(self._load)
        except Exception:  # which pickle raises depends on the function
            texts = [text for split in self.splits for text in self.documents(split)]
            return {**self.__dict__, "_load": _Loaded(texts, name_of(self._load)), "_documents": None}
        return self.__dict__

    @cached_property
    def identity(self) -> str:
        """What it reads: the number of documents, and a SHA-256 of them. Loads them."""
        found = hashlib.sha256()
        for split in self.splits:
            for text in self.documents(split):
                found.update(hashlib.sha256(as_bytes(text)).digest())
        count = sum(len(self.documents(split)) for split in self.splits)
        return f"MemoryDataSource({count} documents, sha256 {found.hexdigest()}, validation={self._validation})"

    @property
    def any_number_of_shards(self) -> bool:
        return True

    def shards(self, split: str, at_least: int = 0) -> Sequence[Shard]:
        """Up to 16 shards, or as many as are asked for and there are documents; shard s of n has every n-th document from s on."""
        count = max(1, min(max(_SHARDS, at_least), self.count(split)))
        return numbered(split, [Shard()] * count)

    def read(self, shard: Shard) -> Iterator[Record]:
        rows = range(shard.number, self.count(shard.split), shard.of)
        return (_record_of(self.documents(shard.split)[row], row, shard.split) for row in rows)

    def count(self, split: str) -> int:
        return len(self.documents(split))

    def documents(self, split: str) -> list[str]:
        """Returns the documents of a split, in the order of the corpus.

        Raises:
            ValueError: the split does not exist, or what was loaded is not a list of texts.
        """
        if self._documents is None:
            self._documents = self._loaded()  # not before all are there: a load that was interrupted begins anew
        check_split(split, self._documents, self)
        return self._documents[split]

    def _loaded(self) -> dict[str, list[str]]:
        loaded = self._load()
        if isinstance(loaded, str | bytes) or not isinstance(loaded, Iterable):
            raise ValueError(f"load must return a list of texts, got {reprlib.repr(loaded)} from {self}.")
        found: dict[str, list[str]] = {name: [] for name in self.splits}
        for number, text in enumerate(loaded):
            if not isinstance(text, str):
                raise ValueError(f"document {number} of {self} must be a text (str), got {reprlib.repr(text)}.")
            found["validation" if hash_fraction(as_bytes(text)) < self._validation else "train"].append(text)
        return found


def as_bytes(text: str) -> bytes:
    """The UTF-8 of a text; of one with surrogates, which is no Unicode, bytes that are no UTF-8, as those of a bad file are.

    >>> as_bytes("é"), as_bytes("\\ud800")
    (b'\\xc3\\xa9', b'\\xed\\xa0\\x80')
    """
    return text.encode(errors="surrogatepass")


def _record_of(text: str, row: int, split: str) -> Record:
    """The record of a text, which is this one of its split."""
    try:
        return Record(text.encode(), where=At("", row))
    except UnicodeEncodeError as error:
        return Record(problem=f"document {row} of the split {split!r} in memory: is not Unicode, {error.reason}", where=At("", row))


class _Loaded:
    """Returns documents that a function of this name has loaded."""

    def __init__(self, texts: list[str], name: str):
        self.texts, self.__name__ = texts, name

    def __call__(self) -> list[str]:
        return self.texts


@functools.cache
def embedded_corpus() -> MemoryDataSource:
    """English prose that every Python has: the topics of `pydoc`, about 450 kB, which differ a little between versions."""
    return MemoryDataSource(embedded_documents, validation=EMBEDDED_VALIDATION)


@functools.cache
def embedded_chat() -> MemoryDataSource:
    """Conversations that come with this package: reasoning and answers, calls of tools, several turns, several languages."""
    return MemoryDataSource(embedded_conversations, validation=0.15)


def embedded_conversations() -> list[str]:
    """Each as a text of JSON, see `chat.messages.parse`."""
    return (importlib.resources.files("ul2_tasks") / "data" / "chat.jsonl").read_text(encoding="utf-8").splitlines()


def texts_in_memory(texts: Sequence[str]) -> MemoryDataSource:
    """A source of these texts. Each is a document of the split `train`."""
    return MemoryDataSource(lambda: texts, validation=0)


def embedded_documents() -> list[str]:
    """Returns the built-in corpus: the prose of Python's `help()` topics, in documents of at least 500 characters."""
    from pydoc_data.topics import topics  # imported here because `import ul2_tasks` is to open no file

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
    """Whether a paragraph is sentences, and no code, grammar or heading."""
    return paragraph.rstrip().endswith((".", "!", "?", ":")) and "::=" not in paragraph and len(paragraph.split()) >= 8
