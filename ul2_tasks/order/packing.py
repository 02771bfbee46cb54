"""Decides which examples of a pool share a row: vector bin packing.

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

A pool is packed in one of two ways:

* Few kinds. In a mixture whose chunks are all full, most examples have the same lengths as many others: there is a handful of
  *kinds*. A *pattern* says how many examples of each kind a row has, and is repeated as often as the pool has examples for it.
  All this is done in 128 variants, which change the scores a little, and the variant with the fewest rows is taken.
* Many kinds (drawn splits, documents kept apart). The pool is dealt out to groups of 64 examples, and each fills rows of its own.
  The last rows of a group would have little to choose from, so the remainder of all groups makes the next, smaller, pool.

Nothing is random: the same pool always gives the same rows.
"""

from __future__ import annotations

import numpy as np

from ul2_tasks.compiled import compiled, part_of_compiled

MAX_KINDS = 16  # a preset has at most seven; the last chunk of an epoch may be a kind of its own
VARIANTS = 128
GROUP = 64  # examples in a group: with fewer there is less to choose from, more take longer
LEFT = int(0.4 * GROUP)  # so many examples of a group go into the next pool, so that no row is filled from a poor remainder


def assign_rows(lengths: np.ndarray, budgets: tuple[int, ...]) -> np.ndarray:
    """Assigns the examples of a pool to as few rows as it finds.

    A pool should make some hundreds of rows, because its last rows cannot be filled well.

    `lengths`, [N, F] int32, is the length of each feature of each example, at least 1 and at most its budget; N may be 0. `budgets`
    are the F lengths of a row. Returns the row of each example, [N] int32, from 0 to R - 1, numbered by their first examples.
    Raises a ValueError where a length is another one.

    >>> assign_rows(np.array([(6, 2), (6, 2), (3, 7), (3, 7)]), (10, 10)).tolist()
    [0, 1, 0, 1]
    """
    lengths, most = np.asarray(lengths, np.int32).reshape(-1, len(budgets)), np.array(budgets, np.int32)
    wrong = ((lengths < 1) | (lengths > most)).any(axis=1)
    if wrong.any():
        raise ValueError(
            f"lengths to pack must be at least 1 and within the budgets {tuple(budgets)}, got {lengths[wrong.argmax()].tolist()}."
        )
    if not len(lengths):
        return np.zeros([0], np.int32)
    kinds, kind, counts = _kinds(lengths)
    rows = _of_kinds(kinds, kind, counts, most) if len(kinds) <= MAX_KINDS else _rows_of_groups(lengths, most)
    return _by_first(rows)[1].astype(np.int32)


def count_rows(lengths: np.ndarray, budgets: tuple[int, ...]) -> int:
    """The number of rows to which `assign_rows` assigns a pool."""
    return int(assign_rows(lengths, budgets).max(initial=-1)) + 1


def _by_first(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first place of each value, ascending, and for each value its number in that order."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return first[order], np.argsort(order)[inverse.reshape(-1)]


def _kinds(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The different lengths, [K, F], in the order in which they come; the kind of each example, [N]; how many each has, [K]."""
    _, codes = np.unique(lengths, axis=0, return_inverse=True)
    first, kind = _by_first(codes.reshape(-1))
    return lengths[first], kind, np.bincount(kind)


def _of_kinds(kinds: np.ndarray, kind: np.ndarray, counts: np.ndarray, budgets: np.ndarray) -> np.ndarray:
    """The row of each example, [N]. `kinds`, [K, F], `kind`, [N], and `counts`, [K], are those of `_kinds`."""
    # Each variant multiplies the scores by factors up to e^0.5. Of the exponents 0.5, 1, 1.5 and 2 this made the fewest rows,
    # within 1.2 % of the fractional optimum.
    factors = np.exp(np.random.RandomState(0).uniform(-0.5, 0.5, [VARIANTS, MAX_KINDS])).astype(np.float32)
    factors[0] = 1
    in_row = _fewest_rows(kinds, counts, budgets, factors[:, : len(kinds)])  # [R, K]: how many of each kind are in each row
    rows = np.empty(len(kind), np.int64)
    rows[np.argsort(kind, kind="stable")] = np.repeat(np.tile(np.arange(len(in_row)), len(kinds)), in_row.T.reshape(-1))
    return rows


@part_of_compiled
def _fill_one_row(lengths, parts, counts, budgets, factors):
    """How many examples of each kind a row has, [K], filled an example at a time, as the top of this file says.

    `lengths` and `parts` are [K, F], the lengths in tokens and in parts of the budgets, [F]. `counts`, [K], are the examples that
    are left, and `factors`, [K], multiply scores.
    """
    kinds, features = lengths.shape
    demand, room = np.zeros(features, np.float32), budgets.copy()
    for feature in range(features):
        tokens = 0  # an integer: equal pools have equal scores on any machine
        for kind in range(kinds):
            tokens += lengths[kind, feature] * counts[kind]
        demand[feature] = np.float32(tokens) / np.float32(budgets[feature])
    pattern, direction = np.zeros(kinds, np.int64), np.zeros(features, np.float32)
    while True:
        for feature in range(features):
            direction[feature] = demand[feature] * np.float32(room[feature]) / np.float32(budgets[feature])
        best, highest = -1, np.float32(-1)
        for kind in range(kinds):
            if pattern[kind] < counts[kind] and (lengths[kind] <= room).all():
                score = np.float32(0)
                for feature in range(features):
                    score += parts[kind, feature] * direction[feature]
                score *= factors[kind]
                if score > highest:
                    best, highest = kind, score
        if best < 0:
            return pattern
        pattern[best] += 1
        room -= lengths[best]


@compiled
def _fewest_rows(kinds, counts, budgets, factors):
    """The rows of the variant that has the fewest, [R, K], the examples of each kind in each.

    Rows are filled one pattern at a time, each repeated as often as possible:

        kinds              a  b  c
        examples left      7  4  1
        first pattern      2  1  0    3 times: three rows of two a and one b
        examples left      1  1  1
        second pattern     1  1  1    once
    """
    parts = kinds.astype(np.float32) / budgets.astype(np.float32)
    best = np.empty((0, len(counts)), np.int64)
    for variant in range(len(factors)):
        left, steps, rows = counts.copy(), 0, 0
        patterns, times = np.empty((counts.sum(), len(counts)), np.int64), np.empty(counts.sum(), np.int64)
        while left.sum():
            pattern = _fill_one_row(kinds, parts, left, budgets, factors[variant])
            repeats = (left[pattern > 0] // pattern[pattern > 0]).min()
            patterns[steps], times[steps] = pattern, repeats
            left -= pattern * repeats
            steps, rows = steps + 1, rows + repeats
        if variant == 0 or rows < len(best):
            best = patterns[np.repeat(np.arange(steps), times[:steps])]
    return best


@compiled
def _rows_of_groups(lengths, budgets):
    """The row of each example of any kinds, [N]. Some numbers may be unused. `lengths` is [N, F]."""
    parts = lengths.astype(np.float32) / budgets.astype(np.float32)
    rows, used, pool = np.zeros(len(lengths), np.int64), 0, np.arange(len(lengths))
    while len(pool):
        groups = -(-len(pool) // GROUP)
        leave = LEFT if groups > 1 else 0
        is_left = np.ones(len(pool), np.bool_)
        for group in range(groups):
            own = pool[group::groups]  # dealt like cards, so that the sizes of groups differ by 1 at most
            left, factors = np.ones(len(own), np.int64), np.ones(len(own), np.float32)
            while left.sum() > leave:
                pattern = _fill_one_row(lengths[own], parts[own], left, budgets, factors)
                rows[own[pattern > 0]] = used
                left -= pattern
                used += 1
            is_left[group::groups] = left > 0
        pool = pool[is_left]
    return rows
