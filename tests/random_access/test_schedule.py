"""The mixture changes while a run goes on: corpora go on where they are, and what was read does not depend on what comes."""

import pytest
import seqio
import tensorflow as tf

import ul2_tasks
from tests.support import byte_vocabulary
from ul2_tasks import T5GEMMA2, BlockShuffle, MemoryDataSource, Mix, Mixture, Stage, mix, register
from ul2_tasks.mixtures.schedule import Schedule

BYTES, MODES = byte_vocabulary()
R1, S = T5GEMMA2[::4]


def described(name, count=90, denoisers=(R1, S), blocks=(300, 2, 2)) -> Mixture:
    source = MemoryDataSource(lambda: [f"{name} {number} " * (1 + number % 9) for number in range(count)], validation=0)
    return Mixture(f"staged_{name}", source, BYTES, denoisers, modes=MODES, block_shuffle=BlockShuffle(*blocks))


A, B, C = (described(name) for name in "abc")
STAGES = (Stage(0, {A: 2, B: 1}), Stage(41, {A: 1, B: 1, C: 1}, ramp_steps=30, ramp_every=10), Stage(100, {C: 1, A: 1e-3}))


def test_a_ramp_is_a_line_of_stages():
    flat = Schedule((Stage(0, {"a": 1}), Stage(10, {"b": 3}, ramp_steps=4, ramp_every=2)), 8, 20).flat()
    assert [(first, dict(weights)) for first, weights in flat] == [
        (0, {"a": 1}),
        (10, {"a": 0.75, "b": 0.25}),
        (12, {"a": 0.25, "b": 0.75}),
        (14, {"b": 3}),
    ]


def test_a_stage_ends_a_ramp_that_goes_on():
    stages = Stage(0, {"a": 1}), Stage(10, {"b": 1}, ramp_steps=8, ramp_every=2)
    ended = Schedule((*stages, Stage(13, {"c": 1}), Stage(20, {"a": 1}, ramp_steps=2, ramp_every=2)), 8, 30).flat()
    assert ended[:3] == Schedule(stages, 8, 30).flat()[:3]
    assert [(first, dict(weights)) for first, weights in ended[3:]] == [(13, {"c": 1}), (20, {"c": 0.5, "a": 0.5}), (22, {"a": 1})]


ASKED = {"schedule": STAGES, "batch_size": 8, "steps": 9}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (ASKED | {"mixtures": {A: 1}}, "mixtures"),
        (ASKED | {"batch_size": None}, "batch_size"),
        (ASKED | {"schedule": [(0, {A: 1})]}, "schedule"),
        (ASKED | {"schedule": STAGES[1:]}, "first steps"),
        (ASKED | {"schedule": [Stage(0, {A: 1}, ramp_steps=5)]}, "ramp_steps"),
        (ASKED | {"schedule": [Stage(0, {A: 1}), Stage(10**15, {B: 1})], "batch_size": 10**6}, "batch_size"),
        (ASKED | {"schedule": [Stage(0, {"nobody_mix": 1})]}, "nobody_mix"),
        (ASKED | {"schedule": [Stage(0, {A: 1}), Stage(2, {A: 1}, lengths={"inputs": 9})]}, "first stage"),
        (
            ASKED | {"schedule": [Stage(n, {A: 1}, lengths={key: 99}) for n, key in enumerate(("inputs", "tokens"))]},
            "same features",
        ),
        ({"mixtures": {A: 1}, "batch_size": 8}, "batch_size"),
    ],
)
def test_what_is_no_schedule_is_rejected(arguments, named):
    with pytest.raises(ValueError, match=named):
        Mix("staged", **arguments)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"first_step": 0.5, "mixtures": {"a": 1}}, "first_step"),
        ({"first_step": 0, "mixtures": {"a": 0}}, "mixtures"),
        ({"first_step": 5, "mixtures": {"a": 1}, "ramp_steps": 10**9, "ramp_every": 1}, "ramp_every"),
        ({"first_step": 0, "mixtures": {"a": 1}, "lengths": {"inputs": 0}}, "lengths"),
        ({"first_step": 0, "mixtures": {"a": 1}, "batch_size": 0}, "batch_size"),
    ],
)
def test_what_is_no_stage_is_rejected(arguments, named):
    with pytest.raises(ValueError, match=named):
        Stage(**arguments)


@pytest.mark.parametrize("num_epochs", [1, None])
def test_seqio_reads_what_has_the_lengths_that_are_asked_for_and_then_says_where_to_restart(num_epochs):
    short, long = ({"inputs": length, "targets": length} for length in (64, 160))
    if "staged_lengths_mix" not in seqio.MixtureRegistry.names():
        source = MemoryDataSource(lambda: [f"text {number} " * 9 for number in range(90)], validation=0.2)
        text = register("staged_text", source, BYTES, (R1, S), modes=MODES)
        stages = [Stage(0, {text: 1}, lengths=short), Stage(4, {text: 1}, lengths=long)]
        mix("staged_lengths", schedule=stages, batch_size=8, steps=9)
    mixture, given = seqio.MixtureRegistry.get("staged_lengths_mix"), []
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"sequence_length must be .*160.* from element 32 .*got .*64"):
        given.extend(mixture.get_dataset(short, "train", seed=0, num_epochs=num_epochs).as_numpy_iterator())
    assert 0 < len(given) <= 32
    of_validation = mixture.get_dataset({"inputs": 70, "targets": 70}, "validation", seed=0, num_epochs=1)
    assert all(len(each["inputs"]) <= 70 for each in of_validation.as_numpy_iterator())


def test_a_schedule_has_denoising_tasks_alone():
    register("staged_a", A.source, BYTES, (R1, S), modes=MODES)
    features = {key: seqio.Feature(BYTES) for key in ("inputs", "targets")}
    seqio.TaskRegistry.add("staged_other", MemoryDataSource(lambda: ["x"], validation=0), output_features=features)
    with pytest.raises(ValueError, match="staged_other"):
        mix("staged_with_other", schedule=[Stage(0, {"staged_a_mix": 1, "staged_other": 1})], batch_size=8, steps=9)


def test_corpora_of_a_mixture_may_have_other_blocks():
    lengths, finer = {"inputs": 64, "targets": 64}, described("finer", denoisers=(R1,), blocks=(200, 3, 1))
    assert ul2_tasks.examples(Mix("staged_two", {A: 1, finer: 1}), lengths).numbering.mix.turns == 6
    with pytest.raises(ValueError, match="partitions"):
        ul2_tasks.examples(Mix("staged_many", {described(f"of_{turns}", blocks=(20, turns, 1)): 1 for turns in (89, 97)}), lengths)
