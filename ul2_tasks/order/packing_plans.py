"""Packing as a template: which kinds of examples share which rows, found once by search, before there is any example.

Full chunks of one denoiser have inputs and targets of the same lengths always. So a row is a *pattern*: so many examples of each
kind. A template is a list of patterns that together hold a number of cycles. T5GEMMA2 at 512/512 with its advised chunks:

    kinds      r1 (365, 81)   r2 (255, 255)   x1 (364, 67)   x2 (255, 254)   s (73, 214)       inputs and targets
    a cycle    r1 r2 x1 x2 s s s s
    template   r1 s s | x1 s s | r2 x2                       three rows, 99.7 % and 98.5 % full

How many rows of each pattern are best is the cutting-stock problem, a linear program over all patterns (Gilmore and Gomory, 1961):
the fewest rows, as fractions of rows, that hold one cycle. It is solved in fractions, so that every machine finds the same. Rows
are whole, so a template holds as many cycles as make the rounding cost least.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

MAX_EXAMPLES = 2048  # of a template of several cycles
_MOST_PATTERNS = 1 << 16
_MOST_STEPS = 1000  # of the linear program; it takes about as many as there are kinds, squared
_UNIT = 1 << 32  # of prices as integers

Sizes = tuple[tuple[int, ...], ...]


@functools.lru_cache(maxsize=64)
def best_cycles(sizes: Sizes, counts: tuple[int, ...], budgets: tuple[int, ...]) -> int:
    """How many cycles a template should hold, so that rows are fullest: those of fewest rows a cycle, the first of equals.

    `sizes` has F integers for each of K kinds of examples, the length of each feature, from 1 to its budget; `budgets` has those of
    a row. `counts` has K integers, how many examples of each kind a cycle has.
    """
    fewest = sum(share for _, share in _solve(sizes, counts, budgets)[2])
    best, best_rows = 1, Fraction(len(template(sizes, counts, budgets, 1)))
    for cycles in range(2, MAX_EXAMPLES // sum(counts) + 1):
        if best_rows == fewest:
            break
        rows = Fraction(len(template(sizes, counts, budgets, cycles)), cycles)
        if rows < best_rows:
            best, best_rows = cycles, rows
    return best


def template(sizes: Sizes, counts: tuple[int, ...], budgets: tuple[int, ...], cycles: int) -> np.ndarray:
    """The rows that hold a number of cycles.

    For the arguments see `best_cycles`. Gives [R, K] int64, how many examples of each kind are in each row; at least one in each
    row, and of each kind as many in all as the cycles have. In no row is the sum of a feature's lengths above its budget.

    >>> template(((6, 2), (3, 7)), (1, 1), (12, 12), 2)
    array([[1, 1],
           [1, 1]])
    """
    patterns, prices, shares = _solve(sizes, counts, budgets)
    left = cycles * np.asarray(counts)
    rows = []
    for pattern, share in shares:
        for _ in range(int(cycles * share)):
            rows.append(np.minimum(pattern, left))
            left = left - rows[-1]
    while left.any():  # the rows that the fractions leave, each time the one that is worth most
        held = np.minimum(patterns, left)
        rows.append(held[(held @ prices).argmax()])
        left = left - rows[-1]
    return np.array([row for row in rows if row.any()], np.int64).reshape(-1, len(counts))


@functools.lru_cache(maxsize=64)
def _solve(
    sizes: Sizes, counts: tuple[int, ...], budgets: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray, list[tuple[np.ndarray, Fraction]]]:
    """Solves the linear program: x patterns, at least 0, of the fewest rows, hold the counts of a cycle.

    Gives all patterns that were looked at, [P, K] int64; what an example of each kind costs, in rows / `_UNIT`, [K] int64; and
    pairs of a pattern, [K] int64, and how many rows of it there are in a cycle, a fraction.
    """
    _check(sizes, budgets)
    patterns, kinds = _patterns(np.array(sizes), np.array(budgets)), range(len(sizes))
    one = np.eye(len(sizes), dtype=np.int64)
    # The basis: K columns that hold the counts; at first, rows of one kind each. They are exchanged one by one. The table has,
    # for each of them, a row of the basis' inverse, then how many rows have the column.
    alone = [min(budget // length for length, budget in zip(size, budgets)) for size in sizes]
    basis, costs = [held * one[kind] for kind, held in enumerate(alone)], [1 for _ in kinds]
    table = [[Fraction(value, held) for value in (*one[kind].tolist(), counts[kind])] for kind, held in enumerate(alone)]
    for _ in range(_MOST_STEPS):
        exact = [_dot(costs, [row[kind] for row in table]) for kind in kinds]
        prices = np.array([round(price * _UNIT) for price in exact])
        if min(exact) < 0:  # a pattern may hold more examples than there are: the place of one stays empty, which costs no row
            entering, cost = -one[exact.index(min(exact))], 0
        else:
            entering, cost = patterns[(patterns @ prices).argmax()], 1
            if _dot(exact, entering.tolist()) <= 1:
                break
        moved = [_dot(row, entering.tolist()) for row in table]
        _, leaving = min((table[row][-1] / moved[row], row) for row in kinds if moved[row] > 0)
        basis[leaving], costs[leaving] = entering, cost
        table[leaving] = [value / moved[leaving] for value in table[leaving]]
        for row in kinds:
            if row != leaving and moved[row]:
                table[row] = [value - moved[row] * pivot for value, pivot in zip(table[row], table[leaving])]
    # A kind of which the patterns have too many anyway costs nothing, but has to find a row.
    return patterns, np.maximum(prices, 0) + 1, [(pattern, row[-1]) for pattern, row, cost in zip(basis, table, costs) if cost]


def _patterns(sizes: np.ndarray, budgets: np.ndarray) -> np.ndarray:
    """[P, K] int64, the patterns to which no example can be added, and rows of one kind each: all, where there are not too many.

    Else only those are filled up that have a multiple of a step of each kind.
    """
    step = 1
    while (partial := _multiples(sizes, budgets, step)) is None:
        step *= 2
    room = budgets - partial @ sizes
    for kind, size in enumerate(sizes):
        more = (room // size).min(axis=1)
        partial[:, kind] += more
        room -= more[:, np.newaxis] * size
    alone = np.diag((budgets // sizes).min(axis=1))  # so that each kind is in one of them
    return np.unique(np.concatenate([partial, alone]), axis=0)


def _multiples(sizes: np.ndarray, budgets: np.ndarray, step: int) -> np.ndarray | None:
    """[P, K] int64, all patterns of 0, step, 2 step .. examples of each kind; None for more than can be filled up in time."""
    patterns, room = np.zeros([1, 0], np.int64), budgets[np.newaxis]
    for size in sizes:
        choices = (room // size).min(axis=1) // step + 1
        if choices.sum() > _MOST_PATTERNS:
            return None
        rows = np.repeat(np.arange(len(patterns)), choices)
        number = step * (np.arange(len(rows)) - np.repeat(np.cumsum(choices) - choices, choices))
        patterns = np.concatenate([patterns[rows], number[:, np.newaxis]], axis=1)
        room = room[rows] - number[:, np.newaxis] * size
    return patterns


def _dot(row: Sequence[Fraction | int], column: Sequence[Fraction | int]) -> Fraction:
    return sum((Fraction(x) * y for x, y in zip(row, column)), Fraction(0))


def _check(sizes: Sizes, budgets: tuple[int, ...]) -> None:
    for kind, size in enumerate(sizes):
        if len(size) != len(budgets) or not all(1 <= length <= budget for length, budget in zip(size, budgets)):
            raise ValueError(
                f"examples of kind {kind} must have lengths of at least 1 and within the budgets {budgets}, got {size}."
            )
