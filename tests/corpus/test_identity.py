"""What a source reads: told where it is known, and never guessed."""

import doctest
import functools
import hashlib
import json
import sys

import pytest
import seqio
import tensorflow as tf

from ul2_tasks import default_vocabulary, open_source, open_vocabulary
from ul2_tasks.corpus.identity import cannot_tell, describe_source, source_identity, vocabulary_tells
from ul2_tasks.files.listing import named_format
from ul2_tasks.sources.memory import MemoryDataSource
from ul2_tasks.sources.splits import HashSplit
from ul2_tasks.vocabulary.pieces import special_names
from ul2_tasks.vocabulary.special_ids import vocabulary_identity
from ul2_tasks.vocabulary.tokenizer_json import load


def read(split, shuffle_files, seed=None):
    return tf.data.Dataset.from_tensor_slices({"text": ["a", "b"]})


def read_some(count, split, shuffle_files, seed=None):
    return read(split, shuffle_files).take(count)


def closure(texts):
    def read(split, shuffle_files, seed=None):
        return tf.data.Dataset.from_tensor_slices({"text": texts})

    return read


def of_function(function) -> seqio.FunctionDataSource:
    return seqio.FunctionDataSource(function, splits=["train"])


class Silent(seqio.DataSource):
    """A user's own, without a repr."""

    supports_arbitrary_sharding = False

    def list_shards(self, split):
        return [split]

    def get_dataset(self, split="train", shuffle=True, seed=None, shard_info=None):
        return read(split, shuffle)


TELL = {
    "function": lambda: of_function(read),
    "partial": lambda: of_function(functools.partial(read_some, 1)),
    "another partial": lambda: of_function(functools.partial(read_some, 2)),
    "partial of a list": lambda: of_function(functools.partial(read_some, [1, {"a": read}])),
    "lines": lambda: seqio.TextLineDataSource({"train": "a.txt"}),
    "lines without the first": lambda: seqio.TextLineDataSource({"train": "a.txt"}, skip_header_lines=1),
    "examples": lambda: seqio.TFExampleDataSource({"train": "a"}, {"text": tf.io.FixedLenFeature([], tf.string)}),
    "records": lambda: seqio.FileDataSource(tf.data.TFRecordDataset, {"train": "a"}),
    "split function": lambda: HashSplit(of_function(read), 0.1),
    "memory": lambda: MemoryDataSource(lambda: ["a", "b"], validation=0),
    "other memory": lambda: MemoryDataSource(lambda: ["a", "c"], validation=0),
    "memory of one text": lambda: MemoryDataSource(lambda: ["ab"], validation=0),
    "split memory": lambda: HashSplit(MemoryDataSource(lambda: ["a", "b"], validation=0), 0.1),
    "tfds": lambda: seqio.TfdsDataSource("c4/en:3.1.0", splits={"train": "train[:1%]"}),
    "more of tfds": lambda: seqio.TfdsDataSource("c4/en:3.1.0", splits={"train": "train[:2%]"}),
    "our tfds": lambda: open_source("tfds:c4/en:3.1.0"),
    "hf": lambda: open_source("hf:owner/name"),
    "files": lambda: open_source("*.jsonl"),
    "split files": lambda: open_source("*.jsonl", validation=0.1),
}
CANNOT_TELL = {
    "lambda": lambda: of_function(lambda split, shuffle_files: read(split, shuffle_files)),
    "closure": lambda: of_function(closure(["a"])),
    "partial of a closure": lambda: of_function(functools.partial(closure(["a"]))),
    "partial with a lambda": lambda: of_function(functools.partial(read_some, lambda: 1)),
    "partial with an address": lambda: of_function(functools.partial(read_some, object())),
    "partial with an address in a list": lambda: of_function(functools.partial(read_some, [object()])),
    "files of a lambda": lambda: seqio.FileDataSource(lambda file: tf.data.TFRecordDataset(file), {"train": "a"}),
    "split closure": lambda: HashSplit(of_function(closure(["a"])), 0.1),
    "no repr": lambda: Silent(splits=["train"]),
}


@pytest.mark.parametrize("name", TELL)
def test_a_source_that_tells_equals_another_of_the_same_and_no_other(name):
    identity = source_identity(TELL[name]())
    assert identity is not None
    assert [other for other in TELL if source_identity(TELL[other]()) == identity] == [name]


@pytest.mark.parametrize("name", CANNOT_TELL)
def test_a_source_of_what_has_no_name_cannot_tell(name):
    source = CANNOT_TELL[name]()
    assert source_identity(source) is None
    assert "could not be told apart" in cannot_tell(source)
    assert " at 0x" not in describe_source(source)


def test_a_function_that_was_defined_again_cannot_tell(monkeypatch):
    source = of_function(read)
    monkeypatch.setitem(globals(), "read", lambda split, shuffle_files, seed=None: None)
    assert source_identity(source) is None


def test_a_function_of_the_program_itself_cannot_tell(monkeypatch):
    """Each program's is `__main__`, so that a cache could be another program's."""
    import __main__

    monkeypatch.setattr(__main__, "read", read, raising=False)
    monkeypatch.setattr(read, "__module__", "__main__")
    assert source_identity(of_function(read)) is None


def test_the_identity_of_files_is_their_repr_which_caches_hold():
    for source in (open_source("*.jsonl"), open_source("*.jsonl", validation=0.1), open_source("hf:owner/name")):
        assert source_identity(source) == repr(source)


def test_documents_in_memory_tell_by_their_content_once_they_are_asked():
    loads = []
    source = MemoryDataSource(lambda: loads.append(1) or ["only"], validation=0)
    assert loads == []
    # printf only | sha256sum | xxd -r -p | sha256sum
    wanted = "MemoryDataSource(1 documents, sha256 SHA, validation=0)"
    assert source_identity(source) == source_identity(source) == wanted.replace("SHA", ONLY)
    assert loads == [1]


def test_a_vocabulary_tells_by_its_file_or_its_size_or_its_identity():
    unigram = seqio.UnigramVocabulary(["a", "b"])
    assert vocabulary_tells(default_vocabulary())
    assert vocabulary_tells(seqio.ByteVocabulary())
    assert not vocabulary_tells(unigram)
    unigram.identity = "a and b"
    assert vocabulary_tells(unigram)
    assert vocabulary_identity(unigram).endswith(", a and b")


ONLY = "c748a5ea73a9844d1dd4034b9828fe08d624fd7e85253a4f055752b10c2130ef"
SOURCES = {
    "FileSource({'train': 'a/*.jsonl'})": lambda: open_source("a/*.jsonl"),
    "FileSource({'train': ['a', 'b'], 'validation': 'c'}, format='text')": lambda: open_source(
        {"train": ["a", "b"], "validation": "c"}, format="text", documents="line"
    ),
    "FileSource({'train': 'a.txt'}, documents='paragraph')": lambda: open_source("a.txt", documents="paragraph"),
    "HashSplit(FileSource({'train': 'a.parquet'}, text_key='content', id_key='id'), 0.1, id_key='id')": lambda: open_source(
        "a.parquet", text_key="content", id_key="id", validation=0.1
    ),
    "HuggingFaceSource('owner/name', None, text_key='text')": lambda: open_source("hf:owner/name"),
    "HashSplit(HuggingFaceSource('owner/name', 'config', text_key='text', id_key='id'), 0.1, id_key='id')": lambda: open_source(
        "hf:owner/name:config", id_key="id", validation=0.1
    ),
    "TfdsSource('c4/en:3.1.0', text_key='text')": lambda: open_source("tfds:c4/en:3.1.0"),
    f"MemoryDataSource(1 documents, sha256 {ONLY}, validation=0)": lambda: MemoryDataSource(lambda: ["only"], validation=0),
}


@pytest.mark.parametrize("identity", SOURCES)
def test_caches_hold_the_identity_of_a_source_which_stays_as_it_is(identity):
    """No module of this package is named in it, so that classes may move to other modules."""
    assert source_identity(SOURCES[identity]()) == identity


DEFAULT_SHA256 = "4b39294c4b5909238169997b04cfd45bae7560386e7a9d875879029f0459f403"
TOKENIZER = {
    "added_tokens": [
        {"id": 0, "content": "</s>", "special": True} | dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False)
    ],
    "model": {"type": "WordLevel", "vocab": {"</s>": 0, "a": 1}, "unk_token": "a"},
}
TOKENIZER_SHA256 = hashlib.sha256(json.dumps(TOKENIZER).encode()).hexdigest()
SPECIAL = hashlib.sha256(json.dumps([{"<extra_id_0>": 3, "<extra_id_1>": 4, "[R]": 5}, []]).encode()).hexdigest()[:16]


def hugging_face(folder) -> seqio.Vocabulary:
    pytest.importorskip("tokenizers")
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    return open_vocabulary(folder, sentinels=2, modes=["[R]"])


VOCABULARIES = {
    f"SentencePieceVocabulary, 4096 ids, 0 of them extra, eos 1, sha256 {DEFAULT_SHA256}": lambda folder: default_vocabulary(),
    "NamedByteVocabulary, 264 ids, 5 of them extra, eos 1, modes [R] [S] [X]": lambda folder: open_vocabulary("bytes", sentinels=2),
    "ByteVocabulary, 259 ids, 0 of them extra, eos 1": lambda folder: seqio.ByteVocabulary(),
    f"HuggingFaceVocabulary, 6 ids, 3 of them extra, eos 1, sha256 {TOKENIZER_SHA256}, special {SPECIAL}": hugging_face,
}


@pytest.mark.parametrize("identity", VOCABULARIES)
def test_caches_hold_the_identity_of_a_vocabulary_which_stays_as_it_is(identity, tmp_path):
    """It has the class's name without its module."""
    assert vocabulary_identity(VOCABULARIES[identity](tmp_path)) == identity


def test_the_identity_of_a_model_that_is_edited_has_the_digest_of_what_it_became():
    vocabulary = open_vocabulary("default", sentinels=300)
    digest = hashlib.sha256(vocabulary.sp_model).hexdigest()
    assert vocabulary_identity(vocabulary) == f"ControlledVocabulary, 4140 ids, 0 of them extra, eos 1, sha256 {digest}"


def test_what_the_docstrings_of_sources_and_vocabularies_show_is_true():
    members = (named_format, source_identity, special_names, HashSplit, load, vocabulary_identity)
    results = [doctest.testmod(sys.modules[member.__module__]) for member in members]
    assert all(result.attempted for result in results)
    assert not any(result.failed for result in results)
