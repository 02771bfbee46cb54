"""`ul2 bench`: what it counts, and what it says of it."""

import dataclasses
import json
import math
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_command_line import ul2

import ul2_tasks
from ul2_tasks.looking import bench as benches
from ul2_tasks.looking.bench import Bench, Demand, Throughput, rounded, verdict
from ul2_tasks.looking.run import Run, identities
from ul2_tasks.random_access.fingerprint import LEFT_OUT
from ul2_tasks.random_access.numbering import RUN_RECORD

LENGTHS = ["--lengths", "64,64"]
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("quick_bench")]


def measured(*asked) -> dict:
    done = ul2("bench", *asked, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def check(found: dict) -> None:
    """What must hold of all that was measured."""
    assert set(found) == {field.name for field in dataclasses.fields(Bench)}
    for each in found["throughput"]:
        assert set(each) == {field.name for field in dataclasses.fields(Throughput)}
        assert each["rows"] == each["batches"] * found["batch_size"]
        assert each["lowest"] <= each["tokens_per_second"] <= each["highest"]
        assert each["lowest"] * (1 - 1e-9) <= each["tokens"] / each["seconds"] <= each["highest"] * (1 + 1e-9)
        assert each["rows_per_second"] == pytest.approx(each["rows"] / each["seconds"])
        assert each["tokens_per_cpu_second"] == pytest.approx(each["tokens"] / each["cpu_seconds"], rel=1e-3)
        assert each["seconds_to_first_batch"] > 0
    best = max(each["tokens_per_second"] for each in found["throughput"])
    for demand in found["demands"]:
        assert set(demand) == {field.name for field in dataclasses.fields(Demand)}
        assert demand["fed"] == pytest.approx(best / demand["tokens_per_second"])
        assert demand["cores"] == math.ceil(demand["tokens_per_second"] / found["throughput"][0]["tokens_per_cpu_second"])


def test_one_process_and_workers_read_batches_of_a_size():
    found = measured("ul2", *LENGTHS, "--batch_size", 8, "--workers", 2)
    check(found)
    assert [each["read_by"] for each in found["throughput"]] == ["1 process", "2 workers"]
    assert [each["workers"] for each in found["throughput"]] == [0, 2]
    assert (found["batch_size"], found["unit"], found["cores"]) == (8, "example", len(os.sched_getaffinity(0)))
    assert found["reader"] == "UL2IterableDataset and a DataLoader (random access)"
    assert [demand["accelerator"] for demand in found["demands"]] == ["100 M", "1 B", "10 B"]
    assert "6 FLOP per parameter and token" in found["assumed"]
    assert found["demands"][1]["tokens_per_second"] == pytest.approx(0.4 * 989e12 / 6e9)


def test_tokens_are_those_of_the_examples_and_a_small_corpus_repeats(tmp_path, monkeypatch):
    (tmp_path / "few.jsonl").write_text(json.dumps({"text": "The quick brown fox jumps over the lazy dog. " * 9}) + "\n")
    found = measured("few", "--corpus", tmp_path / "few.jsonl", *LENGTHS, "--workers", 0, "--batch_size", 4)
    check(found)
    examples = ul2_tasks.examples(ul2_tasks.Mixture("few", str(tmp_path / "few.jsonl")), {"inputs": 64, "targets": 64})
    sizes = [len(example["inputs"]) + len(example["targets"]) for example in examples]
    one = found["throughput"][0]
    assert one["rows"] > len(examples), "epochs follow each other"
    assert min(sizes) <= one["tokens"] / one["rows"] <= max(sizes)


def test_packed_sequences_and_conversations_count_no_padding():
    packed = measured("ul2", *LENGTHS, "--packed", "--batch_size", 4, "--workers", 0)
    check(packed)
    assert packed["unit"] == "packed sequence"
    one = packed["throughput"][0]
    assert one["tokens"] / one["rows"] <= 128
    for more in ([], ["--packed"]):
        chats = measured("chat", "--lengths", 2048, "--batch_size", 4, "--workers", 0, *more)
        check(chats)
        rows = ul2_tasks.examples(ul2_tasks.Chat(random_access=True), {"tokens": 2048}, pack=bool(more))
        key = "tokens_segment_ids" if more else "tokens"
        sizes = [int((row[key] > 0).sum()) if more else len(row[key]) for row in rows]
        assert chats["throughput"][0]["tokens"] / chats["throughput"][0]["rows"] == pytest.approx(np.mean(sizes), rel=0.2)
    assert measured("chat", "--batch_size", 4, "--workers", 0)["sequence_length"] == {"tokens": 4096}


def test_a_stream_is_read_as_one(tmp_path, monkeypatch):
    (tmp_path / "overlapping.py").write_text(
        "import ul2_tasks\nul2_tasks.register('overlapping', denoisers=[ul2_tasks.CausalDenoiser()])\n"
    )
    monkeypatch.chdir(tmp_path)
    found = measured("overlapping", "--module", "overlapping", *LENGTHS, "--batch_size", 4)
    check(found)
    assert found["reader"] == "UL2IterableDataset and a DataLoader (a stream)"
    assert [each["read_by"] for each in found["throughput"]] == ["1 process"]


def test_the_folder_of_a_run_says_what_is_read_and_t5x_reads_it(tmp_path, monkeypatch):
    monkeypatch.setattr("seqio.utils._GLOBAL_CACHE_DIRECTORIES", [])
    mixture = ul2_tasks.Mixture("benched", "embedded")
    mixture.cache(tmp_path / "cache")
    run = Run(mixture, {"inputs": 64, "targets": 64}, seed=5, batch_size=16, pack=True, cache_dirs=[tmp_path / "cache"])
    record = {field.name: getattr(run, field.name) for field in dataclasses.fields(Run)} | {"mixture": "benched_mix"}
    record = {key: value for key, value in record.items() if key not in (*LEFT_OUT, "cache_dirs")}
    (tmp_path / RUN_RECORD).write_text(json.dumps(record | identities(run)))
    what = ["--corpus", "embedded", "--cache", tmp_path / "cache", "--run", tmp_path]
    found = measured(*what)
    check(found)
    assert (found["mixture"], found["seed"], found["batch_size"], found["unit"]) == ("benched_mix", 5, 16, "packed sequence")
    assert found["reader"] == "SeqIO's get_dataset, as t5x reads"
    assert [each["read_by"] for each in found["throughput"]] == ["tf.data"]
    done = ul2("bench", *what, "--workers", 2)
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (
        2,
        "Error: --workers must be left out with --run, got both. Pass one of them.",
    )
    done = ul2("bench", *what, "--batch_size", 8)
    assert "--batch_size must be 16, as the run in" in done.stderr


@pytest.mark.parametrize(("name", "more"), [("chat", ["--lengths", "4096"]), ("ul2", []), ("chat_prompt_completion", [])])
def test_t5x_reads_other_kinds(name, more):
    found = measured(name, "--t5x", "--batch_size", 4, *more)
    check(found)
    assert found["throughput"][0]["tokens"] > 0


def test_whether_it_is_enough_is_in_a_sentence_and_in_the_exit_status():
    asked = ["bench", "ul2", *LENGTHS, "--workers", 0]
    done = ul2(*asked, "--tokens_per_second", 10)
    assert done.exit_code == 0
    assert "accelerators of 10 tokens/s; one core feeds " in " ".join(done.stdout.split())
    done = ul2(*asked, "--tokens_per_second", 1e15)
    assert done.exit_code == 1
    assert "Not enough for one accelerator of" in done.stdout
    shown = ul2(*asked)
    assert shown.exit_code == 0
    assert "40 % of its 989" in shown.stdout
    for value in (0, -1, "many"):
        assert ul2(*asked, "--tokens_per_second", value).exit_code == 2


def test_what_cannot_be_read_is_an_error(monkeypatch):
    done = ul2("bench", "images", "--t5x")
    assert "`ul2 bench --t5x` does not support image-text records (images). Leave it out." in done.stderr
    done = ul2("bench", "ul2", "--t5x", "--workers", 1)
    assert "--workers must be left out with --t5x, got both. Pass one of them." in done.stderr
    done = ul2("bench", "ul2", "--lengths", "4096")
    assert done.exit_code == 2
    assert "--lengths must be the tokens of inputs and targets" in done.stderr


def _bench_of(read: float, per_core: float, needs: float) -> Bench:
    each = Throughput("2 workers", 2, 1.0, read, read, read, read, 1.0, per_core, 1, 1, 1, 1.0, 1.0)
    demand = Demand("one", needs, read / needs, read / needs, per_core / needs, math.ceil(needs / per_core))
    return Bench("a", {}, "train", 0, "example", 1, "a loader", 4, [each], [demand], "")


@given(read=st.floats(1, 1e12), per_core=st.floats(1, 1e12), needs=st.floats(1, 1e12))
def test_the_verdict_is_that_of_the_numbers(read, per_core, needs):
    found = _bench_of(read, per_core, needs)
    words = verdict(found)
    assert words.startswith("Enough for " if read >= needs else "Not enough for one")
    assert found.passed == (read >= needs)
    if read >= needs:
        assert f"for {math.floor(read / needs):,} accelerator" in words
    else:
        assert f"{math.ceil(needs / per_core):,} core" in words


def test_sentences_of_verdicts():
    assert (
        verdict(_bench_of(4e6, 1.2e6, 1e5)) == "Enough for 40 accelerators of 100\N{NO-BREAK SPACE}k tokens/s; one core feeds 12."
    )
    assert verdict(_bench_of(1e6, 5e5, 1.9e6)) == (
        "Not enough for one accelerator of 1.9\N{NO-BREAK SPACE}M tokens/s: 2 workers read 53% of that."
        " It takes 4 cores, and this machine has 4."
    )


@given(value=st.floats(1e-6, 9.9e14))
def test_rounded_numbers_are_near(value):
    number, _, unit = rounded(value).partition("\N{NO-BREAK SPACE}")
    assert float(number) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[unit] == pytest.approx(value, rel=0.0051)


def test_nothing_else_runs_when_it_has_measured():
    import multiprocessing

    measured("ul2", *LENGTHS, "--workers", 1)
    assert not multiprocessing.active_children()
    assert benches._cpu_of(1 << 30) == 0.0, "a process that has ended"
