"""Documents to blocks of chunks: concatenated or each on its own, side by side or as windows that overlap.

All functions take and give datasets. A block is {"tokens": [R, L] int32, "length": [R] int32}, rows padded with 0 at their
end. These arguments mean the same everywhere:

    documents: a dataset of {"targets": [tokens]}, a document each, or of {"targets": RaggedTensor [documents, tokens]}; other
        features are left out.
    starts, ends: the ids before and after each document. An empty document gets neither: there is nothing to separate.
    stream: a dataset of {"targets": [tokens]}, arrays of any length that are read one after the other.
    length: L, a chunk's tokens.
    stride: tokens from the start of a chunk to the start of the next, at most L.
    rows: the most chunks of a block.
    keep_partial: whether what is left at the end, shorter than L, becomes a chunk.
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


def chunk_stream(stream: tf.data.Dataset, length: int, rows: int, keep_partial: bool, checked: Check) -> tf.data.Dataset:
    """Chunks of the stream side by side: tokens 0 .. L - 1, then L .. 2 L - 1, and so on.

    The partial chunk at the stream's end is a block of its own.

    >>> stream = tf.data.Dataset.from_tensors({"targets": tf.range(13)})
    >>> for block in chunk_stream(stream, length=5, rows=8, keep_partial=True, checked=tf.identity):
    ...     print(block["tokens"].numpy().tolist())
    [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    [[10, 11, 12]]
    """

    def blocks(tokens: tf.Tensor) -> tf.data.Dataset:
        whole = tf.size(tokens) // length * length
        full = _block(tf.reshape(tokens[:whole], [-1, length]))
        return full.concatenate(_block(tokens[tf.newaxis, whole:])) if keep_partial else full

    return _in_arrays(stream, rows * length, checked).flat_map(blocks).filter(_has_tokens)


def sliding_windows(
    stream: tf.data.Dataset, length: int, stride: int, rows: int, keep_partial: bool, checked: Check
) -> tf.data.Dataset:
    """Windows of the stream, `stride` tokens from one start to the next.

    The partial window at the stream's end, a block of its own, is there only if it holds tokens that no full window holds.

    The stream comes in arrays of `rows * stride` tokens. What is carried from one to the next is the tokens from the next
    window's start on, and how many of these a window holds already. A stream of 13 tokens, length 5, stride 3, rows 2:

        array         carried before   windows                  carried after   held already
        a b c d e f                    a b c d e                d e f           2  (d e)
        g h i j k l   d e f            d e f g h, g h i j k     j k l           2  (j k)
        m             j k l                                     j k l m         2  (j k)
        the end       j k l m          j k l m, as 4 > 2

    >>> stream = tf.data.Dataset.from_tensors({"targets": tf.range(13)})
    >>> for block in sliding_windows(stream, length=5, stride=3, rows=2, keep_partial=True, checked=tf.identity):
    ...     print(block["tokens"].numpy().tolist())
    [[0, 1, 2, 3, 4]]
    [[3, 4, 5, 6, 7], [6, 7, 8, 9, 10]]
    [[9, 10, 11, 12]]
    """
    arrays = _in_arrays(stream, rows * stride, checked).map(lambda tokens: (tokens, False))
    end = tf.data.Dataset.from_tensors((tf.zeros([0], tf.int32), True))

    def windows(state: tuple[tf.Tensor, tf.Tensor], array: tuple[tf.Tensor, tf.Tensor]):
        (carried, held), (added, is_end) = state, array
        tokens = tf.concat([carried, added], axis=0)
        number = tf.maximum((tf.size(tokens) - length) // stride + 1, 0)
        full = tf.gather(tokens, (tf.range(number) * stride)[:, tf.newaxis] + tf.range(length))
        rest = tokens[number * stride :]
        held = tf.where(number > 0, length - stride, held)
        is_window = is_end & keep_partial & (tf.size(rest) > held)
        return (rest, held), (full, rest[: tf.where(is_window, tf.size(rest), 0)])

    found = arrays.concatenate(end).scan((tf.zeros([0], tf.int32), 0), windows)
    return found.flat_map(lambda full, last: _block(full).concatenate(_block(last[tf.newaxis]))).filter(_has_tokens)


def chunk_documents(
    documents: tf.data.Dataset,
    length: int,
    stride: int,
    rows: int,
    *,
    keep_partial: bool,
    checked: Check,
    starts: Sequence[int],
    ends: Sequence[int],
) -> tf.data.Dataset:
    """Chunks of each document on its own, side by side or as windows that overlap.

    All chunks of a batch of documents are gathered at once, by their place in the batch's flat tokens. Two documents of 9 and
    4 tokens, length 5, stride 3:

        tokens     a b c d e f g h i   p q r s
        chunks     a b c d e           p q r s
                         d e f g h
                               g h i

        number     3, 1        chunks of each document
        document   0, 0, 0, 1  of each chunk
        offset     0, 3, 6, 0  of each chunk's first token, in its document
        lengths    5, 5, 3, 4

    >>> documents = tf.data.Dataset.from_tensors({"targets": tf.ragged.range([11, 21], [20, 25])})
    >>> for block in chunk_documents(documents, 5, 3, rows=8, keep_partial=True, checked=tf.identity, starts=[], ends=[]):
    ...     print(block["tokens"].numpy().tolist())
    [[11, 12, 13, 14, 15], [14, 15, 16, 17, 18], [17, 18, 19, 0, 0], [21, 22, 23, 24, 0]]
    """

    def chunks(batch: tf.RaggedTensor) -> dict[str, tf.Tensor]:
        batch = _with_borders(batch, starts, ends)
        sizes = tf.cast(batch.row_lengths(), tf.int32)
        left = tf.maximum(sizes - length, 0)  # what the first chunk does not hold
        number = tf.cast(sizes > 0, tf.int32) + -(-left // stride)
        if not keep_partial:
            number = tf.where(sizes < length, 0, left // stride + 1)
        document = tf.repeat(tf.range(tf.size(sizes)), number)
        offset = (tf.range(tf.size(document)) - tf.gather(tf.cumsum(number, exclusive=True), document)) * stride
        lengths = tf.minimum(tf.gather(sizes, document) - offset, length)
        tokens = checked(batch.flat_values)
        if stride < length or not keep_partial:  # else the chunks are all tokens in their order
            first = tf.gather(tf.cast(batch.row_starts(), tf.int32), document) + offset
            tokens = tf.gather(tokens, tf.ragged.range(first, first + lengths).flat_values)
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
