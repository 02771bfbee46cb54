"""Shuffled in two levels: each token of an epoch once, undone, one partition a host, and a packed row is of one window."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.order.blocks import BlockOrder, BlockShuffle, packed_order
from ul2_tasks.order.cycles import Cycle, nearest_cycle

T5GEMMA2 = nearest_cycle([1, 1, 1, 1, 4])


@st.composite
def orders(draw, most_tokens=4000):
    counts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    lengths = draw(st.lists(st.integers(1, 60), min_size=len(counts), max_size=len(counts)))
    blocks = BlockShuffle(draw(st.integers(1, 300)), draw(st.integers(1, 5)), draw(st.integers(1, 4)))
    tokens = draw(st.integers(blocks.block_tokens * max(2, blocks.partitions), most_tokens))
    return BlockOrder(Cycle(tuple(counts)), tuple(lengths), tokens, draw(st.integers()), draw(st.booleans()), blocks)


def cover(order, epochs, slots):
    """How often each token of the corpus is in these examples."""
    found = order.ranges(epochs, slots)
    assert (np.bincount(found.of, found.stops - found.starts, len(slots)) == found.sizes).all()
    assert (found.stops > found.starts).all()
    assert (np.diff(found.of) >= 0).all()
    seen = np.zeros(order.tokens + 1, np.int64)
    np.add.at(seen, found.starts, 1)
    np.add.at(seen, found.stops, -1)
    return np.cumsum(seen)[:-1]


@given(orders(), st.integers(0, 100))
def test_in_each_epoch_each_token_is_in_one_example(order, epoch):
    examples = epoch * order.examples + np.arange(order.examples)
    epochs, slots = order.slots(examples)
    assert set(epochs.tolist()) == {epoch}
    assert sorted(slots.tolist()) == list(range(order.examples))
    assert (cover(order, epochs, slots) == 1).all()
    assert order.examples_at(epochs, slots).tolist() == examples.tolist()
    found = order.ranges(epochs, slots)
    assert (found.sizes <= np.array(order.lengths)[found.kinds]).all(), "no chunk is longer than its denoiser's"
    assert len(np.unique(order.noise_keys(epochs, slots))) == len(slots)


@given(orders(), st.integers(0, 100), st.data())
def test_the_examples_of_ranges_of_tokens_are_found(order, epoch, data):
    starts = np.array(data.draw(st.lists(st.integers(0, order.tokens - 1), min_size=1, max_size=4)))
    stops = np.array([data.draw(st.integers(start + 1, order.tokens)) for start in starts.tolist()])
    slots = np.arange(order.examples)
    found = order.ranges(np.full_like(slots, epoch), slots)
    expected = [np.unique(found.of[(found.starts < stop) & (found.stops > start)]) for start, stop in zip(starts, stops)]
    assert order.slots_with(epoch, starts, stops).tolist() == np.unique(np.concatenate(expected)).tolist()


@given(orders(most_tokens=10**12), st.integers(0, 10**12), st.data())
def test_example_to_slot_and_back_for_corpora_of_up_to_a_million_million_tokens(order, first, data):
    examples = np.array(data.draw(st.lists(st.integers(first, first + 10**6), min_size=1, max_size=50)))
    epochs, slots = order.slots(examples)
    assert order.examples_at(epochs, slots).tolist() == examples.tolist()
    found = order.ranges(epochs, slots)
    assert 0 <= found.starts.min() <= found.stops.max() <= order.tokens


@given(orders(), st.integers(0, 10))
def test_an_example_is_of_one_partition_which_has_blocks_of_its_own(order, epoch):
    turns = order.windows.partitions[0]
    numbers = np.arange(order.windows.starts[1] if len(order.windows.windows) > 1 else order.examples)
    epochs, slots = order.slots(epoch * order.examples + numbers)
    found = order.ranges(epochs, slots)
    owners = {}
    for block, partition in zip((found.starts // order.blocks.block_tokens).tolist(), (numbers % turns)[found.of].tolist()):
        owners.setdefault(block, set()).add(partition)
    assert all(len(partitions) == 1 for partitions in owners.values())


@given(orders(), st.integers(0, 10), st.integers(0, 10**6))
def test_the_blocks_of_a_window_are_all_that_its_examples_read_and_the_next_one_follows(order, epoch, number):
    epochs, slots = order.slots(np.array([epoch * order.examples + number % order.examples]))
    (window,) = order.windows_of(epochs, slots)
    blocks, following = order.blocks_of(*window), order.blocks_of(*order.next_window(*window))
    found = order.ranges(epochs, slots)
    assert set((found.starts // order.blocks.block_tokens).tolist()) <= set(blocks.tolist())
    assert len(following)
    assert following.max() <= order.tokens // order.blocks.block_tokens
    assert len(np.unique(blocks)) == len(blocks)


@given(orders(), st.integers(0, 3000))
def test_what_is_read_before_a_switch_is_the_same_for_all_denoisers(order, example):
    """So that other denoisers can go on there, with nothing read twice and nothing left out."""
    switch = order.switch(example)
    assert switch.element >= example
    assert order.switch(switch.element) == switch
    assert order.first_of(switch.epoch, switch.round) == switch.element
    other = BlockOrder(T5GEMMA2, (5, 9, 6, 9, 7), order.tokens, order.seed, order.shuffle, order.blocks)
    before = [cover(each, *each.slots(np.arange(each.first_of(switch.epoch, switch.round)))) for each in (order, other)]
    assert (before[0] == before[1]).all()
    assert before[0].sum() == switch.epoch * order.tokens + order.tokens_of(switch.round)
    begun = order.begun(example)
    assert begun == switch if begun.element == example else begun.element < example < switch.element
    assert order.begun(switch.element) == switch


@given(orders(), st.integers(0, 20), st.integers(0, 3000))
def test_rows_hold_each_example_once_and_are_undone(order, epoch, example):
    packed = packed_order(order, tuple((length + 2, length // 2 + 2) for length in order.lengths), (80, 90))
    rows = epoch * packed.rows + np.arange(packed.rows)
    found = packed.slots(rows)
    assert sorted(found.slots.tolist()) == list(range(order.examples))
    assert set(found.epochs.tolist()) == {epoch}
    assert sorted(set(found.places.tolist())) == list(range(packed.rows))
    assert (np.diff(found.places) >= 0).all()
    assert packed.rows_at(found.epochs, found.slots).tolist() == rows[found.places].tolist()
    some = packed.slots(rows[::3])
    assert [(rows[::3][place], slot) for place, slot in zip(some.places, some.slots)] == [
        (rows[place], slot) for place, slot in zip(found.places, found.slots) if place % 3 == 0
    ]
    switch = packed.switch(example)
    assert switch.element >= example
    assert packed.first_of(switch.epoch, switch.round) == switch.element
    held = packed.slots(np.arange(switch.element))
    as_examples = order.slots(np.arange(order.first_of(switch.epoch, switch.round)))
    assert sorted(zip(held.epochs, held.slots)) == sorted(zip(*as_examples))


@pytest.mark.parametrize("arguments", [{"block_tokens": 0}, {"partitions": 1.5}, {"window_blocks": True}, {"partitions": "64"}])
def test_what_is_no_shuffle_of_blocks_is_rejected(arguments):
    ((name, value),) = arguments.items()
    with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1, got {value!r}"):
        BlockShuffle(**arguments)
