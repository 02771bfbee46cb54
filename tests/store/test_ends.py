"""`WithEnds`: one more token after each document, against a list."""

import struct
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.store.ends import WithEnds
from ul2_tasks.store.index import serialize
from ul2_tasks.store.read import MemoryStore, Store

END = 9
documents = st.lists(st.lists(st.lists(st.integers(10, 99), max_size=6), max_size=3), min_size=1, max_size=12)  # of sequences


def write_pair(prefix, of_pair, dtype) -> None:
    """A pair of documents of any number of sequences, none or empty ones among them."""
    sequences = [sequence for document in of_pair for sequence in document]
    np.array(list(chain(*sequences)), dtype).tofile(f"{prefix}.bin")
    whole = serialize(np.array([len(sequence) for sequence in sequences], np.int64), np.dtype(dtype))
    firsts = np.cumsum([0, *map(len, of_pair)])
    count = struct.pack("<Q", len(firsts))
    arrays = whole[34 : 34 + 12 * len(sequences)]
    with open(f"{prefix}.idx", "wb") as file:
        file.write(whole[:26] + count + arrays + firsts.astype("<i8").tobytes())


@pytest.mark.parametrize("dtype", ["uint16", "int32"])
@given(pairs=st.lists(documents, min_size=1, max_size=3), data=st.data())
def test_of_files_it_is_the_list_with_an_end_after_each_document(tmp_path_factory, dtype, pairs, data):
    folder = tmp_path_factory.mktemp("pairs")
    for number, of_pair in enumerate(pairs):
        write_pair(folder / str(number), of_pair, dtype)
    store = Store.open([str(folder / str(number)) for number in range(len(pairs))])
    check(store, [list(chain(*document)) for of_pair in pairs for document in of_pair], data)


@given(lists=st.lists(st.lists(st.integers(10, 99), min_size=1, max_size=6), min_size=1, max_size=12), data=st.data())
def test_in_memory_it_is_the_same(lists, data):
    check(MemoryStore(np.array(list(chain(*lists)), np.int32), np.array(list(map(len, lists)))), lists, data)


def check(store, lists, data):
    stream = [token for document in lists for token in [*document, END]]
    of_place = [number for number, document in enumerate(lists) for _ in range(len(document) + 1)]
    with_ends = WithEnds(store, END)
    assert (with_ends.documents, with_ends.tokens) == (len(lists), len(stream))
    chunk = st.tuples(*[st.integers(0, len(stream))] * 2).filter(lambda both: both[0] != both[1]).map(sorted)
    chunks = data.draw(st.lists(chunk, max_size=8))
    starts, stops = np.array(chunks, np.int64).reshape(-1, 2).T
    found = with_ends.read_chunks(starts, stops)
    assert found.dtype == np.int32
    assert found.tolist() == [token for start, stop in chunks for token in stream[start:stop]]
    for start, stop in chunks:
        assert with_ends.read_tokens(start, stop).tolist() == stream[start:stop]
        assert with_ends.documents_at(start, stop) == (of_place[start], of_place[stop - 1] + 1)
    for number, document in enumerate(lists):
        start, stop = with_ends.tokens_of(number)
        assert stream[start:stop] == [*document, END]


def test_documents_that_end_in_eod_have_their_ends_as_the_tokens_lie_in_the_file(tmp_path):
    write_pair(tmp_path / "a", [[[10, 11, END]], [[12, END]]], "uint16")
    whole = Store.open([str(tmp_path / "a")])
    for store in (whole, whole.without_last(END).with_last()):
        assert (store.tokens, store.has_ends) == (5, False)
        assert store.read_tokens(0, 5).tolist() == [10, 11, END, 12, END]
        assert store.tokens_of(1) == (3, 5)
