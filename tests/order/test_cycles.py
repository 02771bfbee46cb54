"""Cycles: the ratio of the weights, spread evenly, and places of a mixture as positions in each kind's own order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.order.cycles import MAX_SLOTS, Cycle, nearest_cycle

COUNTS = st.lists(st.integers(1, 20), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("weights", "counts"),
    [
        ([1, 1, 1, 1, 4], (1, 1, 1, 1, 4)),
        ([7], (1,)),
        ([0.1, 0.2, 0.3], (1, 2, 3)),
        ([1e12, 3e12], (1, 3)),
        ([0.123, 0.877], (123, 877)),
        ([1] * MAX_SLOTS, (1,) * MAX_SLOTS),
    ],
)
def test_the_shortest_cycle_that_has_the_ratio_exactly(weights, counts):
    assert nearest_cycle(weights) == Cycle(counts, error=0)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=6))
def test_the_error_of_other_ratios_is_told(weights):
    cycle = nearest_cycle(weights)
    shares = [count / len(cycle) * sum(weights) / weight for count, weight in zip(cycle.counts, weights)]
    assert cycle.error == pytest.approx(max(abs(share - 1) for share in shares), abs=2e-9)
    assert len(cycle) <= MAX_SLOTS


@pytest.mark.parametrize("weights", [[], [0], [1, -1], [float("nan")], [1, float("inf")], [True], [1] * (MAX_SLOTS + 1)])
def test_weights_that_cannot_be_are_refused(weights):
    with pytest.raises(ValueError, match="weights"):
        nearest_cycle(weights)


@given(COUNTS)
def test_slots_are_spread_evenly(counts):
    """After any number of slots each kind has had its share, to within one slot for each other kind."""
    cycle = Cycle(tuple(counts))
    had = np.cumsum(cycle.kinds[:, None] == np.arange(len(counts)), axis=0)
    share = np.arange(1, len(cycle) + 1)[:, None] * np.array(counts) / len(cycle)
    assert had[-1].tolist() == counts
    assert np.abs(had - share).max() < max(1, len(counts) - 1)


@given(COUNTS, st.integers(0, 10**12), st.data())
def test_places_and_positions_are_one_to_one(counts, first, data):
    cycle = Cycle(tuple(counts))
    places = np.array(data.draw(st.lists(st.integers(first, first + 1000), min_size=1, max_size=50)))
    kinds, positions = cycle.positions(places)
    assert cycle.places(kinds, positions).tolist() == places.tolist()
