"""Documents to blocks of chunks: concatenated or each on its own.

All functions take and give datasets. A block is {"tokens": [R, L] int32, "length": [R] int32}, rows padded with 0 at their
end. These arguments mean the same everywhere:

    documents: a dataset of {"targets": [tokens]}, a document each, or of {"targets": RaggedTensor [documents, tokens]}; other
        features are left out.
    starts, ends: the ids before and after each document. An empty document gets neither: there is nothing to separate.
    stream: a dataset of {"targets": [tokens]}, arrays of any length that are read one after the other.
    length: L, a chunk's tokens.
    rows: the most chunks of a block.
    checked: a function that looks at tokens, [N] int32, many at a time, and returns them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import tensorflow as tf

from ul2_tasks.example_features import DOCUMENTS_PER_BATCH

Tokens: TypeAlias = tf.Tensor | tf.RaggedTensor
Check = Callable[[tf.Tensor], tf.Tensor]
MARK = 1 << 30  # a bit that no id has


def marked(documents: tf.data.Dataset, starts: Sequence[int], ends: Sequence[int]) -> tf.data.Dataset:
    """Documents between `starts` and `ends`, the first token of each with the bit `MARK` added.

    This is for showing examples to people. Training does not need to know where documents met.
    """

    def mark(element: Mapping[str, Tokens]) -> dict[str, Tokens]:
        tokens = tf.cast(_with_borders(element["targets"], starts, ends), tf.int32)
        if not isinstance(tokens, tf.RaggedTensor):
            return {"targets": tf.concat([tokens[:1] + MARK, tokens[1:]], axis=0)}
        firsts = tf.boolean_mask(tokens.row_starts(), tokens.row_lengths() > 0)
        marks = tf.fill(tf.shape(firsts), MARK)
        return {"targets": tokens.with_flat_values(tf.tensor_scatter_nd_add(tokens.flat_values, firsts[:, tf.newaxis], marks))}

    return documents.map(mark, num_parallel_calls=tf.data.AUTOTUNE)


def without_marks(tokens: Tokens) -> Tokens:
    return tf.bitwise.bitwise_and(tokens, MARK - 1)


def concatenate(documents: tf.data.Dataset, starts: Sequence[int], ends: Sequence[int]) -> tf.data.Dataset:
    """Documents to the stream of all their tokens, `starts` and `ends` included."""
    is_flat = isinstance(documents.element_spec["targets"], tf.TensorSpec)
    if not starts and not ends and is_flat and documents.element_spec.keys() == {"targets"}:
        return documents  # a map that does nothing would cost as much as all that comes after

    def flat(element: Mapping[str, Tokens]) -> dict[str, tf.Tensor]:
        tokens = _with_borders(element["targets"], starts, ends)
        return {"targets": tokens.flat_values if isinstance(tokens, tf.RaggedTensor) else tokens}

    return documents.map(flat, num_parallel_calls=tf.data.AUTOTUNE)


def chunk_stream(stream: tf.data.Dataset, length: int, rows: int, checked: Check) -> tf.data.Dataset:
    """Chunks of the stream side by side: tokens 0 .. L - 1, then L .. 2 L - 1, and so on.

    The partial chunk at the stream's end is a block of its own.

    >>> stream = tf.data.Dataset.from_tensors({"targets": tf.range(13)})
    >>> for block in chunk_stream(stream, length=5, rows=8, checked=tf.identity):
    ...     print(block["tokens"].numpy().tolist())
    [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    [[10, 11, 12]]
    """

    def blocks(tokens: tf.Tensor) -> tf.data.Dataset:
        whole = tf.size(tokens) // length * length
        return _block(tf.reshape(tokens[:whole], [-1, length])).concatenate(_block(tokens[tf.newaxis, whole:]))

    return _in_arrays(stream, rows * length, checked).flat_map(blocks).filter(_has_tokens)


def chunk_documents(
    documents: tf.data.Dataset,
    length: int,
    rows: int,
    *,
    checked: Check,
    starts: Sequence[int],
    ends: Sequence[int],
) -> tf.data.Dataset:
    """Chunks of each document on its own.

    The chunks of a batch of documents are all of its flat tokens, in their order. Two documents of 9 and 4 tokens, length 5:

        tokens     a b c d e f g h i   p q r s
        chunks     a b c d e f g h i   p q r s

        number     2, 1     chunks of each document
        document   0, 0, 1  of each chunk
        offset     0, 5, 0  of each chunk's first token, in its document
        lengths    5, 4, 4

    >>> documents = tf.data.Dataset.from_tensors({"targets": tf.ragged.range([11, 21], [20, 25])})
    >>> for block in chunk_documents(documents, 5, rows=8, checked=tf.identity, starts=[], ends=[]):
    ...     print(block["tokens"].numpy().tolist())
    [[11, 12, 13, 14, 15], [16, 17, 18, 19, 0], [21, 22, 23, 24, 0]]
    """

    def chunks(batch: tf.RaggedTensor) -> dict[str, tf.Tensor]:
        batch = _with_borders(batch, starts, ends)
        sizes = tf.cast(batch.row_lengths(), tf.int32)
        number = -(-sizes // length)
        document = tf.repeat(tf.range(tf.size(sizes)), number)
        offset = (tf.range(tf.size(document)) - tf.gather(tf.cumsum(number, exclusive=True), document)) * length
        lengths = tf.minimum(tf.gather(sizes, document) - offset, length)
        tokens = checked(batch.flat_values)
        return {"tokens": tf.RaggedTensor.from_row_lengths(tokens, lengths, validate=False).to_tensor(), "length": lengths}

    blocks = _in_batches(documents).map(chunks, num_parallel_calls=tf.data.AUTOTUNE)
    return blocks.flat_map(lambda block: tf.data.Dataset.from_tensor_slices(block).batch(rows))


def _with_borders(tokens: Tokens, starts: Sequence[int], ends: Sequence[int]) -> Tokens:
    """A document [tokens], or several [documents, tokens], each between `starts` and `ends` if it has a token."""
    if not starts and not ends:
        return tokens
    if not isinstance(tokens, tf.RaggedTensor):
        is_there = tf.cast(tf.size(tokens) > 0, tf.int32)
        before, after = (tf.constant(ids, tokens.dtype)[: is_there * len(ids)] for ids in (starts, ends))
        return tf.concat([before, tokens, after], axis=0)
    is_there = tf.cast(tokens.row_lengths() > 0, tf.int64)

    def border(ids: Sequence[int]) -> tf.RaggedTensor:
        values = tf.tile(tf.constant(ids, tokens.dtype), [tf.reduce_sum(is_there)])
        return tf.RaggedTensor.from_row_lengths(values, is_there * len(ids))

    return tf.concat([border(starts), tokens, border(ends)], axis=1)


def _in_batches(documents: tf.data.Dataset) -> tf.data.Dataset:
    """Batches of documents, [documents, tokens]; those that come in batches stay in these."""
    if isinstance(documents.element_spec["targets"], tf.RaggedTensorSpec):
        return documents.map(lambda batch: batch["targets"])
    batches = documents.map(lambda document: document["targets"]).ragged_batch(DOCUMENTS_PER_BATCH)
    if isinstance(batches.element_spec, tf.RaggedTensorSpec):
        return batches
    return batches.map(tf.RaggedTensor.from_tensor)  # ragged_batch makes tensors of documents of one static length


def _in_arrays(stream: tf.data.Dataset, size: int, checked: Check) -> tf.data.Dataset:
    """The stream in arrays of `size` tokens, the last one shorter."""
    return stream.rebatch(size).map(lambda element: checked(element["targets"]), num_parallel_calls=tf.data.AUTOTUNE)


def _block(tokens: tf.Tensor) -> tf.data.Dataset:
    """One block of rows that are all full."""
    height, width = tf.unstack(tf.shape(tokens))
    return tf.data.Dataset.from_tensors({"tokens": tokens, "length": tf.fill([height], width)})


def _has_tokens(block: Mapping[str, tf.Tensor]) -> tf.Tensor:
    return tf.size(block["tokens"]) > 0
