"""The study of objectives, benchmarks/study, runs through at its smallest size; what its tables say follows from its results."""

import importlib
import json
import math
import pathlib
import re

import new_process
import numpy as np
import pytest

from ul2_tasks.sources.memory import embedded_documents

pytestmark = pytest.mark.docs

STUDY = pathlib.Path(__file__).parent.parent / "benchmarks" / "study"
OBJECTIVES = ("r1", "s", "causal", "ul2", "t5gemma2")
HELD_OUT = ("r1", "r2", "x1", "x2", "s", "causal")


def run(script: str, *arguments: object) -> str:
    environment = {"PYTHONPATH": str(STUDY.parent.parent), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    return new_process.run(STUDY / script, *arguments, env=environment, check=True).stdout


@pytest.fixture
def module(monkeypatch):
    """Imports a module of the study by its name."""
    monkeypatch.syspath_prepend(str(STUDY))
    return importlib.import_module


def test_it_runs_and_goes_on_and_is_drawn(tmp_path):
    for package in ("torch", "transformers", "matplotlib"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    (tmp_path / "text.txt").write_text("\n\n".join(embedded_documents()[:120]))
    results = tmp_path / "results.jsonl"
    arguments = ("--output", results, "--size", "smoke", "--corpus", tmp_path / "text.txt", "--documents", "paragraph")

    run("__main__.py", *arguments, "--seeds", 1)
    lines = results.read_text().splitlines()
    (tmp_path / "results.jsonl").write_text("".join(f"{line}\n" for line in lines[:-1]))  # as if it had been stopped
    printed = run("__main__.py", *arguments, "--seeds", 1)
    assert re.findall(r"^(\w+), seed (\d+):", printed, re.MULTILINE) == [(OBJECTIVES[-1], "0")]
    assert results.read_text().splitlines() == lines, "a run is a function of its seed"

    rows = [json.loads(line) for line in lines]
    assert [(row["objective"], row["seed"]) for row in rows] == [(name, 0) for name in OBJECTIVES]
    assert len({row["text"] for row in rows}) == 1, "all read the same text"
    for row in rows:
        assert row["text"] == 3 * 4 * 32
        assert all(0 < row[f"loss_{name}"] < 2 * math.log(500) for name in HELD_OUT)
    causal = rows[OBJECTIVES.index("causal")]
    assert (causal["inputs"], causal["targets"]) == (2 * 3 * 4, causal["text"])

    run("plot.py", results, tmp_path / "study.svg")
    figure = (tmp_path / "study.svg").read_text()
    assert all(title in figure for title in ("R1 alone", "T5Gemma 2", "continuation, loss"))


def test_a_step_has_the_same_chunks_whatever_the_objective_and_an_epoch_has_each_once(module):
    pytest.importorskip("torch", reason="the extra torch is not installed")
    training = module("training")
    steps = list(training.batches(count=10, size=4, steps=5, seed=3))
    assert sorted(np.concatenate(steps)[:10].tolist()) == list(range(10))
    assert sorted(np.concatenate(steps)[10:].tolist()) == list(range(10))


def test_a_question_holds_all_of_the_text_once_and_a_causal_model_sees_nothing_after_the_gap(module):
    pytest.importorskip("torch", reason="the extra torch is not installed")
    evaluation, objectives = module("evaluation"), module("objectives")
    special = evaluation.SpecialTokens(sentinels=(90, 91), mode=(80,), eos=1, reserved=frozenset())
    text = np.arange(10, 20)[None]
    asked = evaluation.question(objectives.R1, special, text, 4, 7)
    assert asked.inputs.tolist() == [[80, 10, 11, 12, 13, 90, 17, 18, 19, 1]]
    assert (asked.begun.tolist(), asked.answer.tolist()) == ([[0, 90]], [[14, 15, 16]])
    asked = evaluation.question(objectives.CAUSAL, special, text, 4, 7)
    assert (asked.inputs.tolist(), asked.begun.tolist()) == ([[80, 1]], [[0, 10, 11, 12, 13]])
    without = objectives.OBJECTIVES["ul2"].continuing
    assert evaluation.question(without, special, text[:, :7], 4, 7).inputs.tolist() == [[80, 10, 11, 12, 13, 1]]


def test_what_cannot_be_told_from_the_best_is_bold_with_it(module):
    summary = module("summary")
    scores = {
        "r1": (3.0, 3.1, 3.2),
        "s": (2.0, 2.1, 2.2),
        "causal": (2.1, 2.0, 2.3),
        "ul2": (2.1, 2.21, 2.3),
        "t5gemma2": (4, 1.9, 3),
    }
    results = [{"objective": name, "seed": seed, "loss_r1": values[seed]} for name, values in scores.items() for seed in (2, 0, 1)]
    assert summary.best(results, "loss_r1") == {"s", "causal", "t5gemma2"}, "ul2 is worse by as much with each seed"
    assert summary.half_width(np.array([1.0, 2.0, 3.0])) == pytest.approx(4.303 / math.sqrt(3), abs=1e-3), "t of two degrees"
    incomplete = [*results, {"objective": "s", "seed": 3, "loss_r1": 0.0}]
    assert summary.whole_seeds(incomplete) == results
