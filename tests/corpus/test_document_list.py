"""Lists of documents: what they name, by their origins or numbers, and what is wrong with them."""

import gzip
import json
import logging

import numpy as np
import pytest

import ul2_tasks
from tests.support import write_jsonl
from ul2_tasks.corpus.document_list import DocumentList, named_documents, read_document_list
from ul2_tasks.store.provenance import Provenance, Table, hash_of
from ul2_tasks.store.read import Store

TEXTS = [f"The text number {number}, {'again ' * (number % 5)}to be found." for number in range(40)]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A cache of two files, whose records have ids."""
    folder = tmp_path_factory.mktemp("listed")
    for name, numbers in {"a": range(25), "b": range(25, 40)}.items():
        write_jsonl(folder / f"{name}.jsonl", ({"text": TEXTS[number], "id": f"id-{number % 30}"} for number in numbers))
    mixture = ul2_tasks.Mixture("listed", f"{folder}/*.jsonl")
    mixture.cache(folder / "cache")
    found = ul2_tasks.examples(mixture, {"inputs": 64, "targets": 64}, cache_dirs=[folder / "cache"])
    return found.numbering.corpora[0].store


def documents(store, *entries):
    found, missing = read_document_list(entries).documents("listed_corpus", store.provenance, store.documents)
    return found.tolist(), [json.loads(entry) for entry in missing]


def test_entries_name_documents_by_where_they_are_from(store):
    texts = {
        number: [each for each in TEXTS if hash_of(each.encode()) == origin.hash]
        for number, origin in enumerate(store.provenance.of(np.arange(store.documents)))
    }
    at = {TEXTS.index(text): number for number, (text,) in texts.items()}
    assert len(at) == 40
    assert documents(store, {"document": 3}, {"document": 39}) == ([3, 39], [])
    assert documents(store, {"id": "id-7"}) == (sorted([at[7], at[37]]), []), "all documents with an id"
    assert documents(store, {"file": "b.jsonl"}) == (sorted(at[number] for number in range(25, 40)), [])
    origin = store.provenance.of([at[30]])[0]
    assert documents(store, {"file": origin.file, "row": origin.row}) == ([at[30]], [])
    assert documents(store, {"id": "id-7", "corpus": "other"}, {"id": "none"}, {"document": 40}) == (
        [],
        [{"corpus": "other", "id": "id-7"}, {"id": "none"}, {"document": 40}],
    )
    assert documents(store, {"id": "id-7"}, {"id": "id-7", "corpus": "listed_corpus"}) == (sorted([at[7], at[37]]), [])
    of_no_document = [{"document": (1 << 40) - 1}, {"file": "a.jsonl", "row": (1 << 40) - 1}]
    assert documents(store, *of_no_document) == ([], of_no_document)
    assert documents(store) == ([], [])


def test_what_no_corpus_records_is_an_error_and_what_one_does_not_a_warning(store, caplog):
    megatron = Store(store.prefixes, [store.documents], [store.tokens], Provenance((Table("", "pair", 0, store.documents),)))
    by_id, by_file = (read_document_list([each]) for each in ({"id": "id-7"}, {"file": "pair", "row": 3}))
    for entry in ({"id": "id-7"}, {"id": "id-7", "corpus": "pairs"}):
        with pytest.raises(ValueError, match="pairs"):
            named_documents(read_document_list([entry]), {"pairs": megatron})
    assert named_documents(by_file, {"pairs": megatron})[0]["pairs"].tolist() == [3]
    with caplog.at_level(logging.WARNING, logger="ul2_tasks"):
        found, unknown = named_documents(by_id, {"pairs": megatron, "web": store})
    assert (len(found["pairs"]), len(found["web"]), unknown) == (0, 2, [])
    assert "pairs" in caplog.text


def test_a_list_is_the_same_from_a_file_and_for_other_fields_and_orders(tmp_path):
    given = [{"id": "77"}, {"document": np.int64(3), "corpus": "web", "reason": "a leak"}]
    path, packed = tmp_path / "list.jsonl", tmp_path / "list.jsonl.gz"
    path.write_text('{"id": "77", "who": "me"}\n\n{"corpus": "web", "document": 3}\n')
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_document_list(given) == read_document_list(path) == read_document_list(str(packed))
    assert read_document_list(given[::-1]).sha256 == read_document_list(given).sha256
    assert read_document_list(given[:1]).sha256 != read_document_list(given).sha256
    (tmp_path / "ids.txt").write_text("77\n\n78 \n")
    assert read_document_list(tmp_path / "ids.txt").entries == ('{"id": "77"}', '{"id": "78"}')
    again = tmp_path / "again.jsonl"
    again.write_text(read_document_list(given).text)
    assert read_document_list(again) == read_document_list(given)
    assert read_document_list([]) == DocumentList(())


def test_a_corpus_that_is_not_there_is_a_warning_and_if_all_are_an_error(store, caplog):
    stores = {"web_corpus": store, "books_corpus": store}
    wrong = {"id": "id-7", "corpus": "wbe_corpus"}
    for entries in ([wrong], [wrong, {"document": 3, "corpus": "web"}], [{"document": 3}]):
        with pytest.raises(ValueError, match='"corpus"'):
            named_documents(read_document_list(entries), stores)
    with caplog.at_level(logging.WARNING, logger="ul2_tasks"):
        found, unknown = named_documents(read_document_list([wrong, {"document": 3, "corpus": "books_corpus"}]), stores)
    assert (found["books_corpus"].tolist(), len(unknown)) == ([3], 1)
    assert "wbe_corpus" in caplog.text


LINES = {
    **dict.fromkeys(["{", '[{"id": "a"},', "[" * 100_000], "JSON"),
    "3": "object",
    **dict.fromkeys(['{"reason": "a"}', '{"id": "a", "document": 3}', '{"row": 3}', '{"hash": "12"}'], '"id", "file"'),
    **dict.fromkeys(['{"document": -1}', '{"document": true}', '{"document": 1099511627776}'], '"document", got'),
    '{"file": "a", "row": 1000000000000000000000}': '"row", got',
    '{"id": 1.5}': '"id", got',
    '{"id": "a", "corpus": ""}': '"corpus", got',
}


@pytest.mark.parametrize("line", LINES)
def test_an_entry_that_names_nothing_is_rejected_with_its_line(tmp_path, line):
    (tmp_path / "list.jsonl").write_text('{"id": "good"}\n' + line + "\n")
    with pytest.raises(ValueError, match=rf"list\.jsonl, line 2 .*{LINES[line]}"):
        read_document_list(tmp_path / "list.jsonl")


@pytest.mark.parametrize("content", [b'{"id": "\xe9"}', b"no gzip", None])
def test_what_is_no_list_is_rejected(tmp_path, content):
    path = tmp_path / ("list.jsonl.gz" if content == b"no gzip" else "list.jsonl")
    path.mkdir() if content is None else path.write_bytes(content)
    for given in (path, 3, [3], {"id": "a"}, "none.jsonl"):
        with pytest.raises(ValueError, match="exclude"):
            read_document_list(given)
