"""The recipe of a staged t5x run: stopped on two processes and resumed on one, it is the run that nothing interrupts."""

import importlib.util
import re

import pytest

pytestmark = [
    pytest.mark.t5x,
    pytest.mark.skipif(
        importlib.util.find_spec("t5x") is None,
        reason="t5x is not importable; put checkouts of t5x, airio and jestimator on PYTHONPATH (docs/guides/train_with_t5x.md)",
    ),
]


def numbers_of(output) -> dict[tuple[int, str], tuple[float, float]]:
    """Loss and tokens in a step of each corpus and denoiser, and of all, by the step and the name."""
    found = {}
    for part in re.split(r"^step (?=\d+:)", output, flags=re.MULTILINE)[1:]:
        step = int(part.partition(":")[0])
        found[step, ""] = float(re.search(r"loss ([\d.]+)", part)[1]), 0.0
        for name, loss, tokens in re.findall(r"^  (\w+) +loss ([\d.]+) +tokens in a step ([\d.]+)$", part, re.MULTILINE):
            found[step, name] = float(loss), float(tokens)
    return found


def test_a_run_on_two_processes_and_then_on_one_has_the_losses_of_an_uninterrupted_one(run_recipe):
    parts = numbers_of(run_recipe("t5x_staged.py", "--output", "parts"))
    whole = numbers_of(run_recipe("t5x_staged.py", "--output", "whole", "--launches", "1:16"))
    assert parts.keys() == whole.keys()
    assert {name for step, name in whole if step == 8} >= {"", "web_corpus", "best_corpus", "r1", "s"}
    for key, (loss, tokens) in whole.items():
        assert parts[key] == (pytest.approx(loss, rel=1e-4), tokens), key
    assert whole[16, ""][0] < whole[8, ""][0] < 9, "ln 4096 is 8.3"
    of_best = [whole[step, "best_corpus"][1] / whole[step, "web_corpus"][1] for step in (8, 16)]
    assert of_best[0] < 0.4 < of_best[1], "a ninth, then as many"
