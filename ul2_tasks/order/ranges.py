"""Ranges of integers, [start, stop) of tokens or of units, as arrays: what examples are made of, and how ranges are cut."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Ranges(NamedTuple):
    """Which tokens of the corpus make n examples: of each its denoiser and its length, [n] int64; and m ranges of tokens.

    Range r is of example `of[r]`, ascending, and has the tokens [starts[r], stops[r]) of the corpus, [m] int64 each.
    """

    kinds: np.ndarray
    sizes: np.ndarray
    of: np.ndarray
    starts: np.ndarray
    stops: np.ndarray


def expanded(which: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The integers of ranges, see `integers_of`, and of each what `which` says of its range, before them.

    >>> [column.tolist() for column in expanded(np.array([7, 9]), np.array([3, 8]), np.array([5, 11]))]
    [[7, 7, 9, 9, 9], [3, 4, 8, 9, 10]]
    """
    return np.repeat(which, stops - starts), integers_of(starts, stops)


def integers_of(starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """The integers of ranges [start, stop), [n] int64, one range after the other.

    >>> integers_of(np.array([5, 1]), np.array([7, 4])).tolist()
    [5, 6, 1, 2, 3]
    """
    counts = np.asarray(stops, np.int64) - starts
    return np.arange(counts.sum()) + np.repeat(starts - np.cumsum(counts) + counts, counts)


def cut_at_the_end(starts: np.ndarray, stops: np.ndarray, end: int | np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cuts ranges in two that go round the end of a stream, of all or [n] of each, and on at 0.

    Gives of which range each part is, ascending, and its start and stop, [parts] int64 each.

    >>> [column.tolist() for column in cut_at_the_end(np.array([3, 8]), np.array([5, 12]), 10)]
    [[0, 1, 1], [3, 8, 0], [5, 10, 2]]
    """
    rounds = np.flatnonzero(stops > end)
    if not len(rounds):
        return np.arange(len(starts)), starts, stops
    rests = np.insert(np.minimum(stops, end), rounds + 1, (stops - end)[rounds])
    return np.insert(np.arange(len(starts)), rounds + 1, rounds), np.insert(starts, rounds + 1, 0), rests


def cut(starts: np.ndarray, stops: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cuts ranges, of which none is empty, at the multiples of a size; for what it gives see `cut_at_the_end`.

    >>> [column.tolist() for column in cut(np.array([3, 8]), np.array([5, 12]), 10)]
    [[0, 1, 1], [3, 8, 10], [5, 10, 12]]
    """
    first, last = starts // size, (stops - 1) // size
    if (first == last).all():
        return np.arange(len(starts)), starts, stops
    of, number = expanded(np.arange(len(starts)), first, last + 1)
    return of, np.maximum(starts[of], number * size), np.minimum(stops[of], (number + 1) * size)


def cut_at(starts: np.ndarray, stops: np.ndarray, borders: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cuts ranges at borders, [n] int64, ascending, of which none is there twice; for what it gives see `cut_at_the_end`.

    >>> [column.tolist() for column in cut_at(np.array([3, 8]), np.array([5, 12]), np.array([4, 8, 9]))]
    [[0, 0, 1, 1], [3, 4, 8, 9], [4, 5, 9, 12]]
    """
    first, last = np.searchsorted(borders, starts, side="right"), np.searchsorted(borders, stops)
    of, at = expanded(np.arange(len(starts)), first, last + 1)
    ends = np.append(borders, 0)
    return of, np.where(at == first[of], starts[of], ends[at - 1]), np.where(at == last[of], stops[of], ends[at])
