"""The open files of all stores of a process together stay within its limit."""

import gc
import os
import pickle
import resource
from concurrent import futures

import numpy as np
import pytest

from tests.support import write_pair
from ul2_tasks.store import read
from ul2_tasks.store.read import Store

PAIRS, STORES = 24, 13


@pytest.fixture
def few_files():
    """The limit of this process: so few files more than it has open as leave no room for all pairs."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = len(os.listdir("/proc/self/fd")) + 256
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, limits[1]))
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def prefixes(folder, pairs=PAIRS):
    """Document d of pair p has the tokens p, d, and p * d of them."""
    names = [f"{folder}/{pair}" for pair in range(pairs)]
    for pair, name in enumerate(names):
        write_pair(name, [[pair, 0], [pair, 1, 9]])
    return names


def check(store):
    for pair in range(len(store.prefixes)):
        tokens, lengths = store.read_documents(np.array([2 * pair, 2 * pair + 1]))
        assert (tokens.tolist(), lengths.tolist()) == ([pair, 0, pair, 1, 9], [2, 3])
        assert store.documents_at(5 * pair, 5 * pair + 3) == (2 * pair, 2 * pair + 2)


def test_many_stores_share_the_open_files_of_a_process(tmp_path, few_files):
    names = prefixes(tmp_path)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    stores = [Store.open(names) for _ in range(STORES)]
    for store in stores:
        check(store)
    assert len(os.listdir("/proc/self/fd")) - before <= few_files // 4 + few_files // 8
    del stores, store
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_threads_read_stores_of_which_others_close_the_indexes(tmp_path, few_files, monkeypatch):
    monkeypatch.setattr(read, "_MOST_INDEXES", 2)
    stores = [Store.open(prefixes(tmp_path)) for _ in range(4)]
    with futures.ThreadPoolExecutor(4) as threads:
        list(threads.map(check, stores))


def test_a_store_is_pickled_by_its_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = Store.open(prefixes(".", 3))
    check(store)
    state, ended = pickle.dumps(store), pickle.dumps(store.ending_with(9))
    monkeypatch.chdir("/")
    check(pickle.loads(state))
    again = pickle.loads(ended)
    assert (again.end, again.documents, again.tokens) == (9, 6, 15)
    write_pair(tmp_path / "0", [[5]])
    with pytest.raises(ValueError, match=str(tmp_path)):
        pickle.loads(state).read_tokens(0, 15)
