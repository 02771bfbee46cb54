"""SentencePiece vocabularies whose special pieces are control pieces: text never becomes one, and decoding shows them."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Iterable, Mapping, Sequence

import seqio
import tensorflow as tf
import tensorflow_text as tf_text
from google.protobuf.message import DecodeError
from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2

Model = sentencepiece_model_pb2.ModelProto
Piece = Model.SentencePiece
ORDINARY = (Piece.NORMAL, Piece.BYTE)  # the types of pieces that are for text


def free_name(name: str, taken: Mapping[str, object]) -> str:
    """The name, in as many <> as it takes to be another one than those taken."""
    while name in taken:
        name = f"<{name}>"
    return name


def text_becomes_0(model: Model) -> bool:
    """Whether piece 0 of a model stands for text: as a piece of it, or as the unknown one where there are no bytes instead."""
    return model.pieces[0].type not in (Piece.CONTROL, Piece.UNUSED) and not (
        model.pieces[0].type == Piece.UNKNOWN and model.trainer_spec.byte_fallback
    )


class SentencePieceVocabulary(seqio.SentencePieceVocabulary):
    """SeqIO's vocabulary, but decoding shows control pieces, as T5's own shows its sentinels: `<extra_id_0>`, `[R]`.

    Padding, BOS and EOS are no text, as ever, and so is 0 where the model has another piece there.
    """

    def _decode(self, ids: Iterable[int]) -> str:
        return self._shown().tokenizer.decode([int(id) for id in ids])

    def _decode_tf(self, ids: tf.Tensor) -> tf.Tensor:
        return tf_text.SentencepieceTokenizer(model=self._shown().model).detokenize(ids)

    def _shown(self) -> _Loaded:
        model = self.sp_model
        with _load_lock:
            return _shown(model)


class ControlledVocabulary(SentencePieceVocabulary):
    """A SentencePiece vocabulary with more control pieces, the kind that text never becomes. Opens no file yet.

    Where the model's id 0 is for text, or is its EOS or one of the names, all ids are one higher than the model's (`id_shift`),
    and 0 is padding.

    Args:
        vocabulary: all texts become the same as in it.
        appended: names of control pieces to add after its last id. A name is left out if there is such a piece already,
            unless it is an ordinary one: text becomes that one, so this one has another spelling (`free_name`).
        barred: ids of `vocabulary` of user-defined pieces that are to be control pieces.

    Attributes:
        appended: the same names, a tuple.

    Raises:
        ValueError: when it is first used: the file is no SentencePiece model.
    """

    def __init__(
        self, vocabulary: seqio.SentencePieceVocabulary, appended: Sequence[str] = (), barred: frozenset[int] = frozenset()
    ):
        super().__init__(
            vocabulary.sentencepiece_model_file,
            extra_ids=vocabulary.extra_ids,
            use_fast_tokenizer=getattr(vocabulary, "_use_fast_tokenizer", False),
        )
        self._vocabulary = vocabulary
        self.appended = tuple(appended)
        self._barred = frozenset(barred)

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
    def spellings(self) -> Mapping[str, str]:
        """The pieces of the appended names that are not spelled as these."""
        return self._controlled().spellings

    def load_model(self) -> None:
        self._controlled()

    def _controlled(self) -> _Controlled:
        try:
            model = self._vocabulary.sp_model
        except DecodeError as error:
            raise ValueError(
                f"{self.sentencepiece_model_file} is no SentencePiece model; if it is one of tiktoken's (Llama 3), take the"
                " tokenizer.json that the same model has for Hugging Face"
            ) from error
        with _load_lock:
            return _controlled(model, self.appended, self._barred)


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
def _controlled(model: bytes, appended: tuple[str, ...], barred: frozenset[int]) -> _Controlled:
    proto = Model.FromString(model)
    types = {piece.piece: piece.type for piece in proto.pieces}
    shift = int(text_becomes_0(proto) or proto.pieces[0].piece in (proto.trainer_spec.eos_piece, *appended))
    spellings = {}
    for name in appended:
        if types.get(name, Piece.NORMAL) in ORDINARY:
            spelling = free_name(name, types)
            proto.pieces.add(piece=spelling, type=Piece.CONTROL)
            if spelling != name:
                spellings[name] = spelling
    for id in barred:
        proto.pieces[id].type = Piece.CONTROL
    if shift:
        proto.pieces.insert(0, Piece(piece=free_name("<pad>", types), type=Piece.CONTROL))
    edited = proto.SerializeToString()
    return _Controlled(edited, SentencePieceProcessor(model_proto=edited), spellings, shift)


@functools.lru_cache(maxsize=8)
def _shown(model: bytes) -> _Loaded:
    """The model for decoding: its control pieces are user-defined ones, which are text there."""
    proto = Model.FromString(model)
    spec = proto.trainer_spec
    for piece in proto.pieces:
        if piece.type == Piece.CONTROL and piece.piece not in (spec.pad_piece, spec.bos_piece, spec.eos_piece):
            piece.type = Piece.USER_DEFINED
    if proto.pieces[0].type == Piece.UNKNOWN:  # there must be one
        proto.pieces.add(piece=free_name("<unk>", {piece.piece: None for piece in proto.pieces}), type=Piece.UNKNOWN)
    proto.pieces[0].type = Piece.CONTROL
    shown = proto.SerializeToString()
    return _Loaded(shown, SentencePieceProcessor(model_proto=shown))
