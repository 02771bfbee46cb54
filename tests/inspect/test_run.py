"""What a run is fed: steps and hosts, and the record in its folder."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.support import corpus_named
from ul2_tasks import T5GEMMA2, MemoryDataSource, register
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.inspect.run import Run, identities, read_record
from ul2_tasks.random_access.numbering import RUN_RECORD

LENGTHS = {"inputs": 64, "targets": 64}


@given(hosts=st.integers(1, 8), on_each=st.integers(1, 8), step=st.integers(0, 10**9), first_step=st.integers(0, 10**6))
def test_hosts_share_a_step_and_steps_share_all_examples(hosts, on_each, step, first_step):
    run = Run("ul2_mix", LENGTHS, batch_size=hosts * on_each, first_step=first_step)
    step += first_step
    of_hosts = [run.numbers(step, (host, hosts)) for host in range(hosts)]
    assert sorted(number for numbers in of_hosts for number in numbers) == list(run.numbers(step))
    assert all(number % hosts == host for host, numbers in enumerate(of_hosts) for number in numbers)
    assert run.numbers(step).stop == run.numbers(step + 1).start
    assert {run.step_of(number) for number in run.numbers(step)} == {step}
    assert run.numbers(first_step).start == 0


@pytest.mark.parametrize(
    ("settings", "step", "host", "message"),
    [
        ({}, 1, (0, 1), "a step needs a batch size, and there is none. Pass --batch_size, or --run"),
        ({"batch_size": 8, "first_step": 100}, 99, (0, 1), "step must be at least 100, with which the run began, got 99"),
        ({"batch_size": 8}, 0, (0, 3), "the number of hosts must divide the batch of 8, got 3"),
    ],
)
def test_a_step_that_is_none_is_refused(settings, step, host, message):
    with pytest.raises(ValueError, match=message):
        Run("ul2_mix", LENGTHS, **settings).numbers(step, host)


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """A function that registers a mixture and writes its cache."""
    monkeypatch.setattr("seqio.utils._GLOBAL_CACHE_DIRECTORIES", [])

    def make(name: str, words: str = "more", **arguments) -> Run:
        texts = [f"text {number} {words}" for number in range(60)]
        mixture = register(name, MemoryDataSource(lambda: texts, validation=0), **arguments)
        build(corpus_named(f"{name}_corpus"), str(tmp_path), console=Console(quiet=True))
        return Run(mixture, LENGTHS, batch_size=8)

    monkeypatch.setattr("seqio.utils._GLOBAL_CACHE_DIRECTORIES", [str(tmp_path)])
    return make


def record_of(run: Run) -> dict:
    """What a run writes."""
    own = {
        "mixture": run.mixture,
        "split": run.split,
        "sequence_length": run.sequence_length,
        "seed": run.seed,
        "shuffle": run.shuffle,
        "pack": run.pack,
        "batch_size": run.batch_size,
        "first_step": run.first_step,
    }
    return json.loads(json.dumps({"ul2_tasks": "1.0", **own, **identities(run)}))


def test_what_is_registered_otherwise_is_refused_and_named(cached):
    run, other = cached("checked"), cached("unlike", words="less", denoisers=T5GEMMA2[:2])
    record = record_of(run)
    assert record["corpora"].keys() == {"checked_corpus"}
    corpora = {"checked_corpus": record_of(other)["corpora"]["unlike_corpus"]}
    for key, changed, told in [
        ("corpora", corpora, "corpora.checked_corpus was 'store of"),
        ("vocabulary", "another", "vocabulary was 'another', and is now 'Sentence"),
        ("rates", {**record["rates"], "checked_s": 7.0}, r"rates.checked_s was 7.0, and is now 0.5. Register what it reads"),
        ("tasks", {}, "tasks.checked_r1 was None, and is now {'denoiser': {'name': 'r1'"),
    ]:
        with pytest.raises(ValueError, match="the run in folder reads other data than what is registered here: ") as error:
            run.check({**record, key: changed}, "folder")
        assert told in str(error.value)


@pytest.mark.parametrize("content", [None, "{", "[1]", '{"mixture": "ul2_mix", "split": "train"}'])
def test_a_folder_without_a_record_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / RUN_RECORD).write_text(content)
    with pytest.raises(ValueError, match=RUN_RECORD):
        read_record(str(tmp_path))
