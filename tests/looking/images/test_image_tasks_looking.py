"""`ul2 show`, `stats` and `doctor` of mixtures of `register_image_text`: what they say of images, codes, and faults."""

import json

import pytest
from click.testing import CliRunner
from image_support import NOISE, SENTINELS, SPECIAL, VOCABULARY, S, image, registered

import ul2_tasks
from ul2_command import main
from ul2_tasks.denoising.denoisers import T5GEMMA2
from ul2_tasks.images.interleaved import ImageCodes
from ul2_tasks.looking.images.measure import measure_image_tasks
from ul2_tasks.looking.images.show import draw_image_tasks

CODES = ImageCodes(boi_id=262, eoi_id=263, first_code_id=264, num_codes=8)
OF_CODES = SPECIAL | {"image_tokens": CODES, "sentinels": SENTINELS[:80]}
RECORDS = [
    ["An image of a cat that sits: ", image(1), "It sleeps by day, and it hunts by night."],
    ["Two images: ", image(2), NOISE, "One is noise."],
]


def ul2(*arguments, columns=600):
    done = CliRunner().invoke(main, list(map(str, arguments)), env={"COLUMNS": str(columns)})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


@pytest.fixture(scope="module")
def images():
    return registered("looked_images", *RECORDS, denoisers=[T5GEMMA2[0], S])


@pytest.fixture(scope="module")
def codes():
    records = [{"texts": [f"This is number {n}: ", "The end."], "images": [[n % 8] * 4, []]} for n in range(12)]
    return ul2_tasks.register_image_text("looked_codes", records, VOCABULARY, denoisers=[T5GEMMA2[1], S], **OF_CODES)


def test_an_example_is_shown_with_its_images_in_their_places(images):
    done = ul2("show", "looked_images", "--denoiser", "s", "--lengths", "128,128")
    assert done.exit_code == 0
    assert "looked_images_r1" not in done.stdout
    for part in ("a record is an example", "from train, record 0", "[image 6x4]", "[image 30x20]"):
        assert part in done.stdout


def test_the_text_of_what_is_shown_is_the_record(codes):
    """Each stretch has its tokens, and a border stands where the next record begins."""
    lengths = {"inputs": 64, "targets": 64}
    for shown in draw_image_tasks("looked_codes_r2", lengths, count=3):
        for feature in ("inputs", "targets"):
            found = getattr(shown.sample, feature)
            assert sum(stretch.tokens for stretch in found) == len(shown.sample.ids[feature])
        stretches = [*shown.sample.inputs, *shown.sample.targets]
        assert sum(stretch.kind == "border" for stretch in stretches) == len(shown.records) - 1
        assert {stretch.text for stretch in stretches if stretch.kind == "image"} == {"[codes 4]"}


def test_examples_are_shown_as_json(codes):
    lines = [json.loads(line) for line in ul2("show", "looked_codes", "--json", "--count", 1).stdout.splitlines()]
    assert [line["task"] for line in lines] == ["looked_codes_r2", "looked_codes_s"]
    assert lines[0]["records"][:2] == ["train, record 0", "train, record 1"]


def test_statistics_count_what_the_records_have(images, codes):
    of_images = measure_image_tasks(images, {"inputs": 128, "targets": 128})
    assert [(task.examples, task.images) for task in of_images.tasks] == [(2, 3), (2, 3)]
    assert [task.rate for task in of_images.tasks] == [0.2, 0.8]
    assert of_images.passed
    of_codes = measure_image_tasks(codes, {"inputs": 64, "targets": 64})
    for task in of_codes.tasks:
        assert task.examples > 3
        assert task.images == 12
        assert task.tokens["images"] == 12 * 6
        assert task.tokens["text"] == sum(len(f"This is number {n}: The end.") for n in range(12))
    assert of_codes.passed


def test_all_files_are_read_and_no_more_records_than_are_asked_for():
    records = [{"texts": ["A text: "], "images": [[1, 2]]}] * 150  # more than a piece of them
    name = ul2_tasks.register_image_text("looked_many", records, VOCABULARY, denoisers=S, **OF_CODES)
    for asked, read, is_all in ((1000, 150, True), (100, 100, False)):
        statistics = measure_image_tasks(name, {"inputs": 64, "targets": 64}, records=asked)
        (corpus,) = statistics.corpora
        assert (corpus.records, corpus.right, corpus.is_all, statistics.tasks[0].images) == (read, read, is_all, read)


def test_statistics_are_printed(codes):
    done = ul2("stats", "looked_codes", "--lengths", "64,64")
    assert done.exit_code == 0
    for part in ("all 12 records", "looked_codes_r2", "PASS  every text has exactly the noise tokens and spans of its length"):
        assert part in done.stdout
    assert json.loads(ul2("stats", "looked_codes", "--json", "--lengths", "64,64").stdout)["tasks"][0]["images"] == 12
    narrow = ul2("stats", "looked_codes", "--lengths", "64,64", columns=80).stdout
    assert "…" not in narrow
    assert max(map(len, narrow.splitlines())) <= 80


def test_what_is_split_at_an_image_keeps_its_check():
    records = [{"texts": [f"Number {n}: "], "images": [[n % 8] * 4]} for n in range(3)]
    name = ul2_tasks.register_image_text("looked_asked", records, VOCABULARY, S, split="before_last_image", **OF_CODES)
    statistics = measure_image_tasks(name, {"inputs": 64, "targets": 64})
    assert statistics.passed
    assert statistics.tasks[0].tokens["noise"] == 3 * 6
    assert "[codes 4]" in ul2("show", "looked_asked").stdout


def test_the_doctor_finds_nothing_wrong(images):
    done = ul2("doctor", "looked_images", "--lengths", "128,128")
    assert done.exit_code == 0
    assert "all 2 records, of which 2 are right, with all of their images" in done.stdout


@pytest.mark.parametrize(
    ("name", "records", "lengths", "said"),
    [
        ("damaged", [RECORDS[0], ["Cut off:", NOISE[: len(NOISE) // 2]]], "128,128", "train, record 1: the image is damaged"),
        ("too_long", RECORDS, "20,128", "records make no example, because its inputs are too long"),
    ],
)
def test_the_doctor_tells_what_is_wrong(name, records, lengths, said):
    registered(f"looked_{name}", *records, denoisers=S)
    done = ul2("doctor", f"looked_{name}", "--lengths", lengths)
    assert done.exit_code == 1
    assert said in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["find", "looked_images", "--document", 0],
        ["show", "looked_images", "--step", 1],
        ["lengths", "looked_images"],
        ["report", "looked_images"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_can_say_nothing_says_what_to_do(images, arguments):
    done = ul2(*arguments)
    assert done.exit_code == 2
    assert "does not support interleaved image-text data (looked_images_mix). " in done.stderr
