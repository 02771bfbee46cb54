"""`ul2 audit`: what is printed and written of what a run has read."""

import json

import pyarrow.parquet as pq
import pytest

from tests.commands.running import ul2
from ul2_tasks import MemoryDataSource, Stage, mix, register
from ul2_tasks.inspect.audit import audit
from ul2_tasks.inspect.run import Run

LENGTHS = {"inputs": 96, "targets": 96}
TEXTS = [f"{number} some words of a text, and more of them. " * (1 + number % 7) for number in range(40)]


@pytest.fixture(scope="module")
def both() -> str:
    one, other = (
        register(f"counted_{name}", MemoryDataSource(lambda count=count: TEXTS[:count], validation=0))
        for name, count in (("one", 40), ("other", 15))
    )
    return mix("counted_both", {one: 3, other: 1})


def test_shares_are_near_the_weights_and_sums_agree(both):
    audited = audit(Run(both, LENGTHS, batch_size=8), until=200)
    assert audited.elements == 1600
    assert audited.passed
    tasks = [task for corpus in audited.corpora for task in corpus.tasks]
    assert sum(task.share for task in tasks) == pytest.approx(1)
    assert sum(task.asked for task in tasks) == pytest.approx(1)
    assert all(task.share == pytest.approx(task.asked, abs=0.02) for task in tasks)
    for corpus in audited.corpora:
        assert sum(corpus.times.values()) == corpus.documents
        assert corpus.epochs == corpus.tokens_read / corpus.tokens


def test_what_the_stages_ask_for_is_that_of_the_steps_of_the_run_whatever_is_skipped(both):
    halves = mix("counted_halves", schedule=[Stage(0, {"counted_one_mix": 1}), Stage(25, {both: 1})], batch_size=8, steps=50)
    for skip in ((), [(5, 30)]):
        audited = audit(Run(halves, LENGTHS, batch_size=8, skip=skip), until=50)
        asked = {corpus.corpus: sum(task.asked for task in corpus.tasks) for corpus in audited.corpora}
        assert asked == pytest.approx({"counted_one_corpus": 0.5 + 0.5 * 0.75, "counted_other_corpus": 0.5 * 0.25})
        assert all(task.share == pytest.approx(task.asked, abs=0.03) for corpus in audited.corpora for task in corpus.tasks)


def test_a_run_that_has_not_begun_has_read_nothing(both):
    run = Run(both, LENGTHS, batch_size=8, first_step=100)
    assert [(corpus.tokens_read, corpus.unread) for corpus in audit(run, until=100).corpora] == [(0, 40), (0, 15)]


def test_the_command_prints_and_writes_what_was_read(both, tmp_path):
    asked = ["audit", both, "--until", "50", "--batch_size", "8", "--lengths", "96,96"]
    told = json.loads(ul2(*asked, "--json", "--output", tmp_path / "a.parquet", "--output", tmp_path / "a.html").stdout)
    output, page = ul2(*asked).stdout, (tmp_path / "a.html").read_text()
    rows = pq.read_table(tmp_path / "a.parquet").to_pylist()
    assert len(rows) == 55
    for corpus in told["corpora"]:
        own = [row for row in rows if row["corpus"] == corpus["corpus"]]
        assert [row["document"] for row in own] == list(range(corpus["documents"]))
        assert sum(row["tokens_read"] for row in own) == corpus["tokens_read"]
        assert {str(time): [row["times"] for row in own].count(time) for time in {row["times"] for row in own}} == corpus["times"]
        assert all(f"{corpus['tokens_read']:,}" in shown for shown in (output, page))
    for path in ("a.csv", f"{tmp_path}/no/a.parquet"):
        done = ul2(*asked, "--output", path)
        assert (done.exit_code, "--output" in done.stderr, path in done.stderr) == (2, True, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.parquet"]
