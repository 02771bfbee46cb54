"""recipes/kauldron_ul2.py: its batches are rows by index, over epochs, too, and a resumed run has the losses of a whole one."""

import importlib

import numpy as np
import pytest

pytest.importorskip("kauldron", reason="needs the package kauldron")

import recorded
from trainer_rows import losses_of, rows

pytestmark = pytest.mark.train

SMALL = {"length": 32, "rows": 4, "log_every": 1, "save_every": 3, "learning_rate": 0.01}


def options(**settings):
    return [part for name, value in {**SMALL, **settings}.items() for part in (f"--{name}", value)]


def test_batches_are_rows_by_index_over_epochs(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(recorded.REPOSITORY / "recipes")
    recipe = importlib.import_module("kauldron_ul2")
    monkeypatch.setattr("sys.argv", ["kauldron_ul2.py", *map(str, options(output=tmp_path, steps=1200, rows=2))])
    data = recipe.new_trainer(recipe.arguments()).train_ds
    batches, examples = iter(data), data.data_source.epochs[0]
    expected = rows(32, 8)
    for start in range(0, 8, 2):
        batch = next(batches)
        for name, values in expected.items():
            np.testing.assert_array_equal(batch[name], values[start : start + 2])
    source, end = data.data_source, len(examples)
    assert len(source) >= 2 * 1200 > end
    for epoch in (0, 1):
        for index in (0, len(examples.epoch(epoch)) - 1):
            found, row = source[epoch * end + index], examples.epoch(epoch)[index]
            assert all(np.array_equal(found[name], row[name]) for name in row)


def test_a_run_resumes(tmp_path):
    whole = losses_of(recorded.output_of(tmp_path / "whole", "kauldron_ul2.py", *options(steps=7)))
    first = losses_of(recorded.output_of(tmp_path / "resumed", "kauldron_ul2.py", *options(steps=4)))
    second = losses_of(recorded.output_of(tmp_path / "resumed", "kauldron_ul2.py", *options(steps=7)))
    assert ([*whole], [*first], [*second]) == ([*range(8)], [*range(5)], [*range(3, 8)])
    assert first | second == pytest.approx(whole, abs=2e-4)
    assert whole[7] < whole[0] - 0.3
