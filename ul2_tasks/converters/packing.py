"""Decides which examples share a row: vector bin packing of a pool of examples, as a graph.

SeqIO's packer takes examples in order, and opens a new row when the next one does not fit, so that a fifth of a row stays empty.
Here a row is filled from a pool. It gets one example after the other, each time the one with the highest score that fits, until
none fits:

    score(example) = sum over features of  demand * (room / budget) * (length / budget)

    room      what is still free in the row, in tokens
    demand    how many rows the rest of the pool would fill with this feature alone

So the example is preferred whose lengths point most nearly to where the row has room (Panigrahy et al., Heuristics for Vector
Bin Packing, 2011), and the scarcer feature counts more. With budgets of 10 inputs and 10 targets:

    inputs aaaaaa....    targets aa........    the row has example a, of 6 inputs and 2 targets
    inputs aaaaaabbb.    targets aabbbbbbb.    b, of 3 and 7, scores higher than c, of 4 and 2; nothing else fits

tf.data pays for each op, and hardly for its size, so many rows are filled side by side, in one of two ways:

* Few kinds. In a mixture whose chunks are all full, most examples have the same lengths as many others: there is a handful of
  *kinds*. A *pattern* says how many examples of each kind a row has, and is repeated as often as the pool has examples for it.
  All this is done in 128 variants, which change the scores a little, and the variant with the fewest rows is taken.
* Many kinds (drawn splits, documents kept apart). The pool is dealt out to groups of 64 examples, and each fills rows of its own.
  The last rows of a group would have little to choose from, so the remainder of all groups makes the next, smaller, pool.

Nothing is random: the same pool always gives the same rows.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ul2_tasks.graphs import no_autograph, python_op

MAX_KINDS = 16  # a preset has at most seven; the last chunk of an epoch may be a kind of its own
VARIANTS = 128
GROUP = 64  # examples in a group: with fewer there is less to choose from, more take more steps
LEFT = 0.4  # the part of a group that goes into the next pool, so that no row is filled from a poor remainder


@no_autograph
def assign_rows(lengths: tf.Tensor, budgets: tuple[int, ...]) -> tf.Tensor:
    """Assigns the examples of a pool to as few rows as it finds.

    A pool should make some hundreds of rows, because its last rows cannot be filled well. Measured, it takes 2 to 10 us of CPU
    time for each example of a pool of 1,024, and 0.5 to 4 us in a pool of 4,096.

    `lengths`, [N, F] int32, is the length of each feature of each example, at least 1 and at most its budget; another one is a
    tf.errors.InvalidArgumentError when the graph runs. N may be 0. `budgets` are the F lengths of a row. The result, [N] int32, is
    the row of each example, from 0 to R - 1. Rows are numbered by their first examples.

    >>> assign_rows(tf.constant([(6, 2), (6, 2), (3, 7), (3, 7)]), (10, 10)).numpy().tolist()
    [0, 1, 0, 1]
    """
    lengths = tf.ensure_shape(lengths, [None, len(budgets)])
    wrong = tf.reduce_any((lengths < 1) | (lengths > tf.constant(budgets, tf.int32)), axis=1)
    message = f"lengths to pack must be at least 1 and within the budgets {tuple(budgets)}, the first example with others has"
    is_valid = tf.logical_not(tf.reduce_any(wrong))
    with tf.control_dependencies([tf.debugging.Assert(is_valid, [message, tf.boolean_mask(lengths, wrong)[:1]])]):
        kinds, kind, counts = tf.raw_ops.UniqueWithCountsV2(x=lengths, axis=[0])
    assign_groups = _assign_groups_of_one_feature if len(budgets) == 1 else _assign_groups
    rows = tf.cond(
        tf.size(counts) <= MAX_KINDS,
        lambda: _assign_kinds(kinds, kind, counts, budgets),
        lambda: assign_groups(lengths, budgets),
    )
    return tf.unique(rows).idx


def count_rows(lengths: np.ndarray, budgets: tuple[int, ...]) -> int:
    """The number of rows to which `assign_rows` assigns a pool, [N, F] int, which must not be empty."""
    return int(_packer(budgets)(tf.constant(lengths, tf.int32)).numpy().max()) + 1


@functools.lru_cache(maxsize=8)
def _packer(budgets: tuple[int, ...]) -> Callable[[tf.Tensor], tf.Tensor]:
    return tf.function(
        functools.partial(assign_rows, budgets=budgets), input_signature=[tf.TensorSpec([None, len(budgets)], tf.int32)]
    )


def _assign_kinds(kinds: tf.Tensor, kind: tf.Tensor, counts: tf.Tensor, budgets: tuple[int, ...]) -> tf.Tensor:
    """As `assign_rows`, for examples of few kinds.

    `kinds`, [K, F] int32, are the lengths of each kind; K is at most `MAX_KINDS`. `kind`, [N] int32, is the kind of each example.
    `counts`, [K] int32, is the number of examples of each kind.
    """
    padding = MAX_KINDS - tf.size(counts)
    kinds = tf.ensure_shape(tf.pad(kinds, [[0, padding], [0, 0]]), [MAX_KINDS, len(budgets)])
    counts = tf.ensure_shape(tf.pad(counts, [[0, padding]]), [MAX_KINDS])
    # Each variant multiplies the scores by factors up to e^0.5. Of the exponents 0.5, 1, 1.5 and 2 this made the fewest rows,
    # within 1.2 % of the fractional optimum.
    factors = np.exp(np.random.RandomState(0).uniform(-0.5, 0.5, [VARIANTS, MAX_KINDS]))
    factors[0] = 1
    patterns, times = _fill(
        tf.tile(tf.transpose(kinds)[:, tf.newaxis], [1, VARIANTS, 1]),
        tf.tile(counts[tf.newaxis], [VARIANTS, 1]),
        budgets,
        factors=tf.constant(factors, tf.float32),
    )
    fewest = tf.argmin(tf.reduce_sum(times, axis=0))
    in_row = tf.repeat(patterns[:, fewest], times[:, fewest], axis=0)  # [R, K]: how many of each kind are in each row
    row = tf.repeat(tf.tile(tf.range(tf.shape(in_row)[0]), [MAX_KINDS]), tf.reshape(tf.transpose(in_row), [-1]))
    by_kind = tf.argsort(kind, stable=True)
    return tf.tensor_scatter_nd_update(tf.zeros_like(kind), by_kind[:, tf.newaxis], row)


def _assign_groups(lengths: tf.Tensor, budgets: tuple[int, ...]) -> tf.Tensor:
    """As `assign_rows`, for examples of any kinds: [N, F] int32 to [N] int32. Some row numbers may be unused."""

    def pack_pool(rows: tf.Tensor, used: tf.Tensor, pool: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Assigns examples of the pool, and returns the same three for the examples that remain.

        `rows`, [N] int32, are the rows of examples that are assigned. `used` is the first row number that is free. `pool`,
        [P] int32, has the examples that are not assigned.
        """
        groups = -(-tf.size(pool) // GROUP)
        padding = groups * GROUP - tf.size(pool)

        def deal(values: tf.Tensor) -> tf.Tensor:
            """[P] to [groups, GROUP], dealt like cards, so that the sizes of groups differ by 1 at most."""
            return tf.transpose(tf.reshape(tf.pad(values, [[0, padding]]), [GROUP, groups]))

        pool_lengths = [deal(feature) for feature in tf.unstack(tf.gather(lengths, pool), axis=1)]
        counts = deal(tf.ones_like(pool))
        leave = tf.where(groups > 1, int(LEFT * GROUP), 0)
        patterns, _ = _fill(tf.stack(pool_lengths), counts, budgets, leave=leave)
        taken = tf.reduce_max(patterns, axis=0) > 0
        row = used + tf.argmax(patterns, axis=0, output_type=tf.int32) * groups + tf.range(groups)[:, tf.newaxis]
        example = deal(pool)
        rows = tf.tensor_scatter_nd_update(rows, tf.boolean_mask(example, taken)[:, tf.newaxis], tf.boolean_mask(row, taken))
        remainder = tf.boolean_mask(example, ~taken & (counts > 0))
        return rows, used + tf.shape(patterns)[0] * groups, tf.sort(remainder)

    count = tf.shape(lengths)[0]
    rows, _, _ = tf.while_loop(
        lambda rows, used, pool: tf.size(pool) > 0,
        pack_pool,
        (tf.zeros([count], tf.int32), 0, tf.range(count)),
        shape_invariants=(tf.TensorShape([None]), tf.TensorShape([]), tf.TensorShape([None])),
    )
    return rows


def _assign_groups_of_one_feature(lengths: tf.Tensor, budgets: tuple[int, ...]) -> tf.Tensor:
    """The same rows as `_assign_groups` finds for [N, 1] lengths, by less work.

    With one feature the longest example that fits has the highest score, so no scores are needed.
    """

    def assign(given: np.ndarray) -> np.ndarray:
        lengths = given.tolist()
        rows, used, pool = np.zeros(len(lengths), np.int32), 0, list(range(len(lengths)))
        while pool:
            groups = -(-len(pool) // GROUP)
            remainder: list[int] = []
            for group in range(groups):
                own = pool[group::groups]
                # Ascending; of examples of one length the first of the pool is the last here, and is taken first.
                examples = sorted(reversed(own), key=lengths.__getitem__)
                left = [lengths[example] for example in examples]
                while len(left) > (int(LEFT * GROUP) if groups > 1 else 0):
                    room = budgets[0]
                    while fitting := bisect.bisect_right(left, room):
                        room -= left.pop(fitting - 1)
                        rows[examples.pop(fitting - 1)] = used
                    used += 1
                remainder += examples
            pool = sorted(remainder)
        return rows

    (rows,) = python_op(assign, [lengths[:, 0]], [tf.int32])
    return tf.ensure_shape(rows, [None])


def _fill(
    lengths: tf.Tensor,
    counts: tf.Tensor,
    budgets: tuple[int, ...],
    *,
    factors: tf.Tensor | float = 1.0,
    leave: tf.Tensor | int = 0,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Fills the rows of G groups side by side, one pattern at a time, each repeated as often as possible. For one group:

        kinds              a  b  c
        examples left      7  4  1
        first pattern      2  1  0    3 times: three rows of two a and one b
        examples left      1  1  1
        second pattern     1  1  1    once, and no more than `leave` examples are left

    `lengths`, [F, G, M] int32, are those of the M kinds of each group. `counts`, [G, M] int32, are the examples of each kind, and
    `factors`, [G, M] float32, multiply scores. A group stops when it has no more examples than `leave`. Returns the patterns,
    [S, G, M] int32, the examples of each kind in a row, all 0 after a group has stopped; and [S, G] int32, how many rows have each.
    """
    budget = tf.reshape(tf.constant(budgets, tf.int32), [-1, 1])
    parts = tf.cast(lengths, tf.float32) / tf.cast(budget, tf.float32)[:, :, tf.newaxis]

    def fill_rows(step, counts, patterns, times):
        has_enough = tf.reduce_sum(counts, axis=1, keepdims=True) > leave
        pattern = _fill_one_row(lengths, parts, tf.where(has_enough, counts, 0), budget, factors)
        rows = _repeats(pattern, counts)
        counts -= pattern * rows[:, tf.newaxis]
        return step + 1, counts, patterns.write(step, pattern), times.write(step, rows)

    patterns, times = (tf.TensorArray(tf.int32, 0, dynamic_size=True, element_shape=s) for s in (counts.shape, counts.shape[:1]))
    _, _, patterns, times = tf.while_loop(
        lambda step, counts, patterns, times: tf.reduce_any(tf.reduce_sum(counts, axis=1) > leave),
        fill_rows,
        (0, counts, patterns, times),
    )
    return patterns.stack(), times.stack()


def _fill_one_row(
    lengths: tf.Tensor, parts: tf.Tensor, counts: tf.Tensor, budget: tf.Tensor, factors: tf.Tensor | float
) -> tf.Tensor:
    """Fills one row of each group, an example at a time, as the top of this file says.

    `lengths` and `parts` are [F, G, M], the lengths in tokens and in parts of the budget, which is [F, 1]. `counts`, [G, M] int32,
    are the examples that are left. The pattern, [G, M] int32, is how many examples of each kind the row has.
    """
    # Summed as integers, which is exact in any order: equal pools have equal scores on any machine.
    tokens = tf.reduce_sum(tf.cast(lengths, tf.int64) * tf.cast(counts, tf.int64), axis=2)
    demand = tf.cast(tokens, tf.float32) / tf.cast(budget, tf.float32)

    def fits(pattern: tf.Tensor, room: tf.Tensor) -> tf.Tensor:
        return tf.reduce_all(lengths <= room[:, :, tf.newaxis], axis=0) & (pattern < counts)

    def add_one(pattern, room, fitting):
        direction = demand * tf.cast(room, tf.float32) / tf.cast(budget, tf.float32)
        score = tf.reduce_sum(parts * direction[:, :, tf.newaxis], axis=0) * factors
        best = tf.argmax(tf.where(fitting, score, -1.0), axis=1, output_type=tf.int32)
        one = tf.one_hot(best, tf.shape(counts)[1], dtype=tf.int32) * tf.cast(fitting, tf.int32)
        pattern, room = pattern + one, room - tf.reduce_sum(lengths * one, axis=2)
        return pattern, room, fits(pattern, room)

    pattern, room = tf.zeros_like(counts), tf.tile(budget, [1, tf.shape(counts)[0]])
    pattern, _, _ = tf.while_loop(
        lambda pattern, room, fitting: tf.reduce_any(fitting), add_one, (pattern, room, fits(pattern, room))
    )
    return pattern


def _repeats(pattern: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """How many rows of its pattern each group has examples for, [G] int32; 0 for an empty pattern."""
    times = tf.reduce_min(tf.where(pattern > 0, counts // tf.maximum(pattern, 1), tf.int32.max), axis=1)
    return tf.where(tf.reduce_any(pattern > 0, axis=1), times, 0)
