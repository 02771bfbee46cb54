"""Every example has an address: each token of an epoch once, the ratio exact, each epoch another, all of it undone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.order.cycles import Cycle, nearest_cycle
from ul2_tasks.order.epochs import Order

T5GEMMA2 = nearest_cycle([1, 1, 1, 1, 4])
FULL = (567, 943, 597, 990, 680)  # the full chunks at 512/512; a cycle has 5,817 tokens


@st.composite
def orders(draw, most_tokens=3000):
    counts = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    lengths = draw(st.lists(st.integers(1, 60), min_size=len(counts), max_size=len(counts)))
    order = Order(Cycle(tuple(counts)), tuple(lengths), draw(st.integers(1, most_tokens)), draw(st.integers()), draw(st.booleans()))
    if draw(st.booleans()):  # whole cycles
        order = Order(order.cycle, order.lengths, order.cycle_tokens * draw(st.integers(1, 4)), order.seed, order.shuffle)
    return order


def epoch_of(order, epoch):
    """The slots and chunks of all examples of an epoch, in the order of the examples."""
    epochs, slots = order.slots(epoch * order.examples + np.arange(order.examples))
    assert set(epochs.tolist()) == {epoch}
    return slots, order.chunks(epochs, slots)


def tokens_of(order, starts, stops):
    return np.concatenate([np.arange(start, stop) for start, stop in zip(starts, stops)]) % order.tokens


@given(orders(), st.integers(0, 100))
def test_in_each_epoch_each_token_is_in_one_example(order, epoch):
    slots, (kinds, starts, stops) = epoch_of(order, epoch)
    assert sorted(slots.tolist()) == list(range(order.examples))
    assert sorted(tokens_of(order, starts, stops).tolist()) == list(range(order.tokens))
    assert (stops > starts).all()
    assert (stops - starts <= np.array(order.lengths)[kinds]).all(), "no chunk is longer than its denoiser's"


@given(orders(), st.integers(0, 100))
def test_each_full_cycle_has_full_chunks_in_the_exact_ratio(order, epoch):
    slots = np.arange(order.cycles * len(order.cycle))
    kinds, starts, stops = order.chunks(np.full_like(slots, epoch), slots)
    assert (stops - starts == np.array(order.lengths)[kinds]).all()
    for cycle in kinds.reshape(-1, len(order.cycle)):
        assert tuple(np.bincount(cycle).tolist()) == order.cycle.counts


@given(orders())
def test_the_tails_of_as_many_epochs_as_a_cycle_has_slots_have_the_exact_ratio(order):
    tail = np.arange(order.examples - order.tail, order.examples)
    kinds = [order.chunks(np.full_like(tail, epoch), tail).kinds for epoch in range(len(order.cycle))]
    found = np.bincount(np.concatenate(kinds), minlength=len(order.lengths))
    assert found.tolist() == [count * order.tail for count in order.cycle.counts]


def ranges_of(tokens, data):
    start = data.draw(st.integers(0, tokens - 1))
    return start, data.draw(st.integers(start + 1, tokens))


@given(orders(), st.integers(0, 100), st.data())
def test_the_examples_of_ranges_of_tokens_are_found(order, epoch, data):
    ranges = np.array([ranges_of(order.tokens, data) for _ in range(data.draw(st.integers(1, 4)))])
    slots, (_, starts, stops) = epoch_of(order, epoch)
    wanted = {token for start, stop in ranges.tolist() for token in range(start, stop)}
    expected = [slot for slot, one, end in zip(slots, starts, stops) if wanted & {t % order.tokens for t in range(one, end)}]
    assert order.slots_with(epoch, *ranges.T).tolist() == sorted(expected)


@given(orders(most_tokens=10**12), st.integers(0, 10**12), st.data())
def test_example_to_slot_to_token_and_back_for_corpora_of_up_to_a_million_million_tokens(order, first, data):
    examples = np.array(data.draw(st.lists(st.integers(first, first + 10**6), min_size=1, max_size=50)))
    epochs, slots = order.slots(examples)
    assert order.examples_at(epochs, slots).tolist() == examples.tolist()
    _, starts, stops = order.chunks(epochs, slots)
    assert 0 <= starts.min() <= starts.max() < order.tokens
    for tokens in (starts, (stops - 1) % order.tokens):
        assert order.slots_of(epochs, tokens).tolist() == slots.tolist()


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


def test_unshuffled_examples_follow_each_other_and_begin_at_the_first_token():
    _, starts, stops = epoch_of(Order(T5GEMMA2, FULL, 100_000, seed=5, shuffle=False), 0)[1]
    assert starts[0] == 0
    assert starts[1:].tolist() == stops[:-1].tolist()
    assert stops[-1] == 100_000


ORDER = Order(T5GEMMA2, FULL, 5817 * 1000 + 3000, seed=7)


def denoiser_of_each_token(order, epoch, tokens):
    epochs = np.full_like(tokens, epoch)
    return order.chunks(epochs, order.slots_of(epochs, tokens)).kinds


def test_over_the_epochs_a_token_comes_under_each_denoiser_as_often_as_its_share_and_not_by_chance():
    """By chance the number of 200 epochs under S would vary by sqrt(200 * 0.47 * 0.53) = 7."""
    tokens = np.random.default_rng(0).integers(0, ORDER.tokens, 200)
    kinds = np.stack([denoiser_of_each_token(ORDER, epoch, tokens) for epoch in range(200)])
    for kind, (count, length) in enumerate(zip(T5GEMMA2.counts, FULL)):
        found = (kinds == kind).sum(axis=0)
        assert np.abs(found - 200 * count * length / 5817).max() <= 6
        assert found.std() < 2
