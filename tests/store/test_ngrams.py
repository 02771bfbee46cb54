"""N-grams of many texts in the documents of a store: all that are there, and no others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ul2_tasks.store import ngrams
from ul2_tasks.store.ngrams import Texts
from ul2_tasks.store.read import MemoryStore


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
        tokens = np.array([token for document in documents for token in document], np.int32)
        got = found(texts, n, MemoryStore(tokens, np.array([*map(len, documents)])))
    assert len({*got}) == len(got)
    assert {*got} == of_plain_python(documents, texts, n)
    assert [row[0] for row in got] == sorted(row[0] for row in got)
