"""Settings for all tests: quiet TensorFlow, hypothesis that draws the same cases everywhere."""

import collections
import gc
import os
import signal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# TensorFlow asks of each op of each function that it prepares whether oneDNN has one like it. That is a sixth of the time of tests
# of pipelines, which have no op of oneDNN's.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import hypothesis
import pytest

# .ci/run sets CI, and so draws twice as many cases.
hypothesis.settings.register_profile("ul2", derandomize=True, deadline=None, max_examples=30 if os.environ.get("CI") else 15)
hypothesis.settings.load_profile("ul2")


@pytest.fixture
def fetched(monkeypatch):
    """How often each block of each cache is fetched, by the cache and the block."""
    from ul2_tasks.store.block_cache import BlockCache

    found, fetch = collections.defaultdict(collections.Counter), BlockCache.fetch

    def counted(cache, block):
        found[cache][block] += 1
        return fetch(cache, block)

    monkeypatch.setattr(BlockCache, "fetch", counted)
    return found


@pytest.fixture
def seeded_torch():
    """PyTorch with one thread, and with the same random numbers in each test."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True, scope="module")
def registries_of_a_file():
    """What the tests of a file register is gone after them, so that other files, in the same process, may use the same names."""
    import seqio

    import ul2_tasks  # noqa: F401 (whose tasks stay)

    registries = (seqio.MixtureRegistry, seqio.TaskRegistry)  # mixtures are of tasks
    before = [set(registry.names()) for registry in registries]
    yield
    for registry, names in zip(registries, before):
        for name in set(registry.names()) - names:
            registry.remove(name)


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write the files of tests/golden again")


def pytest_configure():
    """Tests interrupt programs with SIGINT, which the shell has told those that it runs in the background to ignore.

    The garbage collector need not look at each 700 new objects: a pipeline has some 100,000, TensorFlow most of a million. With
    a threshold of 50,000 it takes 15 % of the tests' time.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.set_threshold(1_000_000)


def pytest_collection_finish():
    """TensorFlow's objects are there for good: the garbage collector need not look at them again and again."""
    gc.freeze()
