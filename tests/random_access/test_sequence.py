"""A mixture as a sequence: each example has a location, from which alone it is made."""

import dataclasses
import itertools

import numpy as np
import pytest
import seqio

import ul2_tasks
from tests.support import byte_vocabulary, restore, special_for
from ul2_tasks import T5GEMMA2, MemoryDataSource, Mixture, mix, register
from ul2_tasks.export.megatron import write_megatron
from ul2_tasks.random_access.sequence import Examples
from ul2_tasks.store.read import MemoryStore
from ul2_tasks.store.write import PairWriter

BYTES, MODES = byte_vocabulary()
LENGTHS = {"inputs": 80, "targets": 80}
TEXTS = [f"the document of number {number} has {number % 7} words more" + " more" * (number % 7) for number in range(120)]
SPECIAL = {denoiser.name: special_for(denoiser, BYTES, MODES) for denoiser in T5GEMMA2}


@pytest.fixture(scope="module")
def mixture() -> str:
    return register("addressed", MemoryDataSource(lambda: TEXTS, validation=0.1), BYTES, modes=MODES)


@pytest.fixture(scope="module")
def found(mixture) -> Examples:
    return ul2_tasks.examples(mixture, LENGTHS, seed=1)


def chunk_of(example) -> list[int]:
    denoiser = next(denoiser for denoiser in T5GEMMA2 if denoiser.name == example["denoiser"])
    return list(restore(example, denoiser, SPECIAL[denoiser.name]))


def equal(one, other) -> bool:
    return all(np.array_equal(one[key], other[key]) for key in ("inputs", "targets", "denoiser", "task"))


def test_an_example_is_the_same_alone_in_any_batch_and_in_another_object(mixture, found):
    examples = found[:]
    other = ul2_tasks.examples(mixture, LENGTHS, seed=1)
    for numbers in ([3], [3, 3, 5], [40, 3, 7, 0, 5], range(len(found) - 1, -1, -1)):
        assert all(equal(example, examples[number]) for example, number in zip(other.__getitems__(numbers), numbers))
    assert equal(found[-1], examples[-1])
    assert all(map(equal, found[2:9:3], [examples[2], examples[5], examples[8]]))
    assert all(map(equal, iter(found), examples))


@pytest.mark.parametrize("pack", [False, True])
def test_an_element_that_is_kept_keeps_no_other(mixture, pack):
    for element in itertools.islice(ul2_tasks.examples(mixture, LENGTHS, pack=pack), 3):
        assert {value.base is None for value in element.values() if isinstance(value, np.ndarray)} == {True}


@pytest.mark.parametrize("separate_documents", [False, True])
def test_a_cache_megatrons_files_and_memory_have_the_same_examples_whose_tokens_are_those_of_their_places(
    separate_documents, tmp_path
):
    settings = {"vocabulary": BYTES, "modes": MODES, "separate_documents": separate_documents}
    memory = Mixture("addressed_stores", MemoryDataSource(lambda: TEXTS, validation=0), **settings)
    memory.cache(tmp_path)
    for name, append_eod in (("plain", False), ("ended", True)):
        write_megatron(memory.corpus(), f"{tmp_path}/{name}", append_eod=append_eod)
    plain, ended = (
        Mixture(f"addressed_{name}", f"megatron:{tmp_path}/{name}/addressed_stores-train", **settings)
        for name in ("plain", "ended")
    )
    given = [(memory, []), (memory, [tmp_path]), (ended, []), *([] if separate_documents else [(plain, [])])]
    first, *others = (ul2_tasks.examples(each, LENGTHS, seed=1, cache_dirs=dirs).epoch(3) for each, dirs in given)
    assert not isinstance(others[0].numbering.corpora[0].store, MemoryStore)
    (corpus,) = first.numbering.corpora
    ids = corpus.store.read_tokens(0, corpus.store.tokens).tolist()
    assert ids.count(BYTES.eos_id) == separate_documents * len(TEXTS)
    for number, example in enumerate(first):
        assert chunk_of(example) == [ids[place] for start, stop in first.locate(number).tokens for place in range(start, stop)]
        assert all(equal(example, {**other[number], "task": example["task"]}) for other in others)
        assert all(other.locate(number).documents == first.locate(number).documents for other in others)
    wrong = [(dataclasses.replace(memory, separate_documents=not separate_documents), [tmp_path])]
    for each, dirs in [*wrong, *([(plain, [])] if separate_documents else [])]:
        with pytest.raises(ValueError, match="separate_documents"):
            ul2_tasks.examples(each, LENGTHS, cache_dirs=dirs)


def foreign(mixture) -> str:
    source = seqio.FunctionDataSource(lambda split, shuffle_files, seed=None: None, splits=["train"])
    features = {key: seqio.Feature(BYTES) for key in LENGTHS}
    seqio.TaskRegistry.add("addressed_foreign", source, output_features=features, preprocessors=[])
    return mix("addressed_beside", {mixture: 1, "addressed_foreign": 1})


def by_seqio(mixture) -> str:
    """Its `get_dataset` draws from the datasets of its tasks, and so gives other examples than a sequence would."""
    seqio.MixtureRegistry.add("addressed_by_seqio", [(task.name, 1) for task in seqio.get_mixture_or_task(mixture).tasks])
    return "addressed_by_seqio"


def nothing(mixture) -> str:
    return register("addressed_nothing", MemoryDataSource(lambda: ["", ""], validation=0), BYTES, modes=MODES)


@pytest.mark.parametrize(
    ("make", "named"),
    [(foreign, "addressed_foreign"), (by_seqio, "mixture"), (nothing, "addressed_nothing_corpus")],
)
def test_what_has_no_fixed_places_is_refused(mixture, make, named):
    with pytest.raises(ValueError, match=named):
        ul2_tasks.examples(make(mixture), LENGTHS)


@pytest.mark.parametrize(
    ("ask", "error", "named"),
    [
        (lambda found: found[len(found)], IndexError, r"index .*\.epoch\(1\)"),
        (lambda found: found.epoch(3)[len(found) * 2], IndexError, r"\.epoch\(4\)"),
        (lambda found: found.find(1000), IndexError, "document"),
        (lambda found: found[1.5], TypeError, None),
        (lambda found: found.epoch(-1), ValueError, "epoch"),
    ],
)
def test_what_is_not_there_is_an_error(found, ask, error, named):
    with pytest.raises(error, match=named):
        ask(found)


@pytest.mark.parametrize(("wrong", "dtype"), [(0, np.uint16), (-5, np.int32), (60000, np.uint16)])
def test_ids_that_no_text_has_are_refused_where_they_are_read(tmp_path, wrong, dtype):
    """Not among the documents that are looked at first."""
    tokens = np.repeat([10 + number % 90 for number in range(2000)], 40)
    tokens[777 * 40 + 20] = wrong
    with PairWriter(f"{tmp_path}/p.bin", f"{tmp_path}/p.idx", np.dtype(dtype)) as pair:
        pair.add(tokens, np.full(2000, 40))
    examples = ul2_tasks.examples(Mixture("addressed_wrong", f"megatron:{tmp_path}/p", BYTES, modes=MODES), LENGTHS)
    with pytest.raises(ValueError, match=rf"\[{wrong}\]"):
        examples[:]
