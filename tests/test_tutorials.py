"""The tutorials of conversations and of images run from top to bottom, and what they print and leave behind is true."""

import json
import os
import pathlib
import re

import new_process
import pytest

pytestmark = pytest.mark.docs

REPOSITORY = pathlib.Path(__file__).parent.parent
STEPS = 12  # of training, instead of what the pages take


def run(name, tmp_path_factory) -> tuple[dict[int, str], pathlib.Path]:
    """What each step of a tutorial printed, and its folder."""
    pytest.importorskip("torch", reason="the extra torch is not installed")
    cwd = tmp_path_factory.mktemp(name)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "TUTORIAL_STEPS": str(STEPS), "COLUMNS": "160"}
    done = new_process.run(REPOSITORY / "docs" / f"{name}.py", cwd=cwd, env=environment, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Exception ignored" not in done.stderr, "what the page leaves behind does not end quietly"
    _, *parts = re.split(r"^## (\d+)\. .*\n", done.stdout, flags=re.MULTILINE)
    return dict(zip(map(int, parts[::2]), parts[1::2])), cwd / name


def losses(table: str) -> list[list[float]]:
    """The columns of a table of losses by step."""
    rows = re.findall(r"^ +\d+ +([\d.]+) +([\d.]+)$", table, re.MULTILINE)
    return [list(map(float, column)) for column in zip(*rows)]


@pytest.fixture(scope="module")
def chat(tmp_path_factory):
    return run("tutorial_chat", tmp_path_factory)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return run("tutorial_images", tmp_path_factory)


def test_the_doctor_finds_the_conversation_that_loses_its_reasoning_and_not_the_fixed_one(chat):
    before, after = re.split(r"^\$ .*", chat[0][2], flags=re.MULTILINE)[1:]
    assert re.search(r"line 201: message 2 of 2: fields must be .*, got \['thinking'\]", " ".join(before.split()))
    assert "no problems" in after


def test_the_table_of_a_conversation_says_what_is_trained_on(chat):
    rows = re.findall(r"^'(.*)' +([01]) +([012])$", chat[0][4], re.MULTILINE)
    assert [row for row in rows if row[0] == "<|start|>"] == [
        ("<|start|>", "0", "0"),
        ("<|start|>", "1", "1"),
        ("<|start|>", "1", "2"),
    ]
    assert all((trained == "1") == (group != "0") for _, trained, group in rows)


def test_conversations_are_measured_cached_and_exported_whole(chat):
    steps, folder = chat
    assert "checks pass" in steps[5]
    assert "401 documents" in steps[6]
    assert "401 sequences" in steps[8]
    manifest = json.loads((folder / "megatron" / "manifest.json").read_text())
    assert manifest


def test_both_losses_of_the_chat_model_fall(chat):
    reasoning, answer = losses(chat[0][7])
    assert len(reasoning) == 4
    assert reasoning[-1] < reasoning[0]
    assert answer[-1] < answer[0]


def test_the_plan_of_ones_own_goes_both_ways(images):
    assert sorted(re.findall(r"\d+ (V T|T N)\b", images[0][4].split("$ ul2 stats")[0])) == ["T N", "V T"]


def test_images_are_measured_and_reported(images):
    steps, folder = images
    decoded = int(re.search(r"(\d+) images of \1 records were decoded", steps[4])[1])
    empty = re.search(r"(\d+) of which every element was dropped", " ".join(steps[4].split()))
    assert decoded + int(empty[1] if empty else 0) == 24
    assert steps[4].count("\nPASS  ") == 4
    assert "<html" in (folder / "report.html").read_text()[:200]


def test_both_losses_of_the_image_model_fall_and_its_rows_resume(images):
    text, image = losses(images[0][6])
    assert text[-1] < text[0]
    assert image[-1] < image[0]
    assert "the resumed rows are equal" in images[0][7]
