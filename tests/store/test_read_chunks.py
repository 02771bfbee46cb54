"""`read_chunks`: many ranges of tokens at once, as if they were read one after the other."""

import fsspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.store.read import MemoryStore, Store
from ul2_tasks.store.write import PairWriter

PAIRS = [[3, 1, 7], [20], [2, 2, 5, 300]]  # how many tokens each document of each pair has
STREAM = np.random.default_rng(0).integers(0, 65000, sum(map(sum, PAIRS)))


@pytest.fixture(scope="module", params=["uint16", "int32"])
def dtype(request) -> np.dtype:
    return np.dtype(request.param)


@pytest.fixture(scope="module")
def prefixes(tmp_path_factory, dtype) -> list[str]:
    folder, rest = tmp_path_factory.mktemp("pairs"), STREAM
    for number, lengths in enumerate(PAIRS):
        with PairWriter(f"{folder}/{number}.bin", f"{folder}/{number}.idx", dtype) as pair:
            pair.add(rest[: sum(lengths)], np.array(lengths))
        rest = rest[sum(lengths) :]
    return [f"{folder}/{number}" for number in range(len(PAIRS))]


@pytest.fixture(scope="module", params=["local", "memory://", "in memory"])
def store(request, prefixes, dtype):
    if request.param == "in memory":
        return MemoryStore(STREAM.astype(np.int32), np.concatenate(PAIRS))
    if request.param == "local":
        return Store.open(prefixes)
    remote = fsspec.filesystem("memory")
    for number, prefix in enumerate(prefixes):
        for suffix in (".bin", ".idx"):
            with open(prefix + suffix, "rb") as file:
                remote.pipe(f"/chunks/{dtype}/{number}{suffix}", file.read())
    return Store.open([f"memory://chunks/{dtype}/{number}" for number in range(len(PAIRS))])


ranges = st.tuples(*[st.integers(0, len(STREAM))] * 2).filter(lambda both: both[0] != both[1]).map(sorted)


@given(chunks=st.lists(ranges, max_size=30))
def test_chunks_come_one_after_the_other_in_the_order_asked(store, chunks):
    """Also those that are asked for twice, overlap, or span pairs."""
    starts, stops = np.array(chunks, np.int64).reshape(-1, 2).T
    found = store.read_chunks(starts, stops)
    assert found.dtype == np.int32
    assert found.tolist() == [token for start, stop in chunks for token in STREAM[start:stop].tolist()]
