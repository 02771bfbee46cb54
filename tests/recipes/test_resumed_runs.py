"""Recipes of trainers: a run of two processes that is killed resumes on one with the losses of a run that was not."""

import pytest

from tests.recipes.recipe import losses_of

pytestmark = pytest.mark.train

COMMON = ["--length", 32, "--warmup", 2, "--steps", 12, "--log_every", 1, "--save_every", 4]
OF_TORCH = ("torch", "transformers", "accelerate")
ON_TWO = ["--coordinator", "localhost:{port}", "--hosts", 2, "--host", "{rank}"]
RUNS = {  # packages, arguments, those of two processes, and those of the run that resumes
    "t5_loop.py": (OF_TORCH, ["--rows", 8, "--microbatch", 2], [], ["--microbatch", 4]),
    "t5_loop.py, packed": (OF_TORCH, ["--rows", 8, "--microbatch", 2, "--pack"], [], ["--microbatch", 4]),
    "t5_trainer.py": (OF_TORCH, ["--use_cpu", "--pack", "--eval_rows", 24], [], ["--microbatch", 4]),
    "jax_grain.py": (("jax", "flax", "optax", "grain"), [], ON_TWO, []),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_two_processes_that_is_killed_resumes_on_one(run_recipe, name):
    packages, own, of_two, of_resumed = RUNS[name]
    for package in packages:
        pytest.importorskip(package, reason=f"{package} is not installed")
    recipe, arguments = name.partition(",")[0], [*COMMON, *own]
    whole = losses_of(run_recipe(recipe, *arguments, "--output", "whole"))
    assert list(whole) == list(range(1, 13))
    killed = losses_of(run_recipe(recipe, *arguments, "--output", "run", *of_two, processes=2, kill_at="step 6"))
    resumed = losses_of(run_recipe(recipe, *arguments, "--output", "run", *of_resumed))
    assert list(resumed) == list(range(5, 13))
    assert killed | resumed == pytest.approx(whole, abs=2e-4)
    assert len({round(loss, 3) for loss in whole.values()}) == 12
    with pytest.raises(AssertionError, match=r"another pipeline|other data"):
        run_recipe(recipe, *arguments, "--output", "run", "--steps", 14, "--length", 48)
