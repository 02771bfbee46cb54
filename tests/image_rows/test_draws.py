"""Draws are functions of seed, epoch, record and name, of the laws that they promise, and independent of each other."""

import numpy as np
import pytest
import scipy.stats

from ul2_tasks.image_rows.dropout import Dropout
from ul2_tasks.images.draws import draws_of
from ul2_tasks.images.elements import Image, Text, checked

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


@pytest.mark.parametrize("count", [2, 7])
def test_numbers_are_below_their_count_and_all_alike(count):
    found = np.bincount([draws_of(0, 0, record).number("caption", count) for record in RECORDS])
    assert len(found) == count
    assert scipy.stats.chisquare(found).pvalue > 0.001


def test_draws_of_other_names_epochs_and_records_are_not_correlated():
    names = [[draws_of(0, 0, record).uniform(name) for record in RECORDS] for name in ("drop/0", "drop/1", "caption")]
    epochs = [[draws_of(0, epoch, record).uniform("drop/0") for record in RECORDS] for epoch in (1, 2)]
    found = np.corrcoef([*names, *epochs])
    assert abs(found - np.eye(5)).max() < 4.5 / np.sqrt(len(RECORDS))
    assert abs(np.corrcoef(names[0][:-1], names[0][1:])[0, 1]) < 4.5 / np.sqrt(len(RECORDS))


LAYOUT = checked(
    [
        Image(b"", "clean"),
        Image(b"", "vit"),
        Text("make it red"),
        Image(b"", "noised"),
        Image(b"", "clean"),
        Text("and round", droppable=False),
    ]
)


def test_each_kind_is_dropped_as_often_as_is_said_and_each_element_on_its_own():
    dropout = Dropout(text=0.1, vit=0.5, clean=0.3)
    kept = np.array([dropout.kept(LAYOUT, draws_of(0, 0, record)) for record in RECORDS])
    for number, chance in enumerate([0.3, 0.5, 0.1, 0, 0.3, 0]):
        assert scipy.stats.binomtest(int((~kept[:, number]).sum()), len(RECORDS), chance).pvalue > 0.001
    both = (~kept[:, 0] & ~kept[:, 4]).sum()
    assert scipy.stats.binomtest(int(both), len(RECORDS), 0.09).pvalue > 0.001


def test_together_drops_all_of_a_kind_or_none():
    kept = np.array([Dropout(clean=0.3, together=True).kept(LAYOUT, draws_of(0, 0, record)) for record in RECORDS])
    assert (kept[:, 0] == kept[:, 4]).all()
    assert scipy.stats.binomtest(int((~kept[:, 0]).sum()), len(RECORDS), 0.3).pvalue > 0.001


def test_a_clip_is_dropped_whole():
    """BAGEL drops its frames one by one, and then has splits of another number than modes."""
    layout = checked([Image(b"", "vit", group=0) for _ in range(4)] + [Text("what is it?", droppable=False)])
    kept = np.array([Dropout(vit=0.5).kept(layout, draws_of(0, 0, record)) for record in RECORDS[:200]])
    assert {tuple(line) for line in kept.tolist()} == {(True,) * 5, (False,) * 4 + (True,)}


@pytest.mark.parametrize("chance", [-0.1, 1.1, float("nan"), "0.5", True])
def test_a_chance_that_is_none_is_refused(chance):
    with pytest.raises(ValueError, match=r"vit must be a probability from 0 to 1"):
        Dropout(vit=chance)
