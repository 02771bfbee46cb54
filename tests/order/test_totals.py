"""What whole epochs have of each denoiser, by arithmetic: what their examples have, one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from test_blocks import orders as block_orders
from test_epochs import orders

from ul2_tasks.order.cycles import Cycle
from ul2_tasks.order.epochs import Order
from ul2_tasks.order.weights import Weights

SOME = st.tuples(st.one_of(st.integers(0, 40), st.integers(0, 10**12)), st.integers(0, 30))  # epochs


def counted(order, first, epochs, weights=None):
    examples, tokens = np.zeros([2, len(order.cycle.counts)], np.int64)
    for epoch in range(first, first + epochs):
        slots = np.arange(order.examples)
        found = order.ranges(np.full_like(slots, epoch), slots)
        np.add.at(examples, found.kinds, 1)
        np.add.at(tokens, found.kinds, found.sizes if weights is None else weights[found.starts])
    return examples.tolist(), tokens.tolist()


@given(st.one_of(orders(), block_orders(most_tokens=2000)), SOME)
def test_examples_and_tokens_of_whole_epochs(order, some):
    first, epochs = some
    assert tuple(each.tolist() for each in order.totals(first, first + epochs)) == counted(order, first, epochs)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(), SOME, st.data())
def test_weights_of_whole_epochs(counts, seed, some, data):
    weights = np.array(data.draw(st.lists(st.integers(0, 1000), min_size=1, max_size=70)), np.int64)
    order = Order(Cycle(tuple(counts)), (1,) * len(counts), len(weights), seed, data.draw(st.booleans()))
    borders = sorted(data.draw(st.lists(st.integers(0, len(weights)), max_size=5)))
    first, done = some[0], []
    held = Weights.of(order, np.split(weights, borders))
    found = held.of_kinds(first, first + some[1], done.append)
    assert found.tolist() == counted(order, *some, weights)[1]
    assert held.total == weights.sum()
    assert not done or sum(done) == some[1]
