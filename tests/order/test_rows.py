"""Packed rows have addresses: each example in one row, undone, the same examples as without packing."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.order.cycles import Cycle, nearest_cycle
from ul2_tasks.order.epochs import Order
from ul2_tasks.order.rows import PackedOrder

# T5GEMMA2 at 512/512 with advised chunks: rows of three examples or two.
SIZES = ((365, 81), (255, 255), (364, 67), (255, 254), (73, 214))
ORDER = Order(nearest_cycle([1, 1, 1, 1, 4]), (403, 467, 424, 490, 282), 2912 * 1000 + 1500, seed=3)
PACKED = PackedOrder(ORDER, SIZES, (512, 512))


@st.composite
def packed_orders(draw, most_tokens=3000):
    kinds = draw(st.integers(1, 5))
    counts, lengths = (tuple(draw(st.lists(st.integers(1, most), min_size=kinds, max_size=kinds))) for most in (4, 40))
    budgets = tuple(draw(st.lists(st.integers(1, 50), min_size=2, max_size=2)))
    size = st.tuples(*(st.integers(1, budget) for budget in budgets))
    sizes = tuple(draw(st.lists(size, min_size=kinds, max_size=kinds)))
    tokens, seed, shuffle = draw(st.integers(1, most_tokens)), draw(st.integers()), draw(st.booleans())
    return PackedOrder(Order(Cycle(counts), lengths, tokens, seed, shuffle), sizes, budgets)


@given(packed_orders(), st.integers(0, 100))
def test_in_each_epoch_each_example_is_in_one_row_and_no_row_is_over_its_budget(packed, epoch):
    places, epochs, slots = packed.slots(epoch * packed.rows + np.arange(packed.rows))
    assert set(epochs.tolist()) == {epoch}
    assert sorted(slots.tolist()) == list(range(packed.order.examples))
    assert sorted(set(places.tolist())) == list(range(packed.rows)), "no row is empty"
    assert (np.diff(places) >= 0).all()
    tokens = np.zeros([packed.rows, 2], int)
    np.add.at(tokens, places, np.array(packed.sizes)[packed.order.chunks(epochs, slots).kinds])
    alone = np.bincount(places) == 1  # a shortened chunk is at most as long as the full one
    assert (alone | (tokens <= packed.budgets).all(axis=1)).all()


@given(packed_orders(most_tokens=10**12), st.integers(0, 10**12), st.data())
def test_row_to_slots_and_back(packed, first, data):
    rows = np.array(data.draw(st.lists(st.integers(first, first + 10**6), min_size=1, max_size=20)))
    places, epochs, slots = packed.slots(rows)
    assert packed.rows_at(epochs, slots).tolist() == rows[places].tolist()


def test_a_row_has_examples_from_anywhere_and_neighbours_share_no_pattern():
    places, epochs, slots = PACKED.slots(np.arange(PACKED.rows))
    kinds, starts, _ = ORDER.chunks(epochs, slots)
    same_row = places[1:] == places[:-1]
    assert abs(np.corrcoef(starts[1:][same_row], starts[:-1][same_row])[0, 1]) < 4 / np.sqrt(same_row.sum())
    held = np.zeros([PACKED.rows, 5])
    np.add.at(held, (places, kinds), 1)
    for step in (1, 3, 8, 64):
        correlation = np.corrcoef(held[step:, 1], held[:-step, 1])[0, 1]
        assert abs(correlation) < 4 / np.sqrt(PACKED.rows), "else a host would always have rows of the same pattern"
