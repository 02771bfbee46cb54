"""Writes packed rows of conversations: what `encoder_decoder.pack_rows` gives, with what a decoder reads, in one pass.

A graph makes each of these features by several passes over all rows. Conversations are long, so it costs less to copy them to their
places one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import tensorflow as tf

from ul2_tasks.aligned import zeros_for_tensors
from ul2_tasks.example_features import Feature, token_features
from ul2_tasks.graphs import python_op
from ul2_tasks.order.packing import assign_rows


def packed_rows(
    examples: Mapping[str, tf.Tensor],
    sizes: Mapping[str, tf.Tensor],
    lengths: Mapping[str, int],
    spec: Mapping[str, Feature],
    bos_id: int,
    shifted: Collection[str],
) -> dict[str, tf.Tensor]:
    """Puts several examples into each row, see `encoder_decoder.pack_rows`.

    Examples are [N, tokens] for each feature, and all features of `spec` are padded with 0. `sizes`, [N] int32 for each feature of
    tokens, are how many of its values, at their beginning, are the example's. The result is [R, length] int32 for each feature; for
    `<feature>_segment_ids` and `<feature>_positions` of each feature of tokens; and for `<feature>_before` of those that are
    `shifted`: the token before, in its example, or `bos_id`, as a decoder reads it.
    """
    of_tokens = token_features(spec)
    sides = {tokens: [key for key in spec if spec[key].per_token_of == tokens] for tokens in of_tokens}
    names = {
        tokens: [*own, f"{tokens}_segment_ids", f"{tokens}_positions", *([f"{tokens}_before"] if tokens in shifted else [])]
        for tokens, own in sides.items()
    }

    def write(*arrays: np.ndarray) -> list[np.ndarray]:
        given = dict(zip([*spec, *(f"{tokens}_sizes" for tokens in of_tokens)], arrays))
        to_pack = np.stack([given[f"{tokens}_sizes"] for tokens in of_tokens], axis=1)
        row = assign_rows(to_pack, tuple(lengths[tokens] for tokens in of_tokens))
        written: list[np.ndarray] = []
        for tokens, own in sides.items():
            blocks = zeros_for_tensors(len(names[tokens]), (int(row.max(initial=-1)) + 1, lengths[tokens]))
            _write(
                {key: given[key] for key in own}, tokens, given[f"{tokens}_sizes"], row, dict(zip(names[tokens], blocks)), bos_id
            )
            written += blocks
        return written

    inputs = [*(examples[key] for key in spec), *(sizes[tokens] for tokens in of_tokens)]
    widths = {name: lengths[tokens] for tokens in of_tokens for name in names[tokens]}
    rows = python_op(write, inputs, [tf.int32] * len(widths))
    return {name: tf.ensure_shape(values, [None, width]) for (name, width), values in zip(widths.items(), rows)}


def _write(
    examples: Mapping[str, np.ndarray],
    tokens: str,
    sizes: np.ndarray,
    row: np.ndarray,
    rows: Mapping[str, np.ndarray],
    bos_id: int,
) -> None:
    """Writes one feature of tokens, and those that say something of them, into `rows`, [R, length] each, which are all 0.

    `examples` are [N, tokens] for each of these features, of which `tokens` is the first. `row`, [N] int32, is where each goes.
    """
    flat = {name: values.reshape(-1) for name, values in rows.items()}
    segment_ids, positions, before = flat[f"{tokens}_segment_ids"], flat[f"{tokens}_positions"], flat.get(f"{tokens}_before")
    length = rows[tokens].shape[1]
    numbers = np.arange(length, dtype=np.int32)
    order = np.argsort(row, kind="stable")
    firsts = np.searchsorted(row[order], row[order])  # for each example the first of its row, as places in this order
    ends = np.cumsum(sizes[order], dtype=np.int64)
    starts = ends - sizes[order]
    begins = row[order].astype(np.int64) * length + starts - starts[firsts]
    segments = np.arange(len(order)) - firsts + 1
    for example, begin, size, segment in zip(*(each.tolist() for each in (order, begins, sizes[order], segments))):
        end = begin + size
        for name, values in examples.items():
            flat[name][begin:end] = values[example, :size]
        segment_ids[begin:end] = segment
        positions[begin:end] = numbers[:size]
        if before is not None:
            before[begin] = bos_id
            before[begin + 1 : end] = examples[tokens][example, : size - 1]
