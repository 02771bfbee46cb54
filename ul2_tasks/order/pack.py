"""Decides which whole records share a row: a best fit on all budgets at once, of many records at a time.

A row is filled record by record, from all that are left. Of those that fit it gets the one with the highest score, until none fits:

    score(record) = sum over features of  demand * (room / budget) * (size / budget)

    room      what is still free in the row, in tokens
    demand    how many rows the records that are left would fill with this feature alone

With one feature that is the longest record that fits. With several it is the one that points most nearly to where the row has room
(Panigrahy et al., Heuristics for Vector Bin Packing, 2011). Thousands compete, and few are looked at. They lie in 16 slabs, of
about equally many records each:

    one feature     a single slab
    two             by the size in the less scarce feature: a slab has sizes 0 to 31, the next 32 to 60, ..
    three or four   by the less scarce features, one after the other

Within a slab they lie by their sizes in the scarcest feature. A table has, for each slab and each room in that feature, the place
of the longest record that may fit. From there down, records that are gone or too long in another feature are passed over. So a slab
has one candidate. Rows are no poorer than if all records were looked at.

All numbers are integers: the same records have the same rows on any machine.
"""

from __future__ import annotations

import functools

import numpy as np

from ul2_tasks.compiled import compiled, part_of_compiled
from ul2_tasks.order.permutation import GOLDEN

SLABS = 16  # with 8, documents kept apart need 1 to 2 % more rows; with 32, a record takes half as long again
_DIGIT = 11  # bits of a key that are sorted at a time
_CELLS = 12  # bits of a room by which the table is read; up to 4,096 tokens it is exact


def best_fit(sizes: np.ndarray, budgets: tuple[int, ...]) -> np.ndarray:
    """Assigns whole records to as few rows as it finds.

    Args:
        sizes: [n, F] integers, the size of each feature of each record, in tokens, from 0 to its budget. n may be 0. Some 2^14
            records make rows that are full; many more make them hardly fuller, and take longer each.
        budgets: the F sizes of a row, in tokens.

    Returns:
        The row of each record, [n] int64, from 0 to R - 1. A row has the place among rows that the record with which it was begun
        has among such records: rows of one long record and rows of many short ones come in no order.

    Raises:
        ValueError: a size is below 0 or above its budget.

    >>> best_fit(np.array([(6, 2), (3, 7), (6, 2), (3, 7)]), (10, 10)).tolist()
    [0, 0, 1, 1]
    """
    most = np.array(budgets, np.int64)
    sizes = np.asarray(sizes, np.int64).reshape(-1, len(most))
    if sizes.min(initial=0) < 0 or (sizes.max(axis=0, initial=0) > most).any():
        wrong = ((sizes < 0) | (sizes > most)).any(axis=1)
        raise ValueError(
            f"sizes to pack must be at least 0 and within the budgets {tuple(budgets)}, got {sizes[wrong.argmax()].tolist()}."
        )
    scarcest_last = np.argsort((sizes.sum(axis=0) << 10) // np.maximum(most, 1), kind="stable")
    mixed = _mixed(len(sizes))
    rows = np.empty(len(sizes), np.int64)
    in_order = np.ascontiguousarray(sizes[mixed][:, scarcest_last])
    rows[mixed], begun_with = _fill(in_order, tuple(most[scarcest_last].tolist()))
    numbers = np.empty(len(begun_with), np.int64)
    numbers[rows[np.sort(mixed[begun_with])]] = np.arange(len(begun_with))
    return numbers[rows]


def count_rows(sizes: np.ndarray, budgets: tuple[int, ...]) -> int:
    """The number of rows to which `best_fit` assigns records."""
    return int(best_fit(sizes, budgets).max(initial=-1)) + 1


@functools.lru_cache(maxsize=16)
def _mixed(count: int) -> np.ndarray:
    """[count] int64, records in the order in which they compete.

    Of equal records the last is taken first. Were they in order, rows that are begun late would be begun with early records. The
    multiples of the golden ratio are spread evenly.
    """
    return (np.arange(count, dtype=np.uint64) * np.uint64(GOLDEN) >> np.uint64(48)).astype(np.uint16).argsort(kind="stable")


@part_of_compiled
def _sorted_by(keys, order, largest):
    """`order`, sorted by the keys of its elements, 0 to `largest`; those with equal keys stay in order."""
    shift = 0
    while largest >> shift:
        ends, after = np.zeros((1 << _DIGIT) + 1, np.int64), np.empty_like(order)
        for record in order:
            ends[(keys[record] >> shift & (1 << _DIGIT) - 1) + 1] += 1
        ends = np.cumsum(ends)
        for record in order:
            digit = keys[record] >> shift & (1 << _DIGIT) - 1
            after[ends[digit]] = record
            ends[digit] += 1
        order, shift = after, shift + _DIGIT
    return order


@part_of_compiled
def _slabs(sizes, budgets):
    """The records in the order of slabs, [n], those of a slab by the last feature; where slabs begin, and the end, [slabs + 1]."""
    parts, last = 1, len(budgets) - 1
    while last and parts**last < SLABS:
        parts += 1
    order, slab, begins = np.arange(len(sizes)), np.zeros(len(sizes), np.int64), np.array([0, len(sizes)])
    for feature in range(len(budgets)):
        order = _sorted_by(slab, _sorted_by(sizes[:, feature].copy(), order, budgets[feature]), len(begins) - 2)
        if feature < last:  # each slab is divided into parts
            finer = np.empty((len(begins) - 1) * parts + 1, np.int64)
            for part in range(len(finer)):
                begin, end = begins[part // parts], begins[min(part // parts + 1, len(begins) - 1)]
                finer[part] = begin + (end - begin) * (part % parts) // parts
            for part in range(len(finer) - 1):
                slab[order[finer[part] : finer[part + 1]]] = part
            begins = finer
    return order, begins


@part_of_compiled
def _ends(sizes, begins, budget, shift):
    """For each slab and each room in the last feature, shifted, one behind the place of the last record that may fit."""
    ends, last = np.empty((len(begins) - 1, (budget >> shift) + 1), np.int64), sizes.shape[1] - 1
    for slab in range(len(begins) - 1):
        cell = 0
        for place in range(begins[slab], begins[slab + 1]):
            while cell < sizes[place, last] >> shift:
                ends[slab, cell] = place
                cell += 1
        ends[slab, cell:] = begins[slab + 1]
    return ends


@part_of_compiled
def _end_of_left(left, end):
    """One behind the last record before `end` that is left; `left` has it where that is the one just before, else less."""
    while left[end] != end:
        left[end] = left[left[end]]
        end = left[end]
    return end


@part_of_compiled
def _last_that_fits(left, begin, end, sizes, room, budgets):
    """One behind the last record from `begin` to `end` that is left and fits; `begin` where none does."""
    while True:
        end = _end_of_left(left, end)
        if end <= begin:
            return begin
        fits = True
        for feature in range(len(budgets)):
            fits &= sizes[end - 1, feature] <= room[feature]
        if fits:
            return end
        end -= 1


@part_of_compiled
def _least_sizes(left, begin, end, sizes, budgets, least):
    """Puts into `least`, [F], the least size of each feature of the records from `begin` to `end` that are left."""
    for feature in range(len(budgets)):
        least[feature] = budgets[feature] + 1
    end = _end_of_left(left, end)
    while end > begin:
        for feature in range(len(budgets)):
            least[feature] = min(least[feature], sizes[end - 1, feature])
        end = _end_of_left(left, end - 1)


@compiled
def _fill(sizes, budgets):
    """The row of each record, [n]; the record with which each row was begun, [R]. The last feature is the scarcest.

    That `budgets` is a tuple makes the number of features one that the compiler knows, which takes a third off the time.
    """
    features, last, shift = len(budgets), len(budgets) - 1, 0
    while budgets[last] >> shift >> _CELLS:
        shift += 1
    order, begins = _slabs(sizes, budgets)
    sizes = sizes[order]
    ends, left = _ends(sizes, begins, budgets[last], shift), np.arange(len(sizes) + 1)
    least = np.zeros((len(begins) - 1, features), np.int64)  # no record that is left in a slab is smaller
    rows, begun_with, used, taken = np.empty(len(sizes), np.int64), np.empty(len(sizes), np.int64), 0, 0
    demand, room, weights = sizes.sum(axis=0), np.empty(features, np.int64), np.empty(features, np.int64)
    while taken < len(sizes):
        scarcity, before = np.empty(features, np.int64), taken
        for feature in range(features):
            room[feature] = budgets[feature]
            scarcity[feature] = (demand[feature] << 10) // max(budgets[feature], 1)
        scarcity = (scarcity << 10) // max(scarcity.max(), 1)
        while True:
            for feature in range(features):
                budget = max(budgets[feature], 1)
                # Quotients of floats, rounded down, are those of integers: these are below 2^53, where budgets are below 2^33.
                part = np.int64((room[feature] << 20) / budget)
                weights[feature] = np.int64((scarcity[feature] * part << 20) / budget)
            best, highest = 0, np.int64(-1)
            for slab in range(len(begins) - 1):
                may_fit = True
                for feature in range(features):
                    may_fit &= least[slab, feature] <= room[feature]
                if may_fit:
                    end = _last_that_fits(left, begins[slab], ends[slab, room[last] >> shift], sizes, room, budgets)
                    if end == begins[slab]:  # then it is not searched in vain again
                        _least_sizes(left, begins[slab], begins[slab + 1], sizes, budgets, least[slab])
                    else:
                        score = np.int64(0)
                        for feature in range(features):
                            score += weights[feature] * sizes[end - 1, feature]
                        if score > highest:
                            best, highest = end, score
            if not best:
                break
            record = order[best - 1]
            if taken == before:
                begun_with[used] = record
            rows[record], left[best] = used, best - 1
            taken += 1
            for feature in range(features):
                room[feature] -= sizes[best - 1, feature]
                demand[feature] -= sizes[best - 1, feature]
        used += 1
    return rows, begun_with[:used]
