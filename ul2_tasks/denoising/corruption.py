"""Tokens and spans to inputs and targets: each is a concatenation of runs, of tokens and of special ones.

chunk    A B C D E F G H   with the spans [B C] and [F G]
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

    All rows' tokens, and after them the special ids, are numbered as runs. Inputs and targets are lists of these numbers,
    which `concatenate` looks up. For one row, with the chunk and the spans above and one token of padding:

        tokens   A | B C | D E | F G | H | pad  then  [R] | <0> | <1> | </s> | </s> | (no token)
        run      0   1     2     3     4   5          6     7     8     9      10     11

        inputs   6 | 0 7 2 8 | 4 | 9      the mode, each kept run but the last and its sentinel, the last kept run, EOS
        targets  7 1 8 3 | 10             each sentinel and its noise, EOS

    Where a row has fewer spans than others, the run without a token stands for the sentinels of those that it lacks.

    Args:
        tokens: [R, L] int32, each row's chunk, padded at its end.
        kept: [R, K + 1] int32, tokens before each noise span, and after the last.
        noise: [R, K] int32, tokens of each noise span; 0 where the row has fewer spans.
        sentinels: ids, the j-th of which stands for the j-th span; at least K of them, or none for no sentinels at all.
        mode: ids before the inputs.
        eos: ids after the inputs and after the targets.

    Returns:
        {"inputs": RaggedTensor [R, tokens] int32, "targets": RaggedTensor [R, tokens] int32}.

    >>> chunk, kept, noise = [[11, 12, 13, 14, 15, 16, 17, 18, 0]], [[1, 2, 1]], [[2, 2]]
    >>> rows = map(tf.constant, (chunk, kept, noise))
    >>> example = corrupt_rows(*rows, sentinels=[100, 101], mode=[50], eos=([1], [1]))
    >>> example["inputs"].to_list(), example["targets"].to_list()
    ([[50, 11, 100, 14, 15, 101, 18, 1]], [[100, 12, 13, 101, 16, 17, 1]])
    """
    rows, width = tf.unstack(tf.shape(tokens))
    spans = noise.shape[1]

    padding = width - tf.reduce_sum(kept, axis=1) - tf.reduce_sum(noise, axis=1)
    row_runs = _interleave(kept, tf.concat([noise, padding[:, tf.newaxis]], axis=1))
    special_runs = [mode, *([id] for id in sentinels[:spans]), eos[0], eos[1], ()]
    special_ids = np.concatenate(special_runs).astype(np.int32)
    runs = tf.RaggedTensor.from_row_lengths(
        tf.concat([tf.reshape(tokens, [-1]), special_ids], axis=0),
        tf.concat([tf.reshape(row_runs, [-1]), list(map(len, special_runs))], axis=0),
        validate=False,  # the runs of a row sum to its width by construction
    )

    runs_per_row = 2 * spans + 2
    first = (tf.range(rows) * runs_per_row)[:, tf.newaxis]
    kept_run, noise_run = first + tf.range(0, runs_per_row, 2), first + tf.range(1, runs_per_row - 1, 2)
    after_rows = rows * runs_per_row + tf.range(len(special_runs))
    mode_run, inputs_end, targets_end, empty = after_rows[0], after_rows[-3], after_rows[-2], after_rows[-1]
    sentinel_run = tf.where(noise > 0, after_rows[1:-3] if sentinels else empty, empty)

    def column(run: tf.Tensor) -> tf.Tensor:
        return tf.fill([rows, 1], run)

    kept_and_sentinels = _interleave(kept_run[:, :-1], sentinel_run)
    return {
        "inputs": concatenate(runs, [column(mode_run), kept_and_sentinels, kept_run[:, -1:], column(inputs_end)]),
        "targets": concatenate(runs, [_interleave(sentinel_run, noise_run), column(targets_end)]),
    }


def concatenate(runs: tf.RaggedTensor, wanted: Sequence[tf.Tensor]) -> tf.RaggedTensor:
    """Looks up runs by their numbers, and writes those of each row one after the other.

    The runs are [N, tokens] int32. `wanted` has numbers of runs, [R, .] int32 each: the columns of the first tensor, then those of
    the second, and so on. Gives a RaggedTensor [R, tokens] int32.

    >>> runs = tf.ragged.constant([[2, 3, 4], [], [7], [8, 9]], dtype=tf.int32)
    >>> concatenate(runs, [tf.constant([[0], [3]]), tf.constant([[1, 2], [2, 2]])]).to_list()
    [[2, 3, 4, 7], [8, 9, 7, 7]]
    """
    wanted = tf.concat(wanted, axis=1)
    chosen = tf.gather(runs, tf.reshape(wanted, [-1]))
    lengths = tf.reduce_sum(tf.reshape(chosen.row_lengths(), tf.shape(wanted)), axis=1)
    return tf.RaggedTensor.from_row_lengths(chosen.flat_values, lengths, validate=False)


def _interleave(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """[R, K] and [R, K] to [R, 2 K], their columns in turn: a0 b0 a1 b1 .."""
    return tf.reshape(tf.stack([a, b], axis=2), [tf.shape(a)[0], 2 * a.shape[1]])
