"""Resuming: a refusal where the pipeline is another one; tests/laws has what holds of all pipelines."""

import dataclasses
import pickle

import pytest
import seqio
import tensorflow as tf
from sizes import release
from support import byte_vocabulary, iterate
from test_mixture import long_documents

from ul2_tasks import T5GEMMA2, default_vocabulary, register
from ul2_tasks.sources.memory import MemoryDataSource

BYTES, MODES = byte_vocabulary()
LENGTHS = {"inputs": 128, "targets": 128}
DENOISERS = T5GEMMA2[::4]  # R1 and S: what is refused of two is refused of five


def mixture(name="resumed", denoisers=DENOISERS, **settings) -> str:
    return register(
        name,
        MemoryDataSource(long_documents, validation=0.1),
        denoisers=denoisers,
        **{"vocabulary": BYTES, "modes": MODES, **settings},
    )


def batches(name, lengths=LENGTHS, pack=True, seed=5, shard=None, split="train", shuffle=True) -> tf.data.Dataset:
    """Model features as a trainer reads them: shuffled, mixed, packed."""
    return seqio.get_dataset(
        name,
        lengths,
        dataset_split=split,
        shuffle=shuffle,
        num_epochs=None,
        seed=seed,
        shard_info=shard,
        feature_converter=seqio.EncDecFeatureConverter(pack=pack),
        batch_size=4,
    )


def examples(name, lengths=LENGTHS, **settings) -> tf.data.Dataset:
    return seqio.get_mixture_or_task(name).get_dataset(lengths, **{"split": "train", "seed": 5, **settings})


def save_after(dataset: tf.data.Dataset, count: int, path) -> str:
    iterator = iterate(dataset)
    for _ in range(count):
        next(iterator)
    return tf.train.Checkpoint(iterator=iterator).write(str(path / "checkpoint"))


def resume(dataset: tf.data.Dataset, path: str):
    iterator = iterate(dataset)
    tf.train.Checkpoint(iterator=iterator).read(path)
    return iterator


@pytest.fixture
def clean_registries(monkeypatch):
    """As in another program, that registers otherwise."""
    for registry in (seqio.TaskRegistry, seqio.MixtureRegistry):
        monkeypatch.setattr(registry, "_REGISTRY", {})


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> str:
    """An iterator of the mixture `resumed_mix`, saved after a few examples."""
    return save_after(examples(mixture()), 10, tmp_path_factory.mktemp("saved"))


def replaced(**fields):
    """The denoisers, each with the fields that it has."""
    return [
        dataclasses.replace(denoiser, **{key: value for key, value in fields.items() if key in vars(denoiser)})
        for denoiser in DENOISERS
    ]


@pytest.mark.parametrize(
    ("arguments", "settings", "was", "is_now"),
    [
        ({"seed": 6}, {}, "seed: 5", "seed: 6"),
        ({"lengths": {"inputs": 128, "targets": 64}}, {}, "targets: 128", "targets: 64"),
        ({"shard_info": seqio.ShardInfo(1, 2)}, {}, "shard: [0, 1]", "shard: [1, 2]"),
        ({"split": "validation"}, {}, "split: train", "split: validation"),
        ({}, {"denoisers": [DENOISERS[0], dataclasses.replace(DENOISERS[1], weight=5)]}, "resumed_s: 4", "resumed_s: 5"),
        ({}, {"denoisers": replaced(noise_density=0.4)}, "noise_density: ", "noise_density: 0.4"),
        ({}, {"denoisers": replaced(placement="uniform")}, "placement: t5", "placement: uniform"),
        ({}, {"vocabulary": default_vocabulary(), "modes": None}, "ByteVocabulary, 362 ids", "SentencePieceVocabulary, 4096 ids"),
        ({}, {"sentinels": range(262, 362)}, "sentinels: null", "sentinels: 100 ids"),
        ({}, {"chunk_tokens": 90}, "chunk_tokens: null", "chunk_tokens: 90"),
        ({}, {"chunk_tokens": {"s": 91}}, "chunk_tokens: null", "chunk_tokens: 91"),
        ({}, {"separate_documents": True}, "separate_documents: false", "separate_documents: true"),
    ],
    ids=[
        "seed",
        "lengths",
        "shard",
        "split",
        "rates",
        "denoisers",
        "placement",
        "vocabulary",
        "sentinels",
        "chunk",
        "chunk of one",
        "separator",
    ],
)
def test_another_pipeline_is_refused_and_both_are_shown(saved, clean_registries, arguments, settings, was, is_now):
    other = examples(mixture(**settings), **arguments)
    with pytest.raises(tf.errors.InvalidArgumentError, match="this iterator was saved by another pipeline") as error:
        resume(other, saved)
    saved_part, this_part = str(error.value).split("this one:")
    assert was in saved_part
    assert is_now in this_part
    assert is_now not in saved_part


def test_another_pipeline_is_refused_behind_seqios_packing(tmp_path):
    name = mixture("resumed_packed", DENOISERS[:1])
    path = save_after(batches(name), 3, tmp_path)
    resume(batches(name), path)
    with pytest.raises(tf.errors.InvalidArgumentError, match="this iterator was saved by another pipeline"):
        resume(batches(name, seed=6), path)


def test_a_pipeline_of_other_steps_is_refused_by_tensorflow_itself(saved):
    with pytest.raises(tf.errors.NotFoundError, match="Make sure the dataset definition has not changed"):
        resume(examples(mixture(), shuffle=False), saved)


def test_a_stock_mixture_of_our_tasks_is_checked_for_all_but_its_rates(tmp_path, clean_registries):
    """A task within it does not know them; README says so."""
    tasks = [task.name for task in seqio.get_mixture_or_task(mixture(denoisers=T5GEMMA2[:2])).tasks]
    for name, rates in {"stock": (1, 1), "other_rates": (1, 3)}.items():
        seqio.MixtureRegistry.add(name, list(zip(tasks, rates)))
    path = save_after(examples("stock"), 3, tmp_path)
    next(resume(examples("other_rates"), path))
    with pytest.raises(tf.errors.InvalidArgumentError, match="saved by another pipeline"):
        resume(examples("stock", seed=6), path)


def test_a_shuffle_buffer_is_bounded_in_examples_and_in_tokens(monkeypatch):
    """2^20 tokens in chunks of R1: 2^20 // 2273 = 461, 2^20 // 18202 = 57."""
    release(monkeypatch)
    vocabulary = seqio.ByteVocabulary(extra_ids=1500)
    task = seqio.get_mixture_or_task(mixture("buffered", vocabulary=vocabulary)).tasks[0]
    for budget, buffered in ((128, 1000), (2048, 461), (16384, 57)):
        dataset = task.get_dataset({"inputs": budget, "targets": budget}, split="train", seed=1)
        assert int(dataset._buffer_size) == buffered
    assert int(task.get_dataset(LENGTHS, split="train", seed=1, shuffle_buffer_size=7)._buffer_size) == 7
    assert not hasattr(task.get_dataset(LENGTHS, split="train", shuffle=False), "_buffer_size")


def test_examples_have_the_output_features_alone_unless_more_is_asked_for():
    provider = seqio.get_mixture_or_task(mixture())
    assert set(provider.tasks[0].get_dataset(LENGTHS, split="train").element_spec) == {"inputs", "targets"}
    assert set(provider.get_dataset(LENGTHS, split="train").element_spec) == {"inputs", "targets"}
    spec = provider.get_dataset(LENGTHS, split="train", passthrough_features=["denoiser"]).element_spec
    assert set(spec) == {"inputs", "targets", "denoiser"}


def test_a_copied_or_pickled_task_makes_the_same_examples():
    """SeqIO's copy of a task is one of SeqIO's own class; Beam pickles tasks."""
    task = seqio.get_mixture_or_task(mixture()).tasks[0]
    copies = (task.replace(name="copied"), pickle.loads(pickle.dumps(task)))
    wanted, *found = (
        list(each.get_dataset(LENGTHS, "validation", shuffle=False, seed=5).as_numpy_iterator()) for each in (task, *copies)
    )
    for examples in found:
        assert [example["inputs"].tolist() for example in examples] == [example["inputs"].tolist() for example in wanted]


def test_the_corpus_is_not_frozen_in_memory_and_epochs_differ_in_order():
    """SeqIO would hold a source of less than 10,000 examples in memory, in the order of the first epoch."""
    mixture("ordered", merge_examples=False)
    twice = examples("ordered_s", {"inputs": 600, "targets": 600}, split="validation", num_epochs=2, shuffle_buffer_size=1)
    documents = [BYTES.decode(example["inputs"][1:20]) for example in twice.as_numpy_iterator()]
    first, second = documents[: len(documents) // 2], documents[len(documents) // 2 :]
    assert sorted(first) == sorted(second)
    assert first != second
