"""recipes/lightning_t5.py: its rows are those of `examples`, and two processes resume on one as if nothing had happened."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra torch is not installed")
pytest.importorskip("lightning", reason="needs the package lightning")

from tests.recipes import recorded
from tests.recipes.recipe import losses_of
from tests.recipes.trainer_rows import rows

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
