"""recipes/t5_trainer.py: losses fall for each denoiser, and a run that is killed resumes with the losses of one that was not."""

import re

import pytest

from tests.recipes.recipe import losses_of

for package in ("torch", "transformers", "accelerate"):
    pytest.importorskip(package, reason="the extra torch is not installed")

pytestmark = pytest.mark.train

SMALL = ["--use_cpu", "--pack", "--length", 32, "--eval_rows", 24, "--warmup", 2, "--steps", 12]
SMALL += ["--log_every", 1, "--save_every", 4]


def test_a_run_of_two_processes_that_is_killed_resumes_on_one(run_recipe):
    output = run_recipe("t5_trainer.py", *SMALL, "--output", "whole")
    whole = losses_of(output)
    assert list(whole) == list(range(1, 13))
    killed = losses_of(run_recipe("t5_trainer.py", *SMALL, processes=2, kill_at="step 6"))
    resumed = losses_of(run_recipe("t5_trainer.py", *SMALL, "--microbatch", 4))
    assert list(resumed) == list(range(5, 13))
    assert killed | resumed == pytest.approx(whole, abs=2e-4)
    evaluated = re.findall(r"eval_loss/r1 ([\d.]+), eval_loss/r2 ([\d.]+), eval_loss/s ([\d.]+)", output)
    assert len(evaluated) == 3
    with pytest.raises(AssertionError, match="the state was saved by another pipeline"):
        run_recipe("t5_trainer.py", *SMALL, "--steps", 14, "--length", 48)
    assert all(float(last) < float(first) for first, last in zip(evaluated[0], evaluated[-1]))
