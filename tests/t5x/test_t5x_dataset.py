"""The data of a t5x run at a step, as far as it needs no t5x: what is refused, and the record in the run's folder.

`tests/t5x/test_t5x.py` has the rest.
"""

import contextlib
import re
import types

import pytest

from ul2_tasks import EncDecFeatureConverter, get_dataset_at_step
from ul2_tasks.inspect.run import read_record
from ul2_tasks.random_access.fingerprint import NUMBERED_VERSION
from ul2_tasks.t5x.dataset import RUN_RECORD, Start, begin_or_compare, check_has_iterators, step_of

RUN = {
    "ul2_tasks": "0.1.0",
    "numbered_version": NUMBERED_VERSION,
    "mixture": "ul2_mix",
    "split": "train",
    "sequence_length": {"inputs": 512, "targets": 512},
    "seed": 0,
    "shuffle": True,
    "pack": True,
    "batch_size": 8,
    "vocabulary": "default",
    "tasks": {"ul2_r1": {"rate": 1}},
    "corpora": {"ul2_corpus": "d34db33f"},
}


def begin(folder, run=RUN, step=0, is_writer=True) -> int:
    return begin_or_compare(str(folder), run, Start(step, is_resumed=False), is_writer)


def resume(folder, run=RUN, step=10, is_writer=False) -> int:
    return begin_or_compare(str(folder), run, Start(step, is_resumed=True), is_writer)


@pytest.mark.parametrize("first_step", [0, 1_000_000])
def test_a_run_keeps_the_step_it_began_at(tmp_path, first_step):
    assert begin(tmp_path, step=first_step) == first_step
    assert read_record(str(tmp_path)) == {**RUN, "first_step": first_step}
    assert [resume(tmp_path, step=first_step + more) for more in (0, 10, 5)] == [first_step] * 3


def test_one_process_writes_the_record_and_nothing_else(tmp_path):
    assert begin(tmp_path, is_writer=False) == 0
    assert not list(tmp_path.iterdir())
    begin(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [RUN_RECORD]


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"sequence_length": {"inputs": 512, "targets": 256}}, "sequence_length.targets was 512"),
        ({"tasks": {**RUN["tasks"], "ul2_s": {"rate": 4}}}, "tasks.ul2_s"),
        ({"corpora": {"ul2_corpus": "f00d"}}, "corpora.ul2_corpus"),
    ],
)
def test_a_run_of_other_data_is_refused_with_both_values_and_the_record_stays(tmp_path, other, told):
    begin(tmp_path)
    with pytest.raises(ValueError, match=re.escape(told)):
        resume(tmp_path, {**RUN, **other}, is_writer=True)
    assert resume(tmp_path) == 0


@pytest.mark.parametrize("name", ["gs://bucket/run/base", "checkpoint_", "run/checkpoint_10.orbax-checkpoint-tmp"])
def test_an_initial_checkpoint_without_a_step_is_refused(name):
    with pytest.raises(ValueError, match="step"):
        step_of(name)


def configured(**settings) -> types.SimpleNamespace:
    return types.SimpleNamespace(**{"seed": 0, "batch_size": 8, **settings})


def saving(save_dataset=False) -> types.SimpleNamespace:
    return types.SimpleNamespace(save=types.SimpleNamespace(save_dataset=save_dataset), restore=None)


@pytest.mark.parametrize(
    ("config", "checkpoints", "message"),
    [
        (configured(seed=None), saving(), "seed"),
        (configured(batch_size=6), saving(), "batch_size"),
        (configured(), saving(save_dataset=True), "save_dataset"),
    ],
)
def test_what_can_not_be_placed_by_a_step_is_refused(tmp_path, config, checkpoints, message):
    arguments = {"model_dir": str(tmp_path / "run"), "checkpoint_cfg": checkpoints}
    with pytest.raises(ValueError, match=message):
        get_dataset_at_step(config, 0, 4, EncDecFeatureConverter, **arguments)
    assert not (tmp_path / "run").exists()


CHECKPOINT = "checkpoint_50"


def stage(folder, checkpoint=None, step=50, **settings) -> None:
    """A run that begins, from the checkpoint of another one, and gets a checkpoint of its own."""
    begin_or_compare(str(folder), {**RUN, **settings}, Start(step if checkpoint else 0, False, checkpoint or ""), is_writer=True)
    (folder / CHECKPOINT).mkdir()


MIXED = {"mixture": "mine_mix", "tasks": {"mine_r1": {"rate": 3}}}
OTHER_CORPUS = {"corpora": {"ul2_corpus": "f00d"}}
TOKENS = {"corpora": {"a": "1 pairs, 2 documents, 3 tokens"}}


def content(name, told):
    return {"sources": {name: f"MegatronSource({told})"}}


@pytest.mark.parametrize(
    ("first", "second", "again"),
    [
        ({}, {**MIXED, "corpora": {"mine_corpus": "d34db33f"}}, "mine_corpus"),
        ({}, OTHER_CORPUS, None),
        (TOKENS | content("a", "x"), {**MIXED, "corpora": {"c": TOKENS["corpora"]["a"]}, **content("c", "x")}, "c"),
        (TOKENS | content("a", "x"), {**TOKENS, **content("a", "y")}, None),
    ],
)
def test_a_second_stage_does_not_read_the_first_ones_examples_again(tmp_path, first, second, again):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    stage(tmp_path / "one", **first)
    checkpoint = f"{tmp_path}/one/{CHECKPOINT}/"
    if again is None:
        stage(tmp_path / "two", checkpoint, **second)
        assert resume(tmp_path / "two", {**RUN, **second}, step=60) == 50
        return
    with pytest.raises(ValueError, match=f"seed .*{again}"):
        stage(tmp_path / "two", checkpoint, **second)
    assert not (tmp_path / "two" / RUN_RECORD).exists()


@pytest.mark.parametrize(("has_record", "has_iterator"), [(True, False), (False, False), (True, True)])
def test_a_run_by_steps_is_not_resumed_without_elastic_gin(tmp_path, has_record, has_iterator):
    if has_record:
        begin(tmp_path)
    (tmp_path / CHECKPOINT).mkdir()
    if has_iterator:
        (tmp_path / CHECKPOINT / "train_ds-000-of-001.index").touch()
    with pytest.raises(ValueError, match="elastic") if has_record and not has_iterator else contextlib.nullcontext():
        check_has_iterators(str(tmp_path), [f"{tmp_path}/{CHECKPOINT}"])


def scheduled(*stages, **settings) -> dict:
    """A run with a schedule: for each stage its first step, and the rates of its tasks, each of a corpus of its own."""
    told = [
        {"first": 8 * first, "rates": rates, "corpora": [task.replace("_r1", "_corpus") for task in rates]}
        for first, rates in stages
    ]
    tasks = {task: {"denoiser": task} for stage in told for task in stage["rates"]}
    corpora = {name: f"the tokens of {name}" for stage in told for name in stage["corpora"]}
    rates = told[0]["rates"]
    return {**RUN, "tasks": tasks, "corpora": corpora, "rates": rates, **settings} | {"schedule": {"batch_size": 8, "stages": told}}


WEB, BOTH, CODE = {"web_r1": 1.0}, {"web_r1": 0.5, "code_r1": 0.5}, {"code_r1": 1.0}
PLANNED = scheduled((0, WEB), (20, BOTH))
PLAIN = {key: value for key, value in scheduled((0, WEB)).items() if key != "schedule"}
JOINED = scheduled((0, WEB), (20, BOTH), (30, {"code_r1": 0.9, "new_r1": 0.1}))


@pytest.mark.parametrize("first_step", [0, 1_000_000])
@pytest.mark.parametrize(
    ("before", "step", "now"),
    [
        (PLANNED, 20, scheduled((0, WEB), (20, CODE))),
        ({**PLAIN, "mixture": "web_mix"}, 5, PLANNED),  # what `register` returned
        (PLANNED, 30, JOINED),
        (JOINED, 30, scheduled((0, WEB), (20, BOTH), (40, {"code_r1": 0.9, "other_r1": 0.1}))),
    ],
)
def test_what_a_run_has_not_read_may_change_and_the_record_says_what_is_read_now(tmp_path, before, step, now, first_step):
    begin(tmp_path, before, step=first_step)
    for _ in range(2):
        assert resume(tmp_path, now, step=first_step + step, is_writer=True) == first_step
        assert read_record(str(tmp_path)) == {**now, "first_step": first_step}


@pytest.mark.parametrize("first_step", [0, 1_000_000])
def test_what_a_run_has_read_may_not_change(tmp_path, first_step):
    begin(tmp_path, PLANNED, step=first_step)
    for now, told in ((scheduled((0, WEB), (20, CODE)), "stage from step 20"), (scheduled((0, WEB), (20, BOTH), seed=1), "seed")):
        with pytest.raises(ValueError, match=told):
            resume(tmp_path, now, step=first_step + 21, is_writer=True)
    assert read_record(str(tmp_path)) == {**PLANNED, "first_step": first_step}
