"""Packing whole records against its laws, the plainest rule, first fit, and the packing of pools of 64."""

import itertools
import re
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks import T5GEMMA2
from ul2_tasks.denoising.lengths import example_lengths
from ul2_tasks.order.best_fit import best_fit

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


def first_fit(sizes, budgets) -> int:
    """The number of rows when each record, in order, goes into the first row that it fits."""
    rooms = np.tile(np.array(budgets), (len(sizes), 1))
    used = 0
    for record in sizes:
        row = int((rooms >= record).all(axis=1).argmax())
        rooms[row] -= record
        used = max(used, row + 1)
    return used


@st.composite
def pools(draw, among=BUDGETS):
    budgets = draw(st.sampled_from(among))
    corners = draw(st.lists(st.tuples(*(st.integers(0, budget) for budget in budgets)), max_size=8))
    generator, small = np.random.default_rng(draw(st.integers(0, 2**32 - 1))), draw(st.sampled_from([1, 4, 50]))
    many = generator.integers(0, [budget // small + 1 for budget in budgets], (draw(st.integers(0, 60)), len(budgets)))
    again = generator.integers(0, max(1, len(many)), draw(st.sampled_from([0, len(many)])))  # records of sizes that others have
    return budgets, np.concatenate([np.array(corners, np.int64).reshape(-1, len(budgets)), many, many[again]])


def lognormal(generator, count, median, mean) -> np.ndarray:
    return np.exp(np.log(median) + np.sqrt(2 * np.log(mean / median)) * generator.standard_normal(count)).astype(int)


def documents(budget, count, seed) -> np.ndarray:
    """What five denoisers make of documents kept apart, [count, 2]."""
    generator = np.random.default_rng(seed)
    lengths = lognormal(generator, count, 250, 428).clip(2, budget)
    denoisers = generator.choice(len(T5GEMMA2), count, p=np.array([1, 1, 1, 1, 4]) / 8)
    return np.array([example_lengths(T5GEMMA2[which], length, 1, (True, True)) for which, length in zip(denoisers, lengths)])


def chats(count, seed) -> np.ndarray:
    return lognormal(np.random.default_rng(seed), count, 700, 1100).clip(1, 4096)[:, np.newaxis]


def images(count, seed) -> np.ndarray:
    """Tokens, ViT patches, latents: captions, questions, edits."""
    generator = np.random.default_rng(seed)
    text, vit, latents = (lognormal(generator, count, *shape) for shape in ((60, 110), (1500, 2000), (2000, 2500)))
    kind = generator.integers(0, 3, count)
    vit, latents = vit.clip(1, 4900) * (kind > 0), latents.clip(1, 4096) * np.array([1, 0, 2])[kind]
    return np.stack([text.clip(1, 999) + vit + latents, vit, latents], axis=1)


DRAWN = {
    "documents at 512": (lambda count, seed: documents(500, count, seed), (512, 512)),
    "documents at 2048": (lambda count, seed: documents(2000, count, seed), (2048, 2048)),
    "chats": (chats, (4096,)),
    "images": (images, (36864, 14000, 24000)),
}


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


@given(pools([(40,), (9_000,), (2**31 - 1,)]))
def test_of_one_feature_the_longest_that_fits_is_taken(pool):
    [budget], sizes = pool
    left, expected = sorted(sizes.ravel().tolist()), []
    while left:
        room, row = budget, []
        while fitting := [size for size in left if size <= room]:
            row.append(fitting[-1])
            left.remove(row[-1])
            room -= row[-1]
        expected.append(sorted(row))
    rows = best_fit(sizes, (budget,))
    assert sorted(sorted(sizes[rows == row, 0].tolist()) for row in range(rows.max(initial=-1) + 1)) == sorted(expected)


@given(st.permutations(range(1, 30)))
def test_rows_have_the_order_of_the_records_with_which_they_are_begun(sizes):
    rows = best_fit(np.array(sizes)[:, np.newaxis], (40,))
    longest = [max(np.flatnonzero(rows == row), key=lambda record: sizes[record]) for row in range(rows.max() + 1)]
    assert longest == sorted(longest)


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("count", [1, 20, 200, 1500])
def test_no_more_rows_than_first_fit(name, count):
    """No theorem: an order can be a lucky one, and is by a row where three features are about as scarce."""
    draw, budgets = DRAWN[name]
    for seed in range(4):
        sizes = draw(count, seed)
        assert len(sums_of(sizes, budgets)) <= first_fit(sizes, budgets) + (name == "images")


@pytest.mark.parametrize("sizes", [[(-1, 5)], [(5, 513)], [(1, 1), (5, -1)], [(400, 400), (-2, 5), (5, 600)]])
def test_a_size_that_no_row_can_hold_is_an_error(sizes):
    first = next(pair for pair in sizes if min(pair) < 0 or max(pair) > 512)
    expected = re.escape(f"sizes to pack must be at least 0 and within the budgets (512, 512), got {list(first)}.")
    with pytest.raises(ValueError, match=expected):
        best_fit(np.array(sizes), (512, 512))


@pytest.mark.parametrize("features", GOLDEN)
def test_a_golden_of_the_rows(features):
    # Changes whenever the algorithm does: positions in packed rows of records are then others.
    budgets = (36864, 14000, 24000)[:features]
    generator = np.random.RandomState(0)  # the same numbers in any NumPy
    sizes = np.stack([generator.randint(0, budget // 5, 3000) for budget in budgets], axis=1)
    assert zlib.crc32(best_fit(sizes, budgets).astype("<i8").tobytes()) == GOLDEN[features]
