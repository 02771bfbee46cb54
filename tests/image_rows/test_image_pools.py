"""`pools.Pools`: each record of an epoch is in one pool, in the ratio of the weights."""

import collections
import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.image_rows.pools import Pools

PIECES = st.lists(st.integers(1, 40), min_size=1, max_size=12).map(tuple)


def records_of(pools: Pools, pool: int) -> list[tuple[int, int, int, int]]:
    """Source, epoch, piece and number of each record of a pool."""
    return [(*stretch[:3], number) for stretch in pools.stretches(pool) for number in range(stretch.start, stretch.stop)]


@given(PIECES, st.integers(1, 60), st.integers(1, 3), st.integers(0, 9))
def test_each_record_is_once_in_each_epoch(pieces, size, epochs, seed):
    pools = Pools((pieces,), (1.0,), size, epochs, seed)
    found = [record for number in range(pools.count) for record in records_of(pools, number)]
    expected = [(0, epoch, piece, at) for epoch in range(epochs) for piece, count in enumerate(pieces) for at in range(count)]
    assert sorted(found) == expected


def test_weights_are_the_ratio_of_records_and_sources_begin_anew():
    pools = Pools(((5, 5), (30,), (7,)), (1, 2, 3), 60, None, 3)
    found = [record for number in range(10) for record in records_of(pools, number)]
    assert collections.Counter(record[0] for record in found) == {0: 100, 1: 200, 2: 300}
    for source, records in ((0, 10), (1, 30), (2, 7)):
        times = collections.Counter(record[2:] for record in found if record[0] == source)
        assert len(times) == records
        assert max(times.values()) - min(times.values()) <= 1
    assert len(set(found)) == len(found)


@given(st.lists(PIECES, min_size=1, max_size=2), st.integers(1, 60), st.integers(1, 9), st.integers(0, 9))
def test_windows_are_shuffled_record_by_record(pieces, size, window, seed):
    """Each record is once in each epoch, and in the window of its piece: pieces that are not shuffled come in the same windows."""
    settings = tuple(pieces), (1.0,) * len(pieces), size, 2, seed, 0
    plain, pools = Pools(*settings), Pools(*settings, window)
    numbers = range(plain.count)
    found = [record for number in numbers for record in records_of(pools, number)]
    before = [record for number in numbers for record in records_of(plain, number)]
    assert [record[:2] for record in found] == [record[:2] for record in before]
    assert len(set(found)) == len(found)
    assert all(pools.pool_of(*record) == place // size for place, record in enumerate(found))
    for source, of_source in enumerate(pieces):
        for epoch in (0, 1):
            order = list(dict.fromkeys(record[2] for record in before if record[:2] == (source, epoch)))
            windows = [order.index(record[2]) // window for record in found if record[:2] == (source, epoch) and record[2] in order]
            if len(order) == len(of_source):  # an epoch that is whole
                assert windows == sorted(windows)


def test_another_epoch_seed_or_window_is_another_order_within_a_piece():
    def order(seed, epoch, window):
        pools = Pools(((30, 30),), (1.0,), 30, None, seed, 0, window)
        return [record[3] for number in (0, 1) for record in records_of(pools, 2 * epoch + number) if record[2] == 0]

    orders = [order(0, 0, 1), order(0, 1, 1), order(1, 0, 1), order(0, 0, 2), list(range(30))]
    assert all(sorted(one) == orders[-1] for one in orders)
    assert all(one != other for one, other in itertools.combinations(orders, 2))


@given(
    st.lists(st.tuples(PIECES, st.sampled_from([0.3, 1.0, 2.0])), min_size=1, max_size=3),
    st.integers(1, 60),
    st.integers(1, 2),
)
def test_iterations_have_the_epochs_of_a_mixture_one_after_the_other(sources, size, epochs):
    """After n epochs each source was read n times at least, and one of them exactly."""
    pieces, weights = zip(*sources)
    seen, counts = [], np.array([sum(each) for each in pieces])
    for iteration in range(3):
        pools = Pools(pieces, weights, size, epochs, 5, iteration * epochs)
        for number in range(pools.count):
            of_pool = records_of(pools, number)
            assert {pools.pool_of(*record) for record in of_pool} == {number}
            assert len(of_pool) == size or number == pools.count - 1
            seen += of_pool
        read = np.bincount([record[0] for record in seen], minlength=len(counts)) - counts * epochs * (iteration + 1)
        assert read.min() == 0
        assert not iteration or pools.pool_of(*seen[0]) is None
    assert len(set(seen)) == len(seen)
    endless = Pools(pieces, weights, len(seen), None, 5)
    assert sorted(records_of(endless, 0)) == sorted(seen)


def test_orders_do_not_change():
    """A golden one: saved states would go on in another order."""
    pools = Pools(((4, 3, 2, 1), (5, 5)), (2, 1), 9, None, 11)
    expected = [(0, 0, 0, 1, 4), (0, 0, 3, 0, 1), (0, 1, 1, 0, 2), (1, 0, 0, 3, 5), (1, 0, 1, 0, 1)]
    assert list(pools.stretches(1)) == expected
    pools = Pools(((4, 3, 2, 1), (5, 5)), (2, 1), 9, None, 11, 0, 2)
    of_first = [(0, 0, 0, 0), (0, 0, 0, 3), (0, 0, 0, 1), (0, 0, 0, 2), (0, 1, 1, 1), (0, 1, 1, 2)]
    assert [stretch[:4] for stretch in pools.stretches(1)] == [*of_first, (1, 0, 0, 0), (1, 0, 0, 3), (1, 0, 1, 2)]


def test_a_source_of_one_record_in_100_000_has_one():
    pools = Pools(((7,), (1000,)), (1, 99_999), 100_000, None, 3)
    assert [sum(record[0] == 0 for record in records_of(pools, pool)) for pool in range(2)] == [1, 1]
