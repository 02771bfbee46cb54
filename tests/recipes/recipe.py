"""A recipe as a module, of which tests call a part."""

import importlib.util
import pathlib

RECIPES = pathlib.Path(__file__).parent.parent.parent / "recipes"
TENSORFLOW = ("seqio", "tensorflow", "tensorflow_datasets", "tensorflow_text")  # which most recipes do without


def imported(name):
    """A recipe as a module, which runs nothing."""
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
