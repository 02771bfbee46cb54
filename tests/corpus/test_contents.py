"""What a source's files hold, in words that differ once one of them is changed."""

import os

import datasets
import numpy as np
import pytest
import seqio
import tensorflow as tf

from tests.support import write_pair
from ul2_tasks import open_source
from ul2_tasks.corpus.identity import reads
from ul2_tasks.sources.base import as_source
from ul2_tasks.sources.dataset_objects import identity_of
from ul2_tasks.sources.image_text import open_image_text
from ul2_tasks.tasks import sources


def contents(source) -> str:
    return as_source(source).contents("train")


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
    before, same = (contents(FILES[name](tmp_path)) for _ in range(2))
    assert before == same != ""
    change(tmp_path / "a.jsonl")
    for kept in (seqio.utils._list_files_for_glob, sources._contents):
        kept.cache_clear()  # as in a new process
    assert contents(FILES[name](tmp_path)) != before


@pytest.mark.parametrize("name", ["tmp_a.jsonl", "cache-a.jsonl", "_a.jsonl", "train/_b/tmp.jsonl"])
def test_the_contents_of_a_folder_of_datasets_are_those_of_all_files_that_are_read(tmp_path, name):
    write(tmp_path / "a.jsonl")
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    write(tmp_path / name)
    before = contents(open_source(f"hf:{tmp_path}"))
    rewritten(tmp_path / name)
    assert contents(open_source(f"hf:{tmp_path}")) != before


def test_the_contents_of_a_saved_dataset_are_those_of_its_own_files(tmp_path):
    datasets.DatasetDict({"train": datasets.Dataset.from_dict({"text": ["a", "b"]})}).save_to_disk(tmp_path / "saved")
    folder, before = tmp_path / "saved" / "train", contents(open_source(f"hf:{tmp_path}/saved"))
    (folder / "cache-1.arrow").write_bytes(b"what map keeps")
    assert contents(open_source(f"hf:{tmp_path}/saved")) == before
    os.utime(folder / "data-00000-of-00001.arrow", (2, 2))
    assert contents(open_source(f"hf:{tmp_path}/saved")) != before


def test_a_streamed_dataset_of_another_revision_is_another():
    def streamed(revision):
        files = {"files": [f"hf://datasets/owner/name@{revision}/a.parquet"]}
        return identity_of(datasets.IterableDataset.from_generator(iter, gen_kwargs=files))

    assert streamed("1" * 40) == streamed("1" * 40) != streamed("2" * 40)


def read(split, shuffle_files, seed=None):
    return tf.data.Dataset.from_tensor_slices({"text": ["a", "b"]})


def test_a_source_that_cannot_tell_says_so_once(caplog):
    for _ in range(2):
        source = seqio.FunctionDataSource(lambda split, shuffle_files, seed=None: read(split, shuffle_files), splits=["train"])
        assert reads(as_source(source), "train") == "FunctionDataSource, which cannot tell what it reads"
    assert caplog.text.count("cannot check that it reads the same corpus") == 1


@pytest.mark.parametrize("pairs", [1, 3])
@pytest.mark.parametrize("token", [0, 1, -1])
def test_tokens_are_known_by_their_content_where_they_lie_makes_no_difference(tmp_path, pairs, token):
    found = []
    for folder, first in (("a", 7), ("b", 7), ("c", 8)):
        (tmp_path / folder).mkdir()
        for number in range(pairs):
            tokens = np.full(100, 7)
            tokens[token] = first if number == pairs - 1 else 7
            write_pair(tmp_path / folder / f"{number}", np.split(tokens, [40]))
        found.append(contents(open_source(f"megatron:{tmp_path}/{folder}/*")))
    assert found[0] == found[1] != found[2]
