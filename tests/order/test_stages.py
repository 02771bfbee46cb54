"""Weights change while a run goes on: each position of a corpus once, whatever comes later; an order ends at the end of a round."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.order.cycles import nearest_cycle
from ul2_tasks.order.order import BlockShuffle, Order
from ul2_tasks.order.rows import Rows
from ul2_tasks.order.shares import Shares
from ul2_tasks.order.stages import Wanted, arrange

BLOCKS = BlockShuffle(150, 3, 2)
MIXED = [([1, 1], (9, 12)), ([1, 4], (9, 12)), ([1], (20,))]  # the denoisers of a corpus, which cut it each in its own way


def corpus(tokens, seed, blocks, packed):
    """The orders of one corpus under each of `MIXED`."""
    orders = [Order(nearest_cycle(counts), lengths, tokens, seed, True, blocks) for counts, lengths in MIXED]
    sizes = [tuple((length + 1, length) for length in order.lengths) for order in orders]
    return [Rows(order, (64, 64), each) for order, each in zip(orders, sizes)] if packed else orders


@st.composite
def mixings(draw, kinds):
    weights = draw(st.lists(st.floats(0.001, 1) | st.sampled_from([1.0, 2.0]), min_size=kinds, max_size=kinds))
    return Shares(tuple(weights), draw(st.sampled_from([1, 3])))


@st.composite
def schedules(draw, corpora=3):
    firsts = sorted(draw(st.sets(st.integers(1, 2500), max_size=4)))
    stages = []
    for first in [0, *firsts]:
        of = tuple(draw(st.lists(st.integers(0, corpora - 1), min_size=1, max_size=corpora, unique=True)))
        by = tuple(len(MIXED) * number + draw(st.integers(0, len(MIXED) - 1)) for number in of)
        stages.append(Wanted(first, draw(mixings(len(of))), of, by))
    return stages


def orders(packed=False, blocks=BLOCKS):
    """Three corpora of several sizes, each with three orders."""
    return [order for seed, tokens in enumerate((2000, 3111, 1234)) for order in corpus(tokens, seed, blocks, packed)]


def positions_of(timeline, numbers):
    """Which corpus and position each element has."""
    found, indices = timeline.elements(numbers)
    kinds, positions = [], []
    for number, order, index in zip(numbers.tolist(), found.tolist(), indices.tolist()):
        stage = timeline.stages[int(np.searchsorted([stage.first for stage in timeline.stages], number, side="right")) - 1]
        kind, rank = (int(each[0]) for each in stage.mixing.positions(np.array([number - stage.first]), timeline.key))
        kinds.append(stage.corpora[kind])
        positions.append(int(stage.at(kind, np.array([rank]))[0]))
        part = max((part for part in timeline.parts[kinds[-1]] if part.first <= positions[-1]), key=lambda part: part.first)
        assert (order, index) == (part.order, positions[-1] - part.first + part.start)
    return np.array(kinds), np.array(positions)


@given(schedules(), st.none() | st.integers(0, 1000))
def test_each_position_of_a_corpus_is_read_once_and_those_left_out_by_an_end_are_read_next(schedule, key):
    timeline = arrange(schedule, orders(), key)
    kinds, positions = positions_of(timeline, np.arange(3000))
    for corpus in range(len(timeline.parts)):
        read = positions[kinds == corpus]
        assert len(set(read.tolist())) == len(read), "none twice"
        fresh, left = timeline.progress(corpus, 3000)
        assert set(range(fresh)) - set(left.tolist()) == set(read.tolist())
        begun = sum(stage.mixing.unit for stage in timeline.stages if corpus in stage.corpora and stage.first < 3000)
        assert len(left) <= begun, "no more than the units that are read, or were when a stage ended"


@given(schedules(), st.integers(0, 1000))
def test_an_element_and_its_position_are_of_one_partition_in_all_stages(schedule, key):
    """So a host goes on reading its own blocks when weights change."""
    stages = [stage._replace(mixing=Shares(tuple(1.0 + kind for kind in range(len(stage.orders))), 3)) for stage in schedule]
    numbers = np.arange(3000)
    _, positions = positions_of(arrange(stages, orders(), key), numbers)
    assert (positions % 3 == numbers % 3).all()


@given(schedules(), st.integers(0, 1000), st.integers(0, 2600), schedules())
def test_what_was_read_does_not_depend_on_what_comes(schedule, key, now, other):
    before = [stage for stage in schedule if stage.first < max(1, now)]
    changed = before + [stage._replace(first=stage.first + now) for stage in other if stage.first + now > before[-1].first]
    numbers = np.arange(now)
    timelines = [arrange(each, orders(), key) for each in (schedule, before, changed)]
    first, *others = ([each.tolist() for each in timeline.elements(numbers)] for timeline in timelines)
    assert all(other == first for other in others)


@given(schedules(), st.integers(0, 1000), st.booleans())
def test_elements_and_their_places_are_one_to_one(schedule, key, packed):
    timeline = arrange(schedule, orders(packed), key)
    numbers = np.arange(3000)
    found, indices = timeline.elements(numbers)
    for order in np.unique(found).tolist():
        of = found == order
        assert timeline.numbers(order, indices[of]).tolist() == numbers[of].tolist()
        ranges = timeline.indices(order, 700, 1900)
        read = indices[of & (numbers >= 700) & (numbers <= 1900)]
        assert all(any(first <= index < last for first, last in ranges) for index in read)


@given(schedules(), st.integers(0, 1000), st.booleans(), st.sampled_from([None, BLOCKS]))
def test_over_all_stages_each_token_is_read_as_often_as_there_were_epochs(schedule, key, packed, blocks):
    """Also where the denoisers of a corpus change. Of the epoch and the unit that are being read, each token once at most."""
    made = orders(packed, blocks)
    timeline = arrange(schedule, made, key)
    for parts in filter(None, timeline.parts):
        stop, seen = parts[-1].first + 3000, 0
        last = made[parts[-1].order]
        epochs = last.round_of(stop - parts[-1].first + parts[-1].start - 1) // last.rounds + 1
        stop = parts[-1].first + last.first_of(epochs * last.rounds) - parts[-1].start  # a whole number of epochs
        for part, end in zip(parts, [*(following.first for following in parts[1:]), stop]):
            indices = part.start + np.arange(end - part.first)
            slots = made[part.order].slots(indices)
            order = made[part.order].order if packed else made[part.order]
            ranges = order.ranges(*slots[-2:])
            count = np.zeros(order.tokens + 1, np.int64)
            np.add.at(count, ranges.starts, 1)
            np.add.at(count, ranges.stops, -1)
            seen = seen + np.cumsum(count)[:-1]
        assert set(np.unique(seen).tolist()) == {epochs}


def test_a_golden():
    """Corpus 1 joins at element 1001, with other denoisers on corpus 0, from the end of the round that is being read on."""
    schedule = [
        Wanted(0, Shares((1.0,)), (0,), (0,)),
        Wanted(1001, Shares((1.0, 1.0)), (0, 1), (1, 3)),
    ]
    timeline = arrange(schedule, orders(), 0)
    found, indices = timeline.elements(np.arange(998, 1006))
    assert timeline.parts[0] == ((0, 0, 0), (1057, 1, 981))
    assert found.tolist() == [0, 0, 0, 0, 3, 3, 0, 3]
    assert indices.tolist() == [998, 999, 1000, 1001, 0, 1, 1002, 2]
