"""Fractions of any size are kept from the first place on, whatever their number; all of it is undone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.order.shares import Shares

weights = st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=40).map(tuple)
shares = st.builds(Shares, weights, st.sampled_from([1, 1, 3, 64]))
keys = st.none() | st.integers(0, 1 << 60)


@given(weights)
def test_at_any_place_each_kind_has_come_its_fraction_of_times_give_or_take_about_one(weights):
    kinds, ranks = Shares(weights).positions(np.arange(3000))
    come = np.eye(len(weights))[kinds].cumsum(axis=0)
    wanted = np.outer(np.arange(1, 3001), np.array(weights) / sum(weights))
    assert np.abs(come - wanted).max() < 1.5
    for kind in range(len(weights)):
        assert ranks[kinds == kind].tolist() == list(range(int(come[-1, kind])))


@given(shares, keys, st.integers(0, 1 << 45))
def test_a_unit_has_the_next_positions_of_each_kind_each_of_them_once(shares, key, unit):
    kinds, positions = shares.positions(unit * shares.unit + np.arange(shares.unit), key)
    before, after = shares.taken(unit), shares.taken(unit + 1)
    for kind in range(len(shares.weights)):
        found = positions[kinds == kind]
        assert sorted(found.tolist()) == list(range(before[kind], after[kind]))
        assert all((np.diff(found[found % shares.partitions == lane]) > 0).all() for lane in range(shares.partitions))
    assert before.sum() == unit * shares.unit


@given(shares, keys, st.integers(0, 1 << 58), st.data())
def test_places_and_positions_are_one_to_one(shares, key, first, data):
    places = np.array(data.draw(st.lists(st.integers(first, first + 10**6), min_size=1, max_size=40)))
    assert shares.places(*shares.positions(places, key), key).tolist() == places.tolist()


@given(weights, st.sampled_from([2, 4, 64, 100]), keys, st.integers(0, 1 << 40))
def test_a_place_and_its_position_are_of_one_partition(weights, partitions, key, first):
    places = first + np.arange(2000)
    _, positions = Shares(weights, partitions).positions(places, key)
    assert (positions % partitions == places % partitions).all()


def test_one_in_a_million_beside_nine_tenths_is_exact_over_the_run():
    weights = np.array([0.9, 0.0999, 1e-6, 0.00003])
    taken = Shares(tuple(weights)).taken(10**12 // 64)
    assert np.abs(taken - taken.sum() * weights / weights.sum()).max() < 1.5


def test_a_golden():
    kinds, positions = Shares((3.0, 1.0, 0.5)).positions(np.array([0, 1, 2, 3, 10**12]), key=1)
    assert (kinds.tolist(), positions.tolist()) == ([2, 1, 1, 0, 0], [0, 0, 1, 0, 666666666666])


@pytest.mark.parametrize("weights", [(), (1.0, 0.0), (float("nan"),), (1.0, float("inf")), (-1.0,)])
def test_weights_that_cannot_be_are_rejected(weights):
    with pytest.raises(ValueError, match="weights must be finite numbers above 0"):
        Shares(weights)
