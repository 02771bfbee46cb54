"""`ul2 find`: when a run is fed a document, or a text."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support import mistral_model
from ul2_tasks import MemoryDataSource, mix, register
from ul2_tasks.inspect import find as module
from ul2_tasks.inspect.find import Place, find, occurrences, pattern_of, place_of, places_of, seen
from ul2_tasks.inspect.run import Run, stores
from ul2_tasks.sources.memory import embedded_documents
from ul2_tasks.store.read import MemoryStore

LENGTHS = {"inputs": 64, "targets": 64}
TEXTS = [" ".join(text.split()) for text in embedded_documents()[:60]]
ODD = ["日本語の文章です。我能吞下玻璃而不伤身体。", "Ça\tva?\n\nOù  est-ce 👨‍👩‍👧 que\u00a0c'est", "x"]
VOCABULARIES = {"default": "default", "bytes": "bytes", "mistral": mistral_model()}


def source() -> MemoryDataSource:
    return MemoryDataSource(lambda: [*TEXTS, *ODD], validation=0)


@pytest.fixture(scope="module")
def run() -> Run:
    return Run(register("found", source()), LENGTHS, batch_size=16, first_step=100)


def corpus_of(name: str, vocabulary: str):
    """Registers the documents with a vocabulary. Returns their corpus and its store."""
    mixture = register(name, source(), vocabulary=vocabulary)
    ((corpus, store),) = stores(Run(mixture, LENGTHS).examples()).values()
    return corpus, store


def tokens_of(store, document: int) -> tuple[int, ...]:
    return tuple(store.read_tokens(*store.tokens_of(document)).tolist())


def found_places(corpus, store, text: str) -> list[Place]:
    return list(places_of(corpus, store, pattern_of(corpus, text), lambda more: None))


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_a_text_is_found_wherever_it_was_cut_out(vocabulary):
    corpus, store = corpus_of(f"cut_{vocabulary}", VOCABULARIES[vocabulary])
    assert store.documents == len(TEXTS) + len(ODD)
    numbers = {tokens_of(store, document): document for document in range(store.documents)}
    in_store = [numbers[tuple(corpus.tokenizer.encode(text))] for text in TEXTS]

    @given(document=st.integers(0, len(TEXTS) - 1), start=st.floats(0, 1), length=st.integers(20, 200))
    def check(document, start, length):
        start = int(start * (len(TEXTS[document]) - 20))
        cut = TEXTS[document][start : start + length]
        assume(len(cut.split()) > 2)
        assert in_store[document] in {place.document for place in found_places(corpus, store, cut)}

    check()


def test_what_is_found_is_the_text_and_all_of_it_is_found():
    corpus, store = corpus_of("exact", "bytes")
    documents = [corpus.tokenizer.decode(tokens_of(store, document)) for document in range(store.documents)]
    for text in ("the", "returns a", " is a ", "語の文", "\n\nOù  est-ce", "nowhere to be found"):
        expected = [number for number, document in enumerate(documents) for _ in re.findall(f"(?={re.escape(text)})", document)]
        assert [place.document for place in found_places(corpus, store, text)] == expected
        assert bool(expected) == ("nowhere" not in text)


@given(
    tokens=st.lists(st.integers(1, 3), min_size=1, max_size=60),
    pattern=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    at_a_time=st.integers(1, 70),
)
def test_a_sequence_of_tokens_is_found_wherever_it_is(tokens, pattern, at_a_time):
    store = MemoryStore(np.array(tokens, np.int32), np.array([len(tokens)]))
    expected = [at for at in range(len(tokens)) if tokens[at : at + len(pattern)] == pattern]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_AT_A_TIME", at_a_time)
        looked = []
        assert list(occurrences(store, np.array(pattern, np.int32), looked.append)) == expected
    assert sum(looked) == max(0, len(tokens) - len(pattern) + 1)


def test_a_document_of_several_corpora_is_named_with_its_corpus(run):
    other = register("found_too", MemoryDataSource(lambda: TEXTS[:20], validation=0))
    both = Run(mix("found_both", {run.mixture: 1, other: 2}), LENGTHS)
    found = both.examples()
    place = place_of(found, "found_too_corpus:7")
    assert place.corpus == "found_too_corpus"
    in_first = list(itertools.islice(seen(both, place, epochs=4), 3))
    assert in_first
    assert all(each.task.startswith("found_too_") for each in in_first)
    for wrong in ("7", "another:7", "found_too_corpus:", "found_too_corpus:x", "found_too_corpus:20"):
        with pytest.raises(ValueError, match="document"):
            place_of(found, wrong)
    documents = find(both, text=" ".join(TEXTS[7].split()[:9]), count=9).documents
    assert place.corpus in {document.place.corpus for document in documents}
