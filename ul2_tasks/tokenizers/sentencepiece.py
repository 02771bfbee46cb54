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
from typing import Any, TypeAlias

import numpy as np
from google.protobuf.message import DecodeError
from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2

from ul2_tasks.files.listing import read_as_it_is
from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.pieces import free_name

DEFAULT_MODEL = importlib.resources.files("ul2_tasks") / "data" / "default.model"

_Model: TypeAlias = sentencepiece_model_pb2.ModelProto
_Piece = _Model.SentencePiece
_ORDINARY = (_Piece.NORMAL, _Piece.BYTE)


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
        return [id for id in ids if types[id] == _Piece.USER_DEFINED]

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
        except (DecodeError, RuntimeError, UnicodeDecodeError, LookupError) as error:
            raise ValueError(
                f"{self.file} must be a SentencePiece model, got another file ({_reason(error)}). If it is"
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
    """A model's file with control pieces added. It is serialized again, as SeqIO does: caches know vocabularies by its hash."""
    proto = _Model.FromString(content)
    types = {piece.piece: piece.type for piece in proto.pieces}
    uses_0 = text_becomes_0(proto) or proto.pieces[0].piece in (proto.trainer_spec.eos_piece, *appended)
    spellings = {}
    for name in appended:
        if types.get(name, _Piece.NORMAL) in _ORDINARY:
            spelling = free_name(name, types)
            proto.pieces.add(piece=spelling, type=_Piece.CONTROL)
            if spelling != name:
                spellings[name] = spelling
    for id in never_encoded:
        proto.pieces[id].type = _Piece.CONTROL
    added = len(proto.pieces) - len(types)
    model = proto.SerializeToString()
    processor = SentencePieceProcessor(model_proto=model)
    processor.id_to_piece(list(range(len(proto.pieces))))  # raises where one is not UTF-8
    return _Loaded(model, processor, [piece.type for piece in proto.pieces], spellings, added, uses_0)


def text_becomes_0(model: _Model) -> bool:
    """Whether piece 0 is one for text; or the unknown one of a model without bytes, which text that is no piece becomes."""
    type = model.pieces[0].type
    return type not in (_Piece.CONTROL, _Piece.UNUSED) and not (type == _Piece.UNKNOWN and model.trainer_spec.byte_fallback)


@functools.lru_cache(maxsize=8)
def _shown(model: bytes, uses_0: bool) -> SentencePieceProcessor:
    """The model for decoding: control pieces are user-defined ones in it, because decoding shows these."""
    proto = _Model.FromString(model)
    spec = proto.trainer_spec
    for piece in proto.pieces:
        if piece.type == _Piece.CONTROL and piece.piece not in (spec.pad_piece, spec.bos_piece, spec.eos_piece):
            piece.type = _Piece.USER_DEFINED
    if not uses_0:
        if proto.pieces[0].type == _Piece.UNKNOWN:  # sentencepiece wants one, and piece 0 is about to be another type
            proto.pieces.add(piece=free_name("<unk>", {piece.piece for piece in proto.pieces}), type=_Piece.UNKNOWN)
        proto.pieces[0].type = _Piece.CONTROL
    return SentencePieceProcessor(model_proto=proto.SerializeToString())


def _if_any(id: int) -> int | None:
    """An id; None for -1, with which SentencePiece says that there is none."""
    return None if id < 0 else id


def _reason(error: Exception) -> str:
    return "it has no piece" if isinstance(error, LookupError) else str(error).partition(" [")[0]
