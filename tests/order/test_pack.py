"""Packing whole records against its laws."""

import itertools
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.order.pack import best_fit

BUDGETS = [(512, 512), (2048, 512), (7, 1), (40,), (9_000,), (2**31 - 1,), (16, 24, 9), (36_864, 0, 5_000), (4, 5, 6, 7)]
GOLDEN = {1: 3495352344, 2: 214133614, 3: 2397682962}


def sums_of(sizes, budgets) -> np.ndarray:
    """What each row has, [R, F], after checking that every record is in one, and that no row is over its budget."""
    rows = best_fit(sizes, budgets)
    assert rows.shape == (len(sizes),)
    assert rows.dtype == np.int64
    assert sorted(set(rows.tolist())) == list(range(rows.max(initial=-1) + 1)), "numbered without a gap"
    sums = np.zeros([rows.max(initial=-1) + 1, len(budgets)], int)
    np.add.at(sums, rows, sizes)
    assert (sums <= budgets).all()
    return sums


@st.composite
def pools(draw, among=BUDGETS):
    budgets = draw(st.sampled_from(among))
    corners = draw(st.lists(st.tuples(*(st.integers(0, budget) for budget in budgets)), max_size=8))
    generator, small = np.random.default_rng(draw(st.integers(0, 2**32 - 1))), draw(st.sampled_from([1, 4, 50]))
    many = generator.integers(0, [budget // small + 1 for budget in budgets], (draw(st.integers(0, 60)), len(budgets)))
    again = generator.integers(0, max(1, len(many)), draw(st.sampled_from([0, len(many)])))  # records of sizes that others have
    return budgets, np.concatenate([np.array(corners, np.int64).reshape(-1, len(budgets)), many, many[again]])


@given(pools())
def test_each_record_is_in_one_row_and_no_row_is_over_its_budgets(pool):
    budgets, sizes = pool
    sums = sums_of(sizes, budgets)
    assert len(sums) >= -(-sizes.sum(axis=0) // np.maximum(budgets, 1)).max(initial=0)


@given(pools())
def test_a_row_ends_when_nothing_that_is_left_fits(pool):
    """Of two rows, one was filled before the other, and none of the other's records fits into it."""
    budgets, sizes = pool
    rows, sums = best_fit(sizes, budgets), sums_of(sizes, budgets)
    fits = (sums[:, np.newaxis] + sizes <= budgets).all(axis=2)  # [rows, records]
    some_fit = np.zeros([len(sums), len(sums)], bool)
    np.logical_or.at(some_fit.T, rows, fits.T)
    assert not any(some_fit[one, other] and some_fit[other, one] for one, other in itertools.combinations(range(len(sums)), 2))


@pytest.mark.parametrize("sizes", [[(-1, 5)], [(5, 513)], [(1, 1), (5, -1)], [(400, 400), (-2, 5), (5, 600)]])
def test_a_size_that_no_row_can_hold_is_an_error(sizes):
    with pytest.raises(ValueError, match="sizes"):
        best_fit(np.array(sizes), (512, 512))


@pytest.mark.parametrize("features", GOLDEN)
def test_a_golden_of_the_rows(features):
    # Changes whenever the algorithm does: positions in packed rows of records are then others.
    budgets = (36864, 14000, 24000)[:features]
    generator = np.random.RandomState(0)  # the same numbers in any NumPy
    sizes = np.stack([generator.randint(0, budget // 5, 3000) for budget in budgets], axis=1)
    assert zlib.crc32(best_fit(sizes, budgets).astype("<i8").tobytes()) == GOLDEN[features]
