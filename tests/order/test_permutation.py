"""The keyed permutation: a bijection for every size, undone by its inverse, and without a trace of order."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.order.permutation import invert, keyed, permute


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 15, 16, 17, 1000, 4095, 4097])
def test_every_number_comes_once(size):
    assert sorted(permute(np.arange(size), size, key=3).tolist()) == list(range(size))


@given(st.integers(1, 10**12), st.integers(-(1 << 70), 1 << 70), st.data())
def test_it_is_undone_for_every_size_up_to_a_million_millions(size, key, data):
    places = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=50)))
    numbers = permute(places, size, key)
    assert 0 <= numbers.min() <= numbers.max() < size
    assert invert(numbers, size, key).tolist() == places.tolist()
    assert len(set(numbers.tolist())) == len(set(places.tolist()))


@pytest.mark.parametrize("size", [0, -1, (1 << 62) + 1])
def test_a_size_that_cannot_be_is_refused(size):
    with pytest.raises(ValueError, match=rf"size must be 1 to 2\*\*62, got {size}"):
        permute(np.array([0]), size, key=1)


def test_each_key_has_an_order_of_its_own_and_each_number_every_place():
    """Of the number at place 0, over many keys: chi-square against all places alike."""
    first = [int(permute(np.array([0]), 16, key)[0]) for key in range(4000)]
    assert scipy.stats.chisquare(np.bincount(first, minlength=16)).pvalue > 0.001
    one, other = permute(np.arange(1000), 1000, 1), permute(np.arange(1000), 1000, 2)
    assert (one == other).mean() < 0.02


def test_a_key_depends_on_all_numbers_and_their_order():
    assert len({keyed(0, 1, 2), keyed(0, 2, 1), keyed(1, 1, 2), keyed(0, 1), keyed(0, 1, 2, 0), keyed(-1, 1, 2)}) == 6
    assert keyed(7, 3) == keyed(7, 3) < 1 << 64
