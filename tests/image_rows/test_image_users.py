"""What users do with records and schemas of their own, and what files hold that nobody has made with care."""

import io
import json
import os
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from image_support import image

from ul2_tasks.image_rows.problems import RecordError
from ul2_tasks.image_rows.recipe import Recipe, Source
from ul2_tasks.image_rows.rows import RowMaker
from ul2_tasks.image_rows.samples import Counts
from ul2_tasks.image_rows.special_tokens import SpecialTokenConfig
from ul2_tasks.images.elements import Image, Text
from ul2_tasks.sources.image_records import Reader, listed_records, open_records
from ul2_tasks.sources.image_text import open_image_text

FORM = SpecialTokenConfig(bos_id=1, eos_id=2, boi_id=3, eoi_id=4)
RECORD = {"image": image(), "captions": "a"}


def bytes_of(text):
    return [5 + byte for byte in text.encode()]


BUDGETS = Counts(9000, 9000, 9000)


def recipe(records=None, schema="t2i_pretrain", encode=bytes_of, budgets=BUDGETS, **settings):
    records = records or listed_records([RECORD, RECORD])
    return Recipe((Source(records, schema),), FORM, encode, budgets, **{"epochs": 1, "pool": 8, **settings})


def samples(*arguments, **settings) -> list[str]:
    maker = RowMaker(recipe(*arguments, **settings))
    return [name for row in maker.packed(0) for name in maker.row(row)["samples"]]


def sentence(*arguments, **settings) -> str:
    with pytest.raises(RecordError) as raised:
        samples(*arguments, **settings)
    return str(raised.value)


def lines(folder, *records):
    path = folder / "a.jsonl"
    path.write_text("\n".join(json.dumps(record) for record in records))
    return open_records(path)


@pytest.mark.parametrize("path", ["a.png/b.png", "x" * 5000, "loop.png"])
def test_a_path_that_leads_to_no_file_is_a_problem_of_its_record(tmp_path, path):
    (tmp_path / "a.png").write_bytes(image())
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    assert " must be a file that can be read, got " in sentence(lines(tmp_path, {**RECORD, "image": path}))


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    assert sentence(lines(tmp_path, {"image": "a.png", "captions": "a"})).endswith(", a device or a pipe.")


def test_a_path_may_be_a_path_object(tmp_path):
    (tmp_path / "a.png").write_bytes(image())
    assert len(samples(listed_records([{**RECORD, "image": tmp_path / "a.png"}]))) == 1
    assert len(samples(schema=lambda record, draws: [Image(tmp_path / "a.png", "noised")])) == 2
    source = open_image_text(
        [{"texts": ["a"], "images": [tmp_path / "a.png"]}], lambda record, draws: [Image(tmp_path / "a.png", "vit")]
    )
    assert next(source.get_dataset("train").as_numpy_iterator())["images"].tolist() == [image()]


def test_values_in_values_without_end_are_a_problem_of_their_record(tmp_path):
    deep = "[" * 700 + "]" * 700
    (tmp_path / "a.jsonl").write_text(f'{{"captions": "a", "image": {deep}}}\n{{"captions": "a", "image": {{"path": {deep}}}}}')
    for _, record in open_records(tmp_path).read(open_records(tmp_path).pieces[0], 0):
        assert isinstance(record["image"], list | dict)


def test_a_row_that_is_no_unicode_costs_none_of_its_neighbours(tmp_path):
    offsets = pa.py_buffer(np.array([0, 1, 2, 3], np.int32))
    captions = pa.Array.from_buffers(pa.utf8(), 3, [None, offsets, pa.py_buffer(b"a\xffb")])
    pq.write_table(pa.table({"image": [image()] * 3, "captions": captions}), tmp_path / "a.parquet")
    records = open_records(tmp_path)
    found = [record for _, record in Reader(records).read(0, 0, 3)]
    assert str(found[1]).startswith("the row cannot be read: ")
    assert [found[0]["captions"], found[2]["captions"]] == ["a", "b"]


def test_a_footer_that_is_damaged_is_told(tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    footer = int.from_bytes(content[-8:-4], "little")
    content[-8 - footer : -8] = b"\xff" * footer
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(ValueError, match="must be of the format in its name, got another"):
        open_records(tmp_path)


def test_names_in_a_tar_may_be_any_bytes_and_no_file_is_of_more_bytes_than_it_has(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        for name in ("\udce9.txt", "sparse.txt"):
            member = tarfile.TarInfo(name)
            member.size = 3
            tar.addfile(member, io.BytesIO(b"cat"))
    content = bytearray((tmp_path / "a.tar").read_bytes())
    header = content[1024:1536]
    header[156:157] = b"S"  # GNU's sparse file, of 2**40 bytes, of which none is there
    header[386:482] = b"0" * 11 + b"\0" + b"0" * 11 + b"\0" + b"\0" * 72
    header[483:495] = b"\x80" + (2**40).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    content[1024:1536] = header
    (tmp_path / "a.tar").write_bytes(content)
    (first, record), (_, sparse) = Reader(open_records(tmp_path)).read(0, 0, 2)
    assert (first.encode().decode(), record) == (f"{tmp_path}/a.tar, sample 0 (\\udce9)", {"captions": "cat"})
    assert "'sparse.txt' must be a file with a content of its own" in str(sparse)


def test_a_tar_that_leads_back_is_not_followed(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        for name in ("a.txt", "b.txt"):
            tar.addfile(tarfile.TarInfo(name))
    content = bytearray((tmp_path / "a.tar").read_bytes())
    header = content[512:1024]
    header[124:136] = b"\xff" + (256**11 - 1024).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    content[512:1024] = header
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(ValueError, match="must be of the format in its name, got another"):
        open_records(tmp_path)


def test_no_file_is_told():
    with pytest.raises(ValueError, match="files must be paths, globs or folders, got none"):
        open_records([])


def test_a_record_that_is_no_dictionary_is_a_problem():
    assert (
        sentence(listed_records([RECORD, None]))
        == "records, record 1: a record must be a dictionary, got a value of type NoneType."
    )


def of_steps(record, draws):
    yield Text("a")
    yield Image(record["image"], "vit")


def test_a_plan_may_be_a_generator():
    assert len(samples(schema=of_steps)) == 2
    found = next(open_image_text([RECORD], of_steps).get_dataset("train").as_numpy_iterator())
    assert (found["texts"].tolist(), found["images"].tolist()) == ([b"a", b""], [b"", image()])


def without(record, draws):
    yield Text(record["nothing"])


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (lambda record, draws: Text("a"), "schema must return a list of Text and Image, got a value of type Text."),
        (lambda record, draws: None, "schema must return a list of Text and Image, got a value of type NoneType."),
        (without, "KeyError: 'nothing'"),
    ],
)
def test_what_a_plan_stumbles_over_is_a_problem_of_its_record(schema, told):
    assert sentence(schema=schema) == f"records, record 0: {told}"
    assert next(open_image_text([RECORD], schema).get_dataset("train").as_numpy_iterator())["problem"].decode() == told


@pytest.mark.parametrize(
    "encode", [lambda text: [[7]], lambda text: [1.5], lambda text: None, lambda text: {"input_ids": [7]}, lambda text: [2**70]]
)
def test_a_tokenizer_that_gives_no_list_of_ids_is_told(encode):
    assert "vocabulary must return a list of ids, got" in sentence(encode=encode)


def test_arguments_that_are_none_of_their_kind_are_refused_at_once():
    with pytest.raises(ValueError, match="records must be what open_records or listed_records returns, got a value of type list"):
        Source([RECORD], "t2i_pretrain")
    with pytest.raises(ValueError, match="sources must be of Source, got a value of type Records"):
        Recipe((listed_records([RECORD]),), FORM, bytes_of, Counts(9, 9, 9))
    with pytest.raises(ValueError, match=r"seed must be an integer, got 1\.5"):
        recipe(seed=1.5)
    with pytest.raises(ValueError, match="must leave room for required_modalities="):
        recipe(budgets=Counts(9000, 0, 9000), required_modalities=("vit",))


def test_numbers_of_numpy_are_the_same_settings():
    assert (
        recipe(seed=np.int64(3), budgets=Counts(*map(np.int64, (9, 9, 9)))).settings()
        == recipe(seed=3, budgets=Counts(9, 9, 9)).settings()
    )
