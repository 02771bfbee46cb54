"""What users do with records and schemas of their own, and what files hold that nobody has made with care."""

import json
import os

import pytest

from tests.images.image_support import image
from ul2_tasks import seqio_source
from ul2_tasks.image_rows.problems import RecordError
from ul2_tasks.image_rows.recipe import Recipe, Source
from ul2_tasks.image_rows.records import listed_records, open_records
from ul2_tasks.image_rows.rows import RowMaker
from ul2_tasks.image_rows.special_tokens import SpecialTokenConfig
from ul2_tasks.images.elements import Image, Text
from ul2_tasks.sources.image_text import open_image_text

FORM = SpecialTokenConfig(bos_id=1, eos_id=2, boi_id=3, eoi_id=4)
RECORD = {"image": image(), "captions": "a"}


def bytes_of(text):
    return [5 + byte for byte in text.encode()]


BUDGETS = dict.fromkeys(["tokens", "vit", "vae"], 9000)


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


def of_steps(record, draws):
    yield Text("a")
    yield Image(record["image"], "vit")


def test_a_plan_may_be_a_generator():
    assert len(samples(schema=of_steps)) == 2
    found = next(seqio_source(open_image_text([RECORD], of_steps)).get_dataset("train").as_numpy_iterator())
    assert (found["texts"].tolist(), found["images"].tolist()) == ([b"a", b""], [b"", image()])


def without(record, draws):
    yield Text(record["nothing"])


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (lambda record, draws: None, "schema must return a list of Text and Image, got a value of type NoneType."),
        (without, "KeyError: 'nothing'"),
    ],
)
def test_what_a_plan_stumbles_over_is_a_problem_of_its_record(schema, told):
    assert sentence(schema=schema) == f"records, record 0: {told}"
    assert (
        next(seqio_source(open_image_text([RECORD], schema)).get_dataset("train").as_numpy_iterator())["problem"].decode() == told
    )


@pytest.mark.parametrize("encode", [lambda text: [[7]], lambda text: [1.5], lambda text: {"input_ids": [7]}, lambda text: [2**70]])
def test_a_tokenizer_that_gives_no_list_of_ids_is_told(encode):
    assert "vocabulary must return a list of ids, got" in sentence(encode=encode)
