"""recipes/jax_grain.py: the loss of each denoiser falls, and a run resumes exactly on another number of hosts."""

import re

import pytest

from tests.recipes.recipe import losses_of

for package in ("jax", "flax", "optax", "grain"):
    pytest.importorskip(package, reason=f"{package} is not installed")

pytestmark = pytest.mark.train

NOT_NEEDED = ("tensorflow", "seqio", "t5", "gin", "tensorflow_datasets", "torch")
SMALL = ["--length", 32, "--warmup", 2, "--steps", 12, "--log_every", 1, "--save_every", 4]
ON_TWO = ["--coordinator", "localhost:{port}", "--hosts", 2, "--host", "{rank}"]


def test_a_run_on_two_hosts_that_is_killed_resumes_on_one(run_recipe):
    whole = losses_of(run_recipe("jax_grain.py", *SMALL, "--workers", 1))
    assert list(whole) == list(range(1, 13))
    killed = losses_of(run_recipe("jax_grain.py", *SMALL, "--output", "run", *ON_TWO, processes=2, kill_at="step 6"))
    resumed = losses_of(run_recipe("jax_grain.py", *SMALL, "--output", "run"))
    assert list(resumed) == list(range(5, 13))
    assert killed | resumed == pytest.approx(whole, abs=2e-4)
    assert len({round(loss, 3) for loss in whole.values()}) == 12
    with pytest.raises(AssertionError, match="is of other data"):
        run_recipe("jax_grain.py", *SMALL, "--output", "run", "--length", 48)


def test_the_loss_of_each_denoiser_falls_without_tensorflow(run_recipe):
    output = run_recipe("jax_grain.py", without=NOT_NEEDED)
    lines = re.findall(r"r1 ([\d.]+), r2 ([\d.]+), s ([\d.]+), x1 ([\d.]+), x2 ([\d.]+)", output)
    assert len(lines) == 4
    assert all(float(last) < 0.9 * float(first) for first, last in zip(lines[0], lines[-1]))
