"""Vocabularies in TensorFlow's graphs: text to ids and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import seqio
import tensorflow as tf
import tensorflow_text as tf_text

from ul2_tasks.graphs import python_op, ragged
from ul2_tasks.tokenizers.pieces import flat_ids


def encode(vocabulary: Any, s: tf.Tensor) -> tf.Tensor | tf.RaggedTensor:
    """Encodes a string scalar to [tokens] int32, or [documents] strings to a RaggedTensor [documents, tokens] int32.

    It is a Python function without state. So an iterator over a dataset can be saved, and restored in this process or in another
    that builds the same graph. Such a graph cannot be sent elsewhere (tf.data service).
    """
    if s.shape.rank not in (0, 1):
        raise ValueError(f"text must be a scalar or [documents], got the shape {s.shape}.")

    def encoded(texts: bytes | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return flat_ids(vocabulary.encode_batch(np.atleast_1d(np.asarray(texts, object))))

    tokens = ragged(*python_op(encoded, [s], [tf.int32, tf.int64]))
    return tokens.flat_values if s.shape.rank == 0 else tokens


def decode(vocabulary: Any, ids: tf.Tensor) -> tf.Tensor:
    """Decodes [.., tokens] of integers to [..] strings, by a Python function without state."""

    def decoded(ids: np.ndarray) -> np.ndarray:
        texts = [vocabulary._decode(row).encode() for row in ids.reshape([-1, ids.shape[-1]]).tolist()]
        return np.array(texts, object).reshape(ids.shape[:-1])

    text = python_op(decoded, [ids], tf.string)
    text.set_shape(ids.shape[:-1])
    return text


def decode_up_to_eos(vocabulary: Any, ids: tf.Tensor) -> tf.Tensor:
    """As SeqIO decodes: what comes after EOS is padding, and ids beyond the vocabulary are unknown."""
    return seqio.Vocabulary.decode_tf(vocabulary, ids)


def sentencepiece_tokenizer(model: bytes, is_fast: bool) -> Any:
    """TensorFlow's tokenizer of a serialized model. The fast one has other ids, as SeqIO's has."""
    return (tf_text.FastSentencepieceTokenizer if is_fast else tf_text.SentencepieceTokenizer)(model=model)


def encode_bytes(extra_ids: int, s: tf.Tensor) -> tf.Tensor:
    """ByT5's ids of the bytes."""
    return seqio.ByteVocabulary(extra_ids).encode_tf(s)


def decode_bytes(extra_ids: int, ids: tf.Tensor) -> tf.Tensor:
    """The texts of ByT5's ids."""
    return seqio.ByteVocabulary(extra_ids).decode_tf(ids)
