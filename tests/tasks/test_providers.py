"""Resuming: a refusal where the pipeline is another one; tests/laws has what holds of all pipelines."""

import dataclasses

import pytest
import seqio
import tensorflow as tf
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
        ({}, {"vocabulary": default_vocabulary(), "modes": None}, "ByteVocabulary, 362 ids", "SentencePieceVocabulary, 4096 ids"),
        ({}, {"sentinels": range(262, 362)}, "sentinels: null", "sentinels: 100 ids"),
        ({}, {"chunk_tokens": {"s": 91}}, "chunk_tokens: null", "chunk_tokens: 91"),
        ({}, {"separate_documents": True}, "separate_documents: false", "separate_documents: true"),
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


def test_the_corpus_is_not_frozen_in_memory_and_epochs_differ_in_order():
    """SeqIO would hold a source of less than 10,000 examples in memory, in the order of the first epoch."""
    mixture("ordered", merge_examples=False)
    twice = examples("ordered_s", {"inputs": 600, "targets": 600}, split="validation", num_epochs=2, shuffle_buffer_size=1)
    documents = [BYTES.decode(example["inputs"][1:20]) for example in twice.as_numpy_iterator()]
    first, second = documents[: len(documents) // 2], documents[len(documents) // 2 :]
    assert sorted(first) == sorted(second)
    assert first != second
