"""Shares of any size are kept from the first element on, in stages that end anywhere; each position once, and all of it undone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.order.mix import Mix, Shares, Stage

weights = st.lists(st.floats(1e-9, 1.0) | st.integers(1, 4), min_size=1, max_size=40).map(tuple)


@st.composite
def mixes(draw, corpora=4, turns=(1, 1, 3)):
    stages = []
    for first in sorted({0, *draw(st.sets(st.integers(1, 2500), max_size=4))}):
        of = tuple(draw(st.lists(st.integers(0, corpora - 1), min_size=1, max_size=corpora, unique=True)))
        stages.append(Stage(first, of, Shares(tuple(draw(st.floats(0.001, 1) | st.sampled_from([1.0, 2.0])) for _ in of))))
    return Mix(tuple(stages), draw(st.sampled_from(turns)))


@given(weights)
def test_after_any_number_of_elements_each_kind_has_come_its_fraction_of_times_give_or_take_about_one(weights):
    kinds, ranks = Shares(weights).positions(np.arange(3000))
    come = np.eye(len(weights))[kinds].cumsum(axis=0)
    wanted = np.outer(np.arange(1, 3001), np.array(weights) / sum(weights))
    assert np.abs(come - wanted).max() < 1.5
    assert Shares(weights).counts(1234).tolist() == come[1233].tolist()
    for kind in range(len(weights)):
        assert ranks[kinds == kind].tolist() == list(range(int(come[-1, kind])))


@given(weights, st.integers(0, 1 << 58), st.data())
def test_places_and_positions_are_one_to_one(weights, first, data):
    places = np.array(data.draw(st.lists(st.integers(first, first + 10**6), min_size=1, max_size=40)))
    shares = Shares(weights)
    assert shares.places(*shares.positions(places)).tolist() == places.tolist()


def test_one_in_a_million_beside_nine_tenths_is_exact_over_the_run():
    weights = np.array([0.9, 0.0999, 1e-6, 0.00003])
    for places in (10**6, 10**12, 1 << 40, 1 << 58):
        exact = places * weights.astype(np.longdouble) / weights.astype(np.longdouble).sum()
        assert np.abs(Shares(tuple(weights)).counts(places) - exact).max() < 1.5 + places * 2.0**-60


@given(mixes(), st.integers(0, 3000))
def test_each_position_is_read_once_in_order_and_undone_whatever_the_stages(mix, until):
    numbers = np.arange(3000)
    corpora, positions = mix.elements(numbers)
    before = mix.before(until)
    for corpus in range(max(corpora) + 1):
        of = corpora == corpus
        assert positions[of].tolist() == list(range(int(of.sum())))
        assert mix.numbers(corpus, positions[of]).tolist() == numbers[of].tolist()
        assert before[corpus] == (of & (numbers < until)).sum()


@given(mixes(turns=(3,)))
def test_an_element_and_its_position_are_of_one_partition_in_all_stages(mix):
    """So a host goes on reading its own blocks when weights change."""
    numbers = np.arange(3000)
    assert (mix.elements(numbers)[1] % 3 == numbers % 3).all()


@given(mixes(turns=(1,)), st.integers(0, 2600), mixes(turns=(1,)))
def test_what_was_read_does_not_depend_on_what_comes(mix, now, other):
    before = tuple(stage for stage in mix.stages if stage.first < max(1, now))
    after = tuple(stage._replace(first=stage.first + now) for stage in other.stages if stage.first + now > before[-1].first)
    numbers = np.arange(now)
    first, *others = ([each.tolist() for each in mixed.elements(numbers)] for mixed in (mix, Mix(before), Mix(before + after)))
    assert all(other == first for other in others)


def test_three_thousand_corpora():
    drawn = np.random.default_rng(0).random(3000)
    mix = Mix((Stage(0, tuple(range(3000)), Shares.of(drawn)), Stage(10**6, tuple(range(3000)), Shares.of(drawn[::-1]))))
    corpora, positions = mix.elements(2 * 10**6 + np.arange(1000))
    assert (mix.numbers(int(corpora[7]), positions[7:8]) == 2 * 10**6 + 7).all()
    expected = 10**6 * (drawn + drawn[::-1]) / drawn.sum()
    assert np.abs(mix.before(2 * 10**6) - expected).max() < 3


def test_a_golden():
    kinds, positions = Shares((3.0, 1.0, 0.5)).positions(np.array([0, 1, 2, 3, 10**12]))
    assert (kinds.tolist(), positions.tolist()) == ([0, 1, 0, 0, 1], [0, 0, 1, 2, 222222222222])


@pytest.mark.parametrize("weights", [(), (1.0, 0.0), (float("nan"),), (1.0, float("inf")), (-1.0,)])
def test_weights_that_cannot_be_are_rejected(weights):
    with pytest.raises(ValueError, match="weights must be finite numbers above 0"):
        Shares(weights)
