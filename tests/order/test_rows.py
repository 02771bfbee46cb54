"""Packed rows have addresses: each example in one row, undone, the same examples as without packing; lengths fixed or drawn."""

import dataclasses
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.order import rows as rows_module
from ul2_tasks.order.cycles import Cycle, nearest_cycle
from ul2_tasks.order.order import BlockShuffle, Order
from ul2_tasks.order.rows import Rows

# T5GEMMA2 at 512/512 with advised chunks: rows of three examples or two.
SIZES = ((365, 81), (255, 255), (364, 67), (255, 254), (73, 214))
ORDER = Order(nearest_cycle([1, 1, 1, 1, 4]), (403, 467, 424, 490, 282), 2912 * 5000 + 1500, seed=3)


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Lengths that are drawn by the keys of noise, below those of full chunks."""

    order: Order
    sizes: tuple[tuple[int, ...], ...]

    def lengths_of(self, epochs, slots):
        drawn = (self.order.noise_keys(epochs, slots) % np.uint64(7)).astype(np.int64)
        return np.maximum(0, np.array(self.sizes)[self.order.ranges(epochs, slots).kinds] - drawn[:, np.newaxis])


@pytest.fixture(autouse=True)
def small_pools(monkeypatch):
    """So that corpora of a few thousand tokens have several."""
    monkeypatch.setattr(rows_module, "_POOL", 24)


@st.composite
def packed(draw, most_tokens=3000, is_fixed=None):
    kinds = draw(st.integers(1, 4))
    counts, lengths = (tuple(draw(st.lists(st.integers(1, most), min_size=kinds, max_size=kinds))) for most in (4, 40))
    budgets = tuple(draw(st.lists(st.integers(1, 50), min_size=2, max_size=2)))
    sizes = tuple(draw(st.lists(st.tuples(*(st.integers(1, each) for each in budgets)), min_size=kinds, max_size=kinds)))
    blocks = draw(st.none() | st.builds(BlockShuffle, st.integers(1, 300), st.integers(1, 4), st.integers(1, 4)))
    order = Order(Cycle(counts), lengths, draw(st.integers(1, most_tokens)), draw(st.integers()), draw(st.booleans()), blocks)
    if draw(st.booleans()) if is_fixed is None else is_fixed:
        return Rows(order, budgets, sizes=sizes)
    return Rows(order, budgets, lengths=Drawn(order, sizes))


def sizes_of(rows, epochs, slots):
    if rows.lengths:
        return rows.lengths.lengths_of(epochs, slots)
    return np.array(rows.sizes)[rows.order.ranges(epochs, slots).kinds]


@given(packed(), st.integers(0, 6))
def test_in_each_epoch_each_example_is_in_one_row_and_no_row_is_over_its_budget(rows, epoch):
    first, stop = (rows.first_of(each * rows.rounds) for each in (epoch, epoch + 1))
    numbers = np.arange(first, stop)
    places, epochs, slots = rows.slots(numbers)
    assert set(epochs.tolist()) == {epoch}
    assert sorted(slots.tolist()) == list(range(rows.order.examples))
    assert sorted(set(places.tolist())) == list(range(len(numbers))), "no row is empty"
    assert (np.diff(places) >= 0).all()
    assert rows.rows_at(epochs, slots).tolist() == numbers[places].tolist()
    tokens = np.zeros([len(numbers), 2], int)
    np.add.at(tokens, places, sizes_of(rows, epochs, slots))
    assert (tokens <= rows.budgets).all()
    some = pickle.loads(pickle.dumps(rows)).slots(numbers[::-3])
    assert sorted(zip(numbers[::-3][some.places], some.slots)) == sorted(
        (numbers[place], slot) for place, slot in zip(places, slots) if (len(numbers) - 1 - place) % 3 == 0
    )


@given(packed(most_tokens=10**12, is_fixed=True), st.integers(0, 10**12), st.data())
def test_row_to_slots_and_back(rows, first, data):
    numbers = np.array(data.draw(st.lists(st.integers(first, first + 10**6), min_size=1, max_size=20)))
    places, epochs, slots = rows.slots(numbers)
    assert rows.rows_at(epochs, slots).tolist() == numbers[places].tolist()


@given(packed(), st.integers(0, 300))
def test_the_rows_of_a_round_are_those_of_its_examples(rows, row):
    begun = rows.round_of(row)
    first, stop = rows.first_of(begun), rows.first_of(begun + 1)
    assert first <= row < stop
    held = rows.slots(np.arange(first, stop))
    of_round = rows.order.slots(np.arange(rows.order.first_of(begun), rows.order.first_of(begun + 1)))
    assert sorted(zip(held.epochs, held.slots)) == sorted(zip(*of_round))


@pytest.mark.parametrize("is_fixed", [True, False])
def test_a_row_has_examples_from_anywhere_and_neighbours_share_no_form(monkeypatch, is_fixed):
    monkeypatch.setattr(rows_module, "_POOL", 1 << 12)
    rows = Rows(ORDER, (512, 512), **({"sizes": SIZES} if is_fixed else {"lengths": Drawn(ORDER, SIZES)}))
    total = rows.first_of(1)
    places, epochs, slots = rows.slots(np.arange(total))
    found = ORDER.ranges(epochs, slots)
    starts = found.starts[np.searchsorted(found.of, np.arange(len(slots)))]
    same_row = places[1:] == places[:-1]
    assert abs(np.corrcoef(starts[1:][same_row], starts[:-1][same_row])[0, 1]) < 4 / np.sqrt(same_row.sum())
    held = np.zeros([total, 5])
    np.add.at(held, (places, found.kinds), 1)
    for step in (1, 3, 8, 64):
        correlation = np.corrcoef(held[step:, 1], held[:-step, 1])[0, 1]
        assert abs(correlation) < 4 / np.sqrt(total), "else a host would always have rows of the same form"


def test_unshuffled_rows_come_in_the_order_of_the_corpus():
    rows = Rows(dataclasses.replace(ORDER, tokens=30_000, shuffle=False), (512, 512), sizes=SIZES)
    places, _, slots = rows.slots(np.arange(rows.first_of(1)))
    firsts = slots[np.searchsorted(places, np.arange(rows.first_of(1)))]
    pools = firsts // 24  # of three cycles each
    assert (np.diff(pools) >= 0).all()
    assert all((np.diff(firsts[pools == pool]) > 0).all() for pool in np.unique(pools))
