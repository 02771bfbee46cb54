"""A recipe as a module, of which tests call a part; and what those that adapt a decoder-only checkpoint print."""

import importlib.util
import pathlib
import re

RECIPES = pathlib.Path(__file__).parent.parent.parent / "recipes"
TENSORFLOW = ("seqio", "tensorflow", "tensorflow_datasets", "tensorflow_text")  # which most recipes do without


def imported(name):
    """A recipe as a module, which runs nothing."""
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_adapted(printed, origin, *, sentinel):
    """The weights are where they belong, the loss of each denoiser falls, and a text is filled in. Returns the masked text."""
    differences = re.findall(rf"differs from {origin} by (\S+)", printed)
    assert len(differences) == 2
    assert max(map(float, differences)) < 1e-5
    losses = re.findall(r"held-out loss of (\w+): (\S+) before, (\S+) after", printed)
    assert [name for name, *_ in losses] == ["r1", "r2", "s", "x1", "x2"]
    assert all(float(after) < float(before) - 0.5 for _, before, after in losses), printed
    masked, expected, filled = (
        re.search(rf"^{name}: +'(.*)'$", printed, re.MULTILINE)[1] for name in ("masked", "expected", "filled in")
    )
    assert masked.count(sentinel) == expected.count(sentinel) == filled.count("[")
    return masked


def losses_of(output: str) -> dict[int, float]:
    """The losses of steps that a recipe printed, "step 3: loss 8.1, ..", each to all its digits."""
    return {int(step): float(loss) for step, loss in re.findall(r"^step (\d+): loss ([\d.]+)", output, re.MULTILINE)}
