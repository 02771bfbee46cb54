"""A SentencePiece vocabulary whose special pieces are control pieces, the kind that text never becomes."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Mapping, Sequence

import seqio
from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2

Piece = sentencepiece_model_pb2.ModelProto.SentencePiece
ORDINARY = (Piece.NORMAL, Piece.BYTE)  # the types of pieces that are for text


def free_name(name: str, taken: Mapping[str, object]) -> str:
    """The name, in as many <> as it takes to be another one than those taken."""
    while name in taken:
        name = f"<{name}>"
    return name


class ControlledVocabulary(seqio.SentencePieceVocabulary):
    """A SentencePiece vocabulary with more control pieces, the kind that text never becomes. Opens no file yet.

    Args:
        vocabulary: has all ids, and all texts become the same in it.
        appended: names of control pieces to add after its last id. A name is left out if there is such a piece already,
            unless it is an ordinary one: text becomes that one, so this one has another spelling (`free_name`).
        barred: ids of user-defined pieces that are to be control pieces.
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
        self._appended = tuple(appended)
        self._barred = frozenset(barred)

    @property
    def sp_model(self) -> bytes:
        return self._controlled().model

    @property
    def tokenizer(self) -> SentencePieceProcessor:
        return self._controlled().tokenizer

    @property
    def spellings(self) -> Mapping[str, str]:
        """The pieces of the appended names that are not spelled as these."""
        return self._controlled().spellings

    def load_model(self) -> None:
        self._controlled()

    def _controlled(self) -> _Controlled:
        model = self._vocabulary.sp_model
        with _load_lock:
            return _controlled(model, self._appended, self._barred)


@dataclasses.dataclass(frozen=True)
class _Controlled:
    model: bytes
    tokenizer: SentencePieceProcessor
    spellings: Mapping[str, str]


_load_lock = threading.Lock()  # sentencepiece loads one model at a time


@functools.lru_cache(maxsize=8)
def _controlled(model: bytes, appended: tuple[str, ...], barred: frozenset[int]) -> _Controlled:
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    types = {piece.piece: piece.type for piece in proto.pieces}
    spellings = {}
    for name in appended:
        if types.get(name, Piece.NORMAL) in ORDINARY:
            spelling = free_name(name, types)
            proto.pieces.add(piece=spelling, type=Piece.CONTROL)
            if spelling != name:
                spellings[name] = spelling
    for id in barred:
        proto.pieces[id].type = Piece.CONTROL
    edited = proto.SerializeToString()
    return _Controlled(edited, SentencePieceProcessor(model_proto=edited), spellings)
