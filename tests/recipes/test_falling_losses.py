"""Recipes of trainers: the loss of each denoiser falls."""

import re

import pytest

from tests.recipes.recipe import losses_of

pytestmark = pytest.mark.train

OF_OTHERS = ("tensorflow", "seqio", "t5", "gin", "tensorflow_datasets")  # packages that a recipe does without


def test_of_t5_loop_whose_table_says_how_it_ran(run_recipe):
    for package in ("torch", "transformers"):
        pytest.importorskip(package, reason="the extra torch is not installed")
    options = ["--workers", 1, "--bf16", "--schedule", "rsqrt"]
    output = run_recipe("t5_loop.py", *options, without=(*OF_OTHERS, "datasets", "jax"))
    losses = [*losses_of(output).values()]
    before, after = re.findall(r"^held out: loss ([\d.]+), loss/r1 ([\d.]+), .*, loss/s ([\d.]+)", output, re.MULTILINE)
    assert losses[-1] < 0.95 * losses[0]
    assert all(float(later) < float(earlier) for earlier, later in zip(before, after))
    assert re.search(r"\n *\d+ +[\d.]+ +[\d.]+% +[\d.]+%\n", output)


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_of_diffusion_by_blocks(run_recipe, framework):
    for package in ("torch", "transformers", *(("jax", "optax") if framework == "jax" else ())):
        pytest.importorskip(package, reason=f"{package} is not installed")
    arguments = ["--kind", "block", "--steps", 40, "--framework", framework]
    losses = [*losses_of(run_recipe("diffusion.py", *arguments, without=OF_OTHERS)).values()]
    assert sum(losses[-8:]) < 0.9 * sum(losses[:8])


OF_JAX = r"r1 ([\d.]+), r2 ([\d.]+), s ([\d.]+), x1 ([\d.]+), x2 ([\d.]+)"
OF_IMAGES = r"loss/r1 ([\d.]+), loss/r2 ([\d.]+), loss/s ([\d.]+), loss/x1 ([\d.]+), loss/x2 ([\d.]+), images (?:[4-9]\d|\d{3})"
OF_TRAINER = r"eval_loss/r1 ([\d.]+), eval_loss/r2 ([\d.]+), eval_loss/s ([\d.]+)"
RECIPES = {  # packages, arguments, packages that it does without, the losses of all denoisers, and how often they are printed
    "jax_grain.py": (("jax", "flax", "optax", "grain"), [], (*OF_OTHERS, "torch"), OF_JAX, 4),
    "images_t5gemma2.py": (("torch", "transformers", "PIL"), ["--steps", 20, "--workers", 1], OF_OTHERS[:2], OF_IMAGES, 2),
    "t5_trainer.py": (
        ("torch", "transformers", "accelerate"),
        [
            *(
                "--use_cpu",
                "--pack",
                "--length",
                32,
                "--eval_rows",
                24,
                "--warmup",
                2,
                "--steps",
                12,
                "--log_every",
                1,
                "--save_every",
                4,
            )
        ],
        (),
        OF_TRAINER,
        3,
    ),
}


@pytest.mark.parametrize("name", RECIPES)
def test_of_each_denoiser(run_recipe, name):
    packages, arguments, without, pattern, count = RECIPES[name]
    for package in packages:
        pytest.importorskip(package, reason=f"{package} is not installed")
    lines = re.findall(pattern, run_recipe(name, *arguments, without=without))
    assert len(lines) == count
    assert all(float(last) < float(first) for first, last in zip(lines[0], lines[-1]))
