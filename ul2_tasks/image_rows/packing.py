"""Which samples share a row: as few rows as are found, within the budgets of tokens, ViT patches and latents.

A row is filled sample by sample, from all samples that are left. Each time, the one with the best score of those that fit is taken:

    score(sample) = sum over budgets of  demand * (room / budget) * (count / budget)

    room      what is still free in the row
    demand    how many rows the samples that are left would fill, were this the only budget

So a sample is preferred that is large where the row has room, and the scarcer budget counts more (Panigrahy et al., Heuristics
for Vector Bin Packing, 2011). Nothing is drawn: the same samples give the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_ONE = 1 << 20  # all of a budget: scores are integers, which are the same on any machine


def pack(counts: Sequence[Sequence[int]] | np.ndarray, budgets: Sequence[int]) -> list[list[int]]:
    """The samples of each row.

    `counts`, [samples, budgets] integers, are what each sample takes of each budget, and `budgets` what a row has. Gives for each
    row the numbers of its samples, ascending. Each sample is in one row; one that takes nothing of any budget is in none, and one
    that takes more than a row has raises a ValueError.

    >>> pack([(6, 2), (6, 2), (3, 7), (3, 7), (0, 0)], budgets=(10, 10))
    [[0, 2], [1, 3]]
    """
    taken, most = np.asarray(counts, np.int64).reshape(-1, len(budgets)), np.asarray(budgets, np.int64)
    if len(above := np.flatnonzero((taken > most).any(axis=1))):
        raise ValueError(f"sample {above[0]} must fit into a row of {most.tolist()}, got {taken[above[0]].tolist()}.")
    parts = taken * _ONE // np.maximum(most, 1)
    left = np.flatnonzero(taken.any(axis=1))
    rows = []
    while len(left):
        counts, shares = taken[left], parts[left]
        demand = shares.sum(axis=0)
        demand = demand * 1024 // max(1, demand.max())
        room, row, fits = most, [], np.ones(len(counts), bool)
        while fits.any():
            scores = shares @ (demand * (room * _ONE // np.maximum(most, 1)))
            row.append(int(np.where(fits, scores, -1).argmax()))
            room = room - counts[row[-1]]
            fits &= (counts <= room).all(axis=1)
            fits[row[-1]] = False
        rows.append(left[np.sort(row)].tolist())
        left = np.delete(left, row)
    return rows
