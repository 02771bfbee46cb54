"""The mixture changes while a run goes on: corpora go on where they are, and what was read does not depend on what comes."""

import collections
import dataclasses
import json

import numpy as np
import pytest
import seqio
from rich.console import Console
from support import byte_vocabulary, restore, special_for

import ul2_tasks
from ul2_tasks import T5GEMMA2, BlockShuffle, EncDecFeatureConverter, MemoryDataSource, Mix, Mixture, Stage, mix, register
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.looking.run import Run
from ul2_tasks.looking.texts.measure import measure
from ul2_tasks.looking.texts.schedule import schedule_of
from ul2_tasks.mixtures.schedule import Schedule
from ul2_tasks.pytorch.states import number_of, state_of
from ul2_tasks.random_access.dataset import continued
from ul2_tasks.random_access.fingerprint import until
from ul2_tasks.t5x_dataset import Start, begin_or_compare

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


@pytest.fixture(scope="module", params=[False, True], ids=["examples", "packed"])
def found(request):
    return ul2_tasks.examples(planned(*STAGES), LENGTHS, seed=1, pack=request.param)


def locations_of(found, index):
    located = found.locate(index)
    return located if isinstance(located, list) else [located]


def same(one, other) -> bool:
    return all(np.array_equal(one[key], other[key]) for key in ("inputs", "targets"))


def test_no_token_comes_twice_in_an_epoch(found):
    read = collections.defaultdict(collections.Counter)
    for index in range(len(found)):
        for location in locations_of(found, index):
            for start, stop in location.tokens:
                read[location.corpus, location.epoch].update(range(start, stop))
    assert all(set(counter.values()) == {1} for counter in read.values())
    assert {epoch for _, epoch in read} >= {0, 1}


def test_the_tokens_of_an_example_are_those_of_its_location(found):
    if found.numbering.packed:
        pytest.skip("a packed sequence has the examples that it has without packing")
    stores = {corpus.name: corpus.store for corpus in found.numbering.corpora}
    for index in range(0, len(found), 7):
        location, example = found.locate(index), found[index]
        denoiser = next(each for each in (R1, S) if each.name == location.denoiser)
        expected = np.concatenate([stores[location.corpus].read_tokens(*each) for each in location.tokens])
        assert restore(example, denoiser, special_for(denoiser, BYTES, MODES)) == expected.tolist()
        assert (example["task"], example["denoiser"]) == (location.task, location.denoiser)


def test_each_stage_has_its_weights_from_the_very_element(found):
    for stage in found.numbering.timeline.stages:
        stop = min(stage.stop, len(found))
        counts = collections.Counter(locations_of(found, index)[0].corpus for index in range(stage.first, stop))
        assert counts.keys() <= {found.numbering.names[corpus] for corpus in stage.corpora}
        if stage.first == 0:
            assert counts["staged_a_corpus"] / counts.total() == pytest.approx(2 / 3, abs=0.08)
    assert {location.corpus for index in range(0, 41 * BATCH) for location in locations_of(found, index)} == {
        "staged_a_corpus",
        "staged_b_corpus",
    }


def test_a_document_is_found_in_all_stages(found):
    for document in (0, 40):
        held = [
            index
            for index in range(len(found))
            if any(
                each.corpus == "staged_a_corpus" and first <= document < last
                for each in locations_of(found, index)
                for first, last in each.documents
            )
        ]
        assert found.find(document, "staged_a_corpus") == held


def test_one_stage_is_the_mixture_without_a_schedule():
    staged = ul2_tasks.examples(planned(Stage(0, {A: 2, B: 1})), LENGTHS, seed=1)
    plain = ul2_tasks.examples(Mix("staged", {A: 2, B: 1}), LENGTHS, seed=1)
    assert len(staged) == BATCH * STEPS
    assert all(same(*pair) for pair in zip(staged[: min(len(plain), len(staged))], plain[: len(staged)]))


@pytest.mark.parametrize("step", [1, 41, 57, 99])
def test_what_was_read_does_not_depend_on_what_comes(found, step):
    other = [Stage(step, {B: 3, A: 1}), Stage(step + 20, {C: 1})]
    before = [stage for stage in STAGES if stage.first_step + stage.ramp_steps <= step]
    changed = ul2_tasks.examples(planned(*before, *other), LENGTHS, seed=1, pack=bool(found.numbering.packed))
    last = step if before == [stage for stage in STAGES if stage.first_step < step] else before[-1].first_step
    last = min(last, next((stage.first_step for stage in STAGES if stage not in before), last))
    assert all(same(*pair) for pair in zip(found[: last * BATCH], changed[: last * BATCH]))
    assert not all(same(*pair) for pair in zip(found[:], changed[:]))


@pytest.fixture(scope="module")
def registered(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("staged_caches")
    for name, mixture in zip("abc", (A, B, C)):
        register(f"staged_{name}", mixture.source, BYTES, (R1, S), modes=MODES, block_shuffle=BLOCKS)
        build(f"staged_{name}_corpus", str(folder), console=Console(quiet=True))
    stages = [
        Stage(
            each.first_step, {f"{mixture.name}_mix": weight for mixture, weight in each.mixtures}, each.ramp_steps, each.ramp_every
        )
        for each in STAGES
    ]
    seqio.add_global_cache_dirs([str(folder)])
    return mix("staged", schedule=stages, batch_size=BATCH, steps=STEPS)


def test_what_is_registered_has_the_examples_of_what_is_described(found, registered):
    pack = bool(found.numbering.packed)
    assert all(same(*pair) for pair in zip(found[::17], ul2_tasks.examples(registered, LENGTHS, seed=1, pack=pack)[::17]))


@pytest.mark.parametrize("hosts", [1, 3])
def test_a_dataset_has_them_on_any_hosts_from_any_step(found, registered, hosts):
    pack = bool(found.numbering.packed)
    for host in range(hosts):
        shard = seqio.ShardInfo(host, hosts)
        rows = seqio.get_dataset(
            registered, LENGTHS, EncDecFeatureConverter(pack=pack), "train", use_cached=True, seed=1, shuffle=True, shard_info=shard
        )
        for first in (0, 321):
            for at, row in zip(range(first, first + 20), continued(rows, first).as_numpy_iterator()):
                expected = found[at * hosts + host]["targets"]
                assert np.array_equal(row["decoder_target_tokens"][: len(expected)], expected)


def test_without_a_cache_small_corpora_are_read_from_memory_and_documents_that_are_kept_apart_are_not(registered):
    dataset = seqio.get_mixture_or_task(registered).get_dataset(LENGTHS, split="train", seed=1)
    expected = ul2_tasks.examples(planned(*STAGES), LENGTHS, seed=1)
    assert all(same(*pair) for pair in zip(dataset.take(500).as_numpy_iterator(), expected[:500]))
    register("staged_apart", A.source, BYTES, (R1,), modes=MODES, merge_examples=False)
    apart = mix("staged_kept_apart", schedule=[Stage(0, {"staged_apart_mix": 1})], batch_size=8, steps=9)
    with pytest.raises(
        ValueError, match="must have random access, but 'staged_kept_apart_mix' has none, because documents are kept apart"
    ):
        seqio.get_mixture_or_task(apart).get_dataset(LENGTHS, split="train", seed=1)


def told(*stages):
    return json.loads(json.dumps(ul2_tasks.examples(planned(*stages), LENGTHS, seed=1).describe()))


def test_a_state_is_taken_by_a_schedule_that_agrees_until_its_number_and_by_no_other():
    saved = state_of({"pipeline": told(*STAGES), "number": 60 * BATCH})
    later = told(*STAGES[:2], Stage(80, {B: 1}))
    assert number_of(saved, later) == 60 * BATCH
    with pytest.raises(
        ValueError, match=r"stage from step 41 was {.*}, is None; stage .* is None; stage from step 50 was None, is {"
    ):
        number_of(saved, told(STAGES[0], Stage(50, {C: 1})))
    with pytest.raises(ValueError, match=r"stage from step 41 was {.*}, is None"):
        number_of(saved, told(STAGES[0]))
    assert number_of({**saved, "number": 41 * BATCH}, told(STAGES[0], Stage(50, {C: 1}))) == 41 * BATCH
    plain = json.loads(json.dumps(ul2_tasks.examples(Mix("staged", {A: 2, B: 1}), LENGTHS, seed=1).describe()))
    assert number_of(state_of({"pipeline": plain, "number": 41 * BATCH}), told(*STAGES)) == 41 * BATCH
    with pytest.raises(ValueError, match="the state was saved by another pipeline"):
        number_of(state_of({"pipeline": plain, "number": 41 * BATCH + 1}), told(*STAGES))


def test_a_run_takes_a_changed_future_and_says_which_step_of_another_past_differs(tmp_path):
    def run(*stages):
        return {"ul2_tasks": "2.1", "batch_size": BATCH, **told(*stages)}

    def begin(run, step, is_resumed=True):
        return begin_or_compare(str(tmp_path), run, Start(step, is_resumed), is_writer=True)

    begin(run(*STAGES), 0, is_resumed=False)
    changed = run(*STAGES[:2], Stage(90, {B: 1}))
    assert begin(changed, 71) == 0
    assert json.loads((tmp_path / "ul2_run.json").read_text())["schedule"] == changed["schedule"], "which is the run's from now on"
    with pytest.raises(ValueError, match=r"stage from step 90 was .* and the schedule, exclude and skip from its step 95 on"):
        begin(run(*STAGES[:2], Stage(94, {B: 1})), 95)
    with pytest.raises(ValueError, match=r"stage from step 0\.rates\.staged_a_r1 was 0\.13.*, and is now 0\.06"):
        begin(run(Stage(0, {A: 1, B: 2}), *STAGES[1:2], Stage(90, {B: 1})), 95)
    assert begin(run(*STAGES[:2], Stage(90, {B: 1}), Stage(95, {C: 1})), 95) == 0


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


def test_what_is_told_until_an_element_has_nothing_of_later_stages():
    early = until(told(*STAGES), 41 * BATCH)
    assert early == until(told(STAGES[0]), 10)
    assert early["corpora"].keys() == {"staged_a_corpus", "staged_b_corpus"}
    assert "staged_c_r1" in until(told(*STAGES), 41 * BATCH + 1)["tasks"]


def test_the_table_has_what_is_read(found):
    run = Run(planned(*STAGES), LENGTHS, seed=1, pack=bool(found.numbering.packed), batch_size=BATCH)
    located = [locations_of(found, number) for number in range(len(found))]
    last_step = {(each.corpus, each.epoch): number // BATCH for number, row in enumerate(located) for each in row}
    for row in schedule_of(run):
        of_corpus = [
            [each for each in located[number] if each.corpus == row.corpus]
            for number in range(row.first_step * BATCH, row.stop_step * BATCH)
        ]
        assert row.elements == sum(map(bool, of_corpus))
        assert row.tokens == sum(stop - start for each in of_corpus for location in each for start, stop in location.tokens)
        assert row.is_exact
        assert {(row.corpus, step) for step in row.epoch_ends} <= {(corpus, step) for (corpus, _), step in last_step.items()}


def test_statistics_expect_the_weights_of_the_stages_that_they_are_of(registered):
    statistics = measure(registered, LENGTHS, examples=600)
    assert {task.task: task.share["expected"] for task in statistics.tasks}["staged_c_s"] < 0.8 / 3
    assert all(check.passed for check in statistics.checks if check.name == "mixing rates as expected")


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


def test_the_order_in_which_weights_are_written_says_nothing():
    weights = {A: 0.1, B: 0.2, C: 0.3}
    one, other = ((Stage(0, {A: 1}), Stage(10, each, ramp_steps=4)) for each in (weights, list(reversed(weights.items()))))
    assert one == other
    assert Schedule(one, 8, 20).flat() == Schedule(other, 8, 20).flat()
    assert planned(*one) == planned(*other)


def test_weights_are_added_as_on_all_versions_of_python():
    (_, first), *_ = Schedule((Stage(0, {"a": 1}), Stage(1, dict.fromkeys(map(str, range(10)), 0.1), 1, 1)), 8, 20).flat()[1:]
    assert first["1"] == 0.05


def test_a_mix_is_made_again_with_more_steps_which_its_fingerprint_does_not_have():
    mix = planned(*STAGES)
    longer = dataclasses.replace(mix, steps=2 * STEPS)
    assert (longer.schedule, longer.steps) == (mix.schedule, 2 * STEPS)
    assert longer.fingerprint() == mix.fingerprint()
    assert dataclasses.replace(mix, batch_size=2 * BATCH).fingerprint() != mix.fingerprint()


def test_a_fraction_of_one_in_a_million_is_not_raised(caplog):
    rare = ul2_tasks.examples(Mix("staged_rare", {A: 0.9, B: 0.1, C: 1e-6}), LENGTHS)
    assert rare.numbering.timeline.stages[0].mixing.taken(1 << 30)[2] == pytest.approx((1 << 37) * 1e-6, rel=1e-4)
    assert "differs by" not in caplog.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mixtures": {A: 1}, "schedule": STAGES, "batch_size": 8, "steps": 9}, "mixtures must be left out with a schedule"),
        ({"schedule": STAGES, "steps": 9}, "batch_size must be an integer of at least 1 with a schedule, got None"),
        ({"schedule": STAGES, "batch_size": 8, "steps": 0}, "steps must be an integer of at least 1 with a schedule, got 0"),
        ({"schedule": [], "batch_size": 8, "steps": 9}, "schedule must be a list of ul2_tasks.Stage"),
        ({"schedule": STAGES[0], "batch_size": 8, "steps": 9}, "schedule must be a list of ul2_tasks.Stage"),
        ({"schedule": [(0, {A: 1})], "batch_size": 8, "steps": 9}, "schedule must be a list of ul2_tasks.Stage"),
        ({"schedule": STAGES[1:], "batch_size": 8, "steps": 9}, r"ascending first steps, of which the first is 0, got \[41, 100\]"),
        ({"schedule": [Stage(0, {A: 1}), Stage(0, {B: 1})], "batch_size": 8, "steps": 9}, r"ascending first steps"),
        (
            {"schedule": [Stage(0, {A: 1}, ramp_steps=5)], "batch_size": 8, "steps": 9},
            "ramp_steps must be 0 in the first stage, got 5",
        ),
        (
            {"schedule": [Stage(0, {A: 1}), Stage(10**15, {B: 1})], "batch_size": 10**6, "steps": 9},
            r"batch_size times the steps of a schedule must be below 2\*\*60, got 1000000 \* 1000000000000000. Lower steps",
        ),
        ({"mixtures": {A: 1}, "batch_size": 8}, "batch_size and steps must be left out without a schedule, got 8 and None"),
        (
            {"schedule": [Stage(0, {"a_mix": 1})], "batch_size": 8, "steps": 9},
            "mixtures must be ul2_tasks.Mixture or ul2_tasks.Chat objects",
        ),
    ],
)
def test_what_is_no_schedule_is_rejected(arguments, message):
    with pytest.raises(ValueError, match=message):
        Mix("staged", **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, {"a": 1}), "first_step must be an integer of at least 0, got -1"),
        ((0.5, {"a": 1}), "first_step must be an integer of at least 0, got 0.5"),
        ((0, {"a": 0}), "mixtures must map distinct names to positive numbers"),
        ((0, {}), "mixtures must map distinct names to positive numbers"),
        ((0, {"a": 1}, 0, 0), "ramp_every must be an integer of at least 1, got 0"),
        ((5, {"a": 1}, 10**9, 1), "ramp_every must be at least 100000 for ramp_steps=1000000000, got 1. A ramp has at most 10,000"),
    ],
)
def test_what_is_no_stage_is_rejected(arguments, message):
    with pytest.raises(ValueError, match=message):
        Stage(*arguments)


def test_a_schedule_has_denoising_tasks_alone(registered):
    features = {key: seqio.Feature(BYTES) for key in ("inputs", "targets")}
    seqio.TaskRegistry.add("staged_other", MemoryDataSource(lambda: ["x"], validation=0), output_features=features)
    with pytest.raises(ValueError, match=r"and others with random access, alone, got \['staged_other'\]"):
        mix("staged_with_other", schedule=[Stage(0, {"staged_a_mix": 1, "staged_other": 1})], batch_size=8, steps=9)


def test_windows_that_shorten_all_examples_are_warned_of(caplog):
    def window(blocks):
        mixture = Mixture("staged_b", B.source, BYTES, (R1,), modes=MODES, block_shuffle=BlockShuffle(20, 2, blocks))
        return len(ul2_tasks.examples(mixture, LENGTHS))

    whole = window(40)
    assert not caplog.records
    assert window(2) > 1.5 * whole
    assert "block_shuffle of 'staged_b_corpus' must have windows of at least" in caplog.text
    assert "got 40, so its examples are shortened. Raise block_tokens or window_blocks." in caplog.text


def test_corpora_of_a_mixture_may_have_other_blocks_but_a_corpus_has_one_kind():
    finer = Mixture("staged_finer", B.source, BYTES, (R1,), modes=MODES, block_shuffle=BlockShuffle(200, 3, 1))
    both = ul2_tasks.examples(Mix("staged_two", {A: 1, finer: 1}), LENGTHS)
    assert both.numbering.timeline.stages[0].mixing.partitions == 6
    many = [
        Mixture(f"staged_{count}", B.source, BYTES, (R1,), modes=MODES, block_shuffle=BlockShuffle(20, count, 1))
        for count in (89, 97)
    ]
    with pytest.raises(
        ValueError, match=r"partitions of mixed corpora must have a common multiple of at most 4,096, got \[89, 97\]"
    ):
        ul2_tasks.examples(Mix("staged_many", {many[0]: 1, many[1]: 1}), LENGTHS)
    with pytest.raises(ValueError, match=r"block_shuffle must be a ul2_tasks\.BlockShuffle or None, got 64"):
        Mixture(block_shuffle=64)
