"""SentencePiece vocabularies: the one that this package ships, and any model with sentinels and modes added.

A SentencePiece model gives each piece a type. These matter here:

    NORMAL, BYTE   ordinary pieces, there for text
    USER_DEFINED   special, but a text that spells the piece is encoded to it; SeqIO's own extra ids are such
    CONTROL        special, and no text is ever encoded to it, but decoding leaves it out
    UNKNOWN        stands for what is no piece, unless there are bytes for it

So sentinels and modes are best CONTROL pieces; and for decoding alone they are made USER_DEFINED, so that they can be seen.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.resources
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import seqio
import tensorflow as tf
import tensorflow_text as tf_text
from google.protobuf.message import DecodeError
from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2

from ul2_tasks.vocabulary.own_ids import SentencePieceIds
from ul2_tasks.vocabulary.pieces import free_name

DEFAULT_MODEL = importlib.resources.files("ul2_tasks") / "data" / "default.model"

_Model: TypeAlias = sentencepiece_model_pb2.ModelProto
_Piece = _Model.SentencePiece
_ORDINARY = (_Piece.NORMAL, _Piece.BYTE)


class SentencePieceVocabulary(seqio.SentencePieceVocabulary):
    """SeqIO's vocabulary, except that decoding shows control pieces such as `<extra_id_0>` and `[R]`, as T5's shows its sentinels.

    Padding, BOS and EOS decode to nothing, as in SeqIO's. So does id 0 where the model has another piece there.
    """

    def _decode(self, ids: Iterable[int]) -> str:
        return self._shown().tokenizer.decode([int(id) for id in ids])

    def _decode_tf(self, ids: tf.Tensor) -> tf.Tensor:
        return tf_text.SentencepieceTokenizer(model=self._shown().model).detokenize(ids)

    def own_encoder(self) -> SentencePieceIds:
        """A function that gives the ids of a text in the model's file, and needs no SeqIO."""
        return SentencePieceIds(self.tokenizer, getattr(self, "id_shift", 0))

    def _shown(self) -> _Loaded:
        model = self.sp_model
        with _load_lock:
            return _shown(model)


def has_the_ids_of_python(vocabulary: seqio.SentencePieceVocabulary) -> bool:
    """Whether text is encoded in a graph to the ids of the model's Python library. SeqIO's fast tokenizer has others."""
    return type(vocabulary)._encode_tf is seqio.SentencePieceVocabulary._encode_tf and not _is_fast(vocabulary)


def _is_fast(vocabulary: seqio.SentencePieceVocabulary) -> bool:
    return getattr(vocabulary, "_use_fast_tokenizer", False)


class ControlledVocabulary(SentencePieceVocabulary):
    """A SentencePiece vocabulary with more control pieces, which text is never encoded to. Opens no file yet.

    All ids are one higher than the model's (`id_shift`), and 0 is padding, where the model's id 0 is for text, or is its EOS or
    one of the names.

    It encodes all texts to the same ids as `vocabulary`, but for the shift and for `never_encoded`, ids of user-defined pieces that
    become control pieces. The names `appended` become control pieces after its last id. No piece is added for a name that is a
    special piece already. Where the name is an ordinary piece, text is encoded to that one, and the control piece has another
    spelling (`pieces.free_name`).
    """

    def __init__(self, vocabulary: seqio.SentencePieceVocabulary, appended: Sequence[str] = (), never_encoded: Iterable[int] = ()):
        super().__init__(
            vocabulary.sentencepiece_model_file,
            extra_ids=vocabulary.extra_ids,
            use_fast_tokenizer=_is_fast(vocabulary),
        )
        self._vocabulary = vocabulary
        self.appended = tuple(appended)
        self._never_encoded = frozenset(never_encoded)

    @property
    def sp_model(self) -> bytes:
        return self._controlled().model

    @property
    def tokenizer(self) -> SentencePieceProcessor:
        return self._controlled().tokenizer

    @property
    def id_shift(self) -> int:
        """How much higher the ids are than those of the model's file, 0 or 1."""
        return getattr(self._vocabulary, "id_shift", 0) + self._controlled().shift

    @property
    def own_size(self) -> int:
        """See `special_ids.own_size`."""
        inner = self._vocabulary
        return getattr(inner, "own_size", inner.vocab_size - inner.extra_ids) + self._controlled().shift

    @property
    def spellings(self) -> Mapping[str, str]:
        """The pieces of the appended names that are spelled differently from their names."""
        return self._controlled().spellings

    def load_model(self) -> None:
        self._controlled()

    def _controlled(self) -> _Controlled:
        try:
            model = self._vocabulary.sp_model
            with _load_lock:
                return _controlled(model, self.appended, self._never_encoded)
        except tf.errors.NotFoundError as error:
            raise ValueError(f"there is no {self.sentencepiece_model_file}, expected a SentencePiece model") from error
        except (DecodeError, RuntimeError, UnicodeDecodeError, LookupError) as error:
            raise ValueError(
                f"{self.sentencepiece_model_file} is no SentencePiece model; if it is one of tiktoken's (Llama 3), take the"
                f" tokenizer.json that the same model has for Hugging Face ({_reason(error)})"
            ) from error


class SentencePieces:
    """The `pieces.Pieces` of any SentencePiece vocabulary, SeqIO's own included. It asks the vocabulary for each part once."""

    def __init__(self, vocabulary: seqio.SentencePieceVocabulary):
        self._vocabulary = vocabulary

    @property
    def identity(self) -> str:
        return f"sha256 {hashlib.sha256(self._vocabulary.sp_model).hexdigest()}"

    def piece_id(self, name: str) -> int | None:
        name = self._spellings.get(name, name)
        for spelling in (name, "\u2581" + name):  # SeqIO's own extra ids start with a word boundary
            id = self._tokenizer.piece_to_id(spelling)
            if self.id_to_piece(id) == spelling:
                return id
        return None

    def id_to_piece(self, id: int) -> str:
        return self._tokenizer.id_to_piece(id)

    def is_ordinary(self, id: int) -> bool:
        return self._types[id] in _ORDINARY

    def encodable_ids(self, ids: Iterable[int]) -> list[int]:
        return [id for id in ids if self._types[id] == _Piece.USER_DEFINED]

    def never_encoding(self, ids: Iterable[int]) -> seqio.Vocabulary:
        return ControlledVocabulary(self._vocabulary, never_encoded=ids)

    @functools.cached_property
    def _spellings(self) -> Mapping[str, str]:
        return getattr(self._vocabulary, "spellings", {})

    @functools.cached_property
    def _tokenizer(self) -> SentencePieceProcessor:
        return self._vocabulary.tokenizer

    @functools.cached_property
    def _types(self) -> Sequence[int]:
        return _piece_types(self._vocabulary.sp_model)


def default_vocabulary() -> SentencePieceVocabulary:
    """The vocabulary that ships with this package: 4,096 pieces, trained on the embedded corpus. Opens no file yet.

    Padding is 0, EOS 1, unknown 2; `<extra_id_0>` .. `<extra_id_255>`, `[R]`, `[S]` and `[X]` are control pieces: no text is
    encoded to them, and decoding shows them. It is there so that everything runs offline; for real work take your own.
    """
    return SentencePieceVocabulary(str(DEFAULT_MODEL))


@functools.lru_cache(maxsize=8)
def text_becomes_0(model: bytes) -> bool:
    """Whether a serialized model encodes some text to id 0."""
    return _zero_is_for_text(_Model.FromString(model))


def _zero_is_for_text(model: _Model) -> bool:
    """Whether piece 0 is one for text; or the unknown one of a model without bytes, which text that is no piece becomes."""
    type = model.pieces[0].type
    return type not in (_Piece.CONTROL, _Piece.UNUSED) and not (type == _Piece.UNKNOWN and model.trainer_spec.byte_fallback)


@dataclasses.dataclass(frozen=True)
class _Loaded:
    model: bytes
    tokenizer: SentencePieceProcessor


@dataclasses.dataclass(frozen=True)
class _Controlled(_Loaded):
    spellings: Mapping[str, str]
    shift: int


_load_lock = threading.Lock()  # sentencepiece loads one model at a time


@functools.lru_cache(maxsize=8)
def _controlled(model: bytes, appended: tuple[str, ...], never_encoded: frozenset[int]) -> _Controlled:
    """The model with control pieces added, and its ids shifted where they have to be; see `ControlledVocabulary`."""
    proto = _Model.FromString(model)
    types = {piece.piece: piece.type for piece in proto.pieces}
    shift = int(_zero_is_for_text(proto) or proto.pieces[0].piece in (proto.trainer_spec.eos_piece, *appended))
    spellings = {}
    for name in appended:
        if types.get(name, _Piece.NORMAL) in _ORDINARY:
            spelling = free_name(name, types)
            proto.pieces.add(piece=spelling, type=_Piece.CONTROL)
            if spelling != name:
                spellings[name] = spelling
    for id in never_encoded:
        proto.pieces[id].type = _Piece.CONTROL
    if shift:
        proto.pieces.insert(0, _Piece(piece=free_name("<pad>", types), type=_Piece.CONTROL))
    edited = proto.SerializeToString()
    tokenizer = SentencePieceProcessor(model_proto=edited)
    tokenizer.id_to_piece(list(range(len(proto.pieces))))  # raises where one is not UTF-8
    return _Controlled(edited, tokenizer, spellings, shift)


def _reason(error: Exception) -> str:
    return "it has no piece" if isinstance(error, LookupError) else str(error).partition(" [")[0]


@functools.lru_cache(maxsize=8)
def _shown(model: bytes) -> _Loaded:
    """The model for decoding: control pieces are user-defined ones in it, because decoding shows these."""
    proto = _Model.FromString(model)
    spec = proto.trainer_spec
    for piece in proto.pieces:
        if piece.type == _Piece.CONTROL and piece.piece not in (spec.pad_piece, spec.bos_piece, spec.eos_piece):
            piece.type = _Piece.USER_DEFINED
    if proto.pieces[0].type == _Piece.UNKNOWN:  # sentencepiece wants one, and piece 0 is about to be another type
        proto.pieces.add(piece=free_name("<unk>", {piece.piece for piece in proto.pieces}), type=_Piece.UNKNOWN)
    proto.pieces[0].type = _Piece.CONTROL
    shown = proto.SerializeToString()
    return _Loaded(shown, SentencePieceProcessor(model_proto=shown))


@functools.lru_cache(maxsize=8)
def _piece_types(model: bytes) -> list[int]:
    return [piece.type for piece in _Model.FromString(model).pieces]
