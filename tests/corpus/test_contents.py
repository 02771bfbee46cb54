"""What a source's files hold and its functions do, in words that differ once one of them is changed."""

import functools
import importlib
import os
import sys

import datasets
import new_process
import numpy as np
import pytest
import seqio
import tensorflow as tf

from ul2_tasks import open_source
from ul2_tasks.corpus import identity
from ul2_tasks.corpus.identity import reads, source_contents
from ul2_tasks.corpus.own_code import code_in_words
from ul2_tasks.sources.dataset_objects import identity_of
from ul2_tasks.sources.image_text import open_image_text
from ul2_tasks.sources.memory import MemoryDataSource
from ul2_tasks.store import samples
from ul2_tasks.store.index import serialize
from ul2_tasks.store.read import Store
from ul2_tasks.store.samples import sampled_hash


def write(path, text='{"text": "a"}\n', time=1):
    path.write_text(text)
    os.utime(path, ns=(time, time))


def rewritten(path):
    write(path, '{"text": "b"}\n', time=2)


def grown(path):
    write(path, '{"text": "ab"}\n')


def renamed(path):
    path.rename(path.with_name("b.jsonl"))


def joined(path):
    write(path.with_name("b.jsonl"))


FILES = {
    "files": lambda folder: open_source(f"{folder}/*.jsonl"),
    "files of two splits": lambda folder: open_source({"train": f"{folder}/*.jsonl", "validation": __file__}, format="jsonl"),
    "a URL": lambda folder: open_source(f"file://{folder}/*.jsonl"),
    "split files": lambda folder: open_source(f"{folder}/*.jsonl", validation=0.1),
    "lines of SeqIO": lambda folder: seqio.TextLineDataSource({"train": f"{folder}/*.jsonl"}),
    "a folder of datasets": lambda folder: open_source(f"hf:{folder}"),
    "a streamed dataset": lambda folder: open_source(
        datasets.load_dataset("json", data_files=f"{folder}/*.jsonl", split="train", streaming=True)
    ),
    "images": lambda folder: open_image_text(f"{folder}/*.jsonl"),
}


@pytest.mark.parametrize("change", [rewritten, grown, renamed, joined])
@pytest.mark.parametrize("name", FILES)
def test_the_contents_of_files_differ_once_one_of_them_is_another_or_changed(tmp_path, monkeypatch, name, change):
    monkeypatch.setattr("ul2_tasks.sources.hugging_face.HuggingFaceSource.splits", ("train",))
    write(tmp_path / "a.jsonl")
    before, same = (source_contents(FILES[name](tmp_path), "train") for _ in range(2))
    assert before == same
    assert before.keys() == {"files"}
    change(tmp_path / "a.jsonl")
    for kept in (seqio.utils._list_files_for_glob, identity._of_listing):
        kept.cache_clear()  # as in a new process
    assert source_contents(FILES[name](tmp_path), "train") != before


@pytest.mark.parametrize("name", ["tmp_a.jsonl", "cache-a.jsonl", "_a.jsonl", "train/_b/tmp.jsonl"])
def test_the_contents_of_a_folder_of_datasets_are_those_of_all_files_that_are_read(tmp_path, name):
    write(tmp_path / "a.jsonl")
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    write(tmp_path / name)
    source = open_source(f"hf:{tmp_path}")
    read = [record for shard in range(len(source.list_shards("train"))) for record in source.records("train", shard)]
    assert len(read) >= 1
    before = source.contents("train")
    rewritten(tmp_path / name)
    assert open_source(f"hf:{tmp_path}").contents("train") != before


def test_the_contents_of_a_saved_dataset_are_those_of_its_own_files(tmp_path):
    datasets.DatasetDict({"train": datasets.Dataset.from_dict({"text": ["a", "b"]})}).save_to_disk(tmp_path / "saved")
    folder = tmp_path / "saved" / "train"
    (folder / "data-00000-of-00001.arrow").rename(folder / "tmp.arrow")
    state = (folder / "state.json").read_text()
    (folder / "state.json").write_text(state.replace("data-00000-of-00001.arrow", "tmp.arrow"))
    source = open_source(f"hf:{tmp_path}/saved")
    assert [record.text for record in source.records("train", 0)] == [b"a"]
    before = source.contents("train")
    (folder / "cache-1.arrow").write_bytes(b"what map keeps")
    assert open_source(f"hf:{tmp_path}/saved").contents("train") == before
    os.utime(folder / "tmp.arrow", (2, 2))
    assert open_source(f"hf:{tmp_path}/saved").contents("train") != before


def test_a_dataset_is_opened_once_however_many_there_are(tmp_path):
    write(tmp_path / "a.jsonl")
    sources = [open_source(f"hf:{tmp_path}") for _ in range(20)]
    first = [source._dataset("train") for source in sources]
    assert all(source._dataset("train") is kept for source, kept in zip(sources, first))


def test_a_streamed_dataset_of_another_revision_is_another():
    def streamed(revision):
        files = {"files": [f"hf://datasets/owner/name@{revision}/a.parquet"]}
        return identity_of(datasets.IterableDataset.from_generator(iter, gen_kwargs=files))

    assert streamed("1" * 40) == streamed("1" * 40) != streamed("2" * 40)


def test_a_path_is_known_by_what_it_leads_to(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    write(tmp_path / "a" / "a.jsonl")
    os.symlink(tmp_path / "a", tmp_path / "b")
    monkeypatch.chdir(tmp_path)
    spelled = ["a", "a/a.jsonl", ["./a/*.jsonl"], str(tmp_path / "a"), "b/a.jsonl", f"file://{tmp_path}/b/*.jsonl"]
    assert len({reads(open_source(files, format="jsonl", validation=0.1), "train") for files in spelled}) == 1


def test_all_splits_are_told_where_none_is_named(tmp_path):
    write(tmp_path / "a.jsonl")
    source = open_source({"train": f"{tmp_path}/a.jsonl", "validation": f"{tmp_path}/*.jsonl"})
    of_one = source_contents(source, "train")["files"]
    assert source_contents(source) == {"files": f"train: {of_one}; validation: {of_one}"}


def test_files_are_asked_once_for_their_size_and_time(tmp_path, monkeypatch):
    write(tmp_path / "a.jsonl")
    source = open_source(f"{tmp_path}/a.jsonl")
    asked = []
    monkeypatch.setattr("ul2_tasks.files.listing._told", lambda path: asked.append(path) or ("", ""))
    assert reads(source, "train") == reads(source, "train")
    assert len(asked) == 1


def test_documents_in_memory_tell_by_their_identity():
    source = MemoryDataSource(lambda: ["a"], validation=0)
    assert source_contents(source) == {}
    assert reads(source, "train") == source.identity


def read(split, shuffle_files, seed=None):
    return tf.data.Dataset.from_tensor_slices({"text": ["a", "b"]})


def test_a_source_that_cannot_tell_says_so_once(caplog):
    for _ in range(2):
        source = seqio.FunctionDataSource(lambda split, shuffle_files, seed=None: read(split, shuffle_files), splits=["train"])
        assert reads(source, "train").startswith("FunctionDataSource, which cannot tell what it reads; python 3.")
    assert caplog.text.count("cannot check that it reads the same corpus") == 1


MODULE = '''
import functools
import seqio
LIMIT = {1, 2, 3}
@functools.cache
def helper(text, least=1):
    """Says what it does."""
    return text * least  # a comment
def read(split, shuffle_files, seed=None, kind="a"):
    def inner(text):
        return helper(text) in {"a", "b", "c"}
    return [inner(text) for text in "abc"]
class Source(seqio.DataSource):
    def get_dataset(self, split="train", **others):
        return read(split, False)
    list_shards = supports_arbitrary_sharding = None
partial = functools.partial(read, kind="b")
'''
EDITS = {
    "a comment": ("  # a comment", ""),
    "a docstring": ("Says what it does", "Tells"),
    "lines": ("LIMIT", "\n\nLIMIT"),
    "a value": ("abc", "abd"),
    "a set": ('"a", "b", "c"', '"a", "b"'),
    "a default": ('kind="a"', 'kind="c"'),
    "what it calls": ("text * least", "text + least"),
    "the default of what it calls": ("least=1", "least=2"),
    "a function within": ("return helper(text) in", "return helper(text) not in"),
}
SAME = ("a comment", "a docstring", "lines")


def module_of(folder, text):
    (folder / "mine.py").write_text(text)
    sys.modules.pop("mine", None)
    importlib.invalidate_caches()
    return importlib.import_module("mine")


@pytest.mark.parametrize("name", ["read", "Source", "partial"])
def test_the_code_of_a_function_differs_once_it_or_what_it_calls_is_edited(tmp_path, monkeypatch, name):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = code_in_words([getattr(module_of(tmp_path, MODULE), name)])
    assert before.startswith(f"python {sys.version_info[0]}.{sys.version_info[1]}, sha256 ")
    unnoticed = [
        edit for edit in EDITS if code_in_words([getattr(module_of(tmp_path, MODULE.replace(*EDITS[edit])), name)]) == before
    ]
    assert unnoticed == list(SAME)


def test_the_code_of_a_function_is_told_alike_in_each_process(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    module = module_of(tmp_path, MODULE)
    program = "import mine; from ul2_tasks.corpus.own_code import code_in_words; print(code_in_words([mine.read, mine.Source]))"
    told = {new_process.run("-c", program, cwd=tmp_path, check=True).stdout for _ in range(2)}
    assert told == {code_in_words([module.read, module.Source]) + "\n"}


def test_libraries_have_no_code_of_their_own_but_what_they_were_given():
    assert code_in_words([seqio.preprocessors.tokenize, tf.data.TFRecordDataset, int, len, seqio.TextLineDataSource]) == ""
    decorated = seqio.map_over_dataset(read)
    assert code_in_words([decorated]) == code_in_words([read]) == code_in_words([functools.partial(read, "train")]) != ""
    assert source_contents(seqio.FunctionDataSource(read, splits=["train"])) == {"code": code_in_words([read])}


def write_pair(prefix, tokens, lengths):
    tokens = np.asarray(tokens, np.uint16)
    prefix.with_suffix(".bin").write_bytes(tokens.tobytes())
    prefix.with_suffix(".idx").write_bytes(serialize(np.asarray(lengths), tokens.dtype))


@pytest.mark.parametrize("pairs", [1, 3])
@pytest.mark.parametrize("token", [0, 1, -1])
def test_tokens_are_known_by_their_content_where_they_lie_makes_no_difference(tmp_path, pairs, token):
    contents = []
    for folder, first in (("a", 7), ("b", 7), ("c", 8)):
        (tmp_path / folder).mkdir()
        for number in range(pairs):
            tokens = np.full(100, 7)
            tokens[token] = first if number == pairs - 1 else 7
            write_pair(tmp_path / folder / f"{number}", tokens, [40, 60])
        contents.append(source_contents(open_source(f"megatron:{tmp_path}/{folder}/*")))
    assert contents[0] == contents[1] != contents[2]
    assert contents[0]["files"].startswith(f"train: {pairs} pairs, {pairs * 2} documents, {pairs * 100} tokens, sha256 of samples ")


def test_tokens_are_known_by_their_documents(tmp_path):
    write_pair(tmp_path / "a", range(100), [40, 60])
    write_pair(tmp_path / "b", range(100), [60, 40])
    assert Store.open([str(tmp_path / "a")]).contents != Store.open([str(tmp_path / "b")]).contents


@pytest.mark.parametrize("pairs", [1, 10, 1000, 20000])
def test_samples_are_few_and_have_both_ends(tmp_path, monkeypatch, pairs):
    size = 1 << 30
    asked = []

    def fetched(paths, numbers, starts, stops):
        asked.append((list(paths), numbers, starts, stops))
        return [memoryview(b"")] * len(numbers)

    monkeypatch.setattr(samples, "sizes", lambda paths: [size] * len(paths))
    monkeypatch.setattr(samples, "fetch", fetched)
    sampled_hash([str(number) for number in range(pairs)])
    ((paths, numbers, starts, stops),) = asked
    assert len(numbers) <= 2048
    assert (paths[0], paths[-1]) == ("0.idx", f"{pairs - 1}.bin")
    assert {path.rpartition(".")[0] for path in paths[::2]} == {path.rpartition(".")[0] for path in paths[1::2]}
    for file in range(len(paths)):
        of_file = numbers == file
        assert 4 <= of_file.sum() <= 64
        assert starts[of_file].min() == 0
        assert stops[of_file].max() == size
