"""A mixture as a sequence: each example has a location, from which alone it is made."""

import collections
import dataclasses
import itertools

import numpy as np
import pytest
import seqio
from rich.console import Console

import ul2_tasks
from tests.support import byte_vocabulary, corpus_named, restore, special_for
from ul2_tasks import T5GEMMA2, MemoryDataSource, Mixture, mix, register
from ul2_tasks.corpus.build_cache import build
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


def documents_of(name: str, split="train") -> list[list[int]]:
    source = corpus_named(f"{name}_corpus").source
    shards = len(source.list_shards(split))
    return [BYTES.encode(text) for shard in range(shards) for text in source.documents(split)[shard::shards]]


def corpus_of(name: str, split="train") -> list[int]:
    return [id for document in documents_of(name, split) for id in document]


def equal(one, other) -> bool:
    return all(np.array_equal(one[key], other[key]) for key in ("inputs", "targets", "denoiser", "task"))


@pytest.mark.parametrize("epoch", [0, 7])
def test_each_token_of_an_epoch_is_in_one_example_at_its_address(found, epoch):
    corpus, taken = corpus_of("addressed"), collections.Counter()
    examples = found.epoch(epoch)
    for number, example in enumerate(examples):
        location = examples.locate(number)
        assert (location.task, location.denoiser, location.corpus) == (example["task"], example["denoiser"], "addressed_corpus")
        places = [place for start, stop in location.tokens for place in range(start, stop)]
        assert chunk_of(example) == [corpus[place] for place in places]
        taken.update(places)
    assert set(taken.values()) == {1}
    assert len(taken) == len(corpus)


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


def test_a_cache_megatrons_files_and_memory_have_the_same_examples(mixture, found, tmp_path):
    corpus = seqio.TaskRegistry.get("addressed_corpus").corpus
    build(corpus_named(corpus.name), str(tmp_path / "cache"), console=Console(quiet=True))
    write_megatron(corpus, str(tmp_path / "plain"), append_eod=False)
    write_megatron(corpus, str(tmp_path / "ended"))
    before = seqio.get_global_cache_dirs()
    seqio.set_global_cache_dirs([str(tmp_path / "cache")])
    try:
        cached = ul2_tasks.examples(mixture, LENGTHS, seed=1)
        assert not isinstance(cached.numbering.corpora[0].store, MemoryStore)
    finally:
        seqio.set_global_cache_dirs(before)
    for name in ("plain", "ended"):
        register(f"addressed_{name}", f"megatron:{tmp_path}/{name}/addressed-train", BYTES, modes=MODES)
    others = [cached, *(ul2_tasks.examples(f"addressed_{name}_mix", LENGTHS, seed=1) for name in ("plain", "ended"))]
    for other in others:
        assert len(other) == len(found)
        for one, same in zip(found[:], other[:]):
            assert all(np.array_equal(one[key], same[key]) for key in ("inputs", "targets", "denoiser"))


@pytest.mark.parametrize("epoch", [3])
def test_an_eos_after_each_document_is_a_token_of_the_corpus(epoch, tmp_path):
    register(f"addressed_eos_{epoch}", MemoryDataSource(lambda: TEXTS, validation=0), BYTES, modes=MODES, separate_documents=True)
    corpus = seqio.TaskRegistry.get(f"addressed_eos_{epoch}_corpus").corpus
    ids = [id for document in documents_of(f"addressed_eos_{epoch}") for id in [*document, BYTES.eos_id]]
    write_megatron(corpus, str(tmp_path / "plain"), append_eod=False)
    write_megatron(corpus, str(tmp_path / "ended"))
    settings = {"vocabulary": BYTES, "modes": MODES, "separate_documents": True}
    plain, ended = (
        Mixture(f"addressed_eos_{name}_{epoch}", f"megatron:{tmp_path}/{name}/addressed_eos_{epoch}-train", **settings)
        for name in ("plain", "ended")
    )
    with pytest.raises(ValueError, match="separate_documents"):
        ul2_tasks.examples(plain, LENGTHS)
    cached = Mixture(f"addressed_eos_{epoch}", MemoryDataSource(lambda: TEXTS, validation=0), **settings)
    cached.cache(tmp_path)
    with pytest.raises(ValueError, match="separate_documents"):
        ul2_tasks.examples(dataclasses.replace(cached, separate_documents=False), LENGTHS, cache_dirs=[tmp_path])
    found = [ul2_tasks.examples(each, LENGTHS, seed=1).epoch(epoch) for each in (f"addressed_eos_{epoch}_mix", ended)]
    found.append(ul2_tasks.examples(cached, LENGTHS, seed=1, cache_dirs=[tmp_path]).epoch(epoch))
    for number, example in enumerate(found[0]):
        places = [place for start, stop in found[0].locate(number).tokens for place in range(start, stop)]
        assert chunk_of(example) == [ids[place] for place in places]
        assert all(equal(example, {**other[number], "task": example["task"]}) for other in found[1:])
        assert all(other.locate(number).documents == found[0].locate(number).documents for other in found[1:])
    assert sum(len(chunk_of(example)) for example in found[0]) == len(ids)
    assert [other.find(17) for other in found] == [found[0].find(17)] * 3


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


@pytest.mark.parametrize(
    "arguments",
    [{"split": "test"}, {"seed": None}, {"seed": 0.5}, {"seed": True}, {"exclude": 7}, {"batch_size": 0, "skip": [(0, 1)]}],
)
def test_what_cannot_be_asked_for_is_named(mixture, arguments):
    with pytest.raises((ValueError, TypeError), match=next(iter(arguments))):
        ul2_tasks.examples(mixture, LENGTHS, **arguments)


def pair_of(folder, documents, dtype=np.uint16) -> str:
    with PairWriter(f"{folder}/p.bin", f"{folder}/p.idx", np.dtype(dtype)) as pair:
        pair.add(np.concatenate(documents), np.array([len(document) for document in documents]))
    return f"megatron:{folder}/p"


@pytest.mark.parametrize(("wrong", "dtype"), [(0, np.uint16), (-5, np.int32), (60000, np.uint16)])
def test_ids_that_no_text_has_are_refused_where_they_are_read(tmp_path, wrong, dtype):
    """Not among the documents that are looked at first."""
    documents = [np.array([10 + number % 90] * 40) for number in range(2000)]
    documents[777][20] = wrong
    name = register(f"addressed_wrong_{abs(wrong)}", pair_of(tmp_path, documents, dtype), BYTES, modes=MODES)
    examples = ul2_tasks.examples(name, LENGTHS)
    with pytest.raises(ValueError, match=rf"\[{wrong}\]"):
        examples[:]
