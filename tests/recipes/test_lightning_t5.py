"""recipes/lightning_t5.py: its rows are those of `examples`, and two processes resume on one as if nothing had happened."""

import csv

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra torch is not installed")
pytest.importorskip("lightning", reason="needs the package lightning")

import recorded
from recipe import losses_of
from trainer_rows import rows

pytestmark = pytest.mark.train

MODEL = "transformers:T5ForConditionalGeneration", "packed_input_ids", "lightning_t5.py"
SMALL = "--length", 32, "--log_every", 1


def test_two_processes_resume_on_one(run_recipe, tmp_path):
    whole, read = recorded.run(run_recipe, tmp_path / "whole", *MODEL, *SMALL, "--rows", 4, "--steps", 8, "--workers", 2)
    expected = rows(32, 32)["inputs"]
    np.testing.assert_array_equal(read[0]["packed_input_ids"], expected)

    arguments = *SMALL, "--processes", 2, "--rows", 2, "--steps", 5, "--save_every", 3
    first, read = recorded.run(run_recipe, tmp_path / "resumed", *MODEL, *arguments, processes=2)
    for rank in (0, 1):
        steps = expected[:20].reshape(5, 2, 2, 32)  # a rank has two rows in a row
        np.testing.assert_array_equal(read[rank]["packed_input_ids"], steps[:, rank].reshape(10, 32))
    second, read = recorded.run(run_recipe, tmp_path / "resumed", *MODEL, *SMALL, "--rows", 4, "--steps", 8)
    np.testing.assert_array_equal(read[0]["packed_input_ids"], expected[20:])
    assert [*losses_of(first), *losses_of(second)] == [*range(1, 9)]
    assert losses_of(first) | losses_of(second) == pytest.approx(losses_of(whole), abs=2e-4)


def test_the_loss_of_each_denoiser_falls(run_recipe, tmp_path):
    arguments = "--length", 32, "--rows", 8, "--steps", 40, "--learning_rate", 0.01
    output, _ = recorded.run(run_recipe, tmp_path, *MODEL, *arguments)
    with open(tmp_path / "run/version_0/metrics.csv") as file:
        found = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    names = {"loss", "loss_r1", "loss_r2", "loss_x1", "loss_x2", "loss_s"}
    assert [means["step"] for means in found] == [10, 20, 30, 40]
    assert all(names <= means.keys() for means in found)
    for name in names:
        assert found[-1][name] < 0.95 * found[0][name], name
    assert losses_of(output) == pytest.approx({int(means["step"]): means["loss"] for means in found}, abs=1e-4)
