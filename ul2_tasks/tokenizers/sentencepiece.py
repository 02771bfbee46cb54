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
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np
from google.protobuf.message import DecodeError
from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2

from ul2_tasks.cached import cached_property
from ul2_tasks.files.listing import read_as_it_is
from ul2_tasks.imported import failures, is_seqio, subclass_of_seqio
from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.own_ids import SentencePieceIds
from ul2_tasks.tokenizers.pieces import free_name

if TYPE_CHECKING:
    import seqio
    import tensorflow as tf

DEFAULT_MODEL = importlib.resources.files("ul2_tasks") / "data" / "default.model"

_Model: TypeAlias = sentencepiece_model_pb2.ModelProto
_Piece = _Model.SentencePiece
_ORDINARY = (_Piece.NORMAL, _Piece.BYTE)


@subclass_of_seqio("SentencePieceVocabulary", "seqio.vocabularies")
class SentencePieceVocabulary(Vocabulary):
    """SeqIO's vocabulary, except that decoding shows control pieces such as `<extra_id_0>` and `[R]`, as T5's shows its sentinels.

    Padding, BOS and EOS decode to nothing, as in SeqIO's. So does id 0 where the model has another piece there. It equals SeqIO's
    of the same file, and needs no SeqIO.
    """

    def __init__(self, sentencepiece_model_file: str, extra_ids: int = 0, use_fast_tokenizer: bool = False):
        super().__init__(extra_ids)
        self._sentencepiece_model_file = sentencepiece_model_file
        # As SeqIO's has them, with which it is compared.
        self._normalizer_spec_overrides = None
        self._reverse_extra_ids = True
        self._use_fast_tokenizer = use_fast_tokenizer
        self._read: _Loaded | None = None  # the model as it was when it was first used

    @property
    def sentencepiece_model_file(self) -> str:
        return self._sentencepiece_model_file

    @property
    def bos_id(self) -> int | None:
        return _if_any(self.tokenizer.bos_id())

    @property
    def eos_id(self) -> int | None:
        return _if_any(self.tokenizer.eos_id())

    @property
    def unk_id(self) -> int | None:
        return _if_any(self.tokenizer.unk_id())

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.GetPieceSize()

    @property
    def sp_model(self) -> bytes:
        """The serialized model."""
        return self._opened().model

    @property
    def tokenizer(self) -> SentencePieceProcessor:
        """SentencePiece's own."""
        return self._opened().tokenizer

    @property
    def tf_tokenizer(self) -> Any:
        """TensorFlow's."""
        from ul2_tasks.tokenizers.in_graphs import sentencepiece_tokenizer

        return sentencepiece_tokenizer(self.sp_model, self._use_fast_tokenizer)

    def encode_batch(self, texts: Iterable[str | bytes]) -> list[np.ndarray]:
        """See `base.Vocabulary`."""
        return encode_by_library(self.tokenizer, list(texts))

    def own_encoder(self) -> SentencePieceIds:
        """A function that gives the ids of a text in the model's file, and needs no SeqIO."""
        return SentencePieceIds(self.tokenizer, getattr(self, "id_shift", 0))

    def _encode(self, s: str) -> list[int]:
        return self.tokenizer.EncodeAsIds(s)

    def _decode(self, ids: Iterable[int]) -> str:
        return self._shown().tokenizer.decode([int(id) for id in ids])

    def _encode_tf(self, s: tf.Tensor) -> tf.Tensor | tf.RaggedTensor:
        return self.tf_tokenizer.tokenize(s)

    def _decode_tf(self, ids: tf.Tensor) -> tf.Tensor:
        from ul2_tasks.tokenizers.in_graphs import sentencepiece_tokenizer

        return sentencepiece_tokenizer(self._shown().model, is_fast=False).detokenize(ids)

    def _opened(self) -> _Loaded:
        if self._read is None:
            content = read_as_it_is(self._sentencepiece_model_file)
            with _load_lock:
                self._read = _loaded(content)
        return self._read

    def _shown(self) -> _Loaded:
        model = self.sp_model
        with _load_lock:
            return _shown(model)

    def __getstate__(self) -> dict[str, Any]:
        """Without the model, as SeqIO's."""
        return {key: value for key, value in self.__dict__.items() if key != "_read"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._read = None

    def __eq__(self, other: object) -> bool:
        if not is_sentencepiece(other) or self.__getstate__() != other.__getstate__():
            return False
        theirs = getattr(other, "_read", None)
        return self._read is theirs or self.sp_model == other.sp_model  # the file may have been replaced between them

    def __str__(self) -> str:
        md5 = hashlib.md5(self.sp_model).hexdigest()
        return f"SentencePieceVocabulary(file={self.sentencepiece_model_file}, extra_ids={self._extra_ids}, spm_md5={md5})"


def _if_any(id: int) -> int | None:
    """An id; None for -1, with which SentencePiece says that there is none."""
    return None if id < 0 else id


def is_sentencepiece(value: object) -> TypeGuard[seqio.SentencePieceVocabulary]:
    """Whether a value is a SentencePiece vocabulary, of this package or SeqIO's own."""
    return isinstance(value, SentencePieceVocabulary) or is_seqio(value, "SentencePieceVocabulary")


def has_the_ids_of_python(vocabulary: seqio.SentencePieceVocabulary) -> bool:
    """Whether text is encoded in a graph to the ids of the model's Python library. SeqIO's fast tokenizer has others."""
    encode_tf = type(vocabulary)._encode_tf
    own = SentencePieceVocabulary._encode_tf
    return not _is_fast(vocabulary) and (encode_tf is own or encode_tf is _encode_tf_of_seqio())


def _encode_tf_of_seqio() -> object:
    found = sys.modules.get("seqio")
    return None if found is None else found.SentencePieceVocabulary._encode_tf


def encode_by_library(tokenizer: SentencePieceProcessor, texts: Sequence[str | bytes]) -> list[np.ndarray]:
    """The ids of each text, [tokens] int32."""
    encoded = tokenizer.encode(list(texts), out_type=int, num_threads=1)
    return [np.array(ids, np.int32) for ids in encoded]


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

    def _opened(self) -> _Loaded:
        return self._controlled()

    def _controlled(self) -> _Controlled:
        try:
            model = self._vocabulary.sp_model
            with _load_lock:
                return _controlled(model, self.appended, self._never_encoded)
        except failures() as error:
            if type(error).__name__ not in ("FileNotFoundError", "NotFoundError"):  # Python's; TensorFlow's
                raise
            raise ValueError(
                f"vocabulary must be a SentencePiece model, got {self.sentencepiece_model_file}, which does not exist."
            ) from error
        except (DecodeError, RuntimeError, UnicodeDecodeError, LookupError) as error:
            raise ValueError(
                f"{self.sentencepiece_model_file} must be a SentencePiece model, got another file ({_reason(error)}). If it is"
                " one of tiktoken's (Llama 3), pass the tokenizer.json that the same model has for Hugging Face."
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

    @cached_property
    def _spellings(self) -> Mapping[str, str]:
        return getattr(self._vocabulary, "spellings", {})

    @cached_property
    def _tokenizer(self) -> SentencePieceProcessor:
        return self._vocabulary.tokenizer

    @cached_property
    def _types(self) -> Sequence[int]:
        return _piece_types(self._vocabulary.sp_model)


def default_vocabulary() -> SentencePieceVocabulary:
    """Returns the bundled vocabulary: 4,096 pieces, trained on the built-in corpus. Opens no file.

    Padding is 0, EOS 1, unknown 2; `<extra_id_0>` .. `<extra_id_255>`, `[R]`, `[S]` and `[X]` are control pieces: no text is
    encoded to them, and decoding shows them. It lets everything run offline; for real training use your own vocabulary.
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
def _loaded(content: bytes) -> _Loaded:
    """The model of a file's content. It is serialized again, as SeqIO does, since caches know vocabularies by the hash of that."""
    model = _Model.FromString(content).SerializeToString()
    return _Loaded(model, SentencePieceProcessor(model_proto=model))


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
