"""Encodes many texts at once, at the speed of the tokenizer's own library.

TensorFlow's SentencePiece op costs twice as much as the same library called from Python with a list, and for a single short text
several times as much. SentencePiece works in the thread that calls it, and lets other threads of Python run; `tokenizers` uses all
cores, unless the environment has TOKENIZERS_PARALLELISM=false.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.vocabulary.hugging_face import HuggingFaceVocabulary

_BYTES = 3  # the id of byte 0 in ByT5's vocabulary


def has_batches(vocabulary: seqio.Vocabulary) -> bool:
    """Whether `encode_batch` knows the library behind a vocabulary."""
    if isinstance(vocabulary, seqio.SentencePieceVocabulary):
        is_seqios = type(vocabulary)._encode_tf is seqio.SentencePieceVocabulary._encode_tf
        return is_seqios and not getattr(vocabulary, "_use_fast_tokenizer", False)  # the fast one has other ids
    is_bytes = isinstance(vocabulary, seqio.ByteVocabulary) and type(vocabulary)._encode_tf is seqio.ByteVocabulary._encode_tf
    return is_bytes or isinstance(vocabulary, HuggingFaceVocabulary)


def encode_batch(vocabulary: seqio.Vocabulary, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Encodes texts to the ids that `vocabulary.encode_tf` gives for each.

    Args:
        vocabulary: any. One that `has_batches` does not know encodes the texts one by one.
        texts: as UTF-8.

    Returns:
        [tokens] int32, the ids of one text after those of the other; and [texts] int64, how many ids each text has.

    >>> encode_batch(seqio.ByteVocabulary(), [b"ab", b"", b"c"])
    (array([100, 101, 102], dtype=int32), array([2, 0, 1]))
    """
    if not has_batches(vocabulary):
        found = [np.asarray(vocabulary.encode_tf(tf.constant(text)), np.int32) for text in texts]
    elif isinstance(vocabulary, HuggingFaceVocabulary):
        found = vocabulary.encode_batch(texts)
    elif isinstance(vocabulary, seqio.SentencePieceVocabulary):
        encoded = vocabulary.tokenizer.encode(list(texts), out_type=int, num_threads=1)
        found = [np.array(ids, np.int32) for ids in encoded]
    else:
        found = [np.frombuffer(text, np.uint8).astype(np.int32) + _BYTES for text in texts]
    lengths = np.array([len(ids) for ids in found], np.int64)
    return np.concatenate([np.zeros([0], np.int32), *found]), lengths
