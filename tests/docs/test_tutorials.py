"""The tutorials run from top to bottom, and what they leave behind is true."""

import importlib.util
import json
import math
import os
import pathlib
import re

import pytest

from tests import programs
from ul2_tasks import embedded_documents, open_vocabulary

pytestmark = pytest.mark.docs

REPOSITORY = pathlib.Path(__file__).parents[2]
STEPS = 12  # of training, instead of what the pages take


def run(name, cwd, folder=None, path=(), **environment) -> tuple[dict[int, str], pathlib.Path]:
    """What each step of a tutorial printed, and its folder."""
    environment = programs.environment(*path, TUTORIAL_STEPS=str(STEPS), COLUMNS="160", **environment)
    done = programs.run(REPOSITORY / "docs" / f"{name}.py", *filter(None, [folder]), cwd=cwd, env=environment, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Exception ignored" not in done.stderr, "what the page leaves behind does not end quietly"
    _, *parts = re.split(r"^## (\d+)\. .*\n", done.stdout, flags=re.MULTILINE)
    return dict(zip(map(int, parts[::2]), parts[1::2])), folder or cwd / name


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return run("tutorial", tmp_path_factory.mktemp("texts"))


def falls(table: str) -> bool:
    """Whether both columns of a table of losses by step do."""
    rows = re.findall(r"^ +\d+ +([\d.]+) +([\d.]+)$", table, re.MULTILINE)
    return all(float(last) < float(first) for first, last in zip(rows[0], rows[-1]))


def test_of_texts(texts):
    steps, folder = texts
    assert list(steps) == list(range(1, 11))
    assert re.search(r"^problem corpus ", steps[2], re.MULTILINE), "the line without a text"
    assert set(re.findall(r"^problem (\w+)", steps[5], re.MULTILINE)) <= {"installation"}
    vocabulary = open_vocabulary(str(folder / "my.model"))
    totals = json.loads((folder / "cache" / "mine_corpus" / "manifest.json").read_text())["totals"]
    assert totals["tokens"] == sum(len(vocabulary.encode(text)) for text in embedded_documents())
    assert "the resumed batches are equal" in steps[9]
    assert "docs/guides/train_with_t5x.md" in steps[10], "without t5x it says what to do"
    assert not (folder / "run").exists()


@pytest.mark.t5x
@pytest.mark.skipif(importlib.util.find_spec("t5x") is None, reason="t5x is not importable (docs/guides/train_with_t5x.md)")
def test_of_texts_with_t5x_trains_and_goes_on_from_the_checkpoint(texts, tmp_path):
    """In the folder that the first run left: a tutorial that is run again does not stumble over itself."""
    steps, _ = run("tutorial", tmp_path, texts[1], path=[os.environ["PYTHONPATH"]])
    assert re.findall(r"there are now (.*)", steps[10])[-1] == "checkpoint_0 checkpoint_10 checkpoint_20"
    losses = re.findall(r"^  (\S+) +step 10: (\S+)  step 20: (\S+)$", steps[10], re.MULTILINE)
    assert len(losses) == 6
    assert all(0 < float(after) < float(before) < math.log(3000) + 1 for _, before, after in losses)


@pytest.mark.torch
def test_of_conversations(tmp_path):
    pytest.importorskip("torch", reason="the extra torch is not installed")
    steps, folder = run("tutorial_chat", tmp_path)
    assert re.search(r"^problem corpus ", steps[2], re.MULTILINE), "the conversation that would lose its reasoning"
    assert "no problems" in steps[2]
    rows = re.findall(r"^'(.*)' +([01]) +([012])$", steps[4], re.MULTILINE)
    assert rows
    assert all((trained == "1") == (group != "0") for _, trained, group in rows)
    assert json.loads((folder / "megatron" / "_manifest.json").read_text())
    assert falls(steps[7])


@pytest.mark.torch
def test_of_images(tmp_path):
    pytest.importorskip("torch", reason="the extra torch is not installed")
    steps, folder = run("tutorial_images", tmp_path)
    assert "<html" in (folder / "report.html").read_text()[:200]
    assert falls(steps[6])
    assert "the resumed rows are equal" in steps[7]


@pytest.mark.torch
def test_of_the_notebook(tmp_path):
    """It asserts that the resumed run ends with the loss of the run that nothing stops."""
    pytest.importorskip("torch", reason="the extra torch is not installed")
    cells = json.loads((REPOSITORY / "docs" / "train.ipynb").read_text())["cells"]
    (tmp_path / "train.py").write_text("\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"))
    done = programs.run("train.py", cwd=tmp_path, env=programs.environment(TUTORIAL_STEPS=str(STEPS)))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "the last losses:" in done.stdout
