"""Datasets made from numbers: the same examples as the sequence, on any hosts, resumed anywhere, as rows and as whole batches."""

import itertools

import numpy as np
import pytest
import seqio
import tensorflow as tf
from rich.console import Console

import ul2_tasks
from tests.support import byte_vocabulary, corpus_named
from ul2_tasks import T5GEMMA2, EncDecFeatureConverter, MemoryDataSource, SequentialDenoiser, mix, register
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.tasks.tf_data import reading_of

BYTES, MODES = byte_vocabulary()
LENGTHS = {"inputs": 80, "targets": 80}
TEXTS = [f"the document of number {number} has {number % 7} words more" + " more" * (number % 7) for number in range(90)]
R1, S = T5GEMMA2[::4]  # what holds of two denoisers holds of five, of which the tests of sequences are
DRAWN = SequentialDenoiser(name="drawn", mode="[S]", noise_density=0.5, split="uniform")


@pytest.fixture(scope="module", autouse=True)
def cached(tmp_path_factory):
    """Corpora in caches: `numbered`, `numbered_drawn`, `numbered_other`."""
    folder = tmp_path_factory.mktemp("caches")
    register("numbered", MemoryDataSource(lambda: TEXTS, validation=0.1), BYTES, [R1, S], modes=MODES)
    register("numbered_drawn", MemoryDataSource(lambda: TEXTS, validation=0.1), BYTES, [R1, DRAWN], modes=MODES)
    others = MemoryDataSource(lambda: ["another one " * 20] * 60, validation=0.1)
    register("numbered_other", others, BYTES, T5GEMMA2[1:2], modes=MODES)
    mix("numbered_both", {"numbered_mix": 2, "numbered_other_mix": 1})
    for name in ("numbered", "numbered_drawn", "numbered_other"):
        build(corpus_named(f"{name}_corpus"), str(folder), console=Console(quiet=True))
    before = seqio.get_global_cache_dirs()
    seqio.set_global_cache_dirs([str(folder)])
    yield
    seqio.set_global_cache_dirs(before)


def examples_of(name: str, count: int | None = None, **arguments) -> list[dict]:
    arguments = {"split": "train", "use_cached": True, "seed": 3, "num_epochs": 1, **arguments}
    dataset = seqio.get_mixture_or_task(name).get_dataset(LENGTHS, **arguments)
    return list(itertools.islice(dataset.as_numpy_iterator(), count))


def rows_of(name: str, pack: bool, batch_size: int | None = None, lengths=LENGTHS, **arguments) -> tf.data.Dataset:
    arguments = {"dataset_split": "train", "use_cached": True, "seed": 3, "shuffle": True, **arguments}
    return seqio.get_dataset(name, lengths, EncDecFeatureConverter(pack=pack), batch_size=batch_size, **arguments)


def equal(one, other) -> bool:
    return all(np.array_equal(one[key], other[key]) for key in one.keys() & {"inputs", "targets"})


def flat(dataset: tf.data.Dataset) -> list[dict]:
    return list(dataset.as_numpy_iterator())


NAMES = ["numbered_r1", "numbered_drawn_mix", "numbered_both_mix"]  # those of numbered_mix are a part of the last


@pytest.mark.parametrize(("name", "shuffle"), [*((name, True) for name in NAMES), ("numbered_both_mix", False)])
def test_a_dataset_of_a_cache_is_the_sequence(name, shuffle):
    sequence = ul2_tasks.examples(name, LENGTHS, seed=3, shuffle=shuffle)
    found = examples_of(name, shuffle=shuffle, num_epochs=2)
    assert len(found) == len(sequence) + len(sequence.epoch(1))
    assert all(map(equal, found, [*sequence, *sequence.epoch(1)]))
    without_end = examples_of(name, len(found) + 50, shuffle=shuffle, num_epochs=None)
    assert all(map(equal, without_end, found))
    assert len(without_end) == len(found) + 50


@pytest.mark.parametrize("name", NAMES)
def test_padded_rows_are_those_of_seqios_converter(name):
    rows = flat(rows_of(name, pack=False, num_epochs=1))
    dataset = seqio.get_mixture_or_task(name).get_dataset(LENGTHS, "train", use_cached=True, seed=3, num_epochs=1)
    wanted = flat(seqio.EncDecFeatureConverter(pack=False)(dataset, LENGTHS))
    assert len(rows) == len(wanted) == dataset.cardinality()
    for row, other in zip(rows, wanted):
        assert row.keys() == other.keys()
        assert all(np.array_equal(row[key], other[key]) and row[key].dtype == other[key].dtype for key in row)


@pytest.fixture(scope="module")
def saved_rows(tmp_path_factory) -> str:
    """A checkpoint of an iterator over rows of `numbered_r1`."""
    iterator = iter(rows_of("numbered_r1", pack=False))
    next(iterator)
    return tf.train.Checkpoint(iterator=iterator).write(str(tmp_path_factory.mktemp("rows") / "saved"))


def restore(dataset: tf.data.Dataset, path: str):
    iterator = iter(dataset)
    tf.train.Checkpoint(iterator=iterator).read(path).assert_consumed()
    return next(iterator)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"shuffle": False}, "shuffle: false"),
        ({"dataset_split": "validation"}, "split: validation"),
        ({"shard_info": seqio.ShardInfo(0, 2)}, "shard: "),
        ({"pack": True}, "pack: true"),
    ],
)
def test_an_iterator_of_another_pipeline_is_refused_by_what_differs(saved_rows, change, named):
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"(?s){named}"):
        restore(rows_of("numbered_r1", **{"pack": False, **change}), saved_rows)


def test_what_was_changed_or_batched_is_read_by_number_no_more():
    rows = rows_of("numbered_other_mix", pack=False)
    assert reading_of(rows)
    assert not any(map(reading_of, [rows.map(lambda row: row), rows.batch(2), rows.with_options(tf.data.Options())]))


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_epochs": -1},
        {"num_epochs": 1.5},
        {"shard_info": seqio.ShardInfo(2, 2)},
        {"shard_info": seqio.ShardInfo(5, 9000)},
        {"seed": 3.7},
        {"seed": 1 << 63},
    ],
)
def test_a_host_an_epoch_or_a_seed_that_is_none_is_refused(arguments):
    named = "hosts" if arguments.get("shard_info") == seqio.ShardInfo(5, 9000) else next(iter(arguments))
    for use_cached in (True, False):
        with pytest.raises(ValueError, match=named):
            examples_of("numbered_mix", 1, use_cached=use_cached, **arguments)


def test_a_place_that_is_none_is_refused():
    for first in (-3, 1.5):
        with pytest.raises(ValueError, match="first"):
            reading_of(rows_of("numbered_other_mix", pack=False)).continued(first)


@pytest.mark.parametrize("num_epochs", [1, None])
def test_without_a_cache_an_epoch_and_a_run_are_those_of_the_index(num_epochs):
    name = register("numbered_uncached", MemoryDataSource(lambda: TEXTS, validation=0), BYTES, modes=MODES)
    found = examples_of(name, 400, use_cached=False, num_epochs=num_epochs)
    expected = ul2_tasks.examples(name, LENGTHS, seed=3)[:400]
    assert len(found) == (len(expected) if num_epochs else 400)
    assert all(map(equal, found, expected))
