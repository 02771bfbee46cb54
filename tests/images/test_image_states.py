"""What a state of image rows is known by, beside its settings: the contents of files and records, and the code of functions."""

import functools
import os

import pytest
from image_sources import FORM, SIZES, ids, image, made, source

from ul2_tasks.images.elements import Image, Text
from ul2_tasks.images.identity import code_of, function_in_words
from ul2_tasks.images.recipe import Recipe, Source
from ul2_tasks.images.records import listed_records, open_records
from ul2_tasks.images.samples import Counts
from ul2_tasks.images.schemas import vlm_sft
from ul2_tasks.images.video import FrameSampler


def identity(of: Source, encode=ids) -> dict:
    return Recipe((of,), FORM, encode, Counts(150, 100, 120)).identity


def of_file(path, folder=None) -> Source:
    return Source(open_records(path, folder), "t2i_pretrain", SIZES)


@pytest.fixture
def file(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"image": "a.png", "captions": "a cat"}\n')
    return tmp_path / "a.jsonl"


def test_a_file_is_known_by_what_its_path_leads_to_and_by_its_size_and_time(file, tmp_path, monkeypatch):
    before = identity(of_file(file))
    (tmp_path / "link.jsonl").symlink_to(file)
    monkeypatch.chdir(tmp_path)
    for path in ("link.jsonl", "a.jsonl", "./a.jsonl", f"file://{file}"):
        assert identity(of_file(path)) == before
    assert identity(of_file(file, "other"))["files"] != before["files"], "the folder of the images"
    file.write_text('{"image": "a.png", "captions": "a dog"}\n')
    os.utime(file, (1, 1))
    assert identity(of_file(file))["files"] != before["files"]


def test_records_in_memory_are_known_by_their_content():
    one, same, other = (identity(source(records))["files"] for records in (made(300), made(300), [*made(299), made(2)[1]]))
    assert one == same != other


def schema_of(word, dropped=0.5):
    def schema(record, draws):
        """Says a word."""
        return Text(word if draws.uniform("a") < dropped else ""), Image(record["image"], "vit")

    return schema


def test_a_plan_and_an_encoder_are_known_by_their_module_and_code():
    source_of = functools.partial(source, made(2))
    first, second = (identity(source_of(schema)) for schema in (schema_of("a"), schema_of("b")))
    assert first["plans"] == second["plans"] == "test_image_states.schema_of.<locals>.schema"
    (code,) = (name for name in first if name.startswith("code in Python 3."))
    assert first[code] != second[code], "what it closes over"
    assert identity(source_of(schema_of("a")))[code] == first[code]
    changed = {}
    for name, line in {
        "one": "return [Text('one')]",
        "two": "return [Text('two')]",
        "one, said": "return [Text('one')]  # !",
    }.items():
        exec(f"def schema(record, draws):\n    {line}", found := {"Text": Text, "__name__": "own_plans"})
        changed[name] = identity(source_of(found["schema"]))
    assert changed["one"] == changed["one, said"] != changed["two"]
    assert changed["one"]["plans"] == "own_plans.schema"
    assert identity(source_of("vlm_sft"), lambda text: [7]) != identity(source_of("vlm_sft"), lambda text: [8])


def test_what_is_of_this_package_is_known_by_its_name():
    frames, none = (functools.partial(vlm_sft, frames=each) for each in (FrameSampler(), lambda file, draws: []))
    assert [function_in_words(schema) for schema in (vlm_sft, frames, none)] == ["vlm_sft"] * 3
    assert [len(code_of(schema)) for schema in (vlm_sft, frames, none)] == [0, 0, 16]


def test_the_order_of_a_set_is_no_code():
    """Which Python has as a constant, in another order in each process."""
    assert code_of(lambda record, draws: record in {"a", "b", "c"}) == code_of(lambda record, draws: record in {"c", "a", "b"})


def test_listed_records_of_other_images_are_others():
    def content(number):
        return listed_records([{"image": image(number), "captions": "a"}]).content()

    assert content(1) == content(1) != content(2)
