"""Which examples share a row: vector bin packing of a pool of examples, as a graph.

SeqIO's packer takes the examples in their order and opens a row when the next one does not fit, so that a fifth of a row
stays empty. Here a pool is looked at as a whole. A row gets one example after the other, each time the one that fits and
whose lengths point most nearly to where the row has room: the largest dot product of lengths and room, both in parts of
the budget, weighted by what the pool still asks of each feature (Panigrahy et al., Heuristics for Vector Bin Packing,
2011). tf.data pays for ops, hardly for their size, so many rows are filled side by side:

* A mixture whose chunks are all full has a handful of kinds of examples. What is filled then is a pattern, so many of
  each kind, and it stands for as many rows as the pool has examples for. That is done in a hundred variants, which find
  some kinds a little more appealing than others, and the one with the fewest rows is taken.
* Otherwise (splits drawn, documents kept apart) the pool is dealt into groups, and each fills rows of its own. The
  last rows of a group would be poor for want of choice, so what a group has left goes into the next, smaller, pool.

Nothing is random: the same pool gives the same rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ul2_tasks.graphs import no_autograph

MAX_KINDS = 16  # a preset has at most seven; the last chunk of an epoch may be a kind of its own
VARIANTS = 128
GROUP = 64  # examples of a group: fewer choose worse, more take more steps
LEFT = 0.4  # the part of a group that goes into the next pool, so that no row is filled from the dregs


@no_autograph
def assign_rows(lengths: tf.Tensor, budgets: tuple[int, ...]) -> tf.Tensor:
    """Assigns the examples of a pool to rows, as few as it finds.

    A pool should make some hundreds of rows, as its last ones cannot be filled well. Its cost grows slowly with its size:
    measured, 2 to 10 us of CPU time an example in pools of 1,024, 0.5 to 4 us in pools of 4,096.

    Args:
        lengths: [N, F] int32, the length of each feature of each example, at least 1 and at most its budget; N may be 0.
        budgets: F integers, the length of each feature of a row.

    Returns:
        [N] int32, the row of each example: 0 to R - 1, numbered by their first examples; in no row is the sum of any
        feature's lengths above its budget.

    Raises:
        tf.errors.InvalidArgumentError: when run, on a length below 1 or above its budget.
    """
    lengths = tf.ensure_shape(lengths, [None, len(budgets)])
    wrong = tf.reduce_any((lengths < 1) | (lengths > tf.constant(budgets, tf.int32)), axis=1)
    message = f"lengths to pack must be at least 1 and within the budgets {tuple(budgets)}, the first example with others has"
    is_valid = tf.logical_not(tf.reduce_any(wrong))
    with tf.control_dependencies([tf.debugging.Assert(is_valid, [message, tf.boolean_mask(lengths, wrong)[:1]])]):
        kinds, kind, counts = tf.raw_ops.UniqueWithCountsV2(x=lengths, axis=[0])
    rows = tf.cond(
        tf.size(counts) <= MAX_KINDS,
        lambda: _assign_kinds(kinds, kind, counts, budgets),
        lambda: _assign_groups(lengths, budgets),
    )
    return tf.unique(rows).idx


def count_rows(lengths: np.ndarray, budgets: tuple[int, ...]) -> int:
    """How many rows `assign_rows` fills with a pool, [N, F] int and not empty."""
    return int(_packer(budgets)(tf.constant(lengths, tf.int32)).numpy().max()) + 1


@functools.lru_cache(maxsize=8)
def _packer(budgets: tuple[int, ...]) -> Callable[[tf.Tensor], tf.Tensor]:
    return tf.function(
        functools.partial(assign_rows, budgets=budgets), input_signature=[tf.TensorSpec([None, len(budgets)], tf.int32)]
    )


def _assign_kinds(kinds: tf.Tensor, kind: tf.Tensor, counts: tf.Tensor, budgets: tuple[int, ...]) -> tf.Tensor:
    """Rows of examples that are of few kinds.

    Args:
        kinds: [K, F] int32, lengths, K at most MAX_KINDS.
        kind: [N] int32, the kind of each example.
        counts: [K] int32, how many there are of each.
        budgets: as above.

    Returns:
        [N] int32.
    """
    padding = MAX_KINDS - tf.size(counts)
    kinds = tf.ensure_shape(tf.pad(kinds, [[0, padding], [0, 0]]), [MAX_KINDS, len(budgets)])
    counts = tf.ensure_shape(tf.pad(counts, [[0, padding]]), [MAX_KINDS])
    # Scores may differ by e^0.5: of 0.5, 1, 1.5 and 2 it made the fewest rows, within 1.2 % of the fractional optimum.
    appeal = np.exp(np.random.RandomState(0).uniform(-0.5, 0.5, [VARIANTS, MAX_KINDS]))
    appeal[0] = 1
    patterns, times = _fill(
        tf.tile(tf.transpose(kinds)[:, tf.newaxis], [1, VARIANTS, 1]),
        tf.tile(counts[tf.newaxis], [VARIANTS, 1]),
        budgets,
        appeal=tf.constant(appeal, tf.float32),
    )
    fewest = tf.argmin(tf.reduce_sum(times, axis=0))
    in_row = tf.repeat(patterns[:, fewest], times[:, fewest], axis=0)  # [R, K]: of each kind in each row
    row = tf.repeat(tf.tile(tf.range(tf.shape(in_row)[0]), [MAX_KINDS]), tf.reshape(tf.transpose(in_row), [-1]))
    by_kind = tf.argsort(kind, stable=True)
    return tf.tensor_scatter_nd_update(tf.zeros_like(kind), by_kind[:, tf.newaxis], row)


def _assign_groups(lengths: tf.Tensor, budgets: tuple[int, ...]) -> tf.Tensor:
    """Rows of any examples: [N, F] int32 to [N] int32, not all numbers used."""

    def pack_pool(rows: tf.Tensor, used: tf.Tensor, pool: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """rows: [N] int32, the row of each example so far; used: [] int32, numbers used up; pool: [P] int32, examples left."""
        groups = -(-tf.size(pool) // GROUP)
        padding = groups * GROUP - tf.size(pool)

        def deal(values: tf.Tensor) -> tf.Tensor:
            """[P] to [groups, GROUP], like cards, so that all groups are equally large."""
            return tf.transpose(tf.reshape(tf.pad(values, [[0, padding]]), [GROUP, groups]))

        pool_lengths = [deal(feature) for feature in tf.unstack(tf.gather(lengths, pool), axis=1)]
        counts = deal(tf.ones_like(pool))
        leave = tf.where(groups > 1, int(LEFT * GROUP), 0)
        patterns, _ = _fill(tf.stack(pool_lengths), counts, budgets, leave=leave)
        taken = tf.reduce_max(patterns, axis=0) > 0
        row = used + tf.argmax(patterns, axis=0, output_type=tf.int32) * groups + tf.range(groups)[:, tf.newaxis]
        example = deal(pool)
        rows = tf.tensor_scatter_nd_update(rows, tf.boolean_mask(example, taken)[:, tf.newaxis], tf.boolean_mask(row, taken))
        left = tf.boolean_mask(example, ~taken & (counts > 0))
        return rows, used + tf.shape(patterns)[0] * groups, tf.sort(left)

    count = tf.shape(lengths)[0]
    rows, _, _ = tf.while_loop(
        lambda rows, used, pool: tf.size(pool) > 0,
        pack_pool,
        (tf.zeros([count], tf.int32), 0, tf.range(count)),
        shape_invariants=(tf.TensorShape([None]), tf.TensorShape([]), tf.TensorShape([None])),
    )
    return rows


def _fill(
    lengths: tf.Tensor,
    counts: tf.Tensor,
    budgets: tuple[int, ...],
    *,
    appeal: tf.Tensor | float = 1.0,
    leave: tf.Tensor | int = 0,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Fills rows of G groups side by side, one pattern at a time, each as often as its group has examples for.

    Args:
        lengths: [F, G, M] int32, of M kinds of examples.
        counts: [G, M] int32, examples of each kind, 0 for none.
        budgets: F integers.
        appeal: [G, M] float32, factors for the scores.
        leave: [] int32, a group stops when it has no more examples than this.

    Returns:
        patterns: [S, G, M] int32, examples of each kind in a row of the pattern; all 0 after a group has stopped.
        times: [S, G] int32, rows of the pattern.
    """
    budget = tf.reshape(tf.constant(budgets, tf.int32), [-1, 1])
    parts = tf.cast(lengths, tf.float32) / tf.cast(budget, tf.float32)[:, :, tf.newaxis]

    def fits(pattern: tf.Tensor, free: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        return tf.reduce_all(lengths <= free[:, :, tf.newaxis], axis=0) & (pattern < counts)

    def fill_pattern(step, counts, patterns, times):
        counts_left = tf.where(tf.reduce_sum(counts, axis=1, keepdims=True) > leave, counts, 0)
        # Summed as integers, which is exact in any order: equal pools have equal scores on any machine.
        tokens = tf.reduce_sum(tf.cast(lengths, tf.int64) * tf.cast(counts_left, tf.int64), axis=2)
        demand = tf.cast(tokens, tf.float32) / tf.cast(budget, tf.float32)

        def add_one(pattern, free, fitting):
            direction = demand * tf.cast(free, tf.float32) / tf.cast(budget, tf.float32)
            score = tf.reduce_sum(parts * direction[:, :, tf.newaxis], axis=0) * appeal
            best = tf.argmax(tf.where(fitting, score, -1.0), axis=1, output_type=tf.int32)
            one = tf.one_hot(best, tf.shape(counts)[1], dtype=tf.int32) * tf.cast(fitting, tf.int32)
            pattern, free = pattern + one, free - tf.reduce_sum(lengths * one, axis=2)
            return pattern, free, fits(pattern, free, counts_left)

        empty, free = tf.zeros_like(counts), tf.tile(budget, [1, tf.shape(counts)[0]])
        pattern, _, _ = tf.while_loop(
            lambda pattern, free, fitting: tf.reduce_any(fitting), add_one, (empty, free, fits(empty, free, counts_left))
        )
        rows = tf.reduce_min(tf.where(pattern > 0, counts // tf.maximum(pattern, 1), tf.int32.max), axis=1)
        rows = tf.where(tf.reduce_any(pattern > 0, axis=1), rows, 0)
        counts -= pattern * rows[:, tf.newaxis]
        return step + 1, counts, patterns.write(step, pattern), times.write(step, rows)

    patterns, times = (tf.TensorArray(tf.int32, 0, dynamic_size=True, element_shape=s) for s in (counts.shape, counts.shape[:1]))
    _, _, patterns, times = tf.while_loop(
        lambda step, counts, patterns, times: tf.reduce_any(tf.reduce_sum(counts, axis=1) > leave),
        fill_pattern,
        (0, counts, patterns, times),
    )
    return patterns.stack(), times.stack()
