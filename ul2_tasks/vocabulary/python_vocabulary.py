"""`PythonVocabulary`: a SeqIO vocabulary whose tokenizer is a Python library, and which TensorFlow's graphs call."""

from __future__ import annotations

import abc
from collections.abc import Iterable

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.graphs import python_op, ragged
from ul2_tasks.vocabulary.pieces import flat_ids


class PythonVocabulary(seqio.Vocabulary):
    """A base with `encode_batch` for all kinds of encoding, and `_decode` for all kinds of decoding.

    In a graph, encoding is a Python function without state. So an iterator over a dataset can be saved, and restored in this
    process or in another that builds the same graph. Such a graph cannot be sent elsewhere (tf.data service).
    """

    @abc.abstractmethod
    def encode_batch(self, texts: Iterable[str | bytes]) -> list[np.ndarray]:
        """The ids of each text, [tokens] int32. Bytes that are not UTF-8 become U+FFFD, as in SentencePiece."""

    @property
    def _base_vocab_size(self) -> int:
        return self.vocab_size  # SeqIO decodes ids beyond it as unknown, and here the extra ids are known

    def _encode(self, s: str) -> list[int]:
        return self.encode_batch([s])[0].tolist()

    def _encode_tf(self, s: tf.Tensor) -> tf.Tensor | tf.RaggedTensor:
        """Encodes a string scalar to [tokens] int32, or [documents] strings to a RaggedTensor [documents, tokens] int32."""
        if s.shape.rank not in (0, 1):
            raise ValueError(f"text has the shape {s.shape}, expected a scalar or [documents]")

        def encode(texts: bytes | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return flat_ids(self.encode_batch(np.atleast_1d(np.asarray(texts, object))))

        tokens = ragged(*python_op(encode, [s], [tf.int32, tf.int64]))
        return tokens.flat_values if s.shape.rank == 0 else tokens

    def _decode_tf(self, ids: tf.Tensor) -> tf.Tensor:
        """Decodes [.., tokens] of integers to [..] strings."""

        def decode(ids: np.ndarray) -> np.ndarray:
            texts = [self._decode(row).encode() for row in ids.reshape([-1, ids.shape[-1]]).tolist()]
            return np.array(texts, object).reshape(ids.shape[:-1])

        text = python_op(decode, [ids], tf.string)
        text.set_shape(ids.shape[:-1])
        return text
