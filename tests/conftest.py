"""Settings for all tests: quiet TensorFlow, hypothesis that draws the same cases everywhere, short buffers, long files first."""

import functools
import gc
import os
import signal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import hypothesis
import new_process
import pytest

import ul2_tasks

hypothesis.settings.register_profile("ul2", derandomize=True, deadline=None, max_examples=30)
hypothesis.settings.load_profile("ul2")

# A pipeline of the package fills its blocks and shuffle buffers before its first example: for a mixture of five denoisers ten
# seconds, and many passes over the embedded corpus. Nearly all tests read little, and hold for any sizes.
SMALL = {"ul2_tasks.denoising.preprocessors.TOKENS_PER_BLOCK": 1 << 13, "ul2_tasks.tasks.providers.SHUFFLED_TOKENS": 1 << 15}
RELEASED = {name: functools.reduce(getattr, name.split(".")[1:], ul2_tasks) for name in SMALL}


@pytest.fixture(autouse=True, scope="session")
def small_buffers():
    """Also in the processes of `new_process`; other processes have the package's own."""
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        patch.setattr(new_process, "ATTRIBUTES", SMALL)
        yield


@pytest.fixture(scope="module")
def released_buffers(small_buffers):
    """The package's own sizes, for the tests of a file: for what is compared with that of another process."""
    with pytest.MonkeyPatch.context() as patch:
        release(patch)
        yield


def shorten(patch: pytest.MonkeyPatch) -> None:
    for name, value in SMALL.items():
        patch.setattr(name, value)


def release(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(new_process, "ATTRIBUTES", {})
    for name, value in RELEASED.items():
        patch.setattr(name, value)


# The files that take longest, the longest first. Files are handed out one by one, so that the last ones should be short.
LONG = [
    "t5x",
    "mixture",
    "providers",
    "cache",
    "torch_dataset",
    "torch_numbers",
    "tutorial",
    "preprocessors",
    "command_line",
    "collator",
    "sources",
    "torch_training",
    "own_corpora",
    "converters",
    "hugging_face_features",
    "statistics",
    "export",
    "samples",
    "readme",
    "causal",
]


def pytest_configure():
    """Tests interrupt programs with SIGINT, which the shell has told those that it runs in the background to ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    names = [f"test_{name}.py" for name in LONG]
    items.sort(key=lambda item: names.index(item.path.name) if item.path.name in names else len(names))


def pytest_collection_finish():
    """TensorFlow's objects, most of a million, are there for good: the garbage collector need not look at them again and again."""
    gc.freeze()
