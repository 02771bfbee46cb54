"""The laws, each once, for the pipelines of the file that imports them, its `PIPELINES`.

What costs is made once: a dataset, its run, its epochs. The laws of a pipeline come one after the other, so that two processes of
tests that share a file out make few of them twice.
"""

import collections
import functools
import importlib
import itertools
import json
import pathlib
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests import programs
from tests.laws import pipelines
from tests.laws.pipelines import SEED, WORDS, Pipeline, digests, take

BEFORE, AFTER = 20, 20  # how many elements are read before an iterator is saved, and after
IN_BUFFERS = 100_000  # more than a saved iterator holds
TOKENS = ("inputs", "targets", "tokens")
WHAT = ("seed", "lengths", "rates", "corpus")
PROGRAM = "import sys; from tests.laws import every_law; every_law.go_on(*sys.argv[1:])"


def law(name: str) -> Callable:
    """By what name a row of the table says that a law says nothing of it."""

    def named(test: Callable) -> Callable:
        test.law = name
        return test

    return named


def pytest_generate_tests(metafunc):
    if "pipeline" in metafunc.fixturenames:
        rows = metafunc.module.PIPELINES
        params = [pytest.param(row, id=row.name, marks=pytest.mark.torch if row.needs_torch else ()) for row in rows]
        metafunc.parametrize("pipeline", params, scope="module")


@pytest.fixture(autouse=True)
def applies(request):
    """What the table says of a law and a pipeline."""
    if "pipeline" not in request.fixturenames:
        return
    pipeline = request.getfixturevalue("pipeline")
    name = request.function.law.format(request.node.callspec.params.get("what"))
    if reason := pipeline.lacks.get(name):
        pytest.skip(reason)


@pytest.fixture(scope="session", autouse=True)
def folder(tmp_path_factory) -> pathlib.Path:
    """What the pipelines read, and their states: one for all files of laws in a process."""
    if not pipelines.FOLDER.is_absolute():
        pipelines.prepare(tmp_path_factory.mktemp("laws"))
    return pipelines.FOLDER


class Run(NamedTuple):
    """What a pipeline gave before its iterator was saved, and after."""

    begun: list[Any]
    state: str
    rest: list[Any]


@functools.cache
def run_of(pipeline: Pipeline) -> Run:
    dataset, state = pipeline.build(), state_of(pipeline)
    pathlib.Path(state).parent.mkdir()
    iterator = pipeline.state.read(dataset)
    begun = take(iterator, BEFORE)
    pipeline.state.save(dataset, iterator, state)
    return Run(begun, state, take(iterator, AFTER))


def state_of(pipeline: Pipeline) -> str:
    return f"{pipelines.FOLDER}/{pipeline.name}/state"


class Rebuilt(NamedTuple):
    """What the same pipeline gives that is built anew, and its dataset. A second iterator over it would begin in another order."""

    begun: list[Any]
    dataset: Any


@functools.cache
def rebuilt(pipeline: Pipeline, **changed: Any) -> Rebuilt:
    dataset = pipeline.build(**changed)
    return Rebuilt(take(pipeline.state.read(dataset), BEFORE), dataset)


@functools.cache
def epochs_of(pipeline: Pipeline, epochs: int = 1, host: int = 0, hosts: int = 1) -> list[Any]:
    return take(pipeline.state.read(pipeline.build(epochs=epochs, shard=(host, hosts))))


def shares_of(pipeline: Pipeline, hosts: int) -> list[list[Any]]:
    return [epochs_of(pipeline, host=host, hosts=hosts) for host in range(hosts)]


def units_of(pipeline: Pipeline, elements: list[Any]) -> list[Any]:
    return [unit for element in elements for text in pipeline.texts(element) for unit in text]


@law("goes on")
def test_it_goes_on_where_it_was_saved(pipeline):
    run = run_of(pipeline)
    resumed = pipeline.state.restore(rebuilt(pipeline).dataset, run.state)
    assert digests(take(resumed, AFTER)) == digests(run.rest)
    if pipeline.state_bytes:
        assert sum(path.stat().st_size for path in pathlib.Path(run.state).parent.iterdir()) < pipeline.state_bytes


def go_on(folder: str, module: str, *names: str) -> None:
    """What another process prints: what pipelines give from their beginning, and from where they were saved."""
    pipelines.use(pathlib.Path(folder))
    rows = {row.name: row for row in importlib.import_module(module).PIPELINES}
    print(json.dumps({name: gone_on(rows[name]) for name in names}))


def gone_on(pipeline: Pipeline) -> list[list[str]]:
    dataset = pipeline.build()
    return [
        digests(take(pipeline.state.read(dataset), BEFORE)),
        digests(take(pipeline.state.restore(dataset, state_of(pipeline)), AFTER)),
    ]


@functools.cache
def elsewhere(module: str, names: tuple[str, ...]) -> dict[str, list[list[str]]]:
    done = programs.run("-c", PROGRAM, pipelines.FOLDER, module, *names, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@law("new process")
def test_a_new_process_gives_the_same_bytes_and_goes_on_where_this_one_was(request, pipeline):
    """One process does so for all pipelines of the file."""
    rows = [
        row
        for row in request.module.PIPELINES
        if not (row.needs_torch and find_spec("torch") is None) and "new process" not in row.lacks
    ]
    runs = {row.name: run_of(row) for row in rows}
    run = runs[pipeline.name]
    assert elsewhere(request.module.__name__, tuple(runs))[pipeline.name] == [digests(run.begun), digests(run.rest)]


@law("same bytes")
def test_the_same_seed_gives_the_same_bytes_and_another_others(pipeline):
    begun = digests(run_of(pipeline).begun)
    assert digests(rebuilt(pipeline).begun) == begun
    if "another seed" not in pipeline.lacks or pipeline.state is pipelines.NUMBER:
        other = digests(rebuilt(pipeline, seed=SEED + 1).begun)
        assert sum(one == same for one, same in zip(other, begun)) <= BEFORE // 4


@law("another {}")
@pytest.mark.parametrize("what", WHAT)
def test_a_state_of_another_pipeline_is_refused_and_both_are_named(pipeline, what):
    other = pipeline.others[what]
    dataset = rebuilt(pipeline, **other.changed).dataset if what == "seed" else pipeline.build(**other.changed)
    run, given = run_of(pipeline), []
    with pytest.raises(pipeline.refusal, match=pipeline.refused) as error:
        read_on(pipeline, pipeline.state.restore(dataset, run.state), given)
    if given:  # what was read ahead; SeqIO draws from it by the new rates
        more = 2 if what == "rates" else 1
        own = digests(take(pipeline.state.restore(rebuilt(pipeline).dataset, run.state), more * len(given)))
        assert set(digests(given)) <= set(own) if what == "rates" else digests(given) == own
    message = str(error.value)
    assert other.saved in message
    assert other.this in message[message.index(other.saved) + len(other.saved) :]


def read_on(pipeline: Pipeline, iterator: Any, given: list[Any]) -> None:
    """Adds to `given` what still comes before the refusal: what was in the buffers."""
    while pipeline.refused_late and len(given) < IN_BUFFERS:
        given.append(next(iterator))


@law("no seed")
def test_nothing_is_resumed_without_a_seed(pipeline, tmp_path):
    path = str(tmp_path / "state")
    with pytest.raises(pipeline.refusal, match=pipeline.no_seed):
        read_on(pipeline, resumed_without_a_seed(pipeline, path), [])
    if pipeline.state is pipelines.CHECKPOINT:
        with pytest.raises(pipeline.refusal, match=f"(?s){pipeline.refused}.*seed: none, so it cannot be resumed"):
            read_on(pipeline, pipeline.state.restore(rebuilt(pipeline).dataset, path), [])


def resumed_without_a_seed(pipeline: Pipeline, path: str) -> Any:
    dataset = pipeline.build(seed=None)
    iterator = pipeline.state.read(dataset)
    next(iterator)
    pipeline.state.save(dataset, iterator, path)
    return pipeline.state.restore(pipeline.build(seed=None), path)


@law("hosts")
def test_hosts_share_an_epoch_out_whole_and_none_reads_what_another_does(pipeline):
    for hosts in pipeline.hosts:
        shares = shares_of(pipeline, hosts)
        assert all(shares)
        assert sorted(unit for share in shares for unit in units_of(pipeline, share)) == sorted(pipeline.corpus())


@law("steps")
def test_a_step_has_the_same_elements_on_any_number_of_hosts(pipeline):
    whole = digests(epochs_of(pipeline))
    for hosts in pipeline.hosts:
        steps = itertools.zip_longest(*map(digests, shares_of(pipeline, hosts)))
        of_hosts = [sorted(filter(None, step)) for step in steps]
        assert of_hosts == [sorted(whole[first : first + hosts]) for first in range(0, len(whole), hosts)]


@law("other hosts")
def test_it_goes_on_on_another_number_of_hosts(pipeline, tmp_path):
    whole, path = digests(epochs_of(pipeline)), str(tmp_path / "state")
    dataset = pipeline.build(epochs=1, shard=(0, 2))
    iterator = pipeline.state.read(dataset)
    take(iterator, 6)
    pipeline.state.save(dataset, iterator, path)
    resumed = (pipeline.state.move(pipeline.build(epochs=1, shard=(host, 3)), path, 4) for host in range(3))
    steps = zip(*(digests(take(elements, 4)) for elements in resumed), strict=True)
    assert [sorted(step) for step in steps] == [sorted(whole[first : first + 3]) for first in range(12, 24, 3)]


@law("once")
def test_an_epoch_has_all_of_the_corpus_once(pipeline):
    found = collections.Counter(units_of(pipeline, epochs_of(pipeline)))
    assert found.keys() == {*pipeline.corpus()}
    assert pipeline.fills or {*found.values()} == {1}


@law("shares")
def test_corpora_have_their_shares_at_every_element(pipeline):
    if not pipeline.shares:
        pytest.skip("It is of one corpus, or test_law_of_counts.py says it of its rows or stages.")
    run = run_of(pipeline)
    found = [pipeline.amounts(element) for element in [*run.begun, *run.rest]]
    counts = np.cumsum([[amount * (kind == each) for each in pipeline.shares] for [(kind, amount)] in found], axis=0)
    expected = counts.sum(axis=1, keepdims=True) * [*pipeline.shares.values()]
    assert np.abs(counts - expected).max() < 1.5 * max(amount for [(_, amount)] in found)


@law("find")
def test_find_is_the_inverse_of_locate(pipeline):
    if pipeline.state is not pipelines.NUMBER:
        pytest.skip("Numbers are those of `examples`, of which there are rows.")
    examples = rebuilt(pipeline).dataset.examples.epoch(1)
    held = collections.defaultdict(list)
    for index in range(len(examples)):
        located = examples.locate(index)
        of = {
            (location.corpus, document)
            for location in (located if isinstance(located, list) else [located])
            for documents in location.documents
            for document in range(*documents)
        }
        for each in of:
            held[each].append(index)
    for corpus in examples.numbering.corpora:
        for document in range(corpus.store.documents):
            assert examples.find(document, corpus.name) == held[corpus.name, document]


@law("epochs")
def test_another_epoch_has_another_order_and_other_noise(pipeline):
    two = epochs_of(pipeline, epochs=2)
    units = units_of(pipeline, two)
    assert sorted(units) == sorted([*pipeline.corpus()] * 2)
    assert units[: len(units) // 2] != units[len(units) // 2 :]
    assert not pipeline.has_noise or len(set(digests(two))) > 0.95 * len(two)


@law("same examples")
def test_examples_by_number_are_those_of_a_dataset_of_seqio(request, pipeline):
    """Whose ids are one higher, where those of the tokenizer begin at 0."""
    if not pipeline.same:
        pytest.skip("It is no sequence, or a sequence above says it.")
    (same,) = (row for row in request.module.PIPELINES if row.name == pipeline.same)
    for one, other in zip(epochs_of(pipeline), epochs_of(same), strict=True):
        for key, values in other.items():
            shift = pipeline.shift_of_same if key in TOKENS else 0
            assert np.array_equal(np.asarray(values), np.asarray(one[key] + shift if shift else one[key])), key


@law("ids")
def test_ids_are_the_tokenizers_own_in_the_order_of_the_text_and_none_of_text_is_special(pipeline):
    run = run_of(pipeline)
    found = [text for element in [*run.begun, *run.rest] for text in pipeline.texts(element)]
    ends, starts = pipelines.borders()
    assert found
    for text in found:
        assert {*text} <= {*range(WORDS)}
        assert all(two == one + 1 or (one in ends and two in starts) for one, two in itertools.pairwise(text))
