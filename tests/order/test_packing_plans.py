"""Packing as a template: all examples of the cycles, no row over its budget, and at least as full as the packer of streams."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks import T5GEMMA2, UL2, best_chunk_tokens, chunk_length
from ul2_tasks.order.cycles import nearest_cycle
from ul2_tasks.order.packing import count_rows
from ul2_tasks.order.packing_plans import best_cycles, template


@st.composite
def kinds(draw):
    budgets = tuple(draw(st.lists(st.integers(1, 60), min_size=1, max_size=3)))
    sizes = st.tuples(*(st.integers(1, budget) for budget in budgets))
    sizes = tuple(draw(st.lists(sizes, min_size=1, max_size=6)))
    counts = draw(st.lists(st.integers(1, 6), min_size=len(sizes), max_size=len(sizes)))
    return sizes, tuple(counts), budgets


@given(kinds(), st.integers(0, 20))
def test_a_template_holds_the_examples_of_its_cycles_and_no_row_is_over_its_budget(kinds, cycles):
    sizes, counts, budgets = kinds
    rows = template(sizes, counts, budgets, cycles)
    assert rows.sum(axis=0).tolist() == [cycles * count for count in counts]
    assert (rows @ np.array(sizes) <= budgets).all()
    assert rows.any(axis=1).all(), "no row is empty"


@pytest.mark.parametrize("lengths", [(512, 512), (2048, 512), (16384, 16384)])
@pytest.mark.parametrize(("denoisers", "are_advised"), [(T5GEMMA2, False), (T5GEMMA2, True), (UL2, False)])
def test_rows_are_at_least_as_full_as_those_of_the_packer_of_streams(quick_advice, lengths, denoisers, are_advised):
    """Of the same examples, some thousand, as its pools are."""
    budgets = dict(zip(("inputs", "targets"), lengths))
    caps = best_chunk_tokens(denoisers, budgets) if are_advised else {}
    chunks = [chunk_length(denoiser, budgets, chunk_tokens=caps.get(denoiser.name)) for denoiser in denoisers]
    sizes = tuple((chunk.inputs, chunk.targets) for chunk in chunks)
    cycle = nearest_cycle([denoiser.weight for denoiser in denoisers])
    best = best_cycles(sizes, cycle.counts, lengths)
    cycles = -(-1024 // len(cycle) // best) * best
    pool = np.repeat(np.array(sizes), cycles * np.array(cycle.counts), axis=0)
    assert cycles // best * len(template(sizes, cycle.counts, lengths, best)) <= count_rows(pool, lengths)
    assert len(template(sizes, cycle.counts, lengths, best)) <= best * np.ceil(pool.sum(axis=0) / cycles).max()


def test_golden():
    """Equal arguments have equal templates on every machine: the rows of T5GEMMA2 with advised chunks at 512/512."""
    sizes = ((365, 81), (255, 255), (364, 67), (255, 254), (73, 214))
    assert template(sizes, (1, 1, 1, 1, 4), (512, 512), best_cycles(sizes, (1, 1, 1, 1, 4), (512, 512))).tolist() == GOLDEN


GOLDEN = [[1, 0, 0, 0, 2], [0, 0, 1, 0, 2], [0, 1, 0, 1, 0]]
