"""`ul2 show --step`: the examples that a run is fed at a step, each with its location."""

import io
import re

import numpy as np
import pytest
from rich.console import Console
from support import restore

from ul2_tasks import MemoryDataSource, description_of, register
from ul2_tasks.inspect.find import find
from ul2_tasks.inspect.run import Run, locations_of, stores
from ul2_tasks.inspect.steps import fed_at, show_step
from ul2_tasks.inspect.tasks import text_tasks

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
    tasks = {task.name: task for task in text_tasks(description_of(run.mixture))}
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


def test_so_many_of_each_denoiser_are_shown_of_those_that_a_host_reads(run):
    found = run.examples()
    fed = fed_at(found, run.numbers(2, (3, 4)), count=2, denoisers=["x1", "s"])
    assert [each.sample.denoiser for each in fed] == ["s"] * 2 + ["x1"] * sum(each.sample.denoiser == "x1" for each in fed)
    assert all(each.sample.number % 4 == 3 and 128 <= each.sample.number < 192 for each in fed)
    with pytest.raises(ValueError, match=r"the denoiser must be one of \['r1', .* in 'stepped_corpus', got \['q'\]"):
        fed_at(found, run.numbers(2), count=2, denoisers=["q"])


def test_the_examples_of_packed_rows_are_shown_each_with_its_address():
    source = MemoryDataSource(lambda: TEXTS, validation=0)
    packed = Run(register("stepped_rows", source, chunk_tokens=20), LENGTHS, pack=True, batch_size=8)
    found = packed.examples()
    _, store = stores(found)["stepped_rows_corpus"]
    tasks = {task.name: task for task in text_tasks(description_of(packed.mixture))}
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
