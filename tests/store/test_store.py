"""Pairs of `.bin` and `.idx` files: Megatron's format byte for byte, written, read and refused."""

import itertools
import pathlib
import pickle
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.store.index import DTYPES
from ul2_tasks.store.read import MemoryStore, Store
from ul2_tasks.store.write import PairWriter

DOCUMENTS = [[5, 6, 7], [8, 9], [10]]


def write(prefix, documents=DOCUMENTS, dtype="uint16"):
    with PairWriter(f"{prefix}.bin", f"{prefix}.idx", np.dtype(dtype)) as pair:
        for document in documents:
            pair.add(np.array(document, np.int32), np.array([len(document)]))
    return pair


def read(store: Store, numbers) -> list[list[int]]:
    tokens, lengths = store.read_documents(np.array(numbers, np.int64))
    return [part.tolist() for part in np.split(tokens, np.cumsum(lengths)[:-1])]


def test_golden_bytes(tmp_path):
    """Three documents, as the table in `index` has them."""
    entries = write(tmp_path / "a").entries
    assert (tmp_path / "a.bin").read_bytes() == struct.pack("<6H", 5, 6, 7, 8, 9, 10)
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 3, 4) + struct.pack("<3i", 3, 2, 1)
    index += struct.pack("<3q", 0, 6, 10) + struct.pack("<4q", 0, 1, 2, 3)
    assert (tmp_path / "a.idx").read_bytes() == index
    assert [entry["bytes"] for entry in entries.values()] == [12, len(index)]


def test_files_that_were_rewritten_with_fewer_documents_are_refused(tmp_path):
    write(tmp_path / "a")
    store = pickle.dumps(Store.open([f"{tmp_path}/a"]))
    write(tmp_path / "a", DOCUMENTS[:1])
    with pytest.raises(ValueError, match=f"{tmp_path}"):
        read(pickle.loads(store), [2])


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32"])
def test_megatrons_builder_writes_the_same_bytes_and_its_reader_the_same_documents(tmp_path, dtype):
    indexed_dataset = pytest.importorskip("megatron.core.datasets.indexed_dataset", reason="needs megatron-core and torch")
    import torch

    rng = np.random.default_rng(0)
    documents = [rng.integers(0, min(60000, np.iinfo(dtype).max + 1), rng.integers(1, 300)).tolist() for _ in range(200)]
    write(tmp_path / "ours", documents, dtype)
    builder = indexed_dataset.IndexedDatasetBuilder(str(tmp_path / "theirs.bin"), dtype=np.dtype(dtype).type)
    for document in documents:
        builder.add_document(torch.tensor(document), [len(document)])
    builder.finalize(str(tmp_path / "theirs.idx"))
    for suffix in ("bin", "idx"):
        assert (tmp_path / f"ours.{suffix}").read_bytes() == (tmp_path / f"theirs.{suffix}").read_bytes()
    theirs = indexed_dataset.IndexedDataset(str(tmp_path / "ours"))
    assert [theirs[number].tolist() for number in range(len(theirs))] == documents
    assert read(Store.open([str(tmp_path / "theirs")]), range(200)) == documents


@given(st.lists(st.lists(st.integers(0, 65499), max_size=20), min_size=1, max_size=20), st.integers(1, 4), st.data())
def test_what_is_written_is_read_in_any_order_and_as_one_stream(tmp_path_factory, documents, pairs, data):
    folder = tmp_path_factory.mktemp("pairs")
    shares = [documents[pair::pairs] for pair in range(pairs)]
    for pair, share in enumerate(shares):
        write(folder / f"{pair}", share)
    store = Store.open([str(folder / f"{pair}") for pair, share in enumerate(shares) if share])
    in_order = [document for share in shares for document in share]
    assert (store.documents, store.tokens) == (len(documents), sum(map(len, documents)))
    numbers = data.draw(st.permutations(range(len(documents))))
    assert read(store, numbers) == [in_order[number] for number in numbers]
    stream = [token for document in in_order for token in document]
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(stream))] * 2)))
    assert store.read_tokens(start, stop).tolist() == stream[start:stop]
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(documents))] * 2)))
    memory = MemoryStore(np.array(stream, np.int32), np.array([len(document) for document in in_order]))
    for each in (store, memory):
        assert each.document_lengths(first, last).tolist() == [len(document) for document in in_order[first:last]]
        with pytest.raises(IndexError, match="documents"):
            each.document_lengths(first, len(documents) + 1)


def test_an_id_beyond_the_dtype_is_refused_and_not_wrapped(tmp_path):
    for id in (65536, -1):
        with pytest.raises(ValueError, match=str(id)):
            write(tmp_path / "a", [[id]])
    pair = PairWriter(str(tmp_path / "b.bin"), str(tmp_path / "b.idx"), np.dtype(np.int32))
    with pytest.raises(ValueError, match="2147483648"):
        pair.add(np.zeros([0], np.int32), np.array([1 << 31]))


def index(lengths, firsts, pointers=None, code=8):
    """An index of uint16 as the table in `index` has it."""
    pointers = np.cumsum([0, *lengths[:-1]]) * 2 if pointers is None else pointers
    header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), len(firsts))
    return header + np.array(lengths, "<i4").tobytes() + np.array(pointers, "<i8").tobytes() + np.array(firsts, "<i8").tobytes()


GOOD = index([3, 2, 1], [0, 1, 2, 3])
# What is no index of the twelve bytes of DOCUMENTS, and below what Megatron's reader takes, though it does not lie back to back.
REFUSED = {
    "an index of another .bin": index([1, 1], [0, 1, 2]),
    "multi-modal": GOOD + bytes(3),
    "floats": index([3, 2, 1], [0, 1, 2, 3], code=7),
    "no index": b"x" * 100,
    "an empty index": b"",
    "an index cut": GOOD[:-8],
    "documents that do not begin at the first sequence": index([3, 2, 1], [1, 2, 3]),
    "documents that do not end at the last one": index([3, 2, 1], [0, 1, 2]),
    "documents in another order": index([3, 2, 1], [0, 2, 1, 3]),
    "a document before the first": index([3, 2, 1], [0, -1, 3]),
    "a document behind the last": index([3, 2, 1], [0, 4, 3]),
    "not even where documents begin": index([3, 2, 1], []),
    "sequences that overlap": index([3, 3, 1], [0, 1, 2, 3], [0, 4, 10]),
    "sequences with a gap": index([3, 1, 1], [0, 1, 2, 3], [0, 6, 10]),
    "a sequence that begins before": index([3, 2, 1], [0, 1, 2, 3], [0, -2, 10]),
    "a sequence of fewer than none": index([3, -1, 4], [0, 1, 2, 3], [0, 6, 4]),
    "a sequence within a token": index([3, 2, 1], [0, 1, 2, 3], [0, 7, 10]),
}


@pytest.mark.parametrize("name", [*REFUSED, "a .bin cut"])
def test_what_is_no_pair_that_lies_back_to_back_is_refused_by_its_name(tmp_path, name):
    write(tmp_path / "a")
    assert (tmp_path / "a.idx").read_bytes() == GOOD
    (tmp_path / "a.idx").write_bytes(REFUSED.get(name, GOOD))
    (tmp_path / "a.bin").write_bytes((tmp_path / "a.bin").read_bytes()[: None if name in REFUSED else -1])
    with pytest.raises(ValueError, match=rf"{tmp_path}/a\.(idx|bin)"):
        Store.open([str(tmp_path / "a")])


def as_megatron_reads(prefix) -> list[list[int]]:
    """The documents of a pair that have a sequence, each the values that the pointers and lengths of its sequences name."""
    content, of_bin = pathlib.Path(f"{prefix}.idx").read_bytes(), pathlib.Path(f"{prefix}.bin").read_bytes()
    dtype, sequences, entries = np.dtype(DTYPES[content[17]]), *struct.unpack_from("<QQ", content, 18)
    lengths = np.frombuffer(content, "<i4", sequences, 34)
    pointers, firsts = (
        np.frombuffer(content, "<i8", *at) for at in ((sequences, 34 + 4 * sequences), (entries, 34 + 12 * sequences))
    )
    read = [np.frombuffer(of_bin, dtype, length, pointer).tolist() for length, pointer in zip(lengths, pointers)]
    return [list(itertools.chain(*read[first:stop])) for first, stop in itertools.pairwise(firsts) if stop > first]


def test_of_any_index_either_the_documents_are_megatrons_or_it_is_refused(tmp_path):
    draw = np.random.default_rng(0)
    taken = 0
    for _ in range(500):
        lengths = draw.integers(0, 4, 5)
        firsts = np.sort([*range(6), *draw.integers(0, 6, draw.integers(0, 3))])
        draw.integers(0, 9, lengths.sum()).astype(np.uint16).tofile(tmp_path / "a.bin")
        content = bytearray(index(lengths, firsts))
        for _ in range(draw.integers(0, 3)):
            content[draw.integers(0, len(content))] = draw.integers(0, 8)
        (tmp_path / "a.idx").write_bytes(bytes(content[: len(content) - draw.integers(0, 30) // 28]))
        try:
            store = Store.open([str(tmp_path / "a")])
        except ValueError:
            continue
        taken += 1
        expected = as_megatron_reads(tmp_path / "a")
        assert [tokens.tolist() for tokens in store.read_each(np.arange(store.documents))] == expected
        assert store.read_tokens(0, store.tokens).tolist() == list(itertools.chain(*expected))
    assert 100 < taken < 400


@pytest.mark.parametrize(("at", "value"), [(34, -3), (46, 8), (54, 1 << 40)])
def test_an_index_that_is_altered_after_it_was_checked_is_refused_where_it_is_read(tmp_path, at, value):
    """A length, or a pointer of the first or the second document."""
    write(tmp_path / "a")
    content = bytearray((tmp_path / "a.idx").read_bytes())
    content[at : at + (4 if at == 34 else 8)] = struct.pack("<i" if at == 34 else "<q", value)
    (tmp_path / "a.idx").write_bytes(bytes(content))
    store = Store([str(tmp_path / "a")], [3], [6])
    for numbers in (np.arange(3), np.arange(30) % 3):
        with pytest.raises(ValueError, match=r"a\.idx"):
            store.read_documents(numbers)


def test_a_text_without_tokens_is_no_document_and_one_of_several_sequences_is_refused(tmp_path):
    """As Megatron's tools write an empty text, and texts with --split-sentences."""
    write(tmp_path / "a")
    (tmp_path / "a.idx").write_bytes(index([3, 2, 1], [0, 0, 1, 2, 2, 3, 3]))
    assert read(Store.open([str(tmp_path / "a")]), [0, 1, 2]) == DOCUMENTS
    (tmp_path / "a.idx").write_bytes(index([3, 2, 1], [0, 2, 3]))
    with pytest.raises(ValueError, match="--split-sentences"):
        Store.open([str(tmp_path / "a")])


def test_documents_that_end_with_a_token_are_read_without_it_and_whole_with_it(tmp_path):
    with PairWriter(f"{tmp_path}/a.bin", f"{tmp_path}/a.idx", np.dtype(np.uint16), end=9) as pair:
        pair.add(np.array([5, 6, 7]), np.array([1, 0, 2]))
    store = Store.open([str(tmp_path / "a")]).ending_with(9)
    assert read(store, [0, 1, 2]) == [[5], [], [6, 7]]
    assert store.whole.read_tokens(0, 6).tolist() == [5, 9, 9, 6, 7, 9]
    assert store.whole.tokens_of(2) == (3, 6)
    for documents in ([[5, 9], []], [[5, 9], [6]]):
        write(tmp_path / "b", documents)
        with pytest.raises(ValueError, match=r"document 1 of .*b must end with 9"):
            read(Store.open([str(tmp_path / "b")]).ending_with(9), [0, 1])


@pytest.mark.parametrize(
    "anew", [[[5, 6, 7], [8, 9]], [*DOCUMENTS, [1]], [[5, 6], [7, 8, 9], [10, 11]]], ids=["less", "more", "other"]
)
@pytest.mark.parametrize("has_ends", [False, True])
def test_files_that_are_written_anew_after_they_were_opened_are_not_mixed_with_the_old_ones(tmp_path, anew, has_ends):
    for name in "ab":
        write(tmp_path / name)
    store = Store.open([str(tmp_path / name) for name in "ab"])
    store = store.ending_with(7) if has_ends else store
    write(tmp_path / "b", anew)
    store.read_tokens(0, 2)
    with pytest.raises(ValueError, match=f"{tmp_path}/b"):
        store.read_tokens(0, store.tokens)
