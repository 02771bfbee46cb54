"""The tutorial runs from top to bottom, and what its ten steps print and leave behind is true."""

import ast
import dataclasses
import importlib.util
import json
import math
import os
import pathlib
import re
import shutil
import subprocess

import new_process
import pytest

from ul2_tasks import T5GEMMA2, SpanDenoiser, chunk_length, open_vocabulary
from ul2_tasks.mixtures.advice import packed_fill
from ul2_tasks.sources.memory import embedded_documents

pytestmark = pytest.mark.docs

REPOSITORY = pathlib.Path(__file__).parent.parent
TUTORIAL = REPOSITORY / "docs" / "tutorial.py"
HEADING = r"^{}## (\d+)\. (.+)$"

R1, R2, X1, X2, S = T5GEMMA2
X8 = SpanDenoiser(name="x8", mode="[X]", mean_span_length=8, noise_density=0.5, weight=1)
DENOISERS = {denoiser.name: denoiser for denoiser in (R1, R2, X8, X2, S)}
LENGTHS = {"inputs": 128, "targets": 128}


@dataclasses.dataclass(frozen=True)
class Done:
    """What a run printed, in all and in each of its steps, and where it left its files."""

    printed: str
    folder: pathlib.Path

    def step(self, number: int) -> str:
        parts = re.split(r"^## (\d+)\. .*\n", self.printed, flags=re.MULTILINE)
        return dict(zip(map(int, parts[1::2]), parts[2::2]))[number]


# The tutorial, with the commands that it starts run as `new_process` does. (With t5x they are started as they stand.)
AS_HERE = f"""
import runpy, sys
sys.executable, sys.argv[0] = sys.argv.pop(1), "tutorial.py"
runpy.run_path({str(TUTORIAL)!r}, run_name="__main__")
"""


def start(cwd, *arguments, path=()) -> subprocess.CompletedProcess:
    """Runs Python in an environment like that of Jupyter, which asks for colours."""
    environment = {**os.environ, "FORCE_COLOR": "1", "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *path])}
    return new_process.run(*arguments, cwd=cwd, env=environment, timeout=900)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A run without t5x, in the folder that it takes by itself."""
    cwd = tmp_path_factory.mktemp("new")
    ran = start(cwd, "-c", AS_HERE, new_process.executable(tmp_path_factory.mktemp("python")))
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return Done(ran.stdout, cwd / "tutorial")


def cells() -> list[tuple[str, str]]:
    """The kind, "markdown" or "code", and the content of each."""
    before, *parts = re.split(r"^# %%(.*)\n", TUTORIAL.read_text(), flags=re.MULTILINE)
    assert not before, "nothing stands before the first cell"
    assert set(parts[::2]) == {"", " [markdown]"}
    return [("markdown" if mark else "code", content) for mark, content in zip(parts[::2], parts[1::2])]


def unfolded(text: str) -> str:
    """Without white space: long sentences are folded."""
    return re.sub(r"\s", "", text)


def test_ten_numbered_steps_each_say_what_they_do_and_then_do_it():
    steps = [
        (*re.search(HEADING.format("# "), content, re.MULTILINE).groups(), code)
        for (kind, content), (next_kind, code) in zip(cells(), cells()[1:])
        if kind == "markdown" and next_kind == "code" and re.search(HEADING.format("# "), content, re.MULTILINE)
    ]
    assert [int(number) for number, _, _ in steps] == list(range(1, 11))
    for number, title, code in steps:
        assert code.startswith(f'print("\\n## {number}. {title}")\n'), "what is printed is the heading"


def test_the_script_is_its_cells():
    """A notebook would run what the script runs: all code is in cells that stand alone, and all text in comments."""
    assert len(cells()) > 20
    for kind, content in cells():
        if kind == "markdown":
            assert all(line.startswith("#") for line in content.strip().splitlines())
            assert len(content) > 100
        else:
            statements = ast.parse(content).body
            assert statements
            assert "__name__" not in content
            assert "__file__" not in content


def test_all_of_it_runs(done):
    headings = re.findall(HEADING.format(""), done.printed, re.MULTILINE)
    assert headings == re.findall(HEADING.format("# "), TUTORIAL.read_text(), re.MULTILINE)
    assert done.printed.startswith(f"in {done.folder}\n")
    assert done.printed.endswith(f"all of it is in {done.folder}\n"), "the last cell's"
    commands = re.findall(r"^\$ ul2 (\w+)", done.printed, re.MULTILINE)
    assert commands == ["doctor", "lengths", "doctor", "show", "stats", "report", "cache", "verify"]


def test_the_text_files_hold_the_documents(done):
    read = [json.loads(line)["text"] for path in (done.folder / "texts").iterdir() for line in path.open()]
    assert sorted(read) == sorted(embedded_documents())
    assert f"{len(read)} documents, {sum(map(len, read)):,} characters" in done.step(1)
    assert len(list((done.folder / "texts").iterdir())) == 8


def test_the_doctor_finds_the_bad_line_and_nothing_after_it_is_gone(done):
    good = len(embedded_documents()[7::8])
    bad_line = f"texts/7.jsonl, line {good + 1}: has no field 'text', only ['title']"
    assert unfolded(bad_line) in unfolded(done.step(2))
    assert re.search(r"^problem corpus ", done.step(2), re.MULTILINE)
    assert f"texts/7.jsonl has {good} documents now" in done.step(2)

    for name, denoiser in DENOISERS.items():
        assert unfolded(f"mine_{name} {chunk_length(denoiser, LENGTHS).length}") in unfolded(done.step(5))
    assert set(re.findall(r"^problem (\w+)", done.step(5), re.MULTILINE)) <= {"installation"}


def test_the_vocabulary_is_trained_on_them(done):
    vocabulary = open_vocabulary(str(done.folder / "my.model"))
    assert vocabulary.vocab_size == 3000, "all special tokens are in it already"
    text = embedded_documents()[0]
    assert vocabulary.decode(vocabulary.encode(text)) == text


def test_what_it_says_of_lengths_is_so(done):
    text = " ".join(line.removeprefix("# ") for line in TUTORIAL.read_text().splitlines())
    x1 = chunk_length(X1, LENGTHS)
    assert x1.spans == 1
    assert (
        f"mean span of {X1.mean_span_length} tokens, but only {x1.noise} of the {x1.length} tokens of its chunk are masked" in text
    )
    assert f"a full chunk of X8: {chunk_length(X8, LENGTHS)}" in done.step(4)
    assert 0.3 < 1 - packed_fill(T5GEMMA2, LENGTHS)["inputs"] < 0.36
    assert "leave a third of the inputs empty" in text


def test_an_example_of_each_mode_is_shown(done):
    shown = re.findall(r"^mine_(\w+) ──", done.step(6), re.MULTILINE)
    assert sorted(DENOISERS[name].mode for name in shown) == ["[R]", "[S]", "[X]"]
    assert len(re.findall(r"\b(the|of|is|a|to)\b", done.step(6))) > 20, "English"
    for name in shown:
        full = chunk_length(DENOISERS[name], LENGTHS)
        example = done.step(6).split(f"mine_{name} ──")[1].split("mine_")[0]
        assert f"full-length chunk: {full.length} tokens, {full.noise} masked" in example
        assert DENOISERS[name].mode in example.split("inputs, ")[1]


def test_what_is_measured_is_on_the_page_too(done):
    page = done.folder / "report.html"
    assert f"open {page.as_uri()}" in done.step(8)
    assert "8 of 8 checks pass" in done.step(7)
    text = page.read_text()
    assert all(f"mine_{name}" in text and f"mine_{name}" in done.step(7) for name in DENOISERS)
    assert "All 8 checks pass." in text


def test_the_cache_holds_every_token_and_its_batches_resume(done):
    vocabulary = open_vocabulary(str(done.folder / "my.model"))
    totals = json.loads((done.folder / "cache" / "mine_corpus" / "manifest.json").read_text())["totals"]
    documents = embedded_documents()
    assert (totals["documents"], totals["skipped"]) == (len(documents), 0)
    assert totals["tokens"] == sum(len(vocabulary.encode(text)) for text in documents)

    printed = done.step(9)
    assert f"cache/mine_corpus is as it was written: {len(documents):,} documents, {totals['tokens']:,} tokens" in printed
    assert len(re.findall(r"^(?:en|de)coder_\w+ \(8, 128\)$", printed, re.MULTILINE)) == 8
    fill = re.findall(r"^\w+coder_\w+: ([\d.]+)% of the positions hold a token$", printed, re.MULTILINE)
    assert [float(part) / 100 for part in fill] == pytest.approx(
        list(packed_fill(list(DENOISERS.values()), LENGTHS).values()), abs=0.15
    )
    assert "the resumed batches are equal" in printed


@pytest.mark.parametrize("package", ["jinja2", "matplotlib"])
def test_a_missing_extra_is_named_before_anything_is_done(tmp_path, package):
    program = f"import runpy, sys; sys.modules[{package!r}] = None; sys.argv[0] = 'tutorial.py'; runpy.run_path({str(TUTORIAL)!r})"
    ran = start(tmp_path, "-c", program)
    assert ran.returncode == 1
    assert re.search(rf"^step 8 .*needs {package}.* pip install '\.\[report\]'$", ran.stderr, re.MULTILINE)
    assert not list(tmp_path.iterdir())


def test_without_t5x_the_last_step_says_what_to_do(done):
    printed = done.step(10)
    assert "needs t5x, airio, jestimator" in printed
    assert "docs/guides/train_with_t5x.md says how" in printed
    assert "\n## Install t5x\n" in (REPOSITORY / "docs" / "guides" / "train_with_t5x.md").read_text()
    for steps in (10, 20):
        assert re.search(rf"^\$ python -m t5x.train .*--gin_file=train.gin .*--gin.TRAIN_STEPS={steps} ", printed, re.MULTILINE)
    assert not (done.folder / "run").exists()


def test_a_second_run_keeps_the_texts(done, monkeypatch, capsys):
    """The cache is of these files, by their size and time."""

    def times():
        return {path.name: path.stat().st_mtime_ns for path in (done.folder / "texts").iterdir()}

    monkeypatch.chdir(done.folder)
    before = times()
    names = {"json": json, "pathlib": pathlib}
    for kind, content in cells():
        if kind == "code" and "TEXTS" in content:
            exec(content, names)
    assert len(before) == 8
    assert times() == before


@pytest.fixture
def again(done, tmp_path):
    """The folder of the first run, restored afterwards. In a copy of it the cache would be of files with other paths."""
    kept = shutil.copytree(done.folder, tmp_path / "kept")
    yield done.folder
    shutil.rmtree(done.folder)
    shutil.move(kept, done.folder)


@pytest.mark.t5x
@pytest.mark.skipif(
    importlib.util.find_spec("t5x") is None,
    reason="t5x is not importable; put checkouts of t5x, airio and jestimator on PYTHONPATH (docs/guides/train_with_t5x.md)",
)
def test_with_t5x_it_trains_and_goes_on_from_the_checkpoint(again, tmp_path):
    """In the folder that the first run left: a tutorial that is run again does not stumble over itself."""
    ran = start(tmp_path, TUTORIAL, again, path=[os.environ["PYTHONPATH"]])
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert "cache/mine_corpus is complete already" in ran.stdout

    printed = Done(ran.stdout, again).step(10)
    assert re.findall(r"there are now (.*)", printed) == ["checkpoint_0 checkpoint_10", "checkpoint_0 checkpoint_10 checkpoint_20"]
    first, second = ((again / f"run-{steps}.log").read_text() for steps in (10, 20))
    assert "Restoring checkpoint" not in first
    assert f"Restoring checkpoint from {again}/run/checkpoint_10" in second

    losses = re.findall(r"^  (\S+) +step 10: (\S+)  step 20: (\S+)$", printed, re.MULTILINE)
    assert [name for name, *_ in losses] == ["train", *(f"training_eval/mine_{name}" for name in DENOISERS)]
    for name, before, after in losses:
        assert math.isfinite(float(before)), name
        assert 0 < float(after) < float(before) < math.log(3000) + 1, name
