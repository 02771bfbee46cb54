"""What a state of image rows is known by, beside its settings: the contents of files and records, and the code of functions."""

import functools
import os

import pytest

from tests.image_sources import FORM, SIZES, ids, made, source
from ul2_tasks.image_rows.recipe import Recipe, Source
from ul2_tasks.image_rows.records import open_records
from ul2_tasks.image_rows.video import FrameSampler
from ul2_tasks.images.elements import Image, Text
from ul2_tasks.images.schemas import vlm_sft


def identity(of: Source, encode=ids) -> dict:
    return Recipe((of,), FORM, encode, {"tokens": 150, "vit": 100, "vae": 120}).identity


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


def schema_of(word, dropped=0.5):
    def schema(record, draws):
        """Says a word."""
        return Text(word if draws.uniform("a") < dropped else ""), Image(record["image"], "vit")

    return schema


def test_a_schema_an_encoder_and_a_kind_are_known_by_their_code_and_what_they_close_over():
    def settings(schema, encode=ids) -> dict:
        of = Recipe((source(made(2), schema),), FORM, encode, {"tokens": 150, "vit": 100, "vae": 120})
        return of.settings() | of.identity

    assert settings(schema_of("a")) == settings(schema_of("a")) != settings(schema_of("b"))
    found = schema_of("a")
    found.version = 2
    assert settings(found) != settings(schema_of("a"))
    assert settings("vlm_sft", lambda text: [7]) != settings("vlm_sft", lambda text: [8])
    of_lines = [
        lambda record, draws: (Text("a"), Image(record["image"], "vit")),
        lambda record, draws: (Text("b"), Image(record["image"], "vit")),
    ]
    for of in (lambda schema: schema, functools.partial):
        one, other = map(of, of_lines)
        assert settings(one) == settings(one) != settings(other)
    few, many = (functools.partial(vlm_sft, frames=FrameSampler(max_frames=most)) for most in (9, 12))
    assert settings(few) == settings(few) != settings(many)
