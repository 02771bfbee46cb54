"""Every kind of source gives the documents that were put into it, each once, and says what it could not read."""

import bz2
import contextlib
import csv
import functools
import gzip
import io
import json
import lzma
import os
import pickle
import re
import tarfile

import datasets
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

from tests.sources import token_files
from tests.support import records_of
from ul2_tasks import open_image_text, open_source
from ul2_tasks.sources import formats, records
from ul2_tasks.sources import lines as of_lines
from ul2_tasks.sources.file_source import FileSource
from ul2_tasks.sources.files import Layout, Shard
from ul2_tasks.sources.splits import hash_fraction
from ul2_tasks.tasks import streams
from ul2_tasks.tasks.sources import seqio_source

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
OF_CELLS = [text for text in TEXTS if "\0" not in text]  # which Python 3.10 does not read
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


def write_samples(path):
    with tarfile.open(path, "w") as tar:
        for number, text in enumerate(TEXTS):
            content = json.dumps({"text": text}).encode()
            info = tarfile.TarInfo(f"{number:04d}.json")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def write_csv(path, texts):
    with open(path, "w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, ["id", "text"])
        writer.writeheader()
        writer.writerows({"id": number, "text": text} for number, text in enumerate(texts))


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
    "paragraphs.txt": (lambda path: path.write_bytes("\n \n\n".join(PARAGRAPHS).encode()), {"documents": "paragraph"}, PARAGRAPHS),
    "folder": (write_folder_of_files, {"documents": "file"}, [text.removeprefix("\ufeff") for text in TEXTS[:200]]),
    **{f"a.jsonl{suffix}": (write_json, {}, TEXTS) for suffix in ("", ".gz", ".bz2", ".xz", ".zst")},
    "a.parquet": (write_parquet, {}, TEXTS),
    "a.arrow": (write_arrow, {}, TEXTS),
    "stream.arrow": (write_arrow_stream, {}, TEXTS),
    "a.tfrecord": (write_tfrecord, {}, TEXTS),
    "a.tfrecord.gz": (write_tfrecord, {}, TEXTS),
    "a.tfrecord.xz": (lambda path: path.write_bytes(lzma.compress((path.parent / "a.tfrecord").read_bytes())), {}, TEXTS),
    "a.tar": (write_samples, {}, TEXTS),
    "a.csv": (functools.partial(write_csv, texts=OF_CELLS), {}, OF_CELLS),
    "a.csv.zst": (lambda path: path.write_bytes(zstd.compress((path.parent / "a.csv").read_bytes())), {}, OF_CELLS),
    "a.mds": (lambda path: path.mkdir() or token_files.mds(path, TEXTS, "str"), {}, TEXTS),
    "hf:saved": (write_saved, {}, TEXTS),
    "hf:hub": (write_hub_layout, {}, [text for shard in range(4) for text in TEXTS[shard::4]]),
    "dataset:rows": (write_saved, {}, TEXTS),
    "iterable:shards": (write_hub_layout, {}, [text for shard in range(4) for text in TEXTS[shard::4]]),
}
OBJECTS = {
    "dataset": datasets.load_from_disk,
    "iterable": lambda path: datasets.load_dataset(str(path), split="train", streaming=True),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpora")
    for name, (write, _, _) in CASES.items():
        write(folder / name.rpartition(":")[2])
    return folder


def opened_case(folder, name, **arguments):
    kind, _, path = name.rpartition(":")
    spec = OBJECTS[kind](folder / path) if kind in OBJECTS else f"{kind}:{folder / path}".removeprefix(":")
    return open_source(spec, **CASES[name][1], **arguments)


def texts(dataset):
    return [document["text"].decode() for document in dataset.as_numpy_iterator()]


def texts_of(source, **arguments):
    return [record.text.decode() for record in records_of(source, **arguments)]


def problems(source, **arguments):
    return [record.problem for record in records_of(source, **arguments) if record.problem]


@pytest.mark.parametrize("name", CASES)
def test_every_document_is_read_as_it_was_written_and_in_order_and_its_text_decides_its_split(folder, name):
    source, wanted = opened_case(folder, name), CASES[name][2]
    assert (texts_of(source), problems(source)) == (wanted, [])
    assert source.splits == ("train",)
    split = opened_case(folder, name, validation=0.1)
    read = [item for shard in split.shards("train") for item in split.read_group(shard)]
    held_out = [text for text in wanted if hash_fraction(text.encode()) < 0.1]
    assert [record.as_text.decode() for of, record in read if of == "validation"] == held_out
    assert len(read) == len(wanted)


def test_every_format_has_a_case():
    assert {*formats.FORMATS} == {formats.named_format(name) for name in CASES} - {None}


# Those of one piece and of several; what is in a file is read by the test above.
ORDERED = ["lines.txt", "folder", "a.jsonl.gz", "a.parquet", "hf:hub", "dataset:rows", "iterable:shards"]


@pytest.mark.parametrize("name", ORDERED)
def test_a_stream_has_every_document_once_in_any_order_on_any_hosts_and_goes_on_where_it_was_saved(folder, tmp_path, name):
    def stream(**settings):
        return seqio_source(opened_case(folder, name)).get_dataset(**settings)

    shards, wanted = len(opened_case(folder, name).list_shards("train")), sorted(CASES[name][2])
    one, other = (texts(stream(seed=seed)) for seed in (1, 2))
    assert sorted(one) == sorted(other) == wanted
    assert shards == 1 or one != other
    hosts = min(shards, 3)
    parts = [texts(stream(seed=0, shard_info=seqio.ShardInfo(host, hosts))) for host in range(hosts)]
    assert all(parts)
    assert sorted(text for part in parts for text in part) == wanted
    iterator, again = iter(stream(seed=1)), iter(stream(seed=1))
    for _ in range(100):
        next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "iterator"))
    streams._readers._open.clear()  # as in another process: nothing is open
    tf.train.Checkpoint(iterator=again).restore(saved)
    assert [document["text"].numpy().decode() for document in again] == one[100:]


def open_files(folder):
    """How many files below a folder this process has open."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # another thread has closed it since it was listed
            count += os.readlink(f"/proc/self/fd/{name}").startswith(str(folder))
    return count


def test_iterators_that_are_left_half_read_hold_a_bounded_number_of_files(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "MAX_OPEN", 8)
    for number in range(20):
        write_json(tmp_path / f"{number:02d}.jsonl", [f"{number} {line}" for line in range(200)])
    source, held = open_source(f"{tmp_path}/*.jsonl"), []
    for seed in range(30):
        iterator = seqio_source(source).get_dataset(seed=seed).as_numpy_iterator()
        next(iterator)
        held.append(open_files(tmp_path))
    del iterator
    assert max(held) <= 8 + 16, "those that wait, and those that are being read"
    assert 0 < open_files(tmp_path) <= 8


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_block_whose_reading_failed_is_the_next_one_and_no_end(folder, monkeypatch, shuffle):
    read, left = FileSource.read, [3]

    def failing(self, shard):
        for number, record in enumerate(read(self, shard)):
            if number == 50 and left[0]:
                left[0] -= 1
                raise ConnectionResetError("reset")
            yield record

    monkeypatch.setattr(FileSource, "read", failing)
    iterator = seqio_source(opened_case(folder, "a.parquet")).get_dataset(shuffle=shuffle, seed=1).as_numpy_iterator()
    found, errors = [], 0
    while len(found) < len(TEXTS) and errors < 10:
        try:
            found.append(next(iterator)["text"].decode())
        except tf.errors.OpError:
            errors += 1
    assert (sorted(found), errors) == (sorted(TEXTS), 3)
    assert next(iterator, None) is None


@pytest.mark.parametrize("opened_of", [open_source, lambda files: open_source(files, validation=0.5), open_image_text])
def test_files_are_listed_once_for_all_processes(tmp_path, opened_of):
    for number in range(3):
        write_json(tmp_path / f"{number}.jsonl")
    source = opened_of(f"{tmp_path}/*.jsonl")
    shards = source.shards("train")
    write_json(tmp_path / "new.jsonl")
    assert pickle.loads(pickle.dumps(source)).shards("train") == shards
    assert opened_of(f"{tmp_path}/*.jsonl").shards("train") != shards


LINE = st.sampled_from([b"", b"a", b"bc", b"a longer line", b"\xef\xbb\xbf"])


@settings(max_examples=200, deadline=None)
@given(st.lists(LINE, max_size=12), st.booleans(), st.integers(1, 9))
def test_cut_anywhere_every_line_is_in_exactly_one_segment(tmp_path_factory, lines, ends, length):
    path = tmp_path_factory.getbasetemp() / "cut.txt"
    content = b"\n".join(lines) + (b"\n" if ends else b"")
    path.write_bytes(content)
    segments = of_lines.ranges(str(path), len(content), length)
    layout = Layout("text", "line")
    whole = list(records.read(Shard(str(path)), layout))
    assert [record.text for segment in segments for record in records.read(segment, layout)] == [record.text for record in whole]
    expected = content.split(b"\n")
    expected = expected[:-1] if expected[-1] == b"" else expected
    assert [record.text for record in whole] == [text.removeprefix(b"\xef\xbb\xbf") for text in expected[:1]] + expected[1:]


# What names files.


def test_files_are_named_by_list_and_split(tmp_path):
    for name in ("b/2.jsonl", "b/c/3.jsonl", "1.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write_json(tmp_path / name, [name])
    at = str(tmp_path)

    def names(spec, split="train"):
        return [path.removeprefix(at + "/") for path in open_source(spec).files(split)]

    assert names([f"{at}/b/2.jsonl", f"{at}/*.jsonl", f"{at}/b"]) == ["b/2.jsonl", "1.jsonl", "b/c/3.jsonl"]
    by_split = {"train": f"{at}/b", "validation": [f"{at}/1.jsonl"]}
    assert (names(by_split), names(by_split, "validation")) == (["b/2.jsonl", "b/c/3.jsonl"], ["1.jsonl"])


HIDDEN = (".ipynb_checkpoints/a.jsonl", "sub/_temporary/0/d.jsonl", "_SUCCESS", ".e.jsonl")


def test_what_is_hidden_is_read_only_where_it_is_spelled(tmp_path, monkeypatch):
    at = tmp_path / ".hidden" / "corpus"  # what is above the folder does not count
    for name in ("1.jsonl", "sub/2.jsonl", *HIDDEN):
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        write_json(at / name, [name])
    monkeypatch.chdir(at.parent)

    def names(spec):
        return sorted(path.partition("/corpus/")[2] for path in open_source(spec, format="jsonl").files("train"))

    for spec in (at, "corpus", f"file://{at}", f"{at}/**/*.jsonl"):
        assert names(spec) == ["1.jsonl", "sub/2.jsonl"]
    assert names("corpus/*/*.jsonl") == ["sub/2.jsonl"]
    for name in HIDDEN:
        assert names(f"corpus/{name}") == [name]
    assert names("corpus/.*/*.jsonl") == [HIDDEN[0]]


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
    assert sorted(source.splits) == ["train", "validation"]
    assert texts(seqio_source(source).get_dataset("train", shuffle=False)) == TEXTS
    assert [record.text.decode() for record in records_of(source)] == TEXTS
    with pytest.raises(ValueError, match="'content'"):
        seqio_source(open_source("tfds:own:1.2.0", text_key="content")).get_dataset()
    with pytest.raises(ValueError, match=r"'tfds:own:0\.0\.1'"):
        _ = open_source("tfds:own:0.0.1").splits


# Bad input.


def test_what_is_known_once_files_are_listed_is_refused_then(folder, tmp_path):
    def fails(spec, match, *, asked=lambda source: source.shards("train"), **arguments):
        with pytest.raises(ValueError, match=match):
            asked(open_source(spec, **arguments))

    for name in ("empty", "texts", "rowless", "hidden"):
        (tmp_path / name).mkdir()
    write_lines(tmp_path / "texts" / "a.txt")
    write_json(tmp_path / "hidden" / "_only.jsonl")
    pq.ParquetWriter(tmp_path / "rowless" / "a.parquet", pa.schema([("text", pa.string())])).close()
    fails(folder / "hub", "documents", documents="line")
    fails(tmp_path / "texts", "documents")
    fails(tmp_path / "texts" / "*.jsonl", "no file matches")
    fails("HuggingFaceFW/fineweb-edu", "'hf:HuggingFaceFW/fineweb-edu'")
    fails(tmp_path / "empty", "no file is in")
    fails(tmp_path / "hidden", "hidden, such as", format="jsonl")
    fails(tmp_path / "rowless", "has a row")
    (tmp_path / "empty" / "a.jsonl").touch()
    fails(tmp_path / "empty", "is empty")
    (tmp_path / "empty" / "c.parquet").touch()
    fails(tmp_path / "empty", "one format")
    (tmp_path / "what.bin").touch()
    fails(tmp_path / "what.bin", "format")
    fails("s4://bucket/a.jsonl", "s4://")
    fails(
        folder / "a.jsonl.gz", "2 shards", asked=lambda source: seqio_source(source).get_dataset(shard_info=seqio.ShardInfo(0, 2))
    )
    for name in ("a.jsonl", "a.parquet", "a.tfrecord"):
        fails(folder / name, rf"{name} has no field 'content'.* text_key", text_key="content")
    fails(folder / "a.jsonl", "id_key", id_key="url", validation=0.1)


def test_each_bad_line_is_named(tmp_path):
    good, bad = [b'{"text": "good"}', b"", b'{"text": "also good"}'], [b'["text"]', b'"text"', b'{"content": "x"}', b"[" * 10_000]
    bad += [b'{"text": "cut', b'{"text": null}', b'{"text": ["a"]}', b'{"text": "\xff"}', b'{"text": "\\ud800"}']
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(good + bad))
    (tmp_path / "a.txt").write_bytes(b"good\nna\xefve\ngood")
    for source, lines in (
        (open_source(tmp_path / "a.jsonl"), range(4, 13)),
        (open_source(tmp_path / "a.txt", documents="line"), [2]),
    ):
        found = [re.findall(r"line (\d+): ", problem)[0] for problem in problems(source)]
        assert found == list(map(str, lines))
        assert next(text for text in texts_of(source) if text) == "good"


def test_a_record_of_csv_may_have_commas_and_lines_and_no_more_values_than_names(tmp_path):
    (tmp_path / "a.csv").write_text('text,id\n"a, ""b""\nc",1\nd,2,3\n' + "e" * 200_000 + ",4\n")
    source = open_source(tmp_path / "a.csv")
    assert texts_of(source) == ['a, "b"\nc', "", "e" * 200_000]
    (found,) = problems(source)
    assert found.startswith(f"{tmp_path}/a.csv, record 2: ")


def test_rows_that_are_no_text_and_columns_of_another_type_are_named(tmp_path):
    column = pa.array([b"good", b"na\xefve", None]).view(pa.string())
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match="text_key"):
        open_source(tmp_path / "b.parquet").shards("train")
    *rows, of_column = problems(open_source(tmp_path))
    assert [row.partition(".parquet, row group 0, ")[2][:5] for row in rows] == ["row 1", "row 2"]
    assert of_column.startswith(f"{tmp_path}/b.parquet: text_key")


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
        (*found, last) = records_of(open_source(tmp_path / name))
        assert [record.text.decode() for record in found] == TEXTS[:20], name
        assert "row 20: 'text'" in last.problem
        held_out = records_of(open_source(tmp_path / name, id_key="text", validation=0.5), "validation")
        expected = [text for text in TEXTS[:20] if text and hash_fraction(text.encode()) < 0.5]
        assert [record.text.decode() for record in held_out if not record.problem] == expected


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
    assert found[-1].startswith(f"{path}: is corrupt"), found[-1][:300]
    read = texts_of(source)[: -len(found)]
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


def test_a_corrupt_parquet_file_is_named_with_its_row_group(folder, tmp_path):
    content = bytearray((folder / "a.parquet").read_bytes())
    group = pq.ParquetFile(folder / "a.parquet").metadata.row_group(4).column(1)
    at = group.dictionary_page_offset or group.data_page_offset
    content[at : at + group.total_compressed_size] = b"\xff" * group.total_compressed_size
    (tmp_path / "a.parquet").write_bytes(content)
    source = open_source(str(tmp_path / "a.parquet"))
    found = problems(source)
    assert [re.findall(r"a\.parquet, row group 4, row (\d+)", each) for each in found] == [[str(row)] for row in range(100)]
    kept = [text for number, text in enumerate(TEXTS) if number // 100 != 4]
    assert [text for text in texts_of(source) if text] == [text for text in kept if text]


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
    source = open_source(str(path), id_key="id", validation=0.5)
    (found,) = (problem for split in source.splits for problem in problems(source, split=split))
    assert found.startswith(f"{path}: is corrupt")


@pytest.mark.parametrize("name", ["hf", "tfds", "megatron"])
def test_a_folder_may_have_the_name_of_a_kind_of_source(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()
    write_json(tmp_path / name / "a.jsonl", ["x"])
    assert texts_of(open_source(name)) == ["x"]
    with pytest.raises(ValueError, match=f"'{name}:|no file matches"):
        open_source(f"{name}:").list_shards("train")


def test_a_tfrecord_that_lacks_the_feature_is_a_problem(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as file:
        for example in (tf_example(text=b"good"), tf_example(other=b"x"), b"\x0a\xff", tf_example(text=b"good, too")):
            file.write(example)
    source = open_source(tmp_path / "a.tfrecord")
    lacking, broken = problems(source)
    assert lacking.startswith(f"{tmp_path}/a.tfrecord, record 2")
    assert broken.startswith(f"{tmp_path}/a.tfrecord, record 3")
    assert [text for text in texts_of(source) if text] == ["good", "good, too"]


@pytest.mark.parametrize("at", [5, 10, 60, 1000, -3])
def test_tfrecords_that_are_cut_or_altered_anywhere_say_so(tmp_path, at):
    write_tfrecord(tmp_path / "a.tfrecord", TEXTS[:40])
    content = (tmp_path / "a.tfrecord").read_bytes()
    altered = bytearray(content)
    altered[at] ^= 1
    for number, damaged in enumerate((content[:at], altered)):
        path = tmp_path / f"{number}.tfrecord"
        path.write_bytes(damaged)
        source = open_source(path)
        (found,) = problems(source)
        assert found.startswith(f"{path}: is corrupt")
        read = texts_of(source)[:-1]
        assert read == TEXTS[: len(read)]


def test_windows_line_ends_and_a_byte_order_mark_are_no_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert texts_of(open_source(tmp_path / "a.txt", documents="line")) == ["one", "two"]
