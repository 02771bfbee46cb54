"""recipes/t5_loop.py: the loss falls, and a run that is killed resumes with the losses of one that was not."""

import re

import pytest

from tests.recipes.recipe import losses_of

pytest.importorskip("torch", reason="the extra torch is not installed")
pytest.importorskip("transformers", reason="the extra torch is not installed")

pytestmark = pytest.mark.train

SMALL = ["--length", 32, "--rows", 8, "--microbatch", 2, "--warmup", 2, "--log_every", 1, "--save_every", 4]
NOT_NEEDED = ("tensorflow", "seqio", "t5", "gin", "tensorflow_datasets", "datasets", "jax")


@pytest.mark.parametrize("pack", [[], ["--pack"]], ids=["padded", "packed"])
def test_a_run_of_two_processes_that_is_killed_resumes_on_one(run_recipe, pack):
    arguments = [*SMALL, "--steps", 12, *pack]
    whole = losses_of(run_recipe("t5_loop.py", *arguments, without=NOT_NEEDED))
    assert list(whole) == list(range(1, 13))
    killed = losses_of(run_recipe("t5_loop.py", *arguments, "--output", "run", processes=2, kill_at="step 6"))
    resumed = run_recipe("t5_loop.py", *arguments, "--output", "run", "--microbatch", 4)
    assert list(losses_of(resumed)) == list(range(5, 13))
    assert killed | losses_of(resumed) == pytest.approx(whole, abs=2e-4)
    with pytest.raises(AssertionError, match="the state was saved by another pipeline"):
        run_recipe("t5_loop.py", *arguments, "--output", "run", "--length", 48)
    assert len({round(loss, 3) for loss in whole.values()}) == 12


def test_the_loss_falls_and_the_table_says_how_it_ran(run_recipe):
    output = run_recipe("t5_loop.py", "--workers", 1, "--bf16", "--schedule", "rsqrt")
    losses = [*losses_of(output).values()]
    before, after = re.findall(r"^held out: loss ([\d.]+), loss/r1 ([\d.]+), .*, loss/s ([\d.]+)", output, re.MULTILINE)
    assert losses[-1] < 0.95 * losses[0]
    assert all(float(later) < float(earlier) for earlier, later in zip(before, after))
    assert re.search(r"\n *\d+ +[\d.]+ +[\d.]+% +[\d.]+%\n", output)
