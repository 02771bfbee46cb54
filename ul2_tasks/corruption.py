"""Tokens and spans to inputs and targets: each is a concatenation of runs, of tokens and of special ones.

A B C D E F G H  with spans [B C] [F G]
inputs   [R] A <0> D E <1> H </s>
targets  <0> B C <1> F G </s>
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf


def corrupt_rows(
    tokens: tf.Tensor,
    kept: tf.Tensor,
    noise: tf.Tensor,
    *,
    sentinels: Sequence[int],
    mode: Sequence[int],
    eos: tuple[Sequence[int], Sequence[int]],
    max_inputs: int,
    max_targets: int,
) -> dict[str, tuple[tf.Tensor, tf.Tensor]]:
    """Makes the inputs and the targets of a block of rows.

    Args:
        tokens: [R, L] int32, each row's chunk, padded at its end.
        kept: [R, K + 1] int32, tokens before each noise span, and after the last.
        noise: [R, K] int32, tokens of each noise span; 0 where the row has fewer spans.
        sentinels: ids, the j-th of which stands for the j-th span; at least K of them, or none for no sentinels at all.
        mode: ids before the inputs.
        eos: ids after the inputs and after the targets.
        max_inputs, max_targets: widths of the results; longer rows are an error, never trimmed.

    Returns:
        {"inputs": (values, lengths), "targets": (values, lengths)}, values [R, max_*] int32 padded with 0 and lengths [R] int32.
    """
    rows, width = tf.unstack(tf.shape(tokens))
    max_spans = noise.shape[1]
    special = [*mode, *sentinels[:max_spans], *eos[0], *eos[1]]
    # One table holds every id that can be wanted: the tokens row after row, then the special ones.
    table = tf.concat([tf.reshape(tokens, [-1]), tf.constant(special, tf.int32, [len(special)])], axis=0)
    mode_start = rows * width
    sentinel_start = mode_start + len(mode)
    eos_start = sentinel_start + len(sentinels[:max_spans]), sentinel_start + len(sentinels[:max_spans]) + len(eos[0])

    segments = tf.pad(_interleave(kept[:, :-1], noise), [[0, 0], [0, 1]])  # kept, noise, kept, .. and the last kept run
    segments += tf.pad(kept[:, -1:], [[0, 0], [2 * max_spans, 0]])
    starts = tf.cumsum(segments, axis=1, exclusive=True) + (tf.range(rows) * width)[:, tf.newaxis]
    sentinel_starts = tf.tile((sentinel_start + tf.range(max_spans))[tf.newaxis], [rows, 1])
    sentinel_lengths = tf.cast(noise > 0, tf.int32) if len(sentinels) else tf.zeros_like(noise)

    def special_run(start: tf.Tensor, ids: Sequence[int]) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.fill([rows, 1], start), tf.fill([rows, 1], len(ids))

    def joined(runs: list[tuple[tf.Tensor, tf.Tensor]], max_width: int) -> tuple[tf.Tensor, tf.Tensor]:
        run_starts, run_lengths = (tf.concat(parts, axis=1) for parts in zip(*runs))
        return concatenate_runs(table, run_starts, run_lengths, max_width)

    inputs = [
        special_run(mode_start, mode),
        (_interleave(starts[:, :-1:2], sentinel_starts), _interleave(segments[:, :-1:2], sentinel_lengths)),
        (starts[:, -1:], segments[:, -1:]),
        special_run(eos_start[0], eos[0]),
    ]
    targets = [
        (_interleave(sentinel_starts, starts[:, 1::2]), _interleave(sentinel_lengths, segments[:, 1::2])),
        special_run(eos_start[1], eos[1]),
    ]
    return {"inputs": joined(inputs, max_inputs), "targets": joined(targets, max_targets)}


def concatenate_runs(table: tf.Tensor, starts: tf.Tensor, lengths: tf.Tensor, width: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Writes runs of a table one after the other, in each row.

    Args:
        table: [N] int32.
        starts, lengths: [R, S] int32, the runs table[start : start + length] of each row; a length may be 0.
        width: the width of the result, at least the longest row's.

    Returns:
        values: [R, width] int32, padded with 0, and their lengths: [R] int32.
    """
    rows = tf.shape(starts)[0]
    ends = tf.cumsum(lengths, axis=1)
    totals = ends[:, -1]
    fits = tf.debugging.assert_less_equal(tf.reduce_max(totals), width, "rows longer than their width")
    with tf.control_dependencies([fits]):
        offsets = ends - lengths + (tf.range(rows) * (width + 1))[:, tf.newaxis]
    # Within a run, index = position + (start - offset). Each run adds the change of that difference where it begins, so
    # that a running sum carries it along; runs of length 0 begin where the next one does, and cancel out.
    shift = starts - (ends - lengths)
    change = shift - tf.pad(shift, [[0, 0], [1, 0]])[:, :-1]
    changes = tf.math.unsorted_segment_sum(tf.reshape(change, [-1]), tf.reshape(offsets, [-1]), rows * (width + 1))
    index = tf.cumsum(tf.reshape(changes, [rows, width + 1])[:, :width], axis=1) + tf.range(width)
    within = tf.range(width) < totals[:, tf.newaxis]
    return tf.where(within, tf.gather(table, tf.where(within, index, 0)), 0), totals


def _interleave(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """[R, K] and [R, K] to [R, 2 K]: a0 b0 a1 b1 .."""
    return tf.reshape(tf.stack([a, b], axis=2), [tf.shape(a)[0], 2 * a.shape[1]])
