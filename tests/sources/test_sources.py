"""Every kind of source gives the documents that were put into it, each once, and says what it could not read."""

import bz2
import collections
import gc
import gzip
import itertools
import json
import lzma
import os
import pathlib
import re
import sys

import datasets
import fsspec
import new_process
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import seqio
import tensorflow as tf
import tensorflow_datasets as tfds
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st
from support import iterate

from ul2_tasks import open_source
from ul2_tasks.sources import files, records, streams
from ul2_tasks.sources.by_name import documents
from ul2_tasks.sources.file_source import FileSource
from ul2_tasks.sources.files import Layout, Segment
from ul2_tasks.sources.hugging_face import HuggingFaceSource
from ul2_tasks.sources.memory import MemoryDataSource
from ul2_tasks.sources.shard_records import shard_records

TEXTS = [
    "plain English",
    "",
    "déjà vu, 日本語のテキスト, \U0001f469\u200d\U0001f52c",
    "שלום, مرحبا بالعالم",
    "a NUL \0 and a tab \t and “quotes” \"'\\",
    "\ufeffa byte order mark inside of a document's own text is text",
    "<extra_id_0> [R] </s>",
    *(f"document {n} " + "word " * (n % 150) for n in range(600)),
]
LINES = [text for text in TEXTS if not text.startswith("\ufeff")]
PARAGRAPHS = [text.replace(" ", "\n", 1) for text in LINES if text.strip()]


def write_lines(path, texts=LINES):
    path.write_bytes("\n".join(texts).encode())


def write_json(path, texts=TEXTS, **more):
    write = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": zstd.open}.get(path.suffix, open)
    with write(path, "wb") as file:
        for number, text in enumerate(texts):
            file.write(json.dumps({"text": text, "id": number, **more}).encode() + b"\n")


def table(texts=TEXTS):
    return pa.table({"id": list(range(len(texts))), "text": texts})


def write_parquet(path, texts=TEXTS):
    pq.write_table(table(texts), path, row_group_size=100)


def write_arrow(path, texts=TEXTS):
    with pa.ipc.new_file(path, table(texts).schema) as file:
        file.write_table(table(texts), max_chunksize=100)


def write_arrow_stream(path, texts=TEXTS):
    with pa.ipc.new_stream(path, table(texts).schema) as file:
        file.write_table(table(texts), max_chunksize=100)


def tf_example(**features):
    values = {key: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value])) for key, value in features.items()}
    return tf.train.Example(features=tf.train.Features(feature=values)).SerializeToString()


def write_tfrecord(path, texts=TEXTS):
    with tf.io.TFRecordWriter(str(path), "GZIP" if path.suffix == ".gz" else "") as file:
        for text in texts:
            file.write(tf_example(text=text.encode()))


def write_folder_of_files(path):
    path.mkdir()
    for number, text in enumerate(TEXTS[:200]):
        (path / f"{number:04d}.txt").write_bytes(text.encode())


def write_saved(path):
    datasets.Dataset.from_dict({"text": TEXTS}).save_to_disk(path)


def write_hub_layout(path):
    path.mkdir()
    for shard in range(4):
        write_parquet(path / f"train-{shard}.parquet", TEXTS[shard::4])


CASES = {
    "lines.txt": (write_lines, {"documents": "line"}, LINES),
    "paragraphs.txt": (
        lambda path: path.write_bytes("\n \n\n".join(PARAGRAPHS).encode()),
        {"documents": "paragraph"},
        PARAGRAPHS,
    ),
    "folder": (write_folder_of_files, {"documents": "file"}, [text.removeprefix("\ufeff") for text in TEXTS[:200]]),
    **{f"a.jsonl{suffix}": (write_json, {}, TEXTS) for suffix in ("", ".gz", ".bz2", ".xz", ".zst")},
    "a.parquet": (write_parquet, {}, TEXTS),
    "a.arrow": (write_arrow, {}, TEXTS),
    "stream.arrow": (write_arrow_stream, {}, TEXTS),
    "a.tfrecord": (write_tfrecord, {}, TEXTS),
    "a.tfrecord.gz": (write_tfrecord, {}, TEXTS),
    "a.tfrecord.xz": (lambda path: path.write_bytes(lzma.compress((path.parent / "a.tfrecord").read_bytes())), {}, TEXTS),
    "hf:saved": (write_saved, {}, TEXTS),
    "hf:hub": (write_hub_layout, {}, [text for shard in range(4) for text in TEXTS[shard::4]]),
    "dataset:rows": (write_saved, {}, TEXTS),
    "iterable:shards": (write_hub_layout, {}, [text for shard in range(4) for text in TEXTS[shard::4]]),
}
OBJECTS = {
    "dataset": lambda path: datasets.load_from_disk(path),
    "iterable": lambda path: datasets.load_dataset(str(path), split="train", streaming=True),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpora")
    for name, (write, _, _) in CASES.items():
        write(folder / name.rpartition(":")[2])
    return folder


def opened(folder, name):
    kind, _, path = name.rpartition(":")
    if kind in OBJECTS:
        return open_source(OBJECTS[kind](folder / path), **CASES[name][1])
    return open_source(f"{kind}:{folder / path}" if kind else str(folder / path), **CASES[name][1])


def texts(dataset):
    return [document["text"].decode() for document in dataset.as_numpy_iterator()]


def problems(source, **arguments):
    return [d["problem"].decode() for d in source.get_dataset(**arguments).as_numpy_iterator() if d["problem"]]


@pytest.mark.parametrize("name", CASES)
def test_every_document_is_read_as_it_was_written_and_in_order(folder, name):
    source = opened(folder, name)
    found = list(source.get_dataset(shuffle=False).as_numpy_iterator())
    assert [document["text"].decode() for document in found] == CASES[name][2]
    assert not any(document["problem"] for document in found)
    assert source.splits == ("train",)


# Of each kind of source those of one piece and of several; what is in a file is read by the test above.
ORDERED = ["lines.txt", "folder", "a.jsonl", "a.jsonl.gz", "a.parquet", "stream.arrow", "a.tfrecord", "hf:saved", "hf:hub"]
ORDERED += ["dataset:rows", "iterable:shards"]


@pytest.mark.parametrize("name", ORDERED)
def test_another_seed_is_another_order_and_every_order_has_every_document_once(folder, name):
    source = opened(folder, name)
    one, other = (texts(source.get_dataset(seed=seed)) for seed in (1, 2))
    assert sorted(one) == sorted(other) == sorted(CASES[name][2])
    if len(source.list_shards("train")) > 1:
        assert one != other


@pytest.mark.parametrize("name", ["lines.txt", "a.jsonl", "a.parquet", "a.arrow", "folder", *ORDERED[-4:]])
def test_hosts_share_out_every_document_once(folder, name):
    source = opened(folder, name)
    hosts = min(len(source.list_shards("train")), 3)
    assert hosts > 1
    parts = [texts(source.get_dataset(seed=0, shard_info=seqio.ShardInfo(host, hosts))) for host in range(hosts)]
    assert all(parts)
    assert sorted(text for part in parts for text in part) == sorted(CASES[name][2])


@pytest.mark.parametrize("name", [*ORDERED, "paragraphs.txt", "a.jsonl.zst", "a.arrow"])
def test_an_iterator_that_was_saved_goes_on_where_it_was(folder, tmp_path, name):
    iterator = iterate(opened(folder, name).get_dataset(seed=3))
    for _ in range(100):
        next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "iterator"))
    rest = [document["text"].numpy() for document in iterator]
    streams._open.clear()  # as in another process: no stream is open
    again = iterate(opened(folder, name).get_dataset(seed=3))
    tf.train.Checkpoint(iterator=again).restore(saved)
    assert [document["text"].numpy() for document in again] == rest
    assert len(rest) == len(CASES[name][2]) - 100


def test_iterators_that_read_the_same_segments_do_not_mix(folder):
    source = opened(folder, "a.jsonl")
    first, second = (source.get_dataset(shuffle=False).as_numpy_iterator() for _ in range(2))
    for _ in range(100):
        next(first)
    pairs = [(next(second)["text"], next(first)["text"]) for _ in range(450)]
    assert [pair[0].decode() for pair in pairs] == TEXTS[:450]
    assert [pair[1].decode() for pair in pairs] == TEXTS[100:550]


def test_of_too_many_streams_some_are_closed_and_opened_again(folder, monkeypatch):
    monkeypatch.setattr(streams, "_MAX_OPEN", 4)
    source = opened(folder, "a.jsonl")
    assert sorted(texts(source.get_dataset(seed=0))) == sorted(TEXTS)
    assert len(streams._open) <= 4


def open_files(path):
    return sum(os.path.realpath(f"/proc/self/fd/{number}") == str(path) for number in os.listdir("/proc/self/fd"))


def test_the_files_of_iterators_that_are_gone_are_closed_and_of_those_that_are_read_on_stay_open(folder):
    kept = opened(folder, "a.jsonl.xz").get_dataset(shuffle=False).as_numpy_iterator()
    assert next(kept)["text"].decode() == TEXTS[0]
    dataset, left = opened(folder, "a.jsonl.gz").get_dataset(seed=0), []
    for _ in range(3):
        left.append(iter(dataset))
        next(left[-1])
    assert open_files(folder / "a.jsonl.gz") == 3
    left.clear()
    gc.collect()
    assert open_files(folder / "a.jsonl.gz") == 0
    assert open_files(folder / "a.jsonl.xz") == 1
    assert [document["text"].decode() for document in kept] == TEXTS[1:]


def test_a_program_that_leaves_an_iterator_behind_ends_without_a_word(folder):
    program = f"""
from ul2_tasks import open_source
left = [iter(open_source(f"{folder}/{{name}}").get_dataset()) for name in ("a.jsonl.gz", "a.parquet")]
print(len([next(iterator) for iterator in left]))
"""
    done = new_process.run("-c", program, check=True, torn_down=True)
    assert done.stdout == "2\n"
    assert "Exception" not in done.stderr


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet", "hf:hub"])
def test_a_file_is_opened_once_and_stays_open_until_it_is_read(folder, monkeypatch, name):
    """TensorFlow must take the array that holds a stream as it is; where it copies it, each block opens the file again."""
    opens = collections.Counter()
    source = opened(folder, name)
    read = source.records

    def counted(split, segment):
        opens[segment] += 1
        return read(split, segment)

    monkeypatch.setattr(source, "records", counted)
    assert sorted(texts(source.get_dataset(seed=0))) == sorted(CASES[name][2])
    assert set(opens.values()) == {1}


def test_a_stream_is_never_taken_for_that_of_another_source(tmp_path, monkeypatch):
    """As where an iterator is restored in another process, in which its stream's number is that of another's, at the same block."""
    iterators = {}
    for name in "ab":
        write_json(tmp_path / f"{name}.jsonl", [f"{name} {line}" for line in range(2000)])
        monkeypatch.setattr(streams, "_numbers", itertools.count(1))
        streams._open.clear()
        iterators[name] = iter(open_source(tmp_path / f"{name}.jsonl").get_dataset(shuffle=False))
        assert next(iterators[name])["text"].numpy().decode() == f"{name} 0"
    for name in "ab":
        rest = [document["text"].numpy().decode() for document in iterators[name]]
        assert rest == [f"{name} {line}" for line in range(1, 2000)]


LINE = st.sampled_from([b"", b"a", b"bc", b"a longer line", b"\xef\xbb\xbf"])


@settings(max_examples=200, deadline=None)
@given(st.lists(LINE, max_size=12), st.booleans(), st.integers(1, 9))
def test_cut_anywhere_every_line_is_in_exactly_one_segment(tmp_path_factory, lines, ends, length):
    path = tmp_path_factory.getbasetemp() / "cut.txt"
    content = b"\n".join(lines) + (b"\n" if ends else b"")
    path.write_bytes(content)
    segments = files._ranges(str(path), len(content), length)
    layout = Layout("text", "line")
    whole = list(records.read(Segment(str(path)), layout))
    assert [record.text for segment in segments for record in records.read(segment, layout)] == [record.text for record in whole]
    expected = content.split(b"\n")
    expected = expected[:-1] if expected[-1] == b"" else expected
    assert [record.text for record in whole] == [text.removeprefix(b"\xef\xbb\xbf") for text in expected[:1]] + expected[1:]


def test_one_large_file_is_split_into_up_to_64_segments_and_a_compressed_one_is_not(folder, tmp_path):
    write_json(tmp_path / "large.jsonl", ["x" * 1000] * 8000)
    segments = open_source(str(tmp_path / "large.jsonl")).list_shards("train")
    assert 60 <= len(segments) <= 64
    assert re.fullmatch(r".*large\.jsonl\[0:\d+\]", segments[0])
    assert len(opened(folder, "a.jsonl.gz").list_shards("train")) == 1
    assert len(opened(folder, "a.parquet").list_shards("train")) == -(-len(TEXTS) // 100), "row groups"


# What names files.


def test_files_are_named_by_path_glob_folder_list_and_split(tmp_path):
    for name in ("b/2.jsonl", "b/c/3.jsonl", "1.jsonl", "b/.hidden.jsonl", "b/_SUCCESS"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write_json(tmp_path / name, [name])
    at = str(tmp_path)

    def names(spec, split="train"):
        return [path.removeprefix(at + "/") for path in open_source(spec).files(split)]

    assert names(f"{at}/1.jsonl") == ["1.jsonl"]
    assert names(tmp_path / "1.jsonl") == ["1.jsonl"]
    assert names(f"{at}/*.jsonl") == ["1.jsonl"]
    assert names(f"{at}/**/*.jsonl") == ["1.jsonl", "b/2.jsonl", "b/c/3.jsonl"]
    assert names(f"{at}/b") == ["b/2.jsonl", "b/c/3.jsonl"]
    assert names([f"{at}/b/2.jsonl", f"{at}/*.jsonl", f"{at}/b"]) == ["b/2.jsonl", "1.jsonl", "b/c/3.jsonl"]
    by_split = {"train": f"{at}/b", "validation": [f"{at}/1.jsonl"]}
    assert (names(by_split), names(by_split, "validation")) == (["b/2.jsonl", "b/c/3.jsonl"], ["1.jsonl"])


HIDDEN = (".ipynb_checkpoints/a.jsonl", ".git/b/c.jsonl", "sub/_temporary/0/d.jsonl", "_SUCCESS", ".e.jsonl", "sub/.cache/f.jsonl")


def test_what_is_hidden_is_read_only_where_it_is_spelled(tmp_path, monkeypatch):
    at = tmp_path / ".hidden" / "corpus"  # what is above the folder does not count
    for name in ("1.jsonl", "sub/2.jsonl", *HIDDEN):
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        write_json(at / name, [name])
    monkeypatch.chdir(at.parent)

    def names(spec):
        return sorted(path.partition("/corpus/")[2] for path in open_source(spec, format="jsonl").files("train"))

    visible = ["1.jsonl", "sub/2.jsonl"]
    assert names(at) == names("corpus") == names(f"{at}/") == names(f"file://{at}") == visible
    assert names(f"{at}/**/*.jsonl") == names("corpus/**/*.jsonl") == visible
    assert names("corpus/*") == ["1.jsonl"]
    assert names("corpus/*/*.jsonl") == ["sub/2.jsonl"]
    for name in HIDDEN:
        assert names(f"corpus/{name}") == [name]
    assert names("corpus/.git") == names("corpus/.git/**") == names("corpus/.g*/*/*") == [".git/b/c.jsonl"]
    assert names("corpus/.*/*.jsonl") == [".ipynb_checkpoints/a.jsonl"]
    assert names(["corpus", "corpus/.e.jsonl"]) == [".e.jsonl", *visible]


def test_where_all_is_hidden_it_is_told(tmp_path):
    write_json(tmp_path / "_only.jsonl")
    for spec in (tmp_path, f"{tmp_path}/*", f"{tmp_path}/*.jsonl"):
        with pytest.raises(
            ValueError, match=r"all files that match .* are hidden, such as '.*_only.jsonl': .* name these one by one"
        ):
            open_source(spec, format="jsonl").get_dataset()


def test_paths_of_every_kind_are_paths_and_no_file_is_read_twice(tmp_path, monkeypatch):
    write_json(tmp_path / "a.jsonl", ["a"])
    write_json(tmp_path / "b.jsonl", ["b"])
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for spec in (a, [a], (a,), {"train": a}, {"train": [a]}, "~/a.jsonl", pathlib.Path("~/a.jsonl"), {"train": ("~/a.jsonl",)}):
        assert texts(open_source(spec).get_dataset()) == ["a"]
    for spec in (["a.jsonl", "./a.jsonl", a, "*.jsonl", f"{tmp_path}/../{tmp_path.name}/b.jsonl"], ["~", b]):
        assert open_source(spec).files("train") == [str(a), str(b)]
    assert texts(HuggingFaceSource(pathlib.Path("~"), text_key="text").get_dataset(shuffle=False)) == ["a", "b"]


def test_a_link_to_a_file_is_followed_and_one_to_a_folder_is_named(tmp_path):
    for folder in ("corpus", "elsewhere"):
        (tmp_path / folder).mkdir()
        write_json(tmp_path / folder / f"{folder}.jsonl", [folder])
    (tmp_path / "corpus" / "file.jsonl").symlink_to(tmp_path / "elsewhere" / "elsewhere.jsonl")
    assert sorted(texts(open_source(tmp_path / "corpus").get_dataset())) == ["corpus", "elsewhere"]
    (tmp_path / "corpus" / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=" is a link to a folder, which is not followed"):
        open_source(tmp_path / "corpus").get_dataset()
    assert texts(open_source(tmp_path / "corpus" / "link").get_dataset()) == ["elsewhere"], "named, it is a folder"


def test_a_name_with_brackets_is_a_name(tmp_path):
    write_json(tmp_path / "part[0].jsonl", ["here"])
    assert texts(open_source(str(tmp_path / "part[0].jsonl")).get_dataset()) == ["here"]


@pytest.mark.parametrize(
    ("where", "name"),
    [
        *(("memory://corpus", name) for name in ("a.jsonl", "a.jsonl.gz", "a.parquet")),
        ("file", "a.jsonl.gz"),
    ],
)
def test_file_systems_of_fsspec_are_read(folder, tmp_path, where, name):
    where = f"file://{tmp_path}" if where == "file" else where
    content = (folder / name).read_bytes()
    with fsspec.open(f"{where}/{name}", "wb") as file:
        file.write(content)
    for spec in (f"{where}/{name}", f"{where}/{name[:3]}*{name[4:]}", f"{where}"):
        if spec == where and name != "a.jsonl":
            continue  # the folder has files of other formats by now
        source = open_source({"train": spec}, format="parquet" if "parquet" in name else "jsonl")
        if spec == where:
            assert f"{where}/{name}".removeprefix("memory://") in "".join(source.files("train"))
        else:
            assert texts(source.get_dataset(shuffle=False)) == TEXTS


def test_tfds_is_read_by_its_name(tmp_path, request):
    features = tfds.features.FeaturesDict({"text": tfds.features.Text()})
    home = tmp_path / "own" / "1.2.0"
    home.mkdir(parents=True)
    for split, count in {"train": len(TEXTS), "validation": 10}.items():
        write_tfrecord(home / f"own-{split}.tfrecord-00000-of-00001", TEXTS[:count])
    tfds.folder_dataset.write_metadata(data_dir=home, features=features, split_infos=None)
    seqio.set_tfds_data_dir_override(str(tmp_path))
    request.addfinalizer(lambda: seqio.set_tfds_data_dir_override(None))
    source = open_source("tfds:own:1.2.0")
    assert repr(source) == "TfdsSource('own:1.2.0', text_key='text')"
    assert sorted(source.splits) == ["train", "validation"]
    assert texts(source.get_dataset("train", shuffle=False)) == TEXTS
    assert [record.text.decode() for _, record in shard_records(source, ("train",), 0, 1, "text")] == TEXTS


def test_nothing_is_opened_before_it_is_asked_for():
    for spec in (
        "nowhere/*.jsonl",
        "hf:nobody/nothing:config",
        "tfds:nothing:1.0.0",
        {"train": "gs://nowhere/a"},
        "nowhere.txt.gz",
    ):
        source = open_source(spec, documents="line" if ".txt" in spec else None)
        assert isinstance(source, seqio.DataSource)
        assert "nowhere" in repr(source) or "nothing" in repr(source)


# Bad input.


@pytest.mark.parametrize(
    ("spec", "arguments", "message"),
    [
        (3, {}, r"source must be files \('corpus/\*\.jsonl\.gz', a.*or a seqio\.DataSource, got 3"),
        ([], {}, r"source must be files \('corpus/\*\.jsonl\.gz', a.*or a seqio\.DataSource, got \[\]"),
        ("a", {"format": "csv"}, r"format must be one of \['text', 'jsonl', 'parquet', 'arrow', 'tfrecord'\], got 'csv'"),
        ("a", {"documents": "page"}, r"documents must be one of \['line', 'paragraph', 'file'\], got 'page'"),
        ("a", {"validation": 1.5}, r"validation must be a fraction in \[0, 1\), got 1\.5"),
        ("", {}, r"source must be files \('corpus/\*\.jsonl\.gz', a.*or a seqio\.DataSource, got ''"),
        ({}, {}, r"source must be files \('corpus/\*\.jsonl\.gz', a.*or a seqio\.DataSource, got \{\}"),
        (b"a.jsonl", {}, r"source must be files \('corpus/\*\.jsonl\.gz', a.*a seqio\.DataSource, got b'a\.jsonl'"),
        ({"train": []}, {}, r"files must be a path, a glob, a folder, or a list of at least one of these, got \[\]"),
        ({"train": None}, {}, "files must be a path, a glob, a folder, or a list of at least one of these, got None"),
        (["a", 3], {}, r"files must be a path, a glob, a folder, or a.*at least one of these, got \['a', 3\]"),
        (["a", ""], {}, r"files must be a path, a glob, a folder, or a.*at least one of these, got \['a', ''\]"),
        (["hf:a", "b"], {}, "files must be paths, got 'hf:a' among them, which is a source itself"),
        ("tfds:c4/en", {}, r"source must be 'tfds:NAME:VERSION', such as 'tfds:c4/en:3\.1\.0', got 'tfds:c4/en'"),
    ],
)
def test_a_bad_argument_is_named(spec, arguments, message):
    with pytest.raises(ValueError, match=message):
        open_source(spec, **arguments)


@pytest.mark.parametrize(
    ("spec", "arguments", "message"),
    [
        ("embedded", {"format": "parquet"}, r"format must be left out for sources that are.*'parquet' with the source 'embedded'"),
        ("embedded", {"documents": "file"}, r"documents must be left out for sources that are.*'file' with the source 'embedded'"),
        ("embedded", {"text_key": "body"}, "text_key must be left out for the source 'embedded', whose text is 'text', got 'body'"),
        ("embedded", {"id_key": "url"}, r"id_key must be left out without validation, got.*validation, too, or leave out id_key"),
        ("hf:a", {"format": "jsonl"}, r"format must be left out for sources that are.*got 'jsonl' with the source 'hf:a'"),
        (
            "tfds:a:1.0.0",
            {"documents": "line"},
            r"documents must be left out for sources that are.*with the source 'tfds:a:1\.0\.0'",
        ),
        (MemoryDataSource(lambda: ["a"], 0), {"format": "text"}, r"format must be left out for sources that are.*validation=0\)"),
        ("a.jsonl", {"id_key": "url"}, r"id_key must be left out without validation, got.*validation, too, or leave out id_key"),
        (
            "a.jsonl.gz",
            {"documents": "line"},
            r"documents must be left out for files that are.*'line', and 'a\.jsonl\.gz' are jsonl",
        ),
        (
            "a",
            {"format": "parquet", "documents": "file"},
            r"documents must be left out for files that are.*got 'file', and 'a' are parquet",
        ),
        (
            "a.txt",
            {"documents": "line", "text_key": "body"},
            r"text_key must be left out for text files, which have no fields, got 'body' with 'a\.txt'",
        ),
        (
            "a.txt",
            {"documents": "line", "id_key": "url", "validation": 0.1},
            r"id_key must be left out for text files, which have no fields, got 'url' with 'a\.txt'",
        ),
    ],
)
def test_an_option_that_means_nothing_for_the_source_is_refused(spec, arguments, message):
    with pytest.raises(ValueError, match=message):
        open_source(spec, **arguments)


def test_what_a_folder_holds_is_known_when_it_is_listed_and_so_is_what_an_option_means(tmp_path):
    for name, write in (("json", write_json), ("text", write_lines)):
        (tmp_path / name).mkdir()
        write(tmp_path / name / f"a.{name}l" if name == "json" else tmp_path / name / "a.txt")
    with pytest.raises(
        ValueError, match=r"documents must be left out for files that are not text files, got 'line', and.*are jsonl"
    ):
        open_source(tmp_path / "json", documents="line").get_dataset()
    with pytest.raises(ValueError, match="text_key must be left out for text files, which have no fields, got 'body' with"):
        open_source(tmp_path / "text", documents="line", text_key="body").get_dataset()
    both = open_source({"train": tmp_path / "text", "validation": tmp_path / "json"}, documents="line")
    assert texts(both.get_dataset("train", shuffle=False)) == LINES
    assert texts(both.get_dataset("validation", shuffle=False)) == TEXTS


WRAPPED = "\n\n".join(
    "Prose that is wrapped at\nsome column ends its lines\nanywhere. It is read by\nparagraphs." for _ in range(30)
)


@pytest.mark.parametrize("spec", ["*.txt", "{folder}/*.txt", "a.txt", ["a.txt", "b.txt"], {"train": "b.txt"}, ".", ("a.txt", "*")])
def test_what_a_document_is_in_text_files_is_asked_and_what_each_choice_would_give_is_shown(tmp_path, monkeypatch, spec):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text(WRAPPED)
    (tmp_path / "b.txt").write_text(WRAPPED)
    spec = spec.format(folder=tmp_path) if isinstance(spec, str) else spec
    count = 1 if spec == "a.txt" or isinstance(spec, dict) else 2
    message = (
        rf"are text files: what is a document in them, a line, a paragraph or a file\? in the first {count} of {count} files, .*"
        rf"'line' gives {count * 149} documents of \d tokens in the median, {count * 29} blank; "
        rf"'paragraph' gives {count * 30} documents of 2\d tokens in the median, 0 blank; 'file' gives {count} documents of"
        r" \d{3} tokens in the median, 0 blank \(tokens of the default vocabulary\)\. Pass open_source\(.., documents=..\), or"
    )
    is_told_late = spec in (".", ("a.txt", "*"))  # their names do not tell that they are text
    source = open_source(spec) if is_told_late else None
    with pytest.raises(ValueError, match=message):
        source.get_dataset() if is_told_late else open_source(spec)


def test_what_a_document_is_is_asked_where_the_files_cannot_be_read_too(tmp_path):
    with pytest.raises(ValueError, match=r"no file matches 'nowhere/\*.txt'"):
        open_source("nowhere/*.txt")
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "a.txt").rename(tmp_path / "a")
    with pytest.raises(ValueError, match=r"'.*' are text files: what is a document in them"):
        open_source(tmp_path / "a", format="text")


def test_no_file_several_formats_no_format_and_empty_files_are_named(tmp_path):
    def fails(spec, message, **arguments):
        with pytest.raises(ValueError, match=message):
            open_source(spec, **arguments).get_dataset()

    fails(f"{tmp_path}/*.jsonl", "no file matches")
    fails("nothing-here-*.jsonl", "no file matches 'nothing-here-.*' in the folder /")
    fails(
        "HuggingFaceFW/fineweb-edu",
        "no file matches 'Hugg.*, or, for a dataset of Hugging Face's hub, 'hf:HuggingFaceFW/fineweb-edu'",
    )
    fails("Owner/name:config", "for a dataset of Hugging Face's hub, 'hf:Owner/name:config'")
    (tmp_path / "elsewhere").mkdir()
    none = tmp_path / "elsewhere" / "no_rows.parquet"
    pq.ParquetWriter(none, pa.schema([("text", pa.string())])).close()
    fails(none, "files must hold a document, but none of the 1 files has a row, the first is")
    none.unlink()
    (tmp_path / "empty").mkdir()
    fails(tmp_path / "empty", r"no file is in the folder '.*/empty', nor below it\. Pass a file, a folder or a glob")
    (tmp_path / "a.jsonl").touch()
    (tmp_path / "b.jsonl").touch()
    fails(str(tmp_path), "files must hold a document, but each of the 2 files is empty, the first is '.*a.jsonl'")
    (tmp_path / "c.parquet").touch()
    fails(str(tmp_path), r"files must be of one format, got several, such as \{'jsonl': '.*', 'parquet': '.*'\}\. Register those")
    (tmp_path / "what.bin").touch()
    fails(str(tmp_path / "what.bin"), r"'.*what\.bin' must have a name that ends in one of \.txt .* Pass format")
    fails("s4://bucket/a.jsonl", "s4:// must have a file system that is installed")


def test_a_dataset_of_tfds_that_is_not_prepared_is_told_in_one_sentence(tmp_path, request):
    seqio.set_tfds_data_dir_override(str(tmp_path))
    request.addfinalizer(lambda: seqio.set_tfds_data_dir_override(None))
    for name in ("c4/en:3.1.0", "c4/en:0.0.1", "of_nobody:1.0.0"):
        message = (
            rf"'tfds:{name}' is not prepared in {tmp_path}( \(\w+\))?\. Run `tfds build {name} --data_dir={tmp_path}`, or"
            r" set TFDS_DATA_DIR to the folder where it is prepared\."
        )
        source = open_source(f"tfds:{name}")
        with pytest.raises(ValueError, match=rf"^{message}$"):
            _ = source.splits
        with pytest.raises(ValueError, match=rf"^{message}$"):
            source.num_input_examples("train")


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        ImportError, match=r"'hf:' sources need the package datasets .*\. Run .pip install 'ul2_tasks\[huggingface\]'"
    ):
        open_source("hf:a").get_dataset()


def test_a_split_that_is_not_there_and_too_many_hosts_are_named(folder):
    with pytest.raises(ValueError, match=r"split must be one of \['train'\] in FileSource\(\{'train':.*, got 'test'"):
        opened(folder, "a.jsonl").get_dataset("test")
    with pytest.raises(ValueError, match=r"must have a segment for each of 2 shards, got 1. Use fewer hosts"):
        opened(folder, "a.jsonl.gz").get_dataset(shard_info=seqio.ShardInfo(0, 2))


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "stream.arrow", "a.tfrecord"])
def test_a_missing_column_is_named_with_those_present(folder, name):
    present = r"\['text'\]" if name == "a.tfrecord" else r"\['id', 'text'\]"
    with pytest.raises(ValueError, match=rf"{name} has no field 'content', only {present}\. Pass text_key, one of these"):
        open_source(str(folder / name), text_key="content").get_dataset()


def test_a_field_that_no_record_has_is_told_at_once_and_one_that_some_lack_when_they_are_read(folder, tmp_path):
    for suffix in ("", ".gz"):
        with pytest.raises(
            ValueError, match=rf"a.jsonl{suffix} has no field 'content', only \['id', 'text'\]\. Pass text_key, one"
        ):
            open_source(folder / f"a.jsonl{suffix}", text_key="content").get_dataset()
    with pytest.raises(ValueError, match=r"a.jsonl has no field 'url', only \['id', 'text'\]\. Pass id_key, one of these"):
        open_source(folder / "a.jsonl", id_key="url", validation=0.1).get_dataset()
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_text('\n"no object"\n{"body": "x"}\n{"text": "good", "url": "u"}\n')
    assert [problem.partition(".jsonl, ")[2] for problem in problems(open_source(mixed))] == [
        "line 2: must be an object with the field 'text', got a value of type str",
        "line 3: has no field 'text', only ['body']",
    ]
    (tmp_path / "0.jsonl").touch()
    (tmp_path / "1.jsonl").write_text('{"body": "x"}\n')
    with pytest.raises(ValueError, match=r"1.jsonl has no field 'text', only \['body'\]\. Pass text_key"):
        open_source([tmp_path / "0.jsonl", tmp_path / "1.jsonl"]).get_dataset()
    (tmp_path / "none.jsonl").write_text("3\n")
    assert len(problems(open_source(tmp_path / "none.jsonl"))) == 1, "no record at all has fields"


def test_a_tfds_feature_that_is_not_there_is_told_at_once(tmp_path, request):
    home = tmp_path / "lacking" / "1.0.0"
    home.mkdir(parents=True)
    write_tfrecord(home / "lacking-train.tfrecord-00000-of-00001", ["a"])
    features = tfds.features.FeaturesDict({"text": tfds.features.Text()})
    tfds.folder_dataset.write_metadata(data_dir=home, features=features, split_infos=None)
    seqio.set_tfds_data_dir_override(str(tmp_path))
    request.addfinalizer(lambda: seqio.set_tfds_data_dir_override(None))
    with pytest.raises(
        ValueError, match=r"tfds:lacking:1\.0\.0 has no field 'content', only \['text'\]\. Pass text_key, one of these"
    ):
        open_source("tfds:lacking:1.0.0", text_key="content").get_dataset()
    with pytest.raises(
        ValueError, match=r"split must be one of \['train'\] in TfdsSource\('lacking:1.0.0', text_key='text'\), got 'test'"
    ):
        open_source("tfds:lacking:1.0.0").get_dataset("test")


def test_a_bad_line_is_told_by_its_number_in_the_file_wherever_the_file_is_cut(tmp_path, monkeypatch):
    lines = ['{"text": "%s"}' % ("x" * (n % 3500)) for n in range(0, 7000, 7)]
    bad = [*range(0, 1000, 61), 999]
    for n in bad:
        lines[n] = "bad"
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    source = open_source(tmp_path / "a.jsonl")
    assert len(source.list_shards("train")) > 20
    assert [problem.split(":")[0] for problem in problems(source, shuffle=False)] == [
        f"{tmp_path}/a.jsonl, line {n + 1}" for n in bad
    ]
    monkeypatch.setattr(records, "_MAX_COUNTED", 1 << 19)
    content = (tmp_path / "a.jsonl").read_bytes()
    (at,) = re.findall(r"a.jsonl, the line at byte (\d+): is not JSON", problems(source, shuffle=False)[-1])
    assert content[int(at) :] == b"bad", "of what is too far from the beginning to count"


def test_each_bad_line_of_json_is_named(tmp_path):
    lines = [
        (b'{"text": "good"}', None),
        (b'{"text": "cut', r"line 2: is not JSON, Unterminated string .*; it begins with '\{\"text\": \"cut'"),
        (b'["text"]', "line 3: must be an object with the field 'text', got a value of type list"),
        (b'"text"', "line 4: must be an object with the field 'text', got a value of type str"),
        (b'{"content": "x", "url": "y"}', r"line 5: has no field 'text', only \['content', 'url'\]"),
        (b'{"text": null}', "line 6: 'text' must be a text, got a value of type NoneType"),
        (b'{"text": ["a"]}', "line 7: 'text' must be a text, got a value of type list"),
        (b'{"text": "\xff"}', "line 8: is not UTF-8, invalid start byte at byte 10"),
        (b'{"text": "\\ud800"}', "line 9: 'text' is not Unicode, surrogates not allowed"),
        (b"[" * 10_000, "line 10: is not JSON, "),
        (b"", None),
        (b'{"text": "also good"}', None),
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(line for line, _ in lines))
    source = open_source(str(tmp_path / "a.jsonl"))
    expected = [message for _, message in lines if message]
    found = problems(source, shuffle=False)
    assert len(found) == len(expected)
    for message, problem in zip(expected, found):
        assert re.match(f"{re.escape(str(tmp_path))}/a.jsonl, {message}", problem), problem
    assert [text for text in texts(source.get_dataset(shuffle=False)) if text] == ["good", "also good"]


TYPES = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(), pa.json_()]
TYPES += [pa.dictionary(pa.int16(), pa.string()), pa.dictionary(pa.int32(), pa.large_string())]


@pytest.mark.parametrize("type", TYPES, ids=str)
def test_texts_are_read_of_columns_of_every_type_of_texts(tmp_path, type):
    written = [*TEXTS[:20], None]
    plain = pa.array(written).cast(pa.large_string())
    storage = type.storage_type if isinstance(type, pa.BaseExtensionType) else type
    if pa.types.is_dictionary(storage):
        column = plain.cast(storage.value_type).dictionary_encode().cast(storage)
    else:
        column = pa.array([text and text.encode() for text in written] if "binary" in str(storage) else written, storage)
    column = pa.ExtensionArray.from_storage(type, column) if storage is not type else column
    table = pa.table({"text": column})
    pq.write_table(table, tmp_path / "a.parquet")
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as file:
        file.write_table(table)
    for name in ("a.parquet", "a.arrow"):
        (*found, last) = open_source(tmp_path / name).records("train", 0)
        assert [record.text.decode() for record in found] == TEXTS[:20], name
        assert last.problem.endswith("row 20: 'text' must be a text, got null")


def damaged(content, at=0.5):
    middle = int(len(content) * at)
    return content[:middle] + bytes(byte ^ 0x55 for byte in content[middle : middle + 40]) + content[middle + 40 :]


@pytest.mark.parametrize("damage", ["cut", "altered"])
@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_a_corrupt_compressed_file_gives_what_is_readable_and_says_that_the_rest_is_lost(folder, tmp_path, suffix, damage):
    content = (folder / f"a.jsonl{suffix}").read_bytes()
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(content[: len(content) // 2] if damage == "cut" else damaged(content))
    source = open_source(str(path))
    found = problems(source)
    assert re.match(f"{re.escape(str(path))}: is corrupt, so all from here on is lost: ", found[-1]), found[-1][:300]
    read = texts(source.get_dataset(shuffle=False))[: -len(found)]
    if suffix == ".gz":
        assert len(read) > 200
        read = read[:200]  # gzip sees what was altered at its end alone, by a checksum
    assert read == TEXTS[: len(read)]


def test_an_arrow_stream_that_is_cut_between_batches_or_goes_on_behind_its_end_says_so(folder, tmp_path):
    content = (folder / "stream.arrow").read_bytes()
    with pa.ipc.open_stream(folder / "stream.arrow") as reader:
        reader.read_next_batch()
        one = pa.BufferOutputStream()
        with pa.ipc.new_stream(one, reader.schema) as writer:
            writer.write_batch(reader.read_next_batch())
    for number, wrong in enumerate((one.getvalue().to_pybytes()[:-8], content[:-8], content + content, content + b"x" * 8)):
        path = tmp_path / f"{number}.arrow"
        path.write_bytes(wrong)
        (found,) = problems(open_source(path))
        assert found.startswith(f"{path}: is corrupt")


@pytest.mark.parametrize("compress", [lzma.compress, bz2.compress])
def test_datasets_do_not_read_what_they_may_leave_out(tmp_path, compress):
    suffix = {lzma.compress: "xz", bz2.compress: "bz2"}[compress]
    (tmp_path / f"a.jsonl.{suffix}").write_bytes(compress(b'{"text": "a"}\n') + b"\0" * 8 + compress(b'{"text": "b"}\n'))
    with pytest.raises(ValueError, match=f"a.jsonl.{suffix}"):
        open_source(f"hf:{tmp_path}").list_shards("train")


def test_a_file_that_is_not_compressed_at_all_is_corrupt(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(b'{"text": "x"}\n')
    assert "a.jsonl.gz: is corrupt" in problems(open_source(str(tmp_path)))[0]


def test_a_corrupt_parquet_file_is_named_with_its_row_group(folder, tmp_path):
    content = bytearray((folder / "a.parquet").read_bytes())
    group = pq.ParquetFile(folder / "a.parquet").metadata.row_group(4).column(1)
    at = group.dictionary_page_offset or group.data_page_offset
    content[at : at + group.total_compressed_size] = b"\xff" * group.total_compressed_size
    (tmp_path / "a.parquet").write_bytes(content)
    source = open_source(str(tmp_path / "a.parquet"))
    (found,) = problems(source)
    assert re.match(rf"{re.escape(str(tmp_path))}/a.parquet, row group 4: is corrupt, so the rest of it is lost: ", found)
    kept = [text for number, text in enumerate(TEXTS) if number // 100 != 4]
    assert [text for text in texts(source.get_dataset(shuffle=False)) if text] == [text for text in kept if text]

    (tmp_path / "a.parquet").write_bytes(content[:-20])
    (found,) = problems(open_source(str(tmp_path / "a.parquet")))
    assert re.match(r".*a.parquet: is corrupt, so all from here on is lost: ArrowInvalid: ", found)


def test_a_parquet_file_whose_footer_is_altered_is_named(folder, tmp_path):
    content = bytearray((folder / "a.parquet").read_bytes())
    footer = int.from_bytes(content[-8:-4], "little")
    content[-8 - footer : -8] = b"\xff" * footer
    (tmp_path / "a.parquet").write_bytes(content)
    (found,) = problems(open_source(str(tmp_path / "a.parquet")))
    assert re.match(r".*a.parquet: is corrupt, so all from here on is lost: ", found)


@pytest.mark.parametrize("name", ["text", "id"])
@pytest.mark.parametrize("place", [1 << 30, -1])
def test_places_of_texts_outside_of_an_arrow_file_are_told_and_do_not_end_the_process(tmp_path, name, place):
    path, offsets = tmp_path / "a.arrow", np.array([0, 5, 10, 15], np.int32)
    table = pa.table({"text": ["a" * 5, "b" * 5, "c" * 5], "id": ["d" * 5, "e" * 5, "f" * 5]})
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)
    before = offsets.tobytes()
    content = path.read_bytes()
    at = content.index(before) if name == "text" else content.rindex(before)
    path.write_bytes(content[: at + 8] + np.int32(place).tobytes() + content[at + 12 :])
    (found,) = problems(open_source(str(path), id_key="id", validation=0.5), split="train") or problems(
        open_source(str(path), id_key="id", validation=0.5), split="validation"
    )
    assert re.match(r".*a.arrow: is corrupt, so all from here on is lost: ArrowInvalid: ", found)


def test_a_text_of_an_arrow_file_that_is_not_utf8_is_the_problem_of_its_row_alone(tmp_path):
    path = tmp_path / "a.arrow"
    texts = pa.array([b"good", b"na\xefve", b"good"]).view(pa.string())
    with pa.ipc.new_stream(str(path), pa.schema({"text": pa.string()})) as writer:
        writer.write_table(pa.table({"text": texts}))
    (found,) = problems(open_source(str(path)))
    assert "row 1: is not UTF-8" in found


def test_nulls_and_columns_of_another_type_are_named(tmp_path):
    pq.write_table(pa.table({"text": ["a", None]}), tmp_path / "null.parquet")
    assert (
        "null.parquet, row group 0, row 1: 'text' must be a text, got null" in problems(open_source(tmp_path / "null.parquet"))[0]
    )
    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "number.parquet")
    with pytest.raises(ValueError, match=r"text_key must be .*got 'text', in .*number\.parquet"):
        open_source(tmp_path / "number.parquet").get_dataset()
    (tmp_path / "later").mkdir()
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "later" / "a.parquet")
    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "later" / "b.parquet")
    assert problems(open_source(tmp_path / "later")) == [
        f"{tmp_path}/later/b.parquet: column 'text' must be a text, got one of type int64"
    ]


TOKENS = [[5, 6, 7], [8]]


def tokens_of_lines(folder):
    (folder / "a.jsonl").write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in TOKENS))
    return str(folder / "a.jsonl")


def tokens_of_parquet(folder):
    pq.write_table(pa.table({"input_ids": TOKENS}), folder / "a.parquet")
    return str(folder / "a.parquet")


def tokens_of_arrow(folder):
    with pa.ipc.new_stream(folder / "a.arrow", pa.table({"input_ids": TOKENS}).schema) as file:
        file.write_table(pa.table({"input_ids": TOKENS}))
    return str(folder / "a.arrow")


def tokens_of_datasets(folder):
    return datasets.Dataset.from_dict({"input_ids": TOKENS})


def tokens_of_a_saved_dataset(folder):
    tokens_of_datasets(folder).save_to_disk(folder / "saved")
    return f"hf:{folder}/saved"


def tokens_of_numpy(folder):
    np.save(folder / "a.npy", np.arange(9))
    return str(folder / "a.npy")


@pytest.mark.parametrize(
    "write",
    [tokens_of_lines, tokens_of_parquet, tokens_of_arrow, tokens_of_datasets, tokens_of_a_saved_dataset, tokens_of_numpy],
    ids=lambda write: write.__name__,
)
def test_tokens_of_others_are_refused_at_once_and_megatrons_are_named(tmp_path, write):
    with pytest.raises(ValueError, match="'megatron:PREFIX'"):
        open_source(write(tmp_path), text_key="input_ids").list_shards("train")


@pytest.mark.parametrize("name", ["hf", "tfds", "megatron"])
def test_a_folder_may_have_the_name_of_a_kind_of_source(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()
    write_json(tmp_path / name / "a.jsonl", ["x"])
    assert texts(open_source(name).get_dataset()) == ["x"]
    with pytest.raises(ValueError, match=f"'{name}:|no file matches"):
        open_source(f"{name}:").list_shards("train")


def test_no_file_of_a_format_that_has_no_lines_is_cut_within(tmp_path):
    (tmp_path / "a").write_bytes(b"x\n" * 200_000)
    cut = {
        layout.format: len(files.segments([str(tmp_path / "a")], layout))
        for layout in (Layout("csv"), Layout("tfrecord"), Layout("text", "paragraph"), Layout("jsonl"))
    }
    assert cut == {"csv": 1, "tfrecord": 1, "text": 1, "jsonl": 7}


def test_text_that_is_not_utf8_is_named_where_it_is(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"good\nna\xefve\ngood")
    assert problems(open_source(tmp_path / "a.txt", documents="line")) == [
        f"{tmp_path}/a.txt, line 2: is not UTF-8, invalid continuation byte at byte 2"
    ]


def test_a_tfrecord_that_lacks_the_feature_is_a_problem(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as file:
        for example in (tf_example(text=b"good"), tf_example(other=b"x"), b"\x0a\xff", tf_example(text=b"good, too")):
            file.write(example)
    source = open_source(tmp_path / "a.tfrecord")
    lacking, broken = problems(source)
    assert lacking == f"{tmp_path}/a.tfrecord, record 2: has not exactly one value in each of its features ['text']"
    assert broken.startswith(f"{tmp_path}/a.tfrecord, record 3: is not a tf.Example")
    assert [text for text in texts(source.get_dataset()) if text] == ["good", "good, too"]


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".zst"])
@pytest.mark.parametrize("at", [5, 10, 20, 60, 1000, -3, -14])
def test_tfrecords_that_are_cut_or_altered_anywhere_say_so(tmp_path, suffix, at):
    write_tfrecord(tmp_path / "a.tfrecord", TEXTS[:40])
    content = (tmp_path / "a.tfrecord").read_bytes()
    altered = bytearray(content)
    altered[at] ^= 1
    compress = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstd.compress}.get(suffix, bytes)
    for number, damaged in enumerate((content[:at], altered)):
        path = tmp_path / f"{number}.tfrecord{suffix}"
        path.write_bytes(compress(damaged))
        source = open_source(path)
        (found,) = problems(source)
        assert found.startswith(f"{path}: is corrupt, so all from here on is lost: ")
        read = texts(source.get_dataset(shuffle=False))[:-1]
        assert read == TEXTS[: len(read)]


def test_a_file_that_is_gone_is_an_error_and_no_bad_record(folder, tmp_path):
    path = tmp_path / "a.jsonl"
    write_json(path, ["x"] * 10)
    dataset = open_source(path).get_dataset()
    path.unlink()
    with pytest.raises(tf.errors.OpError, match="FileNotFoundError"):
        list(dataset)


def test_windows_line_ends_and_a_byte_order_mark_are_no_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert texts(open_source(tmp_path / "a.txt", documents="line").get_dataset()) == ["one", "two"]


def test_the_ids_of_hugging_face_rows_and_a_missing_column(folder):
    source = HuggingFaceSource(str(folder / "hub"), id_key="id")
    assert {int(d["id"]) for d in source.get_dataset().as_numpy_iterator()} == set(range(len(TEXTS[::4])))
    for name, present in (("saved", ["text"]), ("hub", ["id", "text"])):
        with pytest.raises(
            ValueError, match=rf"{name}, split train, has no field 'content', only {re.escape(str(present))}\. Pass"
        ):
            HuggingFaceSource(folder / name, text_key="content").get_dataset()


def test_a_source_says_what_it_is(folder):
    assert repr(FileSource({"train": "a.jsonl"}, text_key="content")) == "FileSource({'train': 'a.jsonl'}, text_key='content')"
    assert repr(open_source(["a", pathlib.Path("b")], format="text", documents="file")) == (
        "FileSource({'train': ['a', 'b']}, format='text', documents='file')"
    )


@pytest.mark.parametrize("validation", [None, 0.1])
def test_of_a_part_of_a_corpus_of_many_files_all_give_texts(tmp_path, validation):
    """As `ul2 vocab train --max_characters` reads it: 100 texts of each of 30 files, and a tenth of all characters."""
    for number in range(30):
        texts = [f"{number} {'text' * (1 + line % 50)}" for line in range(100 if number else 3)]
        (tmp_path / f"{number}.txt").write_text("\n".join(texts))
    source = open_source(f"{tmp_path}/*.txt", documents="line", validation=validation)
    most, characters, found = 30_000, 0, collections.Counter()
    for text in documents(source, "train", most):
        if characters >= most:
            break
        characters += len(text)
        found[text.split()[0]] += len(text)
    assert len(found) == 30
    assert max(found.values()) < 3 * most / 30
    everything = list(documents(source, "train", most))
    expected = [document["text"].decode() for document in source.get_dataset("train", shuffle=False).as_numpy_iterator()]
    assert sorted(everything) == sorted(expected)
