"""Which elements a host has: together all of a step, of each corpus its part, and of blocks its own partitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.order.mix import Mix, Shares, Stage
from ul2_tasks.random_access.numbering import Share


@given(
    st.integers(1, 9), st.integers(1, 3), st.integers(1, 5), st.integers(0, 100), st.sampled_from([0, 1, 3, 4]), st.integers(0, 500)
)
def test_the_elements_of_all_hosts_are_those_before_an_end_step_by_step(hosts, workers, run, start, turns, stop):
    of_all = [(host, worker) for worker in range(workers) for host in range(hosts)]
    readers = [(Share(host, hosts, run, start, turns, worker, workers), worker) for host, worker in of_all]
    counts = [share.count(stop) for share, _ in readers]
    own = [share.numbers(np.arange(count)) for (share, _), count in zip(readers, counts)]
    assert sorted(np.concatenate(own).tolist()) == list(range(start, stop))
    for (share, worker), numbers in zip(readers, own):
        step = hosts * run
        assert ((numbers - start) // step == (np.arange(len(numbers)) // run) * workers + worker).all(), "its part of each step"
        assert not (share.numbers(np.arange(len(numbers), len(numbers) + run)) < stop).any() or len(numbers) % run


@pytest.mark.parametrize("hosts", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("weights", [(1, 1), (3, 1), (7, 1), (1, 1, 1, 1, 4)])
def test_each_host_reads_each_corpus_as_often_as_the_others(hosts, weights):
    mix = Mix((Stage(0, tuple(range(len(weights))), Shares(weights)),))
    for host in range(hosts):
        corpora, _ = mix.elements(Share(host, hosts, turns=1).numbers(np.arange(4000)))
        asked = 4000 * np.array(weights) / sum(weights)
        assert np.abs(np.bincount(corpora, minlength=len(weights)) - asked).max() < 5 * np.sqrt(4000 / 4)


@pytest.mark.parametrize("hosts", [1, 2, 4, 8, 16])
def test_of_blocks_a_host_reads_its_own_partitions_and_each_corpus(hosts):
    mix = Mix((Stage(0, (0, 1), Shares((1, 1))),), turns=8)
    for host in range(hosts):
        corpora, positions = mix.elements(Share(host, hosts, turns=8).numbers(np.arange(2000)))
        assert len(np.unique(positions % 8)) == max(1, 8 // hosts)
        assert np.bincount(corpora).min() > 800
