"""Each kind of elements is dropped as often as is said, and what belongs together at once."""

import numpy as np
import pytest
import scipy.stats

from ul2_tasks.image_rows.dropout import Dropout
from ul2_tasks.images.draws import draws_of
from ul2_tasks.images.elements import Image, Text, checked

RECORDS = [f"record {number}" for number in range(2000)]
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
