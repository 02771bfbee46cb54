"""Settings for all tests: quiet TensorFlow, hypothesis that draws the same cases everywhere, short buffers."""

import collections
import gc
import os
import signal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# TensorFlow asks of each op of each function that it prepares whether oneDNN has one like it. That is a sixth of the time of tests
# of pipelines, which have no op of oneDNN's.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import hypothesis
import new_process
import pytest
from sizes import SMALL, leave_graphs, shorten

# .ci/run sets CI, and so draws twice as many cases.
hypothesis.settings.register_profile("ul2", derandomize=True, deadline=None, max_examples=30 if os.environ.get("CI") else 15)
hypothesis.settings.load_profile("ul2")


@pytest.fixture(autouse=True, scope="session")
def small_buffers():
    """Also in the processes of `new_process`; other processes have the package's own."""
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        patch.setattr(new_process, "ATTRIBUTES", SMALL)
        yield


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


@pytest.fixture(autouse=True, scope="session")
def graphs_as_built():
    """TensorFlow neither rewrites the graphs of pipelines, once for each iterator, nor those of functions, nor tunes pipelines.

    Rewriting takes a fourth of the time of tests of pipelines.
    Tuning is done by a thread, for which an iterator waits when it ends: up to a minute if it is old, as those are that the
    garbage collector finds (docs/help/troubleshooting.md).

    No example depends on these. What a saved iterator holds does: tests that save and resume one make it by
    `support.iterate`, whose graph is rewritten. The programs of `new_process` make all as users do.
    """
    with pytest.MonkeyPatch.context() as patch:
        leave_graphs(patch)
        yield


@pytest.fixture(autouse=True, scope="module")
def registries_of_a_file():
    """What the tests of a file register is gone after them, so that other files, in the same process, may use the same names."""
    import seqio

    import ul2_tasks  # noqa: F401 (whose tasks stay)

    with pytest.MonkeyPatch.context() as patch:
        for registry in (seqio.TaskRegistry, seqio.MixtureRegistry):
            patch.setattr(registry, "_REGISTRY", {name: registry.get(name) for name in registry.names()})
        yield


@pytest.fixture
def quick_advice(monkeypatch):
    """Advice is measured with fewer examples, which takes seconds otherwise: for tests that do not ask how good it is."""
    monkeypatch.setattr("ul2_tasks.mixtures.advice.POOL", 128)
    monkeypatch.setattr("ul2_tasks.mixtures.advice.POOLS", 1)


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write the files of tests/golden again")


def pytest_configure():
    """All processes of tests share one server of `new_process`: the first of them, which starts the others, starts it.

    Tests interrupt programs with SIGINT, which the shell has told those that it runs in the background to ignore.

    The garbage collector need not look at each 700 new objects: a pipeline has some 100,000, TensorFlow most of a million. With
    a threshold of 50,000 it takes 15 % of the tests' time.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.set_threshold(1_000_000)
    os.environ[new_process.SHARED] = new_process.address()


def pytest_collection_finish():
    """TensorFlow's objects are there for good: the garbage collector need not look at them again and again."""
    gc.freeze()
