"""Packing as a template: which kinds of examples share which rows, found once, before there is any example.

Full chunks of one denoiser have inputs and targets of the same lengths always. So a row is a *pattern*: so many examples of each
kind. A template is a list of patterns that together hold a number of cycles. T5GEMMA2 at 512/512 with its advised chunks:

    kinds      r1 (365, 81)   r2 (255, 255)   x1 (364, 67)   x2 (255, 254)   s (73, 214)       inputs and targets
    a cycle    r1 r2 x1 x2 s s s s
    template   r1 s s | x1 s s | r2 x2                       three rows, 99.7 % and 98.5 % full

The rows are those of `best_fit`. Rows are whole, so a template holds as many cycles as make them fullest.
"""

from __future__ import annotations

import functools

import numpy as np

from ul2_tasks.order.best_fit import best_fit

_CYCLES = 16  # of a template that are tried, from one on
_MOST_EXAMPLES = 2048  # of a template of several cycles, which is tried, too

Sizes = tuple[tuple[int, ...], ...]


@functools.lru_cache(maxsize=64)
def best_cycles(sizes: Sizes, counts: tuple[int, ...], budgets: tuple[int, ...]) -> int:
    """How many cycles a template should hold, so that rows are fullest: those of fewest rows a cycle, the first of equals.

    `sizes` has F integers for each of K kinds of examples, the length of each feature, from 1 to its budget; `budgets` has those of
    a row. `counts` has K integers, how many examples of each kind a cycle has.
    """
    most = max(1, _MOST_EXAMPLES // sum(counts))
    tried = sorted({*range(1, min(_CYCLES, most) + 1), most})
    return min(tried, key=lambda cycles: len(template(sizes, counts, budgets, cycles)) / cycles)


@functools.lru_cache(maxsize=64)
def template(sizes: Sizes, counts: tuple[int, ...], budgets: tuple[int, ...], cycles: int) -> np.ndarray:
    """The rows that hold a number of cycles.

    For the arguments see `best_cycles`. Gives [R, K] int64, how many examples of each kind are in each row; at least one in each
    row, and of each kind as many in all as the cycles have. In no row is the sum of a feature's lengths above its budget.

    >>> template(((6, 2), (3, 7)), (1, 1), (12, 12), 2)
    array([[1, 1],
           [1, 1]])
    """
    kinds = np.tile(np.repeat(np.arange(len(counts)), counts), cycles)
    rows = best_fit(np.array(sizes)[kinds], budgets)
    found = np.zeros([rows.max(initial=-1) + 1, len(counts)], np.int64)
    np.add.at(found, (rows, kinds), 1)
    found = found[np.lexsort([*-found.T[::-1], -found.sum(axis=1)])]  # of most examples first, so that equal rows are neighbours
    found.flags.writeable = False  # it is shared
    return found
