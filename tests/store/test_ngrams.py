"""N-grams of many texts in the documents of a store: all that are there, and no others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.store import index, ngrams
from ul2_tasks.store.ngrams import Texts
from ul2_tasks.store.read import MemoryStore, Store


def of_plain_python(documents: list[list[int]], texts: list[list[int]], n: int) -> set[tuple[int, int, int, int]]:
    """What `Texts.overlaps` finds: (document, text, n-grams, longest run)."""
    found = set()
    for number, document in enumerate(documents):
        for which, text in enumerate(texts):
            needed = min(n, len(text))
            in_document = {tuple(document[at : at + needed]) for at in range(len(document) - needed + 1)}
            shared = sum(tuple(text[at : at + needed]) in in_document for at in range(len(text) - needed + 1))
            runs = [0]
            for start in range(len(document)):
                for place in range(len(text)):
                    pairs = zip(document[start:], text[place:])
                    runs.append(
                        next(
                            (at for at, pair in enumerate(pairs) if pair[0] != pair[1]),
                            min(len(document) - start, len(text) - place),
                        )
                    )
            if shared:
                found.add((number, which, shared, max(runs)))
    return found


def found(texts, n, store) -> list[tuple[int, ...]]:
    every = [zip(*(column.tolist() for column in each)) for each in Texts([np.array(text) for text in texts], n).overlaps(store)]
    return [row for rows in every for row in rows]


def store_of(documents, dtype=np.int32, path=None):
    tokens, lengths = np.array([token for document in documents for token in document], dtype), np.array([*map(len, documents)])
    if path is None:
        return MemoryStore(tokens.astype(np.int32), lengths)
    tokens.tofile(f"{path}.bin")
    path.with_suffix(".idx").write_bytes(index.serialize(lengths, np.dtype(dtype)))
    return Store.open([str(path)])


lists = st.lists(st.integers(0, 2), min_size=1, max_size=14)


@given(
    documents=st.lists(lists, min_size=1, max_size=5),
    texts=st.lists(lists, max_size=4),
    n=st.integers(2, 8),
    part=st.integers(1, 30),
)
def test_all_ngrams_are_found_and_no_others(documents, texts, n, part):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngrams, "_TOKENS_AT_A_TIME", part)
        patch.setattr(ngrams, "_DOCUMENTS_AT_A_TIME", 2)
        got = found(texts, n, store_of(documents))
    assert len({*got}) == len(got)
    assert {*got} == of_plain_python(documents, texts, n)
    assert [row[0] for row in got] == sorted(row[0] for row in got)


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_files_of_each_dtype_are_searched(dtype, tmp_path):
    rng = np.random.default_rng(0)
    documents = [rng.integers(0, 60_000, length).tolist() for length in (40, 0, 3, 500, 90)]
    texts = [
        documents[3][100:140],
        documents[4][:9],
        [*documents[0][5:25], 7, *documents[0][25:33]],
        rng.integers(0, 9, 30).tolist(),
    ]
    texts.append(documents[0][-6:] + documents[3][:7])  # it is across a border of documents alone
    expected = of_plain_python(documents, texts, 13)
    assert {row[:2] for row in expected} == {(3, 0), (4, 1), (0, 2)}
    store = store_of(documents, dtype, tmp_path / "a")
    pairs = Store.open([str(tmp_path / "a")] * 2)
    assert {*found(texts, 13, store)} == expected
    assert {*found(texts, 13, pairs)} == expected | {(document + 5, *others) for document, *others in expected}
