"""What a source reads: told where it is known, and never guessed."""

import dataclasses
import functools
import importlib
import linecache
import sys

import pytest
import seqio
import tensorflow as tf
from rich.console import Console

from ul2_tasks import CausalDenoiser, default_vocabulary, open_source, register
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.corpus.cached_files import COMPLETED
from ul2_tasks.corpus.identity import cannot_tell
from ul2_tasks.sources.base import as_source
from ul2_tasks.sources.memory import MemoryDataSource
from ul2_tasks.sources.splits import HashSplit
from ul2_tasks.tasks.corpus_task import CorpusView
from ul2_tasks.tokenizers.special_ids import as_vocabulary, vocabulary_identity


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


def source_identity(source) -> str | None:
    return as_source(source).identity


TELL = {
    "function": lambda: of_function(read),
    "partial": lambda: of_function(functools.partial(read_some, 1)),
    "another partial": lambda: of_function(functools.partial(read_some, 2)),
    "lines": lambda: seqio.TextLineDataSource({"train": "a.txt"}),
    "lines without the first": lambda: seqio.TextLineDataSource({"train": "a.txt"}, skip_header_lines=1),
    "examples": lambda: seqio.TFExampleDataSource({"train": "a"}, {"text": tf.io.FixedLenFeature([], tf.string)}),
    "split function": lambda: HashSplit(as_source(of_function(read)), 0.1),
    "memory": lambda: MemoryDataSource(lambda: ["a", "b"], validation=0),
    "other memory": lambda: MemoryDataSource(lambda: ["a", "c"], validation=0),
    "tfds": lambda: seqio.TfdsDataSource("c4/en:3.1.0", splits={"train": "train[:1%]"}),
    "more of tfds": lambda: seqio.TfdsDataSource("c4/en:3.1.0", splits={"train": "train[:2%]"}),
    "hf": lambda: open_source("hf:owner/name"),
    "files": lambda: open_source("*.jsonl"),
    "split files": lambda: open_source("*.jsonl", validation=0.1),
}
CANNOT_TELL = {
    "lambda": lambda: of_function(lambda split, shuffle_files: read(split, shuffle_files)),
    "closure": lambda: of_function(closure(["a"])),
    "partial of a closure": lambda: of_function(functools.partial(closure(["a"]))),
    "partial with an address in a list": lambda: of_function(functools.partial(read_some, [object()])),
    "files of a lambda": lambda: seqio.FileDataSource(lambda file: tf.data.TFRecordDataset(file), {"train": "a"}),
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
    assert cannot_tell(as_source(source))
    assert " at 0x" not in str(as_source(source))


SILENT = {
    "source": lambda: {"source": CANNOT_TELL["closure"]()},
    "vocabulary": lambda: {"source": MemoryDataSource(lambda: ["a"], 0), "vocabulary": seqio.UnigramVocabulary(["a"])},
}


@pytest.mark.parametrize("what", SILENT)
def test_what_cannot_tell_what_it_is_has_no_cache(tmp_path, what):
    """Neither is one written, nor is one read that SeqIO's own job wrote."""
    register(f"silent_{what}", denoisers=[CausalDenoiser(mode=None)], **SILENT[what]())
    corpus = seqio.get_mixture_or_task(f"silent_{what}_corpus").corpus
    with pytest.raises(ValueError, match=corpus.name):
        build(corpus, str(tmp_path), console=Console(quiet=True))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / corpus.name).mkdir()
    (tmp_path / corpus.name / COMPLETED).touch()
    with pytest.raises(ValueError, match=corpus.name):
        CorpusView(dataclasses.replace(corpus, cache_dirs=(str(tmp_path),)), "lm", use_cached=True).get_dataset()


MODULE = """
import functools
import seqio
def read(split, shuffle_files, seed=None, kind="a"):
    return [text for text in "abc"]  # a comment
class Source(seqio.DataSource):
    list_shards = supports_arbitrary_sharding = get_dataset = None
    def __repr__(self):
        return "Source()"
"""
OF_MODULE = {
    "partial": lambda module: of_function(functools.partial(module.read, kind="b")),
    "class": lambda module: module.Source(["train"]),
}


def module_of(folder, text):
    (folder / "mine.py").write_text(text)
    linecache.cache.pop(str(folder / "mine.py"), None)
    sys.modules.pop("mine", None)
    importlib.invalidate_caches()
    return importlib.import_module("mine")


@pytest.mark.parametrize("kind", OF_MODULE)
def test_a_function_or_class_is_another_once_its_text_or_its_version_is(tmp_path, monkeypatch, kind):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    told = {
        name: source_identity(OF_MODULE[kind](module_of(tmp_path, text)))
        for name, text in {
            "as it is": MODULE,
            "edited": MODULE.replace("abc", "ab").replace("Source()", "Mine()"),
            "version 1": MODULE + "read.version = Source.version = 1",
            "edited, version 1": MODULE.replace("comment", "remark") + "read.version = Source.version = 1",
            "version 2": MODULE + "read.version = Source.version = 2",
        }.items()
    }
    assert told["version 1"] == told["edited, version 1"]
    assert len({*told.values()}) == 4
    assert None not in told.values()


def test_what_has_no_name_of_its_own_cannot_tell_without_a_version(monkeypatch):
    """The program's own functions are `__main__`'s in each program, so that a cache could be another program's."""
    import __main__

    source = of_function(read)
    monkeypatch.setattr(__main__, "read", read, raising=False)
    monkeypatch.setattr(read, "__module__", "__main__")
    assert source_identity(source) is None
    monkeypatch.setattr(read, "version", "2026-11", raising=False)
    assert "version 2026-11" in source_identity(source)


def test_a_vocabulary_tells_by_its_file_or_its_size_or_its_identity():
    unigram = seqio.UnigramVocabulary(["a", "b"])
    assert default_vocabulary().identity
    assert as_vocabulary(seqio.ByteVocabulary()).identity == ""
    assert as_vocabulary(unigram).identity is None
    unigram.identity = "a and b"
    assert vocabulary_identity(as_vocabulary(unigram)).endswith(", a and b")
