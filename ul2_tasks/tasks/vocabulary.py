"""The border between SeqIO's vocabularies and this package's: each as the other, and back.

    seqio_vocabulary(ours)    a seqio.Vocabulary, whose ids are one higher where id 0 is more than padding, as SeqIO pads with 0
    as_vocabulary(theirs)     one of this package, whose ids are those that the other has

Going there and back gives the very object.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import seqio
import tensorflow as tf
import tensorflow_text as tf_text

from ul2_tasks.tasks.graphs import python_op, ragged
from ul2_tasks.tokenizers.base import Tokens, Vocabulary
from ul2_tasks.tokenizers.batches import encode_batch
from ul2_tasks.tokenizers.by_name import open_for_modes
from ul2_tasks.tokenizers.byte_level import NamedByteVocabulary
from ul2_tasks.tokenizers.sentencepiece import SentencePieceVocabulary
from ul2_tasks.tokenizers.special_ids import SpecialTokens, as_vocabulary

_PLAIN = (seqio.ByteVocabulary, seqio.PassThroughVocabulary, seqio.vocabularies.FullCodepointVocabulary)  # told by class and sizes


def seqio_vocabulary(vocabulary: Any = "default") -> seqio.Vocabulary:
    """Makes a vocabulary for the features of SeqIO's tasks.

    Args:
        vocabulary: what `open_vocabulary` takes, or makes; or a `seqio.Vocabulary`, which is returned as it is.

    Returns:
        A vocabulary that tasks of this package have, too. All of its ids are one higher than the tokenizer's own (`id_shift`) where
        id 0 of the tokenizer is more than padding, because SeqIO pads and packs with 0.

    Raises:
        ValueError: there is no such vocabulary.
    """
    if isinstance(vocabulary, seqio.Vocabulary):
        return vocabulary
    own, _ = open_for_modes(vocabulary, (), None, None)
    return own.theirs if isinstance(own, _Theirs | _TheirSentencePiece) else SeqioVocabulary(own)


def id_shift(vocabulary: Vocabulary | seqio.Vocabulary) -> int:
    """How much higher the ids of a vocabulary are in SeqIO than the tokenizer's own, 0 or 1."""
    return int(as_vocabulary(vocabulary).uses_0)


def special_in_seqio(special: SpecialTokens, vocabulary: Vocabulary) -> SpecialTokens:
    """Special tokens with SeqIO's ids."""
    shift = id_shift(vocabulary)
    return dataclasses.replace(
        special,
        sentinels=tuple(id + shift for id in special.sentinels),
        mode=tuple(id + shift for id in special.mode),
        eos=None if special.eos is None else special.eos + shift,
        reserved=frozenset({0, *(id + shift for id in special.reserved)}),
        borders=special.borders and bytes(shift) + special.borders,
    )


class SeqioVocabulary(seqio.Vocabulary):
    """A vocabulary of this package in SeqIO.

    Graphs call Python to encode and decode, without state: an iterator over a dataset can be saved, and restored in a process that
    builds the same graph. Text is encoded by TensorFlow itself if the model is SentencePiece's, so that such a graph can also be
    sent elsewhere (tf.data service).
    """

    def __init__(self, own: Vocabulary):
        super().__init__()
        self.own = own

    @property
    def id_shift(self) -> int:
        """How much higher the ids are than the tokenizer's own, 0 or 1."""
        return id_shift(self.own)

    @property
    def bos_id(self) -> int | None:
        return self._shifted(self.own.bos_id)

    @property
    def eos_id(self) -> int | None:
        return self._shifted(self.own.eos_id)

    @property
    def unk_id(self) -> int | None:
        return self._shifted(self.own.unk_id)

    @property
    def extra_ids(self) -> int:
        return self.own.extra_ids

    @property
    def vocab_size(self) -> int:
        return self.own.vocab_size + self.id_shift

    @property
    def _base_vocab_size(self) -> int:
        return self.vocab_size  # SeqIO decodes ids beyond it as unknown, and here the extra ids are known

    def _shifted(self, id: int | None) -> int | None:
        return None if id is None else id + self.id_shift

    def _encode(self, s: str) -> list[int]:
        shift = self.id_shift
        return [id + shift for id in self.own.encode(s)]

    def _decode(self, ids: Iterable[int]) -> str:
        shift = self.id_shift
        return self.own.decode_all([int(id) - shift for id in ids if id >= shift])

    def _encode_tf(self, s: tf.Tensor) -> tf.Tensor | tf.RaggedTensor:
        """[tokens] int32 of a string scalar; a RaggedTensor [documents, tokens] int32 of [documents] strings."""
        shift = self.id_shift
        if isinstance(self.own, SentencePieceVocabulary):
            return tf_text.SentencepieceTokenizer(model=self.own.model).tokenize(s) + shift
        if s.shape.rank not in (0, 1):
            raise ValueError(f"text must be a scalar or [documents], got the shape {s.shape}.")

        def encoded(texts: bytes | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            ids, lengths = encode_batch(self.own, np.atleast_1d(np.asarray(texts, object)).tolist())
            return ids + np.int32(shift), lengths

        tokens = ragged(*python_op(encoded, [s], [tf.int32, tf.int64]))
        return tokens.flat_values if s.shape.rank == 0 else tokens

    def _decode_tf(self, ids: tf.Tensor) -> tf.Tensor:
        """[..] strings of [.., tokens] integers."""

        def decoded(ids: np.ndarray) -> np.ndarray:
            texts = [self._decode(row).encode() for row in ids.reshape([-1, ids.shape[-1]]).tolist()]
            return np.array(texts, object).reshape(ids.shape[:-1])

        text = python_op(decoded, [ids], tf.string)
        text.set_shape(ids.shape[:-1])
        return text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, seqio.Vocabulary):
            return False
        return as_vocabulary(other) == self.own and (isinstance(other, SeqioVocabulary) or not self.id_shift)

    def __hash__(self) -> int:
        return hash(self.own)

    def __repr__(self) -> str:
        return f"seqio_vocabulary({self.own!r})"


class _Theirs(Vocabulary):
    """A vocabulary of a user's, of SeqIO's class."""

    def __init__(self, theirs: seqio.Vocabulary):
        self.theirs = theirs

    @property
    def name(self) -> str:
        return type(self.theirs).__name__

    @cached_property
    def tokens(self) -> Tokens:
        """See `base.Vocabulary`; the identity of a user's class is its attribute `identity`."""
        theirs = self.theirs
        identity = getattr(theirs, "identity", "" if type(theirs) in _PLAIN else None)
        sizes = {"vocab_size": theirs.vocab_size, "extra_ids": theirs.extra_ids}
        return Tokens(**sizes, eos_id=theirs.eos_id, unk_id=theirs.unk_id, pad_id=theirs.pad_id, identity=identity)

    def check(self) -> None:
        """Raises a ValueError where it pads with another id than 0."""
        _check_padding(self.theirs)

    def encode_batch(self, texts: Iterable[str | bytes]) -> list[np.ndarray]:
        return [np.asarray(self.theirs.encode_tf(tf.constant(text)), np.int32) for text in texts]

    def encode(self, text: str) -> Sequence[int]:
        return self.theirs.encode(text)

    def decode(self, ids: Iterable[int]) -> str:
        return self.theirs.decode([int(id) for id in ids])

    def decode_all(self, ids: Sequence[int]) -> str:
        return self.theirs._decode(ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Theirs) and (self.theirs is other.theirs or bool(self.theirs == other.theirs))

    def __hash__(self) -> int:
        return hash(type(self.theirs))  # not all of them have one

    def __repr__(self) -> str:
        return repr(self.theirs)


class _TheirBytes(_Theirs):
    """ByT5's vocabulary, whose bytes Python encodes, too."""

    def encode_batch(self, texts: Iterable[str | bytes]) -> list[np.ndarray]:
        return _BYTES.encode_batch(texts)

    def bytes_of(self, id: int) -> bytes:
        return _BYTES.bytes_of(id)


_BYTES = NamedByteVocabulary(0, ())


class _TheirSentencePiece(SentencePieceVocabulary):
    """A SentencePiece vocabulary of a user's, of SeqIO's class, with the extra ids that this adds to the model."""

    uses_0 = False  # as far as SeqIO goes; see `check`

    def __init__(self, theirs: seqio.SentencePieceVocabulary):
        super().__init__(theirs.sentencepiece_model_file)
        self.theirs = theirs

    @property
    def name(self) -> str:
        return type(self.theirs).__name__

    @property
    def extra_ids(self) -> int:
        return self.theirs.extra_ids

    def _read(self) -> bytes:
        return self.theirs.sp_model

    def check(self) -> None:
        """Raises a ValueError where there is no EOS, or text becomes id 0."""
        super().check()
        _check_padding(self.theirs)
        if self.tokens.uses_0:
            raise ValueError(
                f"id 0 of {self} must be padding, as in SeqIO, got the token {self.id_to_piece(0)!r}, which would cut a packed"
                f" example. Open it by its path, ul2_tasks.open_vocabulary({self.file!r}), which offsets the ids by one in SeqIO,"
                " or train the model with pad_id=0. See docs/help/troubleshooting.md#id-0-is."
            )

    def encode_batch(self, texts: Iterable[str | bytes]) -> list[np.ndarray]:
        """The ids that a graph gives. A fast tokenizer's are others than the library's; a user's class may have others."""
        is_fast = getattr(self.theirs, "_use_fast_tokenizer", False)
        is_stock = type(self.theirs)._encode_tf is seqio.SentencePieceVocabulary._encode_tf
        if not is_stock and not self._never_encoded:
            return [np.asarray(self.theirs.encode_tf(tf.constant(text)), np.int32) for text in texts]
        if is_fast:
            tokenizer = tf_text.FastSentencepieceTokenizer(model=self.model)
            return [np.asarray(tokenizer.tokenize(tf.constant(text)), np.int32) for text in texts]
        return super().encode_batch(texts)

    def decode(self, ids: Iterable[int]) -> str:
        return self.theirs.decode([int(id) for id in ids])

    def __repr__(self) -> str:
        return repr(self.theirs)


def _check_padding(vocabulary: seqio.Vocabulary) -> None:
    if vocabulary.pad_id != 0:
        raise ValueError(f"{vocabulary} must pad with 0, as SeqIO pads and packs, got {vocabulary.pad_id}. Shift the ids.")


@as_vocabulary.register
def _(vocabulary: seqio.Vocabulary) -> Vocabulary:
    if isinstance(vocabulary, SeqioVocabulary):
        return vocabulary.own
    if isinstance(vocabulary, seqio.SentencePieceVocabulary):
        return _TheirSentencePiece(vocabulary)
    is_bytes = isinstance(vocabulary, seqio.ByteVocabulary)
    is_stock = is_bytes and type(vocabulary)._encode_tf is seqio.ByteVocabulary._encode_tf
    return _TheirBytes(vocabulary) if is_stock else _Theirs(vocabulary)
