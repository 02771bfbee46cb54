"""`ul2 stats`: the checks hold for what this package makes, and each breaks when it must."""

import collections
import dataclasses
import itertools
import json

import numpy as np
import pytest
import scipy.stats

from tests.images.image_support import image, registered
from tests.support import byte_vocabulary, long_documents
from ul2_tasks import UL2, Chat, Mix, Mixture, SpanDenoiser, description_of
from ul2_tasks.denoisers.reconstruction import invert
from ul2_tasks.example_features import LOSS_MASK, SPAN_ID, TASK
from ul2_tasks.inspect.beginnings import Beginnings, examples_of, in_order
from ul2_tasks.inspect.checks import binomial_interval, checks_of, counts_of
from ul2_tasks.inspect.measure import statistics_of
from ul2_tasks.inspect.statistics import measure
from ul2_tasks.mixtures.mixture import described_tasks
from ul2_tasks.sources.memory import MemoryDataSource

LENGTHS = {"inputs": 48, "targets": 48}
PAIR = (
    SpanDenoiser(name="short", mode="[R]", mean_span_length=3, noise_density=0.3, weight=3),
    SpanDenoiser(name="long", mode="[X]", mean_span_length=9, noise_density=0.5, placement="uniform"),
)
BYTES, BYTE_MODES = byte_vocabulary()

# What breaks when what is wrong.
TRUNCATED, UNREADABLE, MISCOUNTED, SPECIAL, EMPTY, RATES, SPANS, TEXT = range(8)


TINY = MemoryDataSource(lambda: ["A little text, which every denoiser reads all the time, again and again."], validation=0)
CHAT, PAIRS = {"tokens": None}, {"inputs": 256, "targets": 256}
APART = Mixture("stats_apart", "embedded", BYTES, (PAIR[0], UL2[2]), modes=BYTE_MODES, merge_examples=False)
SEPARATED = Mixture("stats_separated", "embedded", BYTES, PAIR, modes=BYTE_MODES, separate_documents=True, chunk_tokens=20)
TALK = Chat("stats_talk", truncation="drop_oldest_turns")
BESIDE = Mixture("stats_beside", vocabulary=TALK.vocabulary, sentinels=range(3, 203), denoisers=UL2[:1])
IMAGES = [["A cat that sleeps by day, and that hunts by night.", image(n)] for n in range(3)]

DESCRIPTIONS = {
    "the default": (Mixture(), LENGTHS),
    "two of UL2": (Mixture("stats_ul2", denoisers=UL2[2:4]), LENGTHS),
    "documents apart": (APART, LENGTHS),
    "an EOS after each": (SEPARATED, LENGTHS),
    "a text that is shorter than a chunk": (Mixture("stats_tiny", TINY, denoisers=PAIR), LENGTHS),
    "two corpora": (Mix("stats_both", {APART: 1, SEPARATED: 3}), LENGTHS),
    "conversations": (TALK, CHAT),
    "replies": (TALK, PAIRS),
    "text and replies": (Mix("stats_beside_talk", {BESIDE: 1, TALK: 1}), PAIRS),
}


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_all_checks_pass(name):
    description, lengths = DESCRIPTIONS[name]
    statistics = statistics_of(description, lengths, 400)
    assert [check.found for check in statistics.checks if not check.passed] == []
    has_text = any(isinstance(leaf, Mixture) for leaf in description.leaves)
    assert len(statistics.checks) == 8 * has_text + (4 - 2 * has_text) * any(isinstance(leaf, Chat) for leaf in description.leaves)
    assert statistics.examples == 400 if has_text else 0 < statistics.examples < 400
    for task in statistics.tasks:
        assert {key for key, part in task.fill.items() if part} == {key for key, most in lengths.items() if most}
        if isinstance(description, Mixture):
            assert task.numbers["chunk"].max <= task.expected["chunk"]
            assert abs(task.ratios["corruption rate"]["measured"] - task.ratios["corruption rate"]["expected"]) < 0.03
    json.dumps(dataclasses.asdict(statistics), allow_nan=False)


def test_images_and_texts_are_measured_as_one():
    name = registered("stats_seen", *IMAGES, denoisers=PAIR[:1])
    seen = description_of(name)
    alone = statistics_of(seen, {"inputs": 128, "targets": 128})
    assert (alone.passed, len(alone.checks), alone.examples) == (True, 6, 3)
    (task,) = alone.tasks
    assert task.numbers["images"].mean == 1.0


@pytest.fixture(scope="module")
def drawn():
    """A mixture, and examples of it."""
    mixture = Mixture("stats_pair", MemoryDataSource(long_documents, validation=0), BYTES, PAIR, modes=BYTE_MODES)
    found = examples_of(mixture.schedule_of(LENGTHS), LENGTHS, Beginnings("train", 1 << 20), seed=1)
    return mixture, list(in_order(found, 1000))


def measure_these(mixture, examples) -> list:
    counts = counts_of(mixture, LENGTHS)
    total = sum(denoiser.weight for denoiser in PAIR)
    rates = {task: rate / total for task, rate in mixture.rates.items()}
    _, checks = measure(examples, counts, checks_of(counts, rates))
    return checks


def broken(statistics: list) -> set[int]:
    return {number for number, check in enumerate(statistics) if not check.passed}


def assemble(task, chunk, noise, kept) -> dict:
    """An example of a chunk from the lengths of its noise spans and of the kept runs before them; what is left is kept."""
    special = task.special_tokens()
    inputs, targets = list(special.mode), []
    runs = np.split(chunk, np.cumsum([length for pair in zip(kept, noise) for length in pair]))
    for sentinel, before, span in zip(special.sentinels, runs[::2], runs[1::2]):
        inputs += [*before, sentinel]
        targets += [sentinel, *span]
    inputs, targets = [*inputs, *runs[-1], special.eos], [*targets, special.eos]
    return {"inputs": np.array(inputs, np.int32), "targets": np.array(targets, np.int32), TASK: task.name}


def runs_of(task, example):
    """The chunk, the lengths of its noise spans, and of the kept runs before them."""
    reconstruction = invert(example, task.denoiser, task.special_tokens())
    edges = np.flatnonzero(np.diff(np.concatenate([[0], reconstruction.is_noise, [0]])))
    starts, ends = edges[::2], edges[1::2]
    return reconstruction.chunk, ends - starts, starts - np.append(0, ends[:-1])


def doctored(task, examples, change):
    """The same examples, the first of the task changed."""
    position = next(position for position, example in enumerate(examples) if example[TASK] == task.name)
    return [*examples[:position], change(examples[position]), *examples[position + 1 :]]


def with_one_span_less(task, example):
    chunk, noise, kept = runs_of(task, example)
    return assemble(task, chunk, [noise[0] + noise[1], *noise[2:]], [kept[0] + kept[1], *kept[2:]])


def with_ids(key, change):
    return lambda task, example: {**example, key: np.array(change(example[key].tolist()), np.int32)}


ONE_EXAMPLE = {
    "targets cut off": (with_ids("targets", lambda ids: ids[:-3]), {TRUNCATED, UNREADABLE}),
    "above the budget": (with_ids("inputs", lambda ids: ids[:2] + ids[1:]), {TRUNCATED}),
    "a span less": (with_one_span_less, {TRUNCATED, MISCOUNTED}),
    "padding inside": (with_ids("inputs", lambda ids: [ids[0], 0, *ids[2:]]), {SPECIAL}),
    "nothing": (with_ids("inputs", lambda ids: []), {TRUNCATED, UNREADABLE, EMPTY}),
    "no change": (lambda task, example: assemble(task, *runs_of(task, example)), set()),
}


@pytest.mark.parametrize("what", ONE_EXAMPLE)
def test_one_wrong_example_breaks_its_law_and_is_told(drawn, what):
    mixture, examples = drawn[0], drawn[1][:200]
    change, expected = ONE_EXAMPLE[what]
    task = next(task for task in described_tasks(mixture) if task.denoiser.name == "short")
    statistics = measure_these(mixture, doctored(task, examples, lambda example: change(task, example)))
    assert broken(statistics) == expected
    for number in expected:
        assert "1 of 200" in statistics[number].found
        assert "stats_pair_short" in statistics[number].found


def test_wrong_rates_break_their_check(drawn):
    mixture, examples = drawn
    fewer = [e for number, e in enumerate(examples) if e[TASK] == "stats_pair_long" or number % 2]  # half of the frequent ones
    counts = collections.Counter(example[TASK] for example in fewer)
    assert counts["stats_pair_short"] > counts["stats_pair_long"] > 100
    assert broken(measure_these(mixture, fewer)) == {RATES}
    assert broken(measure_these(mixture, examples[:300])) == set()


def test_spans_that_are_all_equally_long_break_the_law_of_their_lengths(drawn):
    mixture, examples = drawn
    task = next(task for task in described_tasks(mixture) if task.denoiser.name == "long")
    full = task.solve(LENGTHS).full
    equal = np.diff(np.linspace(0, full.noise, full.spans + 1).astype(int))

    def even_out(example):
        if example[TASK] != task.name:
            return example
        chunk, _, kept = runs_of(task, example)
        return assemble(task, chunk, equal, kept)

    statistics = measure_these(mixture, [even_out(example) for example in examples])
    assert broken(statistics) == {SPANS}
    assert "stats_pair_long" in statistics[SPANS].found
    assert "stats_pair_short" not in statistics[SPANS].found


def test_the_same_text_at_a_time_breaks_its_check(drawn):
    """As five stock tasks have it: the n-th examples are made of the same tokens."""
    mixture, examples = drawn
    short, long = (next(task for task in described_tasks(mixture) if task.denoiser.name == name) for name in ("short", "long"))
    full = long.solve(LENGTHS).full
    streams = [runs_of(short, example)[0] for example in examples if example[TASK] == short.name]
    texts = iter(np.resize(np.concatenate(pair), full.length) for pair in itertools.pairwise(streams))

    def reread(example):
        if example[TASK] != long.name:
            return example
        _, noise, kept = runs_of(long, example)
        return assemble(long, next(texts), noise, kept)

    honest = measure_these(mixture, examples)
    assert broken(honest) == set()
    assert int(honest[TEXT].found.partition("%")[0]) < 10
    statistics = measure_these(mixture, [reread(example) for example in examples])
    assert broken(statistics) == {TEXT}
    assert statistics[TEXT].found.startswith("100%")


CHAT_FAULTS = {  # what is changed of an example, and the checks that break
    "longer": (lambda each: {"tokens": np.zeros(600, np.int32)}, {0}),
    "nothing is trained on": (lambda each: {LOSS_MASK: each[LOSS_MASK] * 0}, {1, 2}),
    "another group": (lambda each: {SPAN_ID: np.where(each[SPAN_ID], 9, 0)}, {2}),
}


@pytest.mark.parametrize("fault", CHAT_FAULTS)
def test_a_wrong_conversation_breaks_its_check(fault):
    change, expected = CHAT_FAULTS[fault]
    lengths = {"tokens": 512}
    examples = list(examples_of(TALK.schedule_of(lengths), lengths, Beginnings("train"), seed=0))
    counts, changed = counts_of(TALK, lengths), {**examples[0], **change(examples[0])}
    _, checks = measure([changed, *examples[1:]], counts, checks_of(counts, {"stats_talk_chat": 1.0}))
    assert broken(checks) == expected
    assert all("stats_talk_chat" in checks[number].found for number in expected)


@pytest.mark.parametrize(("trials", "probability"), [(1, 1e-9), (100, 0.001), (4000, 0.125), (4000, 0.93), (1_000_000, 0.5)])
def test_the_binomial_interval_leaves_out_what_it_may_and_no_more(trials, probability):
    low, high = binomial_interval(trials, probability)
    law = scipy.stats.binom(trials, probability)
    assert law.cdf(low - 1) <= 5e-7 <= law.cdf(low) * (1 + 1e-9)
    assert law.sf(high) <= 5e-7 * (1 + 1e-3)


def test_documents_of_a_token_are_measured():
    letters = MemoryDataSource(lambda: ["a"] * 300, validation=0)
    statistics = statistics_of(Mixture("stats_letters", letters, "bytes", PAIR[:1], merge_examples=False), LENGTHS, 100)
    assert (statistics.passed, statistics.corpora[0].documents, statistics.corpora[0].is_all) == (True, 300, True)


EMPTY_CORPUS = Mixture("stats_empty", MemoryDataSource(lambda: [""], validation=0), denoisers=PAIR)


@pytest.mark.parametrize(
    ("description", "lengths", "count", "named"),
    [
        (Mixture(), LENGTHS, 0, "examples"),
        (EMPTY_CORPUS, LENGTHS, 10, "stats_empty_corpus"),
        (TALK, {"token": 70}, 10, "sequence_length"),
        (Chat("stats_long"), {"tokens": 50}, 10, "tokens"),
    ],
)
def test_what_cannot_be_measured_raises(description, lengths, count, named):
    with pytest.raises(ValueError, match=named):
        statistics_of(description, lengths, count)
