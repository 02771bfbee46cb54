"""Each token of an epoch once, the ratio exact, each epoch another, all of it undone; in blocks, one partition a reader."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.order.cycles import Cycle, nearest_cycle
from ul2_tasks.order.order import BlockShuffle, Order

T5GEMMA2 = nearest_cycle([1, 1, 1, 1, 4])
FULL = (567, 943, 597, 990, 680)  # the full chunks at 512/512; a cycle has 5,817 tokens


@st.composite
def orders(draw, most_tokens=4000, in_blocks=None):
    counts = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    lengths = draw(st.lists(st.integers(1, 60), min_size=len(counts), max_size=len(counts)))
    tokens = draw(st.integers(1, most_tokens))
    if draw(st.booleans()):  # whole cycles
        tokens = sum(count * length for count, length in zip(counts, lengths)) * draw(st.integers(1, 4))
    blocks = None
    if draw(st.booleans()) if in_blocks is None else in_blocks:
        blocks = BlockShuffle(draw(st.integers(1, 300)), draw(st.integers(1, 5)), draw(st.integers(1, 4)))
    if in_blocks:
        tokens = draw(st.integers(blocks.block_tokens * max(2, blocks.partitions), max(4000, most_tokens)))
    return Order(Cycle(tuple(counts)), tuple(lengths), tokens, draw(st.integers()), draw(st.booleans()), blocks)


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


@given(orders(in_blocks=True), st.integers(0, 10))
def test_an_example_is_of_one_partition_which_has_blocks_of_its_own(order, epoch):
    section = order.sections[0]
    numbers = np.arange(section.windows * section.inner.examples)
    epochs, slots = order.slots(epoch * order.examples + numbers)
    found = order.ranges(epochs, slots)
    owners = {}
    for block, partition in zip((found.starts // order.blocks.block_tokens).tolist(), (numbers % section.turns)[found.of].tolist()):
        owners.setdefault(block, set()).add(partition)
    assert all(len(partitions) == 1 for partitions in owners.values())


@given(orders(in_blocks=True), st.integers(0, 10), st.integers(0, 10**6))
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
def test_what_is_read_before_a_round_is_the_same_for_all_denoisers(order, example):
    """So that other denoisers can go on there, with nothing read twice and nothing left out."""
    begun = order.round_of(example)
    assert order.first_of(begun) <= example < order.first_of(begun + 1)
    assert order.round_of(order.first_of(begun)) == begun
    assert order.first_of(order.rounds) == order.examples
    other = Order(T5GEMMA2, (5, 9, 6, 9, 7), order.tokens, order.seed, order.shuffle, order.blocks)
    before = [cover(each, *each.slots(np.arange(each.first_of(begun)))) for each in (order, other)]
    assert (before[0] == before[1]).all()


@given(orders(in_blocks=False), st.integers(0, 100))
def test_each_full_cycle_has_full_chunks_in_the_exact_ratio(order, epoch):
    slots = np.arange(order.sections[0].inner.cycles * len(order.cycle))
    found = order.ranges(np.full_like(slots, epoch), slots)
    assert (found.sizes == np.array(order.lengths)[found.kinds]).all()
    for cycle in found.kinds.reshape(-1, len(order.cycle)):
        assert tuple(np.bincount(cycle, minlength=len(order.lengths)).tolist()) == order.cycle.counts


@given(orders(in_blocks=False))
def test_the_tails_of_as_many_epochs_as_a_cycle_has_slots_have_the_exact_ratio(order):
    size = order.sections[0].inner.tail
    tail = np.arange(order.examples - size, order.examples)
    kinds = [order.ranges(np.full_like(tail, epoch), tail).kinds for epoch in range(len(order.cycle))]
    found = np.bincount(np.concatenate(kinds), minlength=len(order.lengths))
    assert found.tolist() == [count * size for count in order.cycle.counts]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((T5GEMMA2, FULL, 0, 0), "token"),
        ((T5GEMMA2, FULL[1:], 9, 0), "lengths"),
        ((T5GEMMA2, (0, *FULL[1:]), 9, 0), "lengths"),
        ((Cycle((4096,)), (1 << 20,), 9, 0), "weights"),
    ],
)
def test_what_cannot_be_is_refused(arguments, named):
    with pytest.raises(ValueError, match=named):
        Order(*arguments)


@pytest.mark.parametrize("arguments", [{"block_tokens": 0}, {"partitions": 1.5}, {"window_blocks": True}, {"partitions": "64"}])
def test_what_is_no_shuffle_of_blocks_is_rejected(arguments):
    ((name, value),) = arguments.items()
    with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1, got {value!r}"):
        BlockShuffle(**arguments)


def test_unshuffled_examples_follow_each_other_and_begin_at_the_first_token():
    order = Order(T5GEMMA2, FULL, 100_000, seed=5, shuffle=False)
    found = order.ranges(*order.slots(np.arange(order.examples)))
    assert found.starts[0] == 0
    assert found.starts[1:].tolist() == found.stops[:-1].tolist()
    assert found.stops[-1] == 100_000


def test_over_the_epochs_a_token_comes_under_each_denoiser_as_often_as_its_share_and_not_by_chance():
    """By chance the number of 200 epochs under S would vary by sqrt(200 * 0.47 * 0.53) = 7."""
    order = Order(T5GEMMA2, FULL, 5817 * 50 + 3000, seed=7)
    slots, kinds = np.arange(order.examples), []
    for epoch in range(200):
        found = order.ranges(np.full_like(slots, epoch), slots)
        of_each = np.zeros(order.tokens, np.int8)
        for kind, start, stop in zip(found.kinds[found.of], found.starts, found.stops):
            of_each[start:stop] = kind
        kinds.append(of_each[5817:-5817:1500])  # beside the tails
    kinds = np.stack(kinds)
    for kind, (count, length) in enumerate(zip(T5GEMMA2.counts, FULL)):
        found = (kinds == kind).sum(axis=0)
        assert np.abs(found - 200 * count * length / 5817).max() <= 6
        assert found.std() < 2
