"""Documents to blocks of chunks: joined or kept apart, cut every L tokens or into windows that overlap.

All functions take and give datasets. A block is {"tokens": [R, L] int32, "length": [R] int32}, rows padded with 0 at their
end. `checked` is called on the tokens, [N] int32, many at a time, and returns them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from ul2_tasks import cache

Tokens = tf.Tensor | tf.RaggedTensor
Check = Callable[[tf.Tensor], tf.Tensor]
MARK = 1 << 30  # a bit that no id has


def marked(dataset: tf.data.Dataset, starts: Sequence[int], ends: Sequence[int]) -> tf.data.Dataset:
    """Documents between `starts` and `ends`, as `joined` has them, the first token of each with the bit `MARK` added.

    For those who look at examples; training has no need to know where documents met.
    """

    def mark(element: Mapping[str, Tokens]) -> dict[str, Tokens]:
        documents = tf.cast(_with_borders(element["targets"], starts, ends), tf.int32)
        if not isinstance(documents, tf.RaggedTensor):
            return {"targets": tf.concat([documents[:1] + MARK, documents[1:]], axis=0)}
        firsts = tf.boolean_mask(documents.row_starts(), documents.row_lengths() > 0)
        marks = tf.fill(tf.shape(firsts), MARK)
        return {
            "targets": documents.with_flat_values(tf.tensor_scatter_nd_add(documents.flat_values, firsts[:, tf.newaxis], marks))
        }

    return dataset.map(mark, num_parallel_calls=tf.data.AUTOTUNE)


def without_marks(tokens: Tokens) -> Tokens:
    return tf.bitwise.bitwise_and(tokens, MARK - 1)


def joined(dataset: tf.data.Dataset, starts: Sequence[int], ends: Sequence[int]) -> tf.data.Dataset:
    """The stream of all tokens, in pieces of any length.

    Args:
        dataset: of {"targets": [tokens]}, a document, or of {"targets": RaggedTensor [documents, tokens]}; other features
            are left behind.
        starts, ends: the ids before and after each document. An empty document has none: there is nothing to separate.

    Returns:
        A dataset of {"targets": [tokens]}.
    """
    is_flat = isinstance(dataset.element_spec["targets"], tf.TensorSpec)
    if not starts and not ends and is_flat and dataset.element_spec.keys() == {"targets"}:
        return dataset  # a map that does nothing would cost as much as all that comes after

    def flat(element: Mapping[str, Tokens]) -> dict[str, tf.Tensor]:
        documents = _with_borders(element["targets"], starts, ends)
        return {"targets": documents.flat_values if isinstance(documents, tf.RaggedTensor) else documents}

    return dataset.map(flat, num_parallel_calls=tf.data.AUTOTUNE)


def cut(tokens: tf.data.Dataset, length: int, rows: int, keep_partial: bool, checked: Check) -> tf.data.Dataset:
    """Cuts the stream every `length` tokens into blocks of at most `rows` rows; what is left at its end is a block of its own."""

    def blocks(tokens: tf.Tensor) -> tf.data.Dataset:
        whole = tf.size(tokens) // length * length
        full = _block(tf.reshape(tokens[:whole], [-1, length]))
        return full.concatenate(_block(tokens[tf.newaxis, whole:])) if keep_partial else full

    return _pieces(tokens, rows * length, checked).flat_map(blocks).filter(_has_tokens)


def slide(tokens: tf.data.Dataset, length: int, stride: int, rows: int, keep_partial: bool, checked: Check) -> tf.data.Dataset:
    """Windows of the stream, `stride` tokens from one start to the next, in blocks of about `rows` rows.

    The last window ends with the stream, and is shorter, a block of its own, if tokens are left that no other holds.
    """
    pieces = _pieces(tokens, rows * stride, checked).map(lambda tokens: (tokens, False))
    end = tf.data.Dataset.from_tensors((tf.zeros([0], tf.int32), True))

    def windows(state: tuple[tf.Tensor, tf.Tensor], piece: tuple[tf.Tensor, tf.Tensor]):
        """The state is the tokens from the next window's start on, and how many of these a window already holds."""
        (carried, held), (added, is_end) = state, piece
        tokens = tf.concat([carried, added], axis=0)
        number = tf.maximum((tf.size(tokens) - length) // stride + 1, 0)
        full = tf.gather(tokens, (tf.range(number) * stride)[:, tf.newaxis] + tf.range(length))
        rest = tokens[number * stride :]
        held = tf.where(number > 0, length - stride, held)
        is_window = is_end & keep_partial & (tf.size(rest) > held)
        return (rest, held), (full, rest[: tf.where(is_window, tf.size(rest), 0)])

    cuts = pieces.concatenate(end).scan((tf.zeros([0], tf.int32), 0), windows)
    return cuts.flat_map(lambda full, last: _block(full).concatenate(_block(last[tf.newaxis]))).filter(_has_tokens)


def split_apart(
    dataset: tf.data.Dataset,
    length: int,
    stride: int,
    rows: int,
    keep_partial: bool,
    checked: Check,
    starts: Sequence[int],
    ends: Sequence[int],
) -> tf.data.Dataset:
    """As `cut` or `slide`, but each document on its own. Arguments as for these, `dataset`, `starts` and `ends` as for `joined`."""

    def windows(documents: tf.RaggedTensor) -> dict[str, tf.Tensor]:
        documents = _with_borders(documents, starts, ends)
        sizes = tf.cast(documents.row_lengths(), tf.int32)
        left = tf.maximum(sizes - length, 0)  # by a document's first window
        number = tf.cast(sizes > 0, tf.int32) + -(-left // stride)
        if not keep_partial:
            number = tf.where(sizes < length, 0, left // stride + 1)
        document = tf.repeat(tf.range(tf.size(sizes)), number)
        offset = (tf.range(tf.size(document)) - tf.gather(tf.cumsum(number, exclusive=True), document)) * stride
        lengths = tf.minimum(tf.gather(sizes, document) - offset, length)
        tokens = checked(documents.flat_values)
        if stride < length or not keep_partial:
            first = tf.gather(tf.cast(documents.row_starts(), tf.int32), document) + offset
            tokens = tf.gather(tokens, tf.ragged.range(first, first + lengths).flat_values)
        return {"tokens": tf.RaggedTensor.from_row_lengths(tokens, lengths, validate=False).to_tensor(), "length": lengths}

    blocks = _batches(dataset).map(windows, num_parallel_calls=tf.data.AUTOTUNE)
    return blocks.flat_map(lambda block: tf.data.Dataset.from_tensor_slices(block).batch(rows))


def _with_borders(
    documents: tf.Tensor | tf.RaggedTensor, starts: Sequence[int], ends: Sequence[int]
) -> tf.Tensor | tf.RaggedTensor:
    """A document [tokens], or several [documents, tokens], between `starts` and `ends`."""
    if not starts and not ends:
        return documents
    if not isinstance(documents, tf.RaggedTensor):
        is_there = tf.cast(tf.size(documents) > 0, tf.int32)
        before, after = (tf.constant(ids, documents.dtype)[: is_there * len(ids)] for ids in (starts, ends))
        return tf.concat([before, documents, after], axis=0)
    is_there = tf.cast(documents.row_lengths() > 0, tf.int64)

    def border(ids: Sequence[int]) -> tf.RaggedTensor:
        values = tf.tile(tf.constant(ids, documents.dtype), [tf.reduce_sum(is_there)])
        return tf.RaggedTensor.from_row_lengths(values, is_there * len(ids))

    return tf.concat([border(starts), documents, border(ends)], axis=1)


def _batches(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Documents as batches of them; those that are batches already stay so."""
    if isinstance(dataset.element_spec["targets"], tf.RaggedTensorSpec):
        return dataset.map(lambda batch: batch["targets"])
    documents = dataset.map(lambda document: document["targets"]).ragged_batch(cache.DOCUMENTS_PER_BATCH)
    if isinstance(documents.element_spec, tf.RaggedTensorSpec):
        return documents
    return documents.map(tf.RaggedTensor.from_tensor)  # ragged_batch makes tensors of documents of one static length


def _pieces(tokens: tf.data.Dataset, size: int, checked: Check) -> tf.data.Dataset:
    return tokens.rebatch(size).map(lambda element: checked(element["targets"]), num_parallel_calls=tf.data.AUTOTUNE)


def _block(tokens: tf.Tensor) -> tf.data.Dataset:
    """One block of rows that are all full."""
    height, width = tf.unstack(tf.shape(tokens))
    return tf.data.Dataset.from_tensors({"tokens": tokens, "length": tf.fill([height], width)})


def _has_tokens(block: Mapping[str, tf.Tensor]) -> tf.Tensor:
    return tf.size(block["tokens"]) > 0
