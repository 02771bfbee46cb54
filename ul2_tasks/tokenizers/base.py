"""What each vocabulary of this package is: one of SeqIO's by its methods, and in `isinstance`, which needs no SeqIO to be used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ul2_tasks.imported import subclass_of_seqio

if TYPE_CHECKING:
    import tensorflow as tf
    from seqio import Vocabulary as _Base
else:
    _Base = object


@subclass_of_seqio("Vocabulary", "seqio.vocabularies")
class Vocabulary(_Base):
    """A base with `encode_batch` for all kinds of encoding, and `_decode` for all kinds of decoding.

    Only what a graph asks for (`encode_tf`, `decode_tf`) imports TensorFlow.
    """

    def __init__(self, extra_ids: int = 0):
        self._extra_ids = extra_ids

    @property
    def pad_id(self) -> int:
        return 0

    @property
    def extra_ids(self) -> int:
        return self._extra_ids

    @property
    def _base_vocab_size(self) -> int:
        return self.vocab_size  # SeqIO decodes ids beyond it as unknown, and here the extra ids are known

    def encode_batch(self, texts: Iterable[str | bytes]) -> list[np.ndarray]:
        """The ids of each text, [tokens] int32. Bytes that are not UTF-8 become U+FFFD, as in SentencePiece."""
        raise NotImplementedError

    def encode(self, s: str) -> Sequence[int]:
        """The ids of a text, without EOS."""
        return self._encode(s)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, up to the first EOS."""
        values = ids.numpy().tolist() if hasattr(ids, "numpy") else list(ids)
        if self.unk_id is not None:
            size = self._base_vocab_size
            values = [self.unk_id if id >= size else id for id in values]
        if self.eos_id is not None and self.eos_id in values:
            values = values[: values.index(self.eos_id) + 1]
        return self._decode(values)

    def encode_tf(self, s: tf.Tensor) -> tf.Tensor | tf.RaggedTensor:
        """Encodes a string scalar to [tokens] int32, or [documents] strings to a RaggedTensor [documents, tokens] int32."""
        return self._encode_tf(s)

    def decode_tf(self, ids: tf.Tensor) -> tf.Tensor:
        """Decodes [.., tokens] of integers to [..] strings, up to the first EOS."""
        from ul2_tasks.tokenizers.in_graphs import decode_up_to_eos

        return decode_up_to_eos(self, ids)

    def _encode(self, s: str) -> list[int]:
        return self.encode_batch([s])[0].tolist()

    def _encode_tf(self, s: tf.Tensor) -> tf.Tensor | tf.RaggedTensor:
        from ul2_tasks.tokenizers.in_graphs import encode

        return encode(self, s)

    def _decode_tf(self, ids: tf.Tensor) -> tf.Tensor:
        from ul2_tasks.tokenizers.in_graphs import decode

        return decode(self, ids)
