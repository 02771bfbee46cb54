"""The embedded set: what its texts say is what its images show."""

import itertools
import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest

from ul2_tasks.image_rows.recipe import example_sources
from ul2_tasks.image_rows.schemas import story
from ul2_tasks.images.draws import draws_of
from ul2_tasks.images.elements import letters
from ul2_tasks.images.example_set import example_records, write_example_set
from ul2_tasks.images.pixels import pixels

COLOURS = {
    "red": (215, 40, 40),
    "green": (30, 150, 60),
    "blue": (40, 80, 220),
    "yellow": (240, 205, 30),
    "orange": (240, 125, 20),
    "purple": (130, 50, 160),
}
GROUNDS = {"white": (255, 255, 255), "black": (0, 0, 0), "grey": (190, 190, 190)}


def things_of(text):
    """The things that a text names, such as ("red", "circle"), in its order."""
    return re.findall(r"(?:an|a) (\w+) (\w+)", text[0].lower() + text[1:])


def seen(image):
    """The colours of an image, in the order of its things, and for each how much of its box it fills."""
    shown = pixels(image).astype(np.int64) @ (65536, 256, 1)
    along = int(shown.shape[1] >= shown.shape[0])
    found = {}
    for colour, value in COLOURS.items():
        places = np.argwhere(shown == value @ np.array((65536, 256, 1)))
        if len(places):
            box = places.max(axis=0) - places.min(axis=0) + 1
            found[places[:, along].mean()] = (colour, len(places) / box.prod())
    return [found[place] for place in sorted(found)]


def assert_shows(image, things):
    whole = {"square": 1, "circle": np.pi / 4, "triangle": 0.5}
    assert [colour for colour, _ in seen(image)] == [colour for colour, _ in things]
    for (_, filled), (_, name) in zip(seen(image), things):
        if name in whole:
            assert abs(filled - whole[name]) < 0.02
        else:
            assert len(name) == 1


def ground_of(image):
    corner = tuple(pixels(image)[0, 0].tolist())
    return next(name for name, value in GROUNDS.items() if value == corner)


def test_captions_are_true():
    numbers = []
    for record in example_records("t2i_pretrain", 30):
        captions = json.loads(record["captions"])
        things = things_of(captions["short"])
        assert_shows(record["image"], things)
        assert captions["long"].endswith(f"on a {ground_of(record['image'])} ground")
        assert things_of(captions["long"])[: len(things)] == things
        assert captions["count"].startswith(f"a picture of {['one thing', 'two things', 'three things'][len(things) - 1]} on")
        numbers.append(len(things))
    assert set(numbers) == {1, 2, 3}


def test_edits_do_what_is_said():
    ways = set()
    for record in example_records("unified_edit", 25):
        assert len(record["image_list"]) == len(record["instruction_list"]) + 1
        for before, after, said in zip(record["image_list"], record["image_list"][1:], record["instruction_list"]):
            colours, now = ({colour for colour, _ in seen(image)} for image in (before, after))
            verb, last = said[0].split()[0], said[0].split()[-1]
            ways.add((verb, "ground" in said[0]))
            if verb == "add":
                assert now - colours == {things_of(said[0])[0][0]}
                assert colours < now
            elif verb == "remove":
                assert colours - now == {said[1].split()[2]}
                assert now < colours
            elif "ground" in said[0]:
                assert (colours, ground_of(after)) == (now, last)
                assert ground_of(before) != last
            else:
                assert (now - colours, len(now)) == ({last}, len(colours))
    assert len(ways) == 4


def test_answers_are_true():
    total = 0
    for record in example_records("vlm_sft", 20):
        images = record["image"] if isinstance(record["image"], list) else [record["image"]]
        turns = record["conversations"]
        answers = [turn["value"] for turn in turns if turn["from"] == "gpt"]
        things = things_of(answers[0])
        assert_shows(images[0], things)
        assert answers[1] == ["One.", "Two.", "Three."][len(things) - 1]
        asked = [number for number, turn in enumerate(turns) if "have" in turn["value"]]
        named = {re.search(r"the (\w+) have", turns[number]["value"])[1]: turns[number + 1]["value"] for number in asked}
        assert named == {name: f"{colour.capitalize()}." for colour, name in things}
        if len(images) == 2:
            assert_shows(images[1], things_of(answers[-1]))
        total += len(images)
    assert 20 < total < 40


def test_stories_are_true():
    for record in example_records("story", 12):
        for text, image in zip(record["texts"], record["images"]):
            assert_shows(image, things_of(re.split("begins with|Now there is", text)[1]))


def test_a_story_ends_with_the_image_to_generate():
    found = {letters(story(record, draws_of(0, 0, "r"))) for record in example_records("story", 20)}
    assert found == {f"{'T V C ' * pages}T N" for pages in (1, 2, 3)}


@pytest.mark.parametrize("kind", ["t2i_pretrain", "unified_edit", "vlm_sft", "story"])
def test_a_record_is_a_function_of_kind_number_and_seed(kind):
    records = example_records(kind, 6)
    assert example_records(kind, 4) == records[:4]
    assert all(first != second for first, second in itertools.combinations(records, 2))
    assert example_records(kind, 4, seed=1) != records[:4]


def test_the_set_as_sources():
    for source, kind in zip(example_sources(20), ["t2i_pretrain", "unified_edit", "vlm_sft", "story"]):
        assert source.records.what == f"embedded set, {kind}, 20 records"
        for record in example_records(kind, 20):
            assert source.elements(record, draws_of(0, 0, "r"))


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match=r"kind must be one of \['t2i_pretrain', 'unified_edit', "):
        example_records("video")


def test_the_set_as_files_is_the_same(tmp_path):
    paths = write_example_set(tmp_path / "set", count=20)
    assert [path.name for path in paths] == ["t2i_pretrain.parquet", "unified_edit.parquet", "vlm_sft.jsonl", "story.jsonl"]
    for path in paths[:2]:
        assert pq.read_table(path).to_pylist() == example_records(path.stem, 20)
        assert pq.ParquetFile(path).num_row_groups == 2

    def read(path):
        return [read(one) for one in path] if isinstance(path, list) else (tmp_path / "set" / path).read_bytes()

    for path, key in zip(paths[2:], ("image", "images")):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        assert [{**record, key: read(record[key])} for record in records] == example_records(path.stem, 20)
