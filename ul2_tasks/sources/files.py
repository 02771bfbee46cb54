"""How documents lie in files, in which shards these are read, and where a document is."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from ul2_tasks.example_features import CONVERSATION_FIELDS

DOCUMENTS = ("line", "paragraph", "file")
ID = "id"  # the field that is taken for the id where no other is named
METADATA = "metadata_json"  # a field of conversations, with JSON in which the id may be
MESSAGES = "messages"  # the field of a conversation's messages, whatever its record calls it
MESSAGES_JSON, SYNTH_ID = "messages_json", "synth_id"  # fields that go together in data sets of conversations
INPUT_MANIFEST = "manifest.json"  # in a folder of conversations, which says what they are, and has none
OF_TOKENS = "Files of tokens are read as 'megatron:PREFIX', 'datatrove:FILES', 'flat:FILES' or 'litdata:FOLDER'."
MAX_SHARDS = 64  # fewer files than this are split, so that hosts, workers and denoisers have enough shards to share


Rows: TypeAlias = Iterator[tuple[Any, dict[str, Any] | ValueError]]  # each with where it is


class At(NamedTuple):
    """Where a record is: the place in words, and its row in the file or, see `Shard.before`, the shard."""

    words: str
    row: int

    def __str__(self) -> str:
        return self.words


@dataclasses.dataclass(frozen=True)
class Layout:
    """How documents lie in files.

    Attributes:
        format: the name of one of `formats.FORMATS`; None for the one that the name of each file ends with.
        documents: what a document is in text files: a "line", a "file", or a "paragraph", which ends at blank lines; None for
            other formats.
        text_key: the field, column or feature that holds the text.
        id_key: the one that holds the document's id; None where no id is wanted.
        as_json: whether documents are conversations: a value that is no text, such as a list of messages, is taken, and the id
            may be in the JSON of `METADATA`, too.
        dtype: that of the ids of tokens that are in bytes; None where these are a text.
        loss_weight_key: the one that holds the weights of tokens in the loss; None where all are 1.
        group_by: the one by which records are grouped: those of one value, which follow each other in a file, are one document.
        whole: whether rows are read whole, and none of their fields is asked for.
    """

    format: str | None = None
    documents: str | None = None
    text_key: str = "text"
    id_key: str | None = None
    as_json: bool = False
    dtype: str | None = None
    loss_weight_key: str | None = None
    group_by: str | None = None
    whole: bool = False

    @property
    def own_id_key(self) -> str | None:
        """The field that holds the id, or of conversations may: there it is checked where it is not wanted, too."""
        return self.id_key or (SYNTH_ID if self.as_json and self.text_key == MESSAGES_JSON else None)

    @property
    def read(self) -> list[str]:
        """The fields that are read, if they are there; the text's first."""
        key = self.own_id_key
        more = filter(None, (self.loss_weight_key, self.group_by))
        return [self.text_key, key or ID, *more, *([METADATA] if key and self.as_json else []), *self.beside]

    def wants(self, name: str) -> bool:
        """Whether a field of this name is read, or looked at to tell that nothing reads it."""
        return self.whole or self.as_json or name in self.read

    @property
    def beside(self) -> list[str]:
        """The fields that go with the messages of a conversation, if they are there."""
        return [name for name in CONVERSATION_FIELDS if self.as_json and name != self.text_key]

    @property
    def changed(self) -> list[str]:
        """The settings that are not the default, in words."""
        default = Layout()
        return [f"{name}={value!r}" for name, value in dataclasses.asdict(self).items() if value != getattr(default, name)]

    def missing(self, present: Container[str]) -> str | None:
        """A field that is wanted and not among those that are there; None where none is missing."""
        for key in filter(None, (self.text_key, self.loss_weight_key, self.group_by)):
            if key not in present:
                return key
        has_id = not self.id_key or self.id_key in present or (self.as_json and METADATA in present)
        return None if has_id else self.id_key


@dataclasses.dataclass(frozen=True)
class Shard:
    """A part of a split that is read on its own, such as the documents that begin in a range of a file.

    Attributes:
        path: the file; of a source without files what rows are counted in, and nothing of documents in memory.
        start, stop: the range in it: bytes of lines, row groups of Parquet, record batches of Arrow, rows of a `Dataset`. A stop of
            None is the end.
        before: how many rows of the file are before the shard's; None where only those who read them know, and records are
            counted from the shard's beginning.
        split, number, of: the split, and which of how many shards of it this is.
    """

    path: str = ""
    start: int = 0
    stop: int | None = None
    before: int | None = 0
    split: str = "train"
    number: int = 0
    of: int = 1

    def __str__(self) -> str:
        name = self.path or f"{self.split}-{self.number}"
        return name if self.stop is None else f"{name}[{self.start}:{self.stop}]"


def numbered(split: str, shards: Sequence[Shard]) -> list[Shard]:
    """The shards of a split, each with its number."""
    return [dataclasses.replace(shard, split=split, number=number, of=len(shards)) for number, shard in enumerate(shards)]
