"""The mixture changes while a run goes on: corpora go on where they are, and what was read does not depend on what comes."""

import dataclasses
import json

import pytest
import seqio

import ul2_tasks
from tests.support import byte_vocabulary
from ul2_tasks import T5GEMMA2, BlockShuffle, MemoryDataSource, Mix, Mixture, Stage, mix, register
from ul2_tasks.mixtures.schedule import Schedule
from ul2_tasks.pytorch.states import check_resumed, state_of
from ul2_tasks.t5x.dataset import Start, begin_or_compare

BYTES, MODES = byte_vocabulary()
LENGTHS = {"inputs": 64, "targets": 64}
BATCH, STEPS = 8, 150
TEXTS = {
    name: [f"{name} {number} " * (1 + number % 9) for number in range(count)] for name, count in (("a", 90), ("b", 150), ("c", 70))
}
BLOCKS = BlockShuffle(block_tokens=300, partitions=2, window_blocks=2)
R1, S = T5GEMMA2[::4]


def described(name, denoisers=(R1, S), **arguments) -> Mixture:
    texts = TEXTS[name]
    source = MemoryDataSource(lambda: texts, validation=0)
    return Mixture(f"staged_{name}", source, BYTES, denoisers, modes=MODES, block_shuffle=BLOCKS, **arguments)


A, B, C = (described(name) for name in "abc")
STAGES = (Stage(0, {A: 2, B: 1}), Stage(41, {A: 1, B: 1, C: 1}, ramp_steps=30, ramp_every=10), Stage(100, {C: 1, A: 1e-3}))


def planned(*stages, mixtures=None) -> Mix:
    return Mix("staged", mixtures, schedule=stages, batch_size=BATCH, steps=STEPS)


def told(*stages):
    return json.loads(json.dumps(ul2_tasks.examples(planned(*stages), LENGTHS, seed=1).describe()))


def test_a_state_is_taken_by_a_schedule_that_agrees_until_its_number_and_by_no_other():
    def check(saved, number, now):
        check_resumed(state_of({"pipeline": saved, "number": number}), state_of({"pipeline": now, "number": 0}))

    saved, plain = (
        told(*STAGES),
        json.loads(json.dumps(ul2_tasks.examples(Mix("staged", {A: 2, B: 1}), LENGTHS, seed=1).describe())),
    )
    check(saved, 60 * BATCH, told(*STAGES[:2], Stage(80, {B: 1})))
    with pytest.raises(ValueError, match=r"stage from step 41 .* stage from step 50"):
        check(saved, 60 * BATCH, told(STAGES[0], Stage(50, {C: 1})))
    with pytest.raises(ValueError, match=r"stage from step 41 was {.*}, is None"):
        check(saved, 60 * BATCH, told(STAGES[0]))
    check(saved, 41 * BATCH, told(STAGES[0], Stage(50, {C: 1})))
    check(plain, 41 * BATCH, told(*STAGES))
    with pytest.raises(ValueError, match="the state was saved by another pipeline"):
        check(plain, 41 * BATCH + 1, told(*STAGES))


def test_a_run_goes_on_with_other_denoisers_of_a_later_stage_also_once_that_has_begun(tmp_path):
    def begin(mixture, step, is_resumed=True):
        run = {"ul2_tasks": "2.1", "batch_size": BATCH, **told(Stage(0, {A: 1}), Stage(41, {mixture: 1}))}
        return begin_or_compare(str(tmp_path), run, Start(step, is_resumed), is_writer=True)

    longer = described("c", (dataclasses.replace(R1, mean_span_length=5), S))
    begin(C, 0, is_resumed=False)
    assert begin(longer, 41) == 0
    assert begin(longer, 60) == 0
    with pytest.raises(ValueError, match=r"mean_span_length was 5, and is now 3"):
        begin(C, 60)


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
        (ASKED | {"schedule": [Stage(0, {A: 1}), Stage(0, {B: 1})]}, "first steps"),
        (ASKED | {"schedule": [Stage(0, {A: 1}, ramp_steps=5)]}, "ramp_steps"),
        (ASKED | {"schedule": [Stage(0, {A: 1}), Stage(10**15, {B: 1})], "batch_size": 10**6}, "batch_size"),
        (ASKED | {"schedule": [Stage(0, {"nobody_mix": 1})]}, "nobody_mix"),
        ({"mixtures": {A: 1}, "batch_size": 8}, "batch_size"),
    ],
)
def test_what_is_no_schedule_is_rejected(arguments, named):
    with pytest.raises(ValueError, match=named):
        Mix("staged", **arguments)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((0.5, {"a": 1}), "first_step"),
        ((0, {"a": 0}), "mixtures"),
        ((0, {"a": 1}, 0, 0), "ramp_every"),
        ((5, {"a": 1}, 10**9, 1), "ramp_every"),
    ],
)
def test_what_is_no_stage_is_rejected(arguments, named):
    with pytest.raises(ValueError, match=named):
        Stage(*arguments)


def test_a_schedule_has_denoising_tasks_alone():
    register("staged_a", A.source, BYTES, (R1, S), modes=MODES)
    features = {key: seqio.Feature(BYTES) for key in ("inputs", "targets")}
    seqio.TaskRegistry.add("staged_other", MemoryDataSource(lambda: ["x"], validation=0), output_features=features)
    with pytest.raises(ValueError, match="staged_other"):
        mix("staged_with_other", schedule=[Stage(0, {"staged_a_mix": 1, "staged_other": 1})], batch_size=8, steps=9)


def test_corpora_of_a_mixture_may_have_other_blocks_but_a_corpus_has_one_kind():
    finer = Mixture("staged_finer", B.source, BYTES, (R1,), modes=MODES, block_shuffle=BlockShuffle(200, 3, 1))
    both = ul2_tasks.examples(Mix("staged_two", {A: 1, finer: 1}), LENGTHS)
    assert both.numbering.mix.turns == 6
    many = [
        Mixture(f"staged_{count}", B.source, BYTES, (R1,), modes=MODES, block_shuffle=BlockShuffle(20, count, 1))
        for count in (89, 97)
    ]
    with pytest.raises(ValueError, match="partitions"):
        ul2_tasks.examples(Mix("staged_many", {many[0]: 1, many[1]: 1}), LENGTHS)
    with pytest.raises(ValueError, match="block_shuffle"):
        Mixture(block_shuffle=64)
