"""What a vocabulary is: texts to ids and back. Its ids are the tokenizer's own. For SeqIO see `tasks/vocabulary.py`."""

from __future__ import annotations

import copy
import dataclasses
import threading
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Tokens:
    """What the ids of a vocabulary are.

    Attributes:
        vocab_size: the last id, plus one.
        extra_ids: how many ids at the end are sentinels and modes that the tokenizer's file does not have.
        bos_id, eos_id, unk_id: None where there is none.
        pad_id: the id that the tokenizer names for padding; None where it names none.
        uses_0: whether id 0 means something else than padding: text, EOS, a sentinel or a mode. Nothing may be padded with it then.
        identity: what the ids mean, apart from the class, the sizes and EOS: equal for equal contents, wherever the files are; None
            where that cannot be told.
        ids: of the tokens by name.
        names: of the tokens by id.
        ordinary: the ids that are there for text, and for nothing else, as far as is known.
        encodable: the ids that are not, but to which a text is encoded that spells their names.
        roles: what tokens are for, by name, where a sentinel or a mode is not to be one of them.
        clashes: what the tokenizer and the files beside it say differently, in words.
    """

    vocab_size: int = 0
    extra_ids: int = 0
    bos_id: int | None = None
    eos_id: int | None = None
    unk_id: int | None = None
    pad_id: int | None = None
    uses_0: bool = False
    identity: str | None = None
    ids: Mapping[str, int] = dataclasses.field(default_factory=dict)
    names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    ordinary: Container[int] = ()
    encodable: Container[int] = ()
    roles: Mapping[str, str] = dataclasses.field(default_factory=dict)
    clashes: tuple[str, ...] = ()


class Vocabulary:
    """A tokenizer with sentinels and modes.

    Text is *encoded* to ids. An ordinary id is there for text. Of the special ids, which are not, text is encoded to some when
    it spells their names, as "<extra_id_0>"; to others it never is.
    """

    @property
    def tokens(self) -> Tokens:
        """What the ids are. Here they have no names, and none is ordinary."""
        return Tokens()

    @property
    def vocab_size(self) -> int:
        return self.tokens.vocab_size

    @property
    def extra_ids(self) -> int:
        return self.tokens.extra_ids

    @property
    def bos_id(self) -> int | None:
        return self.tokens.bos_id

    @property
    def eos_id(self) -> int | None:
        return self.tokens.eos_id

    @property
    def unk_id(self) -> int | None:
        return self.tokens.unk_id

    @property
    def pad_id(self) -> int | None:
        return self.tokens.pad_id

    @property
    def uses_0(self) -> bool:
        return self.tokens.uses_0

    @property
    def identity(self) -> str | None:
        return self.tokens.identity

    @property
    def name(self) -> str:
        """The kind of the vocabulary, in caches and exports."""
        return type(self).__name__

    @property
    def own_size(self) -> int:
        """Where the ids begin that were added after the tokenizer's last."""
        return self.vocab_size - self.extra_ids

    @property
    def made_by(self) -> str:
        """The packages that make the ids, with their versions; empty where that is not known."""
        return ""

    @property
    def fallbacks(self) -> int:
        """How many texts of this thread were left to the slower of these packages, as the faster is not known to agree."""
        return 0

    def check(self) -> None:
        """Raises a ValueError where no examples can be made with it."""

    def piece_id(self, name: str) -> int | None:
        """The id of the piece of this name; None where there is none."""
        return self.tokens.ids.get(name)

    def id_to_piece(self, id: int) -> str:
        """The name of an id as the tokenizer spells it, which may have letters for bytes; `<id>` where it has none."""
        return self.tokens.names.get(id, f"<{id}>")

    def is_ordinary(self, id: int) -> bool:
        """See `Tokens.ordinary`."""
        return id in self.tokens.ordinary

    def encodable_ids(self, ids: Iterable[int]) -> list[int]:
        """The ids among `ids`, ascending, that a text is encoded to if it spells their names. None of `ids` is ordinary."""
        encodable = self.tokens.encodable
        return sorted(id for id in ids if id in encodable)

    def never_encoding(self, ids: Iterable[int]) -> Vocabulary:
        """The vocabulary to tokenize text with: the same ids, except that text is never encoded to some, which are not ordinary.

        A text that spells their names is encoded to ordinary ids. All other texts are encoded as before. Use it for tokenizing
        only, because some names are lost. It is returned as it is where text is not encoded to these ids anyway.
        """
        return self

    def encode_batch(self, texts: Iterable[str | bytes]) -> list[np.ndarray]:
        """The ids of each text, [tokens] int32. Bytes that are not UTF-8 become U+FFFD, as in SentencePiece."""
        raise NotImplementedError

    def encode(self, text: str) -> Sequence[int]:
        """The ids of a text, without EOS."""
        return self.encode_batch([text])[0].tolist()

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, up to the first EOS. Ids beyond the vocabulary are unknown."""
        values = [int(id) for id in ids]
        if self.unk_id is not None:
            values = [self.unk_id if id >= self.vocab_size else id for id in values]
        if self.eos_id is not None and self.eos_id in values:
            values = values[: values.index(self.eos_id) + 1]
        return self.decode_all(values)

    def decode_all(self, ids: Sequence[int]) -> str:
        """The text of ids, also of those after an EOS."""
        raise NotImplementedError

    def bytes_of(self, id: int) -> bytes | None:
        """The bytes that an id adds to a text, which may be a part of a character; None where only decoding can tell."""
        return None


class FileVocabulary(Vocabulary):
    """A vocabulary of files, which are read at its first use, and again by a copy in another process.

    Two are equal if their contents and all else are, wherever the files are.
    """

    def __init__(self) -> None:
        self._never_encoded: frozenset[int] = frozenset()
        self._source: Any = None  # the contents as they were at the first use
        self._tokens: Tokens | None = None

    def _read(self) -> Hashable:
        """The contents of the files as they are now."""
        raise NotImplementedError

    def _load(self, source: Any) -> Tokens:
        """What the contents are, with sentinels and modes."""
        raise NotImplementedError

    @property
    def source(self) -> Any:
        """The contents of the files as they were at the first use."""
        if self._source is None:
            self._source = self._read()
        return self._source

    @property
    def tokens(self) -> Any:
        if self._tokens is None:
            source = self.source
            with load_lock:
                self._tokens = self._load(source)
        return self._tokens

    def never_encoding(self, ids: Iterable[int]) -> FileVocabulary:
        if not (encodable := self.encodable_ids(ids)):
            return self
        changed = copy.copy(self)
        changed._never_encoded, changed._tokens = self._never_encoded.union(encodable), None
        return changed

    def __getstate__(self) -> dict[str, Any]:
        """Without what was read, which can be large."""
        return {**self.__dict__, "_source": None, "_tokens": None}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FileVocabulary):
            return False
        if type(self) is type(other) and self.__dict__ == other.__dict__:  # both may be unread
            return True
        return (self.eos_id, self.extra_ids, self.identity) == (other.eos_id, other.extra_ids, other.identity)

    def __hash__(self) -> int:
        return hash(self.identity)


load_lock = threading.Lock()  # sentencepiece loads one model at a time, and two threads are not to load the same
