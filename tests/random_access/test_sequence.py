"""A mixture as a sequence: each example has a location, from which alone it is made."""

import collections
import dataclasses
import itertools

import numpy as np
import pytest
import seqio
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from support import byte_vocabulary, restore, special_for

import ul2_tasks
from ul2_tasks import T5GEMMA2, UL2, CausalDenoiser, MemoryDataSource, Mixture, SpanDenoiser, mix, register
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.export.megatron import write_megatron
from ul2_tasks.random_access import corpora
from ul2_tasks.random_access import tokens as tokens_in_memory
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
    task = seqio.TaskRegistry.get(f"{name}_corpus")
    shards = len(task.source.list_shards(split))
    return [BYTES.encode(text) for shard in range(shards) for text in task.source.documents(split)[shard::shards]]


def corpus_of(name: str, split="train") -> list[int]:
    return [id for document in documents_of(name, split) for id in document]


def equal(one, other) -> bool:
    return all(np.array_equal(one[key], other[key]) for key in ("inputs", "targets", "denoiser", "task"))


@pytest.mark.parametrize("epoch", [0, 1, 7])
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


def test_the_ratio_of_denoisers_is_exact_and_lengths_are_those_that_were_solved(mixture, found):
    counts = collections.Counter(example["denoiser"] for example in found)
    tail = found.numbering.corpora[0].order.tail
    for denoiser in T5GEMMA2:
        assert counts[denoiser.name] * 8 == pytest.approx(len(found) * denoiser.weight, abs=8 * tail)
    full = {task.denoiser.name: task.full_chunk(LENGTHS) for task in seqio.get_mixture_or_task(mixture).tasks}
    whole = [example for example in found if len(example["inputs"]) == full[example["denoiser"]].inputs]
    assert len(whole) >= len(found) - tail
    assert all(len(example["targets"]) == full[example["denoiser"]].targets for example in whole)


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


def test_another_seed_and_another_epoch_have_another_order_and_other_noise(mixture, found):
    for others in (found.epoch(1), ul2_tasks.examples(mixture, LENGTHS, seed=2)):
        assert len(others) == len(found)
        locations = [[examples.locate(number).tokens for number in range(len(found))] for examples in (found, others)]
        assert np.mean([one == other for one, other in zip(*locations)]) < 0.1
    in_order = ul2_tasks.examples(mixture, LENGTHS, seed=1, shuffle=False)
    starts = [in_order.locate(number).tokens[0][0] for number in range(len(in_order))]
    assert starts == sorted(starts)


def test_the_same_tokens_under_the_same_denoiser_have_other_noise_in_another_epoch():
    name = register("addressed_once", MemoryDataSource(lambda: ["x" * 60], validation=0), BYTES, T5GEMMA2[:1], modes=MODES)
    one = ul2_tasks.examples(name, LENGTHS, shuffle=False)
    noises = {tuple(one.epoch(epoch)[0]["targets"].tolist()) for epoch in range(20)}
    assert len(noises) > 5


@given(st.integers(0, 30), st.data())
def test_when_finds_all_examples_that_have_a_document(found, epoch, data):
    examples = found.epoch(epoch)
    document = data.draw(st.integers(0, 100))
    held = [
        number
        for number in range(len(examples))
        if any(first <= document < last for first, last in examples.locate(number).documents)
    ]
    assert examples.find(document) == held


def test_a_cache_megatrons_files_and_memory_have_the_same_examples(mixture, found, tmp_path):
    corpus = seqio.TaskRegistry.get("addressed_corpus")
    build(corpus.name, str(tmp_path / "cache"), console=Console(quiet=True))
    write_megatron(corpus, str(tmp_path / "plain"), append_eod=False)
    write_megatron(corpus, str(tmp_path / "ended"))
    before = seqio.get_global_cache_dirs()
    seqio.set_global_cache_dirs([str(tmp_path / "cache")])
    try:
        cached = ul2_tasks.examples(mixture, LENGTHS, seed=1)
        assert not isinstance(cached.numbering.corpora[0].store, MemoryStore)
    finally:
        seqio.set_global_cache_dirs(before)
        corpus._cache_dir = None
    for name in ("plain", "ended"):
        register(f"addressed_{name}", f"megatron:{tmp_path}/{name}/addressed-train", BYTES, modes=MODES)
    others = [cached, *(ul2_tasks.examples(f"addressed_{name}_mix", LENGTHS, seed=1) for name in ("plain", "ended"))]
    for other in others:
        assert len(other) == len(found)
        for one, same in zip(found[:], other[:]):
            assert all(np.array_equal(one[key], same[key]) for key in ("inputs", "targets", "denoiser"))


def test_corpora_are_mixed_by_their_weights_and_each_is_read_once_an_epoch_of_its_own(mixture):
    register("addressed_other", MemoryDataSource(lambda: ["another corpus " * 9] * 50, validation=0), BYTES, UL2[:2], modes=MODES)
    both = mix("addressed_both", {mixture: 3, "addressed_other_mix": 1})
    examples = ul2_tasks.examples(both, LENGTHS)
    found = [examples.locate(number) for number in range(len(examples))]
    counts = collections.Counter(location.corpus for location in found)
    assert abs(counts["addressed_corpus"] - 3 * counts["addressed_other_corpus"]) <= 4
    seen = collections.Counter((location.corpus, location.epoch, location.chunk_index) for location in found)
    assert set(seen.values()) == {1}
    assert {location.epoch for location in found} == {0}, "an epoch ends with the first corpus"
    assert {location.epoch for location in map(examples.epoch(1).locate, range(len(examples)))} <= {0, 1}
    document = found[0].documents[0][0]
    assert 0 in examples.find(document, found[0].corpus)
    with pytest.raises(ValueError, match=r"corpus must be one of \['addressed_other_corpus', 'addressed_corpus'\], got None"):
        examples.find(0)


@pytest.mark.parametrize("epoch", [0, 3])
def test_an_eos_after_each_document_is_a_token_of_the_corpus(epoch, tmp_path):
    register(f"addressed_eos_{epoch}", MemoryDataSource(lambda: TEXTS, validation=0), BYTES, modes=MODES, separate_documents=True)
    corpus = seqio.TaskRegistry.get(f"addressed_eos_{epoch}_corpus")
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


def test_a_single_task_and_a_validation_split(mixture):
    task = ul2_tasks.examples("addressed_s", LENGTHS, split="validation")
    assert {example["denoiser"] for example in task} == {"s"}
    assert sorted(id for example in task for id in chunk_of(example)) == sorted(corpus_of("addressed", "validation"))


def test_a_task_that_is_not_ours_is_named(mixture):
    source = seqio.FunctionDataSource(lambda split, shuffle_files, seed=None: None, splits=["train"])
    features = {key: seqio.Feature(BYTES) for key in LENGTHS}
    seqio.TaskRegistry.add("addressed_foreign", source, output_features=features, preprocessors=[])
    beside = mix("addressed_beside", {mixture: 1, "addressed_foreign": 1})
    with pytest.raises(ValueError, match=r"mixture must have tasks with random access alone, got.*with \['addressed_foreign'\]"):
        ul2_tasks.examples(beside, LENGTHS)


OWN = SpanDenoiser(name="own", mean_span_length=3, noise_density=0.15, mode="[R]")
STREAMS = {
    "causal": ({}, CausalDenoiser(mode=None, name="c"), "its denoiser puts ids between documents"),
}


@pytest.mark.parametrize("name", STREAMS)
def test_what_has_no_fixed_places_stays_a_stream(name):
    arguments, denoiser, reason = STREAMS[name]
    source = MemoryDataSource(lambda: TEXTS, validation=0)
    mixture = register(f"addressed_{name}", source, BYTES, [denoiser], modes=MODES, **arguments)
    with pytest.raises(
        ValueError, match=rf"must have fixed positions, but have none, because ({reason})\. Read it as a stream, with get_dataset"
    ):
        ul2_tasks.examples(mixture, LENGTHS)


def test_what_is_wrong_is_said(mixture, found, monkeypatch):
    with pytest.raises(IndexError, match=rf"index must be 0 to {len(found) - 1}, got {len(found)}\. Use \.epoch\(1\)"):
        found[len(found)]
    for wrong in (10**30, -(10**30)):
        with pytest.raises(IndexError, match=rf"index must be 0 to {len(found) - 1}, got {wrong}\."):
            found.locate(wrong)
    with pytest.raises(IndexError, match=r"Use \.epoch\(4\) for the next"):
        found.epoch(3)[len(found) * 2]
    with pytest.raises(IndexError, match="document must be from 0 to 103, got 1000"):
        found.find(1000)
    for place in (1.5, "1"):
        with pytest.raises(TypeError):
            found[place]
        with pytest.raises(TypeError):
            found.find(place)
    for epoch in (-1, 0.5):
        with pytest.raises(ValueError, match=f"epoch must be an integer of at least 0, got {epoch}"):
            found.epoch(epoch)
    with pytest.raises(ValueError, match=r"split must be one of .*, got 'test'"):
        ul2_tasks.examples(mixture, LENGTHS, split="test")
    monkeypatch.setattr(tokens_in_memory, "MOST_TOKENS_IN_MEMORY", 100)
    with pytest.raises(ValueError, match="must have at most 100 tokens in split 'train' to be tokenized into memory"):
        ul2_tasks.examples(mixture, LENGTHS)


@pytest.mark.parametrize("integer", [int, np.int32, np.int64, np.uint64])
def test_integers_may_be_numpys(mixture, found, integer):
    lengths = {key: integer(length) for key, length in LENGTHS.items()}
    other = ul2_tasks.examples(mixture, lengths, seed=integer(1)).epoch(integer(2))
    assert equal(other[integer(3)], found.epoch(2)[3])
    assert other.locate(integer(3)) == found.epoch(2).locate(3)
    assert other.find(integer(5)) == found.epoch(2).find(5)


@pytest.mark.parametrize("seed", [None, 0.5, "0", True])
def test_a_seed_that_is_no_integer_is_refused(mixture, seed):
    with pytest.raises(ValueError, match=f"seed must be an integer, because it decides the examples, got {seed!r}"):
        ul2_tasks.examples(mixture, LENGTHS, seed=seed)


@pytest.mark.parametrize("text", ["x", "xy", "x" * 50])
def test_a_corpus_of_a_single_token_or_less_than_a_cycle(text):
    name = register(f"addressed_{len(text)}_tokens", MemoryDataSource(lambda: [text], validation=0), BYTES, modes=MODES)
    for epoch in range(10):
        examples = ul2_tasks.examples(name, LENGTHS).epoch(epoch)
        places = [place for number in range(len(examples)) for each in examples.locate(number).tokens for place in range(*each)]
        assert sorted(places) == list(range(len(text)))
        assert sum(len(chunk_of(example)) for example in examples) == len(text)
        assert examples.find(0)


def test_a_corpus_without_a_token_is_refused():
    name = register("addressed_nothing", MemoryDataSource(lambda: ["", ""], validation=0), BYTES, modes=MODES)
    with pytest.raises(ValueError, match=r"'addressed_nothing_corpus' has no token in this split\. Look at it with `ul2 doctor`"):
        ul2_tasks.examples(name, LENGTHS)


@pytest.mark.parametrize("weights", [(3, 1), (1, 2.5), (7, 5)])
def test_in_an_epoch_of_several_corpora_no_example_comes_twice(weights):
    """Of the corpus that ends first; the other goes on where it was in the next epoch."""
    names = [f"addressed_side_{side}_{weights[0]}" for side in "ab"]
    for name, count in zip(names, (37, 90)):
        register(name, MemoryDataSource(lambda count=count: ["corpus " * 20] * count, validation=0), BYTES, modes=MODES)
    both = mix(f"addressed_sides_{weights[0]}", dict(zip((f"{name}_mix" for name in names), weights)))
    examples = ul2_tasks.examples(both, LENGTHS)
    for epoch in range(3):
        of_epoch = examples.epoch(epoch)
        found = [of_epoch.locate(number) for number in range(len(of_epoch))]
        seen = collections.Counter((location.corpus, location.epoch, location.chunk_index) for location in found)
        assert set(seen.values()) == {1}
        counts = collections.Counter(location.corpus for location in found)
        of_first, of_second = (counts[f"{name}_corpus"] for name in names)
        assert of_first / len(found) == pytest.approx(weights[0] / sum(weights), abs=8 / len(found))
        if epoch == 0:
            assert {location.epoch for location in found} == {0}
            assert any(
                count == corpus.order.examples for count, corpus in zip((of_first, of_second), examples.numbering.corpora)
            ), "one comes to its end"


def pair_of(folder, documents, dtype=np.uint16) -> str:
    with PairWriter(f"{folder}/p.bin", f"{folder}/p.idx", np.dtype(dtype)) as pair:
        pair.add(np.concatenate(documents), np.array([len(document) for document in documents]))
    return f"megatron:{folder}/p"


@pytest.mark.parametrize(("wrong", "dtype"), [(0, np.uint16), (261, np.uint16), (-5, np.int32), (60000, np.uint16)])
def test_ids_that_no_text_has_are_refused_where_they_are_read(tmp_path, wrong, dtype):
    """Not among the documents that are looked at first."""
    documents = [np.array([10 + number % 90] * 40) for number in range(2000)]
    documents[777][20] = wrong
    name = register(f"addressed_wrong_{abs(wrong)}", pair_of(tmp_path, documents, dtype), BYTES, modes=MODES)
    examples = ul2_tasks.examples(name, LENGTHS)
    with pytest.raises(ValueError, match=rf"must have ids of text alone, got \[{wrong}\], which are padding, sentinels, modes, or"):
        examples[:]


@pytest.mark.parametrize(
    "reserved",
    [{0}, {0, 100}, {0, 50, 51, 52, 100, 261}, set(range(0, 200, 2)), {*range(3), *range(20, 80), 90, 95, 99, 101}],
    ids=["padding", "two", "some", "every second", "many"],
)
def test_each_id_that_is_reserved_and_no_other_is_no_text(found, reserved):
    whole = found.numbering.corpora[0]
    solution = whole.members[0].solution
    solution = dataclasses.replace(solution, special=dataclasses.replace(solution.special, reserved=frozenset(reserved)))
    changed = dataclasses.replace(whole, members=(dataclasses.replace(whole.members[0], solution=solution),))
    for id in range(-3, BYTES.vocab_size + 3):
        expected = 0 <= id < BYTES.vocab_size and id not in reserved
        assert corpora._are_all(changed._is_text, np.array([201, id, 205], np.int32)) == expected


def test_a_document_without_a_token_is_in_no_example(tmp_path):
    name = register(
        "addressed_empty", pair_of(tmp_path, [np.array([10, 11]), np.zeros(0, int), np.array([12])]), BYTES, modes=MODES
    )
    examples = ul2_tasks.examples(name, LENGTHS)
    assert (examples.find(1), bool(examples.find(0)), bool(examples.find(2))) == ([], True, True)


@pytest.mark.torch
def test_forked_workers_of_pytorch_read_it_though_tensorflow_has_run(found):
    """Which would hang if it ran there."""
    data = pytest.importorskip("torch.utils.data")
    assert tf.constant(1) + 1 == 2
    batches = data.DataLoader(found, batch_size=16, num_workers=2, collate_fn=list, timeout=60)
    read = list(itertools.chain(*batches))
    assert len(read) == len(found)
    assert all(map(equal, found[:], read))


@pytest.mark.torch
def test_pytorch_reads_it_as_a_map_style_dataset(found):
    data = pytest.importorskip("torch.utils.data")
    sampler = data.BatchSampler(data.SequentialSampler(found), batch_size=7, drop_last=False)
    batches = list(data.DataLoader(found, batch_sampler=sampler, collate_fn=list))
    assert all(map(equal, [example for batch in batches for example in batch], found))


@pytest.mark.torch
def test_grain_reads_shuffles_and_resumes_it(found):
    grain = pytest.importorskip("grain")
    dataset = grain.MapDataset.source(found).shuffle(seed=3)
    assert sorted(map(str, (example["inputs"].tolist() for example in dataset))) == sorted(
        str(example["inputs"].tolist()) for example in found
    )
    iterator = iter(dataset.to_iter_dataset())
    for _ in range(5):
        next(iterator)
    state = iterator.get_state()
    rest = [next(iterator) for _ in range(5)]
    again = iter(dataset.to_iter_dataset())
    again.set_state(state)
    assert all(map(equal, rest, (next(again) for _ in range(5))))


def test_golden():
    """Where the same arguments give another example: raise `STREAM_VERSION`, and then change this."""
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    name = register("addressed_golden", MemoryDataSource(lambda: [alphabet] * 9, validation=0), BYTES, modes=MODES)
    found = ul2_tasks.examples(name, {"inputs": 24, "targets": 24}, seed=5)
    assert [(example["denoiser"], BYTES.decode(example["inputs"]), BYTES.decode(example["targets"])) for example in found] == [
        ("x2", "efghijklmnopqrstuvwx", "yzabcdefghijklmnopqr"),
        ("s", "uvwxyza", "bcdefghijklmnopqrstuv"),
        ("s", "tuvwxyz", "abcdefghijklmnopqrstu"),
        ("s", "defghij", "klmnopqrstuvwxyzabcd"),
        ("r1", "wxyzabcdefghijklmnop", "qrs"),
        ("x1", "fghijklmnopqrstuvwxy", "zabc"),
        ("s", "stuvwxy", "zabcdefghijklmnopqrst"),
        ("r2", "vwxyzabcdeuvwxyzab", "fghijklmnopqrstcde"),
    ]


def test_a_mixture_of_seqios_own_has_no_numbers(mixture):
    """Its `get_dataset` draws from the datasets of its tasks, and so gives other examples than a sequence would."""
    seqio.MixtureRegistry.add("addressed_by_seqio", [(task.name, 1) for task in seqio.get_mixture_or_task(mixture).tasks])
    with pytest.raises(ValueError, match=r"mixture must be one of ul2_tasks, got.*it reads and so has no random access"):
        ul2_tasks.examples("addressed_by_seqio", LENGTHS)


def test_a_share_that_is_far_from_what_was_asked_for_is_told(mixture, caplog):
    mix("addressed_rare", {mixture: 1, "addressed_r1": 0.1})
    assert len(ul2_tasks.examples("addressed_rare_mix", LENGTHS))
    assert "differs by up to" not in caplog.text
    rare = [dataclasses.replace(T5GEMMA2[0], name=name, weight=weight) for name, weight in (("often", 1), ("rare", 1e-6))]
    assert len(ul2_tasks.examples(ul2_tasks.Mixture("addressed_rare", denoisers=rare), LENGTHS))
    assert (
        "mixed as {'addressed_rare_often': 4095, 'addressed_rare_rare': 1}, so a fraction differs by up to 24314 % from its rate"
        in caplog.text
    )
