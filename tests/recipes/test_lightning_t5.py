"""recipes/lightning_t5.py: its rows are those of `examples`, and two processes resume on one as if nothing had happened."""

import csv
import math

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra torch is not installed")
pytest.importorskip("lightning", reason="needs the package lightning")

import recorded
from trainer_rows import losses_of, rows

pytestmark = pytest.mark.train

MODEL = "transformers:T5ForConditionalGeneration", "input_ids", "lightning_t5.py"
SMALL = "--length", 32, "--log_every", 1


def test_two_processes_resume_on_one(tmp_path):
    whole, read = recorded.run(tmp_path / "whole", *MODEL, *SMALL, "--rows", 4, "--steps", 8, "--workers", 2)
    expected = rows(32, 32)["inputs"]
    np.testing.assert_array_equal(read[0]["input_ids"], expected)

    arguments = *SMALL, "--processes", 2, "--rows", 2, "--steps", 5, "--save_every", 3
    first, read = recorded.run(tmp_path / "resumed", *MODEL, *arguments, processes=2)
    for rank in (0, 1):
        steps = expected[:20].reshape(5, 2, 2, 32)  # a rank has two rows in a row
        np.testing.assert_array_equal(read[rank]["input_ids"], steps[:, rank].reshape(10, 32))
    second, read = recorded.run(tmp_path / "resumed", *MODEL, *SMALL, "--rows", 4, "--steps", 8)
    np.testing.assert_array_equal(read[0]["input_ids"], expected[20:])
    assert [*losses_of(first), *losses_of(second)] == [*range(1, 9)]
    assert losses_of(first) | losses_of(second) == pytest.approx(losses_of(whole), abs=2e-4)


def test_the_loss_of_each_denoiser_falls_and_is_told_where_it_has_labels(tmp_path):
    output, _ = recorded.run(tmp_path, *MODEL, *SMALL, "--rows", 8, "--steps", 40, "--learning_rate", 0.01)
    with open(tmp_path / "run/version_0/metrics.csv") as file:
        steps = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    names = {"loss_r1", "loss_r2", "loss_x1", "loss_x2", "loss_s"}
    assert steps[0].keys() == {"epoch", "step", "loss", *names}
    for name in ("loss", *names):
        found = [step[name] for step in steps if not math.isnan(step[name])]
        assert np.mean(found[-5:]) < 0.9 * np.mean(found[:3]), name
    for step, printed in zip(steps, output.splitlines()):
        assert {name for name in names if name in printed} == {name for name in names if not math.isnan(step[name])}
        here = [step[name] for name in names if not math.isnan(step[name])]
        assert min(here) <= step["loss"] <= max(here)
