"""Settings for all tests: quiet TensorFlow, hypothesis that draws the same cases everywhere, long files first."""

import gc
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import hypothesis

hypothesis.settings.register_profile("ul2", derandomize=True, deadline=None, max_examples=30)
hypothesis.settings.load_profile("ul2")

# The files that take longest, the longest first. Files are handed out one by one, so that the last ones should be short.
LONG = ("torch_dataset", "report", "cache", "export", "tutorial", "torch_training", "statistics", "t5x", "command_line", "readme")


def pytest_collection_modifyitems(items):
    names = [f"test_{name}.py" for name in LONG]
    items.sort(key=lambda item: names.index(item.path.name) if item.path.name in names else len(names))


def pytest_collection_finish():
    """TensorFlow's objects, most of a million, are there for good: the garbage collector need not look at them again and again."""
    gc.freeze()
