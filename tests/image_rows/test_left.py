"""`left.Left`: what several shards have not read, other numbers of shards read, each row once, after any number of stops."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.image_rows.left import Left
from ul2_tasks.image_rows.pools import Pools

POOLS = st.builds(
    lambda pieces, size, epochs, window: Pools((tuple(pieces),), (1.0,), size, epochs, 0, 0, window),
    st.lists(st.integers(1, 40), min_size=1, max_size=12),
    st.integers(1, 20),
    st.sampled_from([None, 1, 2]),
    st.integers(0, 2),
)
SHARDS = st.lists(st.integers(0, 12), min_size=1, max_size=6)  # how many rows each reads before it stops


def rows_of(pool: int) -> int:
    """Of some pools there is none, as where all records are skipped."""
    return (pool * 2654435761 >> 9) % 4


def read(pools: Pools, left: Left, shard: int, shards: int, most: int, place=None):
    """The rows that a shard gives until it stops, and where it is then, as `ImageTextDataset` has it."""
    given, place = [], place or (0, 0)
    first = place[0]
    for pool in itertools.dropwhile(lambda pool: pool < first, pools.shard(shard, shards, left)):
        for row in range(max(left.rows_done(pool), place[1]), rows_of(pool)):
            if len(given) == most:
                return given, place
            given.append((pool, row))
            place = pool, row + 1
        place = pool + 1, 0
    return given, place


@given(POOLS, st.lists(SHARDS, min_size=1, max_size=4), st.integers(1, 5), st.booleans())
def test_each_row_is_read_once_however_often_the_number_of_shards_changes(pools, runs, last, is_resumed):
    left, seen = Left(), []
    for run in runs:
        places = []
        for shard, most in enumerate(run):
            given, place = read(pools, left, shard, len(run), most)
            if is_resumed:  # the same shard goes on from its own state first
                more, place = read(pools, left, shard, len(run), 3, place)
                given += more
            assert given == sorted(given)
            seen += given
            places.append(place)
        left = left.after(places, pools.run(len(run), left))
        assert Left.of(left.plain) == left
    end = pools.count or max([left.first, *(pool for pool, _ in seen)]) + 30
    whole = Pools(pools.pieces, pools.weights, pools.size, pools.epochs, 0, 0, pools.window)
    expected = [(pool, row) for pool in range(end) for row in range(rows_of(pool))]
    rest = []
    for shard in range(last):
        numbers = itertools.takewhile(lambda pool: pool < end, whole.shard(shard, last, left))
        rest += [(pool, row) for pool in numbers for row in range(left.rows_done(pool), rows_of(pool))]
    assert sorted(seen + rest) == expected
    alone = [left.pool(number) for number in range(left.before_first + 5)]
    assert alone == sorted(set(alone))


@given(POOLS, SHARDS)
def test_shards_that_stop_at_once_leave_all(pools, run):
    assert Left().after([(0, 0)] * len(run), pools.run(len(run))) == Left()


def test_the_parts_are_few_where_shards_are_near_each_other():
    """Of 64 shards, each in the middle of a pool of its own, at the same place of their runs."""
    pools = Pools(((1000,) * 640,), (1.0,), 250, None, 0)
    places = [(next(itertools.islice(pools.shard(shard, 64), 8, None)), 3) for shard in range(64)]
    left = Left().after(places, pools.run(64))
    assert left.parts[:2] == ((512, 516, 3), (516, 520, 3))
    assert (len(left.parts), left.parts[-1], left.first) == (64, (764, 765, 3), 765)


@pytest.mark.parametrize("parts", [((3, 2, 0),), ((0, 9, 0),), ((0, 1, -1),), ((2, 3, 0), (1, 2, 0)), (("0", 1, 0),)])
def test_parts_that_cannot_be_are_refused(parts):
    with pytest.raises(ValueError, match=r"^left must have parts of ascending pools, got Left\(parts=.*Pass what state_dict"):
        Left(parts, 5)
