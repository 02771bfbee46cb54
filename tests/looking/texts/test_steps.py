"""`ul2 show --step`: the examples that a run is fed at a step, each with its location."""

import dataclasses
import io
import json
import re

import numpy as np
import pytest
from rich.console import Console
from support import restore

from ul2_tasks import T5GEMMA2, CausalDenoiser, MemoryDataSource, mix, register
from ul2_tasks.looking.find import find
from ul2_tasks.looking.run import Run, locations_of, stores
from ul2_tasks.looking.steps import fed_at, show_step
from ul2_tasks.tasks.providers import denoising_tasks

LENGTHS = {"inputs": 64, "targets": 64}
TEXTS = [f"the document of number {number} has {number % 7} words more" + " more" * (number % 7) for number in range(90)]


@pytest.fixture(scope="module")
def run() -> Run:
    return Run(register("stepped", MemoryDataSource(lambda: TEXTS, validation=0)), LENGTHS, seed=1, batch_size=64)


def test_what_is_shown_is_the_examples_of_these_numbers(run):
    found = run.examples()
    numbers = run.numbers(3)
    assert numbers[0] // len(found) < numbers[-1] // len(found), "a step can go over the end of an epoch"
    fed = fed_at(found, numbers, count=100)
    assert sorted(each.sample.number for each in fed) == list(numbers)
    _, store = stores(found)["stepped_corpus"]
    tasks = {task.name: task for task in denoising_tasks(run.mixture)}
    for each in fed:
        number, location = each.sample.number, each.location
        example = found.epoch(number // len(found))[number % len(found)]
        assert [location] == locations_of(found, number)
        assert (
            (each.sample.task, each.sample.denoiser) == (location.task, location.denoiser) == (example["task"], example["denoiser"])
        )
        assert all(each.sample.ids[key] == example[key].tolist() for key in LENGTHS)
        chunk = np.concatenate([store.read_tokens(*tokens) for tokens in location.tokens])
        task = tasks[location.task]
        assert list(restore(each.sample.ids, task.denoiser, task.special_tokens())) == chunk.tolist()
        assert each.sample.counts.chunk == len(chunk)


def test_documents_begin_where_the_store_has_them(run):
    found = run.examples()
    _, store = stores(found)["stepped_corpus"]
    begins = {store.tokens_of(document)[0] for document in range(store.documents)}
    for each in fed_at(found, run.numbers(0), count=100):
        inside = [place for tokens in each.location.tokens for place in range(*tokens)][1:]
        shown = [part for parts in (each.sample.inputs, each.sample.targets) for part in parts if part.kind == "border"]
        assert len(shown) == len(begins & set(inside)) > 0


def test_so_many_of_each_denoiser_are_shown_of_those_that_a_host_reads(run):
    found = run.examples()
    fed = fed_at(found, run.numbers(2, (3, 4)), count=2, denoisers=["x1", "s"])
    assert [each.sample.denoiser for each in fed] == ["s"] * 2 + ["x1"] * sum(each.sample.denoiser == "x1" for each in fed)
    assert all(each.sample.number % 4 == 3 and 128 <= each.sample.number < 192 for each in fed)
    with pytest.raises(ValueError, match=r"the denoiser must be one of \['r1', .* in 'stepped_corpus', got \['q'\]"):
        fed_at(found, run.numbers(2), count=2, denoisers=["q"])


def test_a_step_is_told_above_and_each_example_has_its_address(run):
    console = Console(file=io.StringIO(), width=1000, legacy_windows=False)
    show_step(run, 3, (1, 4), count=1, denoisers=["s", "r1"], console=console)
    output = console.file.getvalue()
    length = len(run.examples())
    assert output.startswith("stepped_mix: inputs of at most 64 tokens, targets of at most 64; split train, seed 1\n")
    epochs = f"epochs {192 // length} to {255 // length} ({length} examples an epoch)"
    hosts = "host 1 of 4 has those whose number mod 4 is 1"
    assert f"\nstep 3, batch of 64: examples 192 to 255, in {epochs}; {hosts}\n" in output
    (fed,) = fed_at(run.examples(), run.numbers(3, (1, 4)), count=1, denoisers=["s"])
    assert f"example {fed.sample.number}: " in output
    ((start, stop),), ((first, after),) = fed.location.tokens, fed.location.documents
    place = f"documents {first} to {after - 1}, tokens {start} to {stop - 1}"
    assert f"\nepoch {fed.location.epoch} of stepped_corpus, {place}\n" in output
    assert "[S]" in output
    assert "the document of number" in output


def test_a_denoiser_that_a_batch_lacks_is_named(run):
    console = Console(file=io.StringIO(), width=1000, legacy_windows=False)
    few = dataclasses.replace(run, batch_size=1)
    show_step(few, 3, console=console)
    (fed,) = fed_at(few.examples(), [3], count=2)
    absent = sorted({f"stepped_{denoiser.name}" for denoiser in T5GEMMA2} - {fed.sample.task})
    assert f"\nno example in it: {', '.join(absent)}\n" in console.file.getvalue()


def test_json_has_the_address(run):
    file = io.StringIO()
    show_step(run, 3, count=2, denoisers=["r2"], console=Console(file=file), as_json=True)
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    fed = fed_at(run.examples(), run.numbers(3), count=2, denoisers=["r2"])
    more = [{"step": 3, "segment": None, "location": dataclasses.asdict(each.location)} for each in fed]
    assert lines == json.loads(json.dumps([dataclasses.asdict(each.sample) | added for each, added in zip(fed, more)]))
    assert len(lines) == 2


def test_several_corpora_are_told_apart(run):
    other = register("stepped_too", MemoryDataSource(lambda: TEXTS[:40], validation=0))
    both = Run(mix("stepped_both", {run.mixture: 1, other: 1}), LENGTHS, batch_size=64)
    found = both.examples()
    fed = fed_at(found, both.numbers(5), count=100)
    assert {each.location.corpus for each in fed} == {"stepped_corpus", "stepped_too_corpus"}
    for each in fed:
        _, store = stores(found)[each.location.corpus]
        assert sum(stop - start for start, stop in each.location.tokens) == each.sample.counts.chunk
        assert max(stop for _, stop in each.location.tokens) <= store.tokens


def test_the_examples_of_packed_rows_are_shown_each_with_its_address():
    source = MemoryDataSource(lambda: TEXTS, validation=0)
    packed = Run(register("stepped_rows", source, chunk_tokens=20), LENGTHS, pack=True, batch_size=8)
    found = packed.examples()
    _, store = stores(found)["stepped_rows_corpus"]
    tasks = {task.name: task for task in denoising_tasks(packed.mixture)}
    rows = range(len(found) - 3, len(found) + 9)
    fed = fed_at(found, rows, count=1000)
    assert len(fed) > 2 * len(rows)
    assert {each.sample.number for each in fed} == set(rows)
    for each in fed:
        assert locations_of(found, each.sample.number)[each.segment - 1] == each.location
        chunk = np.concatenate([store.read_tokens(*tokens) for tokens in each.location.tokens])
        task = tasks[each.location.task]
        assert list(restore(each.sample.ids, task.denoiser, task.special_tokens())) == chunk.tolist()
    console = Console(file=io.StringIO(), width=1000, legacy_windows=False)
    show_step(packed, 2, count=1, denoisers=["s"], console=console)
    assert "\nstep 2, batch of 8: rows 16 to 23, in epoch" in console.file.getvalue()
    assert re.search(r"^row \d+, example \d+ of it: ", console.file.getvalue(), re.MULTILINE)
    find(packed, "17", None, epochs=2, console=console)
    assert re.search(r"^epoch +row +example of it +step +denoiser", console.file.getvalue(), re.MULTILINE)


def test_a_stream_is_refused_with_the_reason():
    causal = register("causal", MemoryDataSource(lambda: TEXTS, validation=0), denoisers=[CausalDenoiser(mode=None, name="c")])
    with pytest.raises(ValueError, match=r"because its denoiser puts ids between documents\. Read it as a stream"):
        show_step(Run(causal, LENGTHS, batch_size=8), 0)
