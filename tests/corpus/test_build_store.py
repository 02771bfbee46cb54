"""The job that writes a store: the documents of every source as the task itself has them, and what can go wrong."""

import functools
import os
import pathlib

import datasets
import numpy as np
import pytest
import seqio
import tensorflow as tf

from tests.support import built, byte_vocabulary, cache_dirs, corpus_named, telling, write_jsonl
from tests.tokenizers.test_hugging_face_vocabulary import small
from ul2_tasks import T5GEMMA2, open_source, register
from ul2_tasks.corpus import cache
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.jobs.claim import taken
from ul2_tasks.sources.memory import MemoryDataSource

BYTES, MODES = byte_vocabulary()
TEXTS = ["a document", "caf\u00e9 \u2603", "", "x" * 3000, *(f"number {number}" for number in range(300))]


def register_corpus(name, source, **arguments) -> str:
    register(name, source, BYTES, T5GEMMA2[:1], modes=MODES, **arguments)
    return f"{name}_corpus"


def jsonl(folder):
    return write_jsonl(folder / "a.jsonl", ({"text": text, "id": number} for number, text in enumerate(TEXTS)))


def text_lines(folder):
    (folder / "a.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    return seqio.TextLineDataSource({"train": str(folder / "a.txt")})


def texts_of_a_function(split, shuffle_files, seed=None):
    return tf.data.Dataset.from_tensor_slices({"text": TEXTS, "other": [[1, 2]] * len(TEXTS)})


def function(folder):
    return seqio.FunctionDataSource(texts_of_a_function, splits=["train"])


SOURCES = {
    "seqio text lines": (text_lines, {}),
    "seqio function split": (function, {"validation": 0.3}),
    "jsonl": (jsonl, {}),
    "split by id": (jsonl, {"validation": 0.3, "id_key": "id"}),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_store_has_the_documents_of_the_task_in_their_order(tmp_path, name):
    write, arguments = SOURCES[name]
    corpus = register_corpus(f"store_{name.replace(' ', '_')}", open_source(write(tmp_path), **arguments))
    task = seqio.TaskRegistry.get(corpus)
    manifest = built(corpus, tmp_path / "cache")
    assert manifest["totals"]["documents"] == len(TEXTS) - 1
    assert manifest["totals"]["empty"] == 1
    for split in task.splits:
        store = cache.open_store(str(tmp_path / "cache" / corpus), manifest, split)
        tokens, lengths = store.read_documents(np.arange(store.documents))
        one_by_one = task.get_dataset(None, split, shuffle=False, try_in_mem_cache=False).as_numpy_iterator()
        expected = [document["targets"].tolist() for document in one_by_one if document["targets"].size]
        assert [part.tolist() for part in np.split(tokens, np.cumsum(lengths)[:-1])] == expected


def bad_text_in_memory(folder):
    return MemoryDataSource(lambda: ["good", "bad \ud800"], validation=0)


def bad_text_of_an_iterable(folder):
    return datasets.IterableDataset.from_generator(lambda: ({"text": text} for text in ("good", "bad \ud800")))


def bad_text_of_a_file(folder):
    (folder / "a.jsonl").write_text('{"text": "good"}\n{"text": "bad \\ud800", "\\ud800": 1}\n')
    return str(folder / "a.jsonl")


def bad_field_of_a_file_whose_name_is_no_text(folder):
    path = os.path.join(folder, os.fsdecode(b"\xff.jsonl"))
    pathlib.Path(path).write_text('{"text": "good"}\n{"\\ud800": 1}\n')
    return path


BAD_TEXTS = [bad_text_in_memory, bad_text_of_an_iterable, bad_text_of_a_file, bad_field_of_a_file_whose_name_is_no_text]


@pytest.mark.parametrize("of", BAD_TEXTS, ids=lambda of: of.__name__)
def test_what_is_no_unicode_is_a_bad_record_of_every_source(tmp_path, of):
    raising, skipping = (
        register_corpus(f"{of.__name__}_{on_error}", of(tmp_path), on_error=on_error) for on_error in ("raise", "skip")
    )
    with pytest.raises(RuntimeError, match=r"document 1|row 1|line 2"):
        built(raising, tmp_path / "cache")
    totals = built(skipping, tmp_path / "cache")["totals"]
    assert (totals["documents"], totals["skipped"]) == (1, 1)
    streamed = seqio.TaskRegistry.get(skipping).source.get_dataset("train", shuffle=False).as_numpy_iterator()
    assert next(streamed)["text"] == b"good"
    assert len(list(streamed)) == 1


def change(path):
    with open(path, "a") as file:
        file.write('{"text": "one more", "id": 1}\n')


def test_a_source_that_changes_during_the_job_is_told_by_its_file(tmp_path):
    path = jsonl(tmp_path)
    corpus = register_corpus("store_changes", open_source(path))
    with pytest.raises(RuntimeError, match=path):
        build(telling(corpus_named(corpus), functools.partial(change, path)), str(tmp_path / "cache"))
    assert not (tmp_path / "cache" / corpus / "COMPLETED").exists()
    assert built(corpus, tmp_path / "cache")["totals"]["documents"] == len(TEXTS)


@pytest.mark.parametrize("name", ["begun.json", "train-00000-of-00001.json"])
@pytest.mark.parametrize("content", ["{", "[]", "{}"])
def test_the_records_of_an_unfinished_job_that_were_altered_are_named(tmp_path, name, content):
    corpus = register_corpus(f"store_{tmp_path.name}", open_source(jsonl(tmp_path)))
    records = tmp_path / "cache" / corpus / "parts"
    records.mkdir(parents=True)
    (records / name).write_text(content)
    with pytest.raises(ValueError, match=name):
        built(corpus, tmp_path / "cache")


def test_ids_are_stored_as_the_tokenizers_own_and_read_shifted(tmp_path):
    """A tokenizer whose id 0 is a token: its ids are one higher here, and not in the files."""
    words = small(tmp_path / "words", {"a": 0, "b": 1, "</s>": 2, "[UNK]": 3}, unk_token="[UNK]")
    register("store_shift", write_jsonl(tmp_path / "a.jsonl", ["a b a", "b"]), str(words), T5GEMMA2[:1])
    assert built("store_shift_corpus", tmp_path)["dtype"] == "uint16"
    (path,) = (tmp_path / "store_shift_corpus").glob("*.bin")
    assert np.fromfile(path, np.uint16).tolist() == [0, 1, 0, 1]
    with cache_dirs(tmp_path):
        found = seqio.TaskRegistry.get("store_shift_corpus").get_dataset(None, "train", use_cached=True, shuffle=False)
        assert [document["targets"].tolist() for document in found.as_numpy_iterator()] == [[1, 2, 1], [2]]


def test_a_folder_that_another_job_writes_is_left_to_it(tmp_path):
    """`tests/jobs/test_claim.py` has jobs that begin at once."""
    corpus = register_corpus("store_at_once", open_source(jsonl(tmp_path)))
    with taken(f"{tmp_path}/{corpus}/parts"), pytest.raises(ValueError, match="another job"):
        built(corpus, tmp_path)
