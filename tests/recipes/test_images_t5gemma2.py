"""recipes/images_t5gemma2.py: the loss of each denoiser falls, and images are read."""

import re

import pytest

for package in ("torch", "transformers", "PIL"):
    pytest.importorskip(package, reason="the extras torch and images are not installed")

pytestmark = pytest.mark.train


def test_the_loss_of_each_denoiser_falls(run_recipe):
    output = run_recipe("images_t5gemma2.py", "--steps", 20, "--workers", 1, without=("tensorflow", "seqio", "gin"))
    lines = re.findall(
        r"loss/r1 ([\d.]+), loss/r2 ([\d.]+), loss/s ([\d.]+), loss/x1 ([\d.]+), loss/x2 ([\d.]+), images (\d+)", output
    )
    assert len(lines) == 2
    *losses, images = zip(*lines)
    assert all(float(last) < 0.9 * float(first) for first, last in losses)
    assert min(map(int, images)) > 40
