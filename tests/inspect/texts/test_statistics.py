"""`ul2 stats`: the checks hold for what this package makes, and each breaks when it must."""

import collections
import dataclasses
import functools
import io
import itertools
import json
import re

import numpy as np
import pytest
import scipy.stats
from rich.console import Console
from support import byte_vocabulary, long_documents

from ul2_tasks import UL2, Chat, Mixture, SpanDenoiser, description_of, mix, register
from ul2_tasks.denoisers.reconstruction import invert
from ul2_tasks.example_features import TASK
from ul2_tasks.inspect.tasks import rates_of, text_tasks
from ul2_tasks.inspect.texts.checks import binomial_interval
from ul2_tasks.inspect.texts.draw import draw, first_examples, in_order
from ul2_tasks.inspect.texts.first_documents import first_documents
from ul2_tasks.inspect.texts.measure import measure, measure_examples
from ul2_tasks.inspect.texts.measurements import Statistics
from ul2_tasks.inspect.texts.table import print_statistics
from ul2_tasks.sources.memory import MemoryDataSource

LENGTHS = {"inputs": 48, "targets": 48}
PAIR = (
    SpanDenoiser(name="short", mode="[R]", mean_span_length=3, noise_density=0.3, weight=3),
    SpanDenoiser(name="long", mode="[X]", mean_span_length=9, noise_density=0.5, placement="uniform"),
)
BYTES, BYTE_MODES = byte_vocabulary()

# What breaks when what is wrong.
TRUNCATED, UNREADABLE, MISCOUNTED, SPECIAL, EMPTY, RATES, SPANS, TEXT = range(8)


def tiny() -> MemoryDataSource:
    """One document, shorter than any chunk."""
    return MemoryDataSource(
        lambda: ["A little text, which every denoiser reads all the time, again and again and again."], validation=0
    )


MIXTURES = {
    "ul2_mix": lambda: register(),
    "stats_ul2_mix": lambda: register("stats_ul2", denoisers=UL2[2:4]),
    "stats_apart_mix": lambda: register(
        "stats_apart", "embedded", BYTES, (PAIR[0], UL2[2]), modes=BYTE_MODES, merge_examples=False
    ),
    "stats_separated_mix": lambda: register(
        "stats_separated", "embedded", BYTES, PAIR, modes=BYTE_MODES, separate_documents=True, chunk_tokens=20
    ),
    "stats_tiny_mix": lambda: register("stats_tiny", tiny(), denoisers=PAIR),
    "stats_both_mix": lambda: mix("stats_both", {MIXTURES["stats_apart_mix"](): 1, MIXTURES["stats_separated_mix"](): 3}),
}


@pytest.fixture(scope="module")
def measured() -> dict[str, Statistics]:
    return {name: measure(description_of(register_it()), LENGTHS, 400) for name, register_it in MIXTURES.items()}


@pytest.fixture(scope="module")
def drawn():
    """A mixture, and examples of it."""
    mixture = Mixture("stats_pair", MemoryDataSource(long_documents, validation=0), BYTES, PAIR, modes=BYTE_MODES)
    found = first_examples(mixture.schedule_of(LENGTHS), LENGTHS, 1 << 20, seed=1, split="train")
    return mixture, list(in_order(found, 1000))


@functools.cache
def documents_of(corpus):
    return first_documents(corpus, "train")


def measure_these(mixture, examples) -> Statistics:
    tasks = text_tasks(mixture)
    documents = {"stats_pair_corpus": documents_of(tasks[0].corpus)}
    return measure_examples(mixture, LENGTHS, examples, documents, rates=rates_of(mixture, LENGTHS), tasks=tasks, has_tails=False)


def broken(statistics) -> set[int]:
    return {number for number, check in enumerate(statistics.checks) if not check.passed}


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


@pytest.mark.parametrize("name", MIXTURES)
def test_all_laws_hold(measured, name):
    statistics = measured[name]
    assert [check.found for check in statistics.checks if not check.passed] == []
    assert statistics.passed
    assert len(statistics.checks) == 8
    assert statistics.truncated == 0
    assert statistics.examples == 400


def doctored(task, examples, change):
    """The same examples, the first of the task changed."""
    position = next(position for position, example in enumerate(examples) if example[TASK] == task.name)
    return [*examples[:position], change(examples[position]), *examples[position + 1 :]]


def with_ids(example, key, change):
    return {**example, key: np.array(change(example[key].tolist()), np.int32)}


def without_last_span(ids, special):
    last = max(place for place, id in enumerate(ids) if id in special.sentinels)
    return [*ids[:last], special.eos]


def with_one_span_less(task, example):
    chunk, noise, kept = runs_of(task, example)
    return assemble(task, chunk, [noise[0] + noise[1], *noise[2:]], [kept[0] + kept[1], *kept[2:]])


def with_one_noise_token_more(task, example):
    chunk, noise, kept = runs_of(task, example)
    longest = int(np.argmax(kept))
    return assemble(task, chunk, noise + (np.arange(noise.size) == longest), kept - (np.arange(kept.size) == longest))


ONE_EXAMPLE = {
    "targets cut off": (lambda task, e: with_ids(e, "targets", lambda ids: ids[:-3]), {TRUNCATED, UNREADABLE}),
    "trimmed, then EOS": (
        lambda task, e: with_ids(e, "targets", functools.partial(without_last_span, special=task.special_tokens())),
        {TRUNCATED, UNREADABLE},
    ),
    "a shorter chunk": (lambda task, e: with_ids(e, "inputs", lambda ids: ids[:1] + ids[2:]), {TRUNCATED}),
    "above the budget": (lambda task, e: with_ids(e, "inputs", lambda ids: ids[:2] + ids[1:]), {TRUNCATED}),
    "a span less": (with_one_span_less, {TRUNCATED, MISCOUNTED}),
    "a noise token more": (with_one_noise_token_more, {TRUNCATED, MISCOUNTED}),
    "padding inside": (lambda task, e: with_ids(e, "inputs", lambda ids: [ids[0], 0, *ids[2:]]), {SPECIAL}),
    "an id of no vocabulary": (lambda task, e: with_ids(e, "inputs", lambda ids: [ids[0], 9999, *ids[2:]]), {SPECIAL}),
    "nothing": (lambda task, e: with_ids(e, "inputs", lambda ids: []), {TRUNCATED, UNREADABLE, EMPTY}),
    "no change": (lambda task, e: assemble(task, *runs_of(task, e)), set()),
}


@pytest.mark.parametrize("what", ONE_EXAMPLE)
def test_one_wrong_example_breaks_its_law_and_is_told(drawn, what):
    mixture, examples = drawn[0], drawn[1][:200]
    change, expected = ONE_EXAMPLE[what]
    task = next(task for task in text_tasks(mixture) if task.denoiser.name == "short")
    statistics = measure_these(mixture, doctored(task, examples, lambda example: change(task, example)))
    assert broken(statistics) == expected
    assert statistics.truncated == (TRUNCATED in expected)
    assert statistics.passed == (not expected)
    for number in expected:
        assert statistics.checks[number].found.startswith("not in 1 of 200 examples; stats_pair_short: ")
    json.dumps(dataclasses.asdict(statistics), allow_nan=False)


def test_wrong_rates_break_their_check(drawn):
    mixture, examples = drawn
    fewer = [e for number, e in enumerate(examples) if e[TASK] == "stats_pair_long" or number % 2]  # half of the frequent ones
    counts = collections.Counter(example[TASK] for example in fewer)
    assert counts["stats_pair_short"] > counts["stats_pair_long"] > 100
    assert broken(measure_these(mixture, fewer)) == {RATES}
    assert broken(measure_these(mixture, examples[:300])) == set()


def test_spans_that_are_all_equally_long_break_the_law_of_their_lengths(drawn):
    mixture, examples = drawn
    task = next(task for task in text_tasks(mixture) if task.denoiser.name == "long")
    full = task.solve(LENGTHS).full
    equal = np.diff(np.linspace(0, full.noise, full.spans + 1).astype(int))

    def even_out(example):
        if example[TASK] != task.name:
            return example
        chunk, _, kept = runs_of(task, example)
        return assemble(task, chunk, equal, kept)

    statistics = measure_these(mixture, [even_out(example) for example in examples])
    assert broken(statistics) == {SPANS}
    assert "stats_pair_long begins with" in statistics.checks[SPANS].found
    assert "stats_pair_short" not in statistics.checks[SPANS].found


def test_the_same_text_at_a_time_breaks_its_check(drawn):
    """As five stock tasks have it: the n-th examples are made of the same tokens."""
    mixture, examples = drawn
    short, long = (next(task for task in text_tasks(mixture) if task.denoiser.name == name) for name in ("short", "long"))
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
    assert honest.checks[SPANS].found == "of all 2 tasks that draw them"
    (part,) = re.findall(r"^(\d+)% of the n-th examples", honest.checks[TEXT].found)
    assert int(part) < 10
    statistics = measure_these(mixture, [reread(example) for example in examples])
    assert broken(statistics) == {TEXT}
    assert statistics.checks[TEXT].found.startswith("100% of the n-th examples")
    assert "stats_pair_long and stats_pair_short" in statistics.checks[TEXT].found


FEW_TOKENS = {"stats_one_short": (["A short text."], True), "stats_one_token_apart": (["a"] * 300, False)}


@pytest.mark.parametrize("name", FEW_TOKENS)
def test_a_corpus_of_a_few_tokens_is_measured(name):
    texts, merge_examples = FEW_TOKENS[name]
    lengths = {"inputs": 512, "targets": 512}
    source = MemoryDataSource(lambda: texts, validation=0)
    mixture = Mixture(name, source, BYTES, PAIR[:1], modes=BYTE_MODES, merge_examples=merge_examples)
    statistics = measure(mixture, lengths, 100)
    assert broken(statistics) == set()
    (corpus,) = statistics.corpora
    assert (corpus.documents, corpus.is_all) == (len(texts), True)
    assert len(list(draw(mixture, lengths, 2))) == 2


@pytest.mark.parametrize(("trials", "probability"), [(1, 1e-9), (100, 0.001), (4000, 0.125), (4000, 0.93), (1_000_000, 0.5)])
def test_the_binomial_interval_leaves_out_what_it_may_and_no_more(trials, probability):
    low, high = binomial_interval(trials, probability)
    law = scipy.stats.binom(trials, probability)
    assert law.cdf(low - 1) <= 5e-7 <= law.cdf(low) * (1 + 1e-9)
    assert law.sf(high) <= 5e-7 * (1 + 1e-3)


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(ValueError, match="examples must be at least 1, got 0"):
        measure(Mixture(), LENGTHS, 0)
    with pytest.raises(ValueError, match=r"mixture must have a denoising task.*got 'chat'"):
        measure(Chat("chat"), LENGTHS, 10)
    empty = Mixture("stats_empty", MemoryDataSource(lambda: [""], validation=0), denoisers=PAIR)
    with pytest.raises(ValueError, match="'stats_empty_corpus' has 1 documents in split 'train', and no token"):
        measure(empty, LENGTHS, 10)


def printed(statistics, width) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_statistics(statistics, console)
    return console.file.getvalue()
