"""Tokens and spans to inputs and targets: each is a concatenation of runs, of tokens and of special ones.

A B C D E F G H  with spans [B C] [F G]
inputs   [R] A <0> D E <1> H </s>
targets  <0> B C <1> F G </s>
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf


def corrupt_rows(
    tokens: tf.Tensor,
    kept: tf.Tensor,
    noise: tf.Tensor,
    *,
    sentinels: Sequence[int],
    mode: Sequence[int],
    eos: tuple[Sequence[int], Sequence[int]],
) -> dict[str, tf.RaggedTensor]:
    """Makes the inputs and the targets of a block of rows.

    Args:
        tokens: [R, L] int32, each row's chunk, padded at its end.
        kept: [R, K + 1] int32, tokens before each noise span, and after the last.
        noise: [R, K] int32, tokens of each noise span; 0 where the row has fewer spans.
        sentinels: ids, the j-th of which stands for the j-th span; at least K of them, or none for no sentinels at all.
        mode: ids before the inputs.
        eos: ids after the inputs and after the targets.

    Returns:
        {"inputs": RaggedTensor [R, tokens] int32, "targets": RaggedTensor [R, tokens] int32}.
    """
    rows, width = tf.unstack(tf.shape(tokens))
    spans = noise.shape[1]

    # Every run that can be wanted: of each row kept, noise, kept, .. kept and the padding, then the special ones.
    padding = width - tf.reduce_sum(kept, axis=1) - tf.reduce_sum(noise, axis=1)
    row_runs = _interleave(kept, tf.concat([noise, padding[:, tf.newaxis]], axis=1))
    special_runs = [mode, *([id] for id in sentinels[:spans]), eos[0], eos[1], ()]
    special_ids = np.concatenate(special_runs).astype(np.int32)
    runs = tf.RaggedTensor.from_row_lengths(
        tf.concat([tf.reshape(tokens, [-1]), special_ids], axis=0),
        tf.concat([tf.reshape(row_runs, [-1]), list(map(len, special_runs))], axis=0),
        validate=False,  # the runs of a row sum to its width by construction
    )

    per_row = 2 * spans + 2
    first = (tf.range(rows) * per_row)[:, tf.newaxis]
    kept_run, noise_run = first + tf.range(0, per_row, 2), first + tf.range(1, per_row - 1, 2)
    mode_run, *sentinel_runs, inputs_end, targets_end, empty = [rows * per_row + run for run in range(len(special_runs))]
    sentinel_run = tf.where(noise > 0, tf.stack(sentinel_runs) if sentinel_runs else empty, empty)

    def column(run: tf.Tensor) -> tf.Tensor:
        return tf.fill([rows, 1], run)

    kept_and_sentinels = _interleave(kept_run[:, :-1], sentinel_run)
    return {
        "inputs": concatenate(runs, [column(mode_run), kept_and_sentinels, kept_run[:, -1:], column(inputs_end)]),
        "targets": concatenate(runs, [_interleave(sentinel_run, noise_run), column(targets_end)]),
    }


def concatenate(runs: tf.RaggedTensor, wanted: Sequence[tf.Tensor]) -> tf.RaggedTensor:
    """Writes runs one after the other, in each row.

    Args:
        runs: [N, tokens] int32.
        wanted: [R, .] int32 each, numbers of runs; their columns, one tensor's after another's, are the order.

    Returns:
        RaggedTensor [R, tokens] int32.
    """
    wanted = tf.concat(wanted, axis=1)
    chosen = tf.gather(runs, tf.reshape(wanted, [-1]))
    lengths = tf.reduce_sum(tf.reshape(chosen.row_lengths(), tf.shape(wanted)), axis=1)
    return tf.RaggedTensor.from_row_lengths(chosen.flat_values, lengths, validate=False)


def _interleave(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """[R, K] and [R, K] to [R, 2 K]: a0 b0 a1 b1 .."""
    return tf.reshape(tf.stack([a, b], axis=2), [tf.shape(a)[0], 2 * a.shape[1]])
