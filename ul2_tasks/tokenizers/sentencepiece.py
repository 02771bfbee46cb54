"""SentencePiece vocabularies: the one that this package ships, and any model with sentinels and modes added.

A SentencePiece model gives each piece a type. These matter here:

    NORMAL, BYTE   ordinary pieces, there for text
    USER_DEFINED   special, but a text that spells the piece is encoded to it; SeqIO's own extra ids are such
    CONTROL        special, and no text is ever encoded to it, but decoding leaves it out
    UNKNOWN        stands for what is no piece, unless there are bytes for it

So sentinels and modes are best CONTROL pieces; and for decoding alone they are made USER_DEFINED, so that they can be seen.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import importlib.resources
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from sentencepiece import SentencePieceProcessor

from ul2_tasks.files.listing import read_as_it_is
from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.model_file import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, read_pieces, with_pieces
from ul2_tasks.tokenizers.pieces import free_name

DEFAULT_MODEL = importlib.resources.files("ul2_tasks") / "data" / "default.model"

_ORDINARY = (NORMAL, BYTE)


class SentencePieceVocabulary(Vocabulary):
    """A SentencePiece model with more control pieces, which text is never encoded to. Opens no file before its first use.

    Text is encoded as the model encodes it. Decoding shows control pieces such as `<extra_id_0>` and `[R]`, but not padding, BOS
    and EOS, and not id 0 where that is padding.

    The names `appended` become control pieces after the model's last id. No piece is added for a name that is a special piece
    already. Where the name is an ordinary piece, text is encoded to that one, and the control piece has another spelling
    (`pieces.free_name`).

    Two vocabularies are equal if their models and all else are, wherever the files are.
    """

    def __init__(self, file: str, appended: Sequence[str] = ()):
        self.file = file
        self.appended = tuple(appended)
        self._never_encoded: frozenset[int] = frozenset()
        self._source: bytes | None = None  # the model as it was when it was first used

    @property
    def bos_id(self) -> int | None:
        return _if_any(self.processor.bos_id())

    @property
    def eos_id(self) -> int | None:
        return _if_any(self.processor.eos_id())

    @property
    def unk_id(self) -> int | None:
        return _if_any(self.processor.unk_id())

    @property
    def pad_id(self) -> int | None:
        return _if_any(self.processor.pad_id())

    @property
    def uses_0(self) -> bool:
        return self._loaded.uses_0

    @property
    def vocab_size(self) -> int:
        return self.processor.GetPieceSize()

    @property
    def extra_ids(self) -> int:
        return self._loaded.added

    @property
    def identity(self) -> str:
        """See `base.Vocabulary`."""
        return f"sha256 {hashlib.sha256(self.model).hexdigest()}"

    @property
    def model(self) -> bytes:
        """The serialized model, with all changes."""
        return self._loaded.model

    @property
    def processor(self) -> SentencePieceProcessor:
        """SentencePiece's own."""
        return self._loaded.processor

    def check(self) -> None:
        """Raises a ValueError where the model has no EOS."""
        if self.eos_id is None:
            raise ValueError(
                f"vocabulary must have an EOS, which ends an example, got {self}, which has none. Train it with an EOS, or pass a"
                " tokenizer.json. See docs/help/troubleshooting.md#a-tokenizer-has-no-eos."
            )

    def piece_id(self, name: str) -> int | None:
        name = self._loaded.spellings.get(name, name)
        for spelling in (name, "\u2581" + name):  # SeqIO's own extra ids start with a word boundary
            id = self.processor.piece_to_id(spelling)
            if self.id_to_piece(id) == spelling:
                return id
        return None

    def id_to_piece(self, id: int) -> str:
        return self.processor.id_to_piece(id)

    def is_ordinary(self, id: int) -> bool:
        return self._loaded.types[id] in _ORDINARY

    def encodable_ids(self, ids: Iterable[int]) -> list[int]:
        types = self._loaded.types
        return [id for id in ids if types[id] == USER_DEFINED]

    def never_encoding(self, ids: Iterable[int]) -> SentencePieceVocabulary:
        changed = copy.copy(self)
        changed._never_encoded, changed._source = self._never_encoded.union(ids), self._source
        return changed

    def encode_batch(self, texts: Iterable[str | bytes]) -> list[np.ndarray]:
        """See `base.Vocabulary`."""
        encoded = self.processor.encode(list(texts), out_type=int, num_threads=1)
        return [np.array(ids, np.int32) for ids in encoded]

    def encode(self, text: str) -> list[int]:
        return self.processor.encode(text)

    def decode_all(self, ids: Sequence[int]) -> str:
        loaded = self._loaded
        with _load_lock:
            shown = _shown(loaded.model, loaded.uses_0)
        return shown.decode([int(id) for id in ids])

    def content(self) -> bytes:
        """The model as it is now."""
        try:
            return read_as_it_is(self.file)
        except FileNotFoundError as error:
            raise ValueError(f"vocabulary must be a SentencePiece model, got {self.file}, which does not exist.") from error

    @property
    def _loaded(self) -> _Loaded:
        if self._source is None:
            self._source = self.content()
        try:
            with _load_lock:
                return _load(self._source, self.appended, self._never_encoded)
        except (ValueError, RuntimeError) as error:
            raise ValueError(
                f"{self.file} must be a SentencePiece model, got another file ({error}). If it is"
                " one of tiktoken's (Llama 3), pass the tokenizer.json that the same model has for Hugging Face."
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        """Without the model, which can be large."""
        return {**self.__dict__, "_source": None}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SentencePieceVocabulary):
            return False
        if self.__dict__ == other.__dict__:  # both may be unread
            return True
        return (self.extra_ids, self.identity) == (other.extra_ids, other.identity)

    def __hash__(self) -> int:
        return hash(self.identity)

    def __repr__(self) -> str:
        return f"SentencePieceVocabulary({self.file!r}{f', {self.appended}' if self.appended else ''})"


def default_vocabulary() -> SentencePieceVocabulary:
    """Returns the bundled vocabulary: 4,096 pieces, trained on the built-in corpus. Opens no file.

    Padding is 0, EOS 1, unknown 2; `<extra_id_0>` .. `<extra_id_255>`, `[R]`, `[S]` and `[X]` are control pieces: no text is
    encoded to them, and decoding shows them. It lets everything run offline; for real training use your own vocabulary.
    """
    return SentencePieceVocabulary(str(DEFAULT_MODEL))


@dataclasses.dataclass(frozen=True)
class _Loaded:
    model: bytes
    processor: SentencePieceProcessor
    types: Sequence[int]
    spellings: Mapping[str, str]  # the pieces of appended names that are spelled differently
    added: int
    uses_0: bool


_load_lock = threading.Lock()  # sentencepiece loads one model at a time


@functools.lru_cache(maxsize=16)
def _load(content: bytes, appended: tuple[str, ...], never_encoded: frozenset[int]) -> _Loaded:
    """A model's file with control pieces added."""
    names, types = read_pieces(content)
    ids = {name: id for id, name in enumerate(names)}
    spellings = {}
    for name in appended:
        if name not in ids or types[ids[name]] in _ORDINARY:
            spellings[name] = free_name(name, ids)
    added = [(spelling, CONTROL) for spelling in spellings.values()]
    model = with_pieces(content, dict.fromkeys(never_encoded, CONTROL), added) if added or never_encoded else content
    processor = SentencePieceProcessor(model_proto=model)
    # A text that is no piece becomes the unknown one, unless there are bytes for it.
    is_for_text = types[0] in (NORMAL, USER_DEFINED, BYTE) or (types[0] == UNKNOWN and BYTE not in types)
    uses_0 = is_for_text or names[0] in appended or processor.eos_id() == 0
    changed = [CONTROL if id in never_encoded else type for id, type in enumerate(types)]
    return _Loaded(model, processor, [*changed, *(type for _, type in added)], spellings, len(added), uses_0)


@functools.lru_cache(maxsize=8)
def _shown(model: bytes, uses_0: bool) -> SentencePieceProcessor:
    """The model for decoding: control pieces are user-defined ones in it, because decoding shows these."""
    names, types = read_pieces(model)
    own = SentencePieceProcessor(model_proto=model)
    hidden = {own.pad_id(), own.bos_id(), own.eos_id()}
    changed = {id: USER_DEFINED for id, type in enumerate(types) if type == CONTROL and id not in hidden}
    added = []
    if not uses_0:
        if types[0] == UNKNOWN:  # sentencepiece wants one, and piece 0 is about to be another type
            added = [(free_name("<unk>", names), UNKNOWN)]
        changed[0] = CONTROL
    return SentencePieceProcessor(model_proto=with_pieces(model, changed, added))


def _if_any(id: int) -> int | None:
    """An id; None for -1, with which SentencePiece says that there is none."""
    return None if id < 0 else id
