"""Draws are functions of seed, epoch, record and name, of the laws that they promise, and independent of each other."""

import numpy as np
import scipy.stats

from ul2_tasks.images.draws import draws_of

RECORDS = [f"corpus.parquet, row group {group}, row {row}" for group in range(4) for row in range(500)]


def test_a_draw_depends_on_seed_epoch_record_and_name_and_on_no_other_draw():
    draws = draws_of(0, 0, "a")
    first = draws.uniform("caption")
    draws.normal("timestep/0")
    assert draws.uniform("caption") == first == draws_of(0, 0, "a").uniform("caption")
    others = [draws_of(1, 0, "a"), draws_of(0, 1, "a"), draws_of(0, 0, "b"), draws.within("caption")]
    assert len({first, draws.uniform("captions"), *(other.uniform("caption") for other in others)}) == 6


def test_uniform_and_normal_draws_follow_their_laws():
    """Kolmogorov and Smirnov's test, over records."""
    uniform = [draws_of(0, 0, record).uniform("drop/0") for record in RECORDS]
    normal = [draws_of(0, 0, record).normal("timestep/0") for record in RECORDS]
    assert scipy.stats.kstest(uniform, "uniform").pvalue > 0.001
    assert scipy.stats.kstest(normal, "norm").pvalue > 0.001


def test_draws_of_other_names_epochs_and_records_are_not_correlated():
    names = [[draws_of(0, 0, record).uniform(name) for record in RECORDS] for name in ("drop/0", "drop/1", "caption")]
    epochs = [[draws_of(0, epoch, record).uniform("drop/0") for record in RECORDS] for epoch in (1, 2)]
    found = np.corrcoef([*names, *epochs])
    assert abs(found - np.eye(5)).max() < 4.5 / np.sqrt(len(RECORDS))
    assert abs(np.corrcoef(names[0][:-1], names[0][1:])[0, 1]) < 4.5 / np.sqrt(len(RECORDS))
