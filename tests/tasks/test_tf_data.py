"""Datasets made from numbers: the same examples as the sequence, on any hosts, resumed anywhere, as rows and as whole batches."""

import itertools

import numpy as np
import pytest
import seqio
import tensorflow as tf
from rich.console import Console

import ul2_tasks
from tests.support import byte_vocabulary, corpus_named, saved_and_resumed
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


def as_text(row) -> str:
    return str({key: value.tolist() for key, value in sorted(row.items())})


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


@pytest.mark.parametrize("name", ["numbered_mix", "numbered_both_mix"])
def test_packed_rows_hold_each_example_once_and_have_numbers(name):
    rows, sequence = flat(rows_of(name, pack=True, num_epochs=1)), ul2_tasks.examples(name, LENGTHS, seed=3, pack=True)
    assert len(rows) == len(sequence) == rows_of(name, pack=True, num_epochs=1).cardinality()
    found, locations = [], []
    for number, (row, same) in enumerate(zip(rows, sequence)):
        assert np.array_equal(row["encoder_input_tokens"], same["inputs"])
        assert np.array_equal(row["decoder_target_tokens"], same["targets"])
        assert np.array_equal(row["decoder_segment_ids"], same["targets_segment_ids"])
        assert np.array_equal(row["encoder_positions"], same["inputs_positions"])
        where = sequence.locate(number)
        assert row["encoder_segment_ids"].max() == row["decoder_segment_ids"].max() == len(where)
        locations += where
        for segment in range(1, len(where) + 1):
            of = same["inputs"][same["inputs_segment_ids"] == segment], same["targets"][same["targets_segment_ids"] == segment]
            found.append(tuple(map(tuple, of)))
    alone = ul2_tasks.examples(name, LENGTHS, seed=3)
    if name != "numbered_both_mix":  # an epoch of rows of several corpora ends elsewhere than one of examples
        assert sorted(found) == sorted((tuple(example["inputs"]), tuple(example["targets"])) for example in alone)
    assert len({(location.corpus, location.epoch, location.chunk_index) for location in locations}) == len(locations)


@pytest.mark.parametrize("pack", [None, True])
def test_a_dataset_goes_on_at_any_element(pack):
    name, settings = "numbered_both_mix", {"num_epochs": 1, "shard_info": seqio.ShardInfo(1, 2)}
    if pack is None:
        dataset = seqio.get_mixture_or_task(name).get_dataset(LENGTHS, "train", use_cached=True, seed=3, **settings)
    else:
        dataset = rows_of(name, pack, **settings)
    whole = list(map(as_text, flat(dataset)))
    for first in (0, len(whole) - 1, len(whole) + 300):
        assert list(map(as_text, flat(reading_of(dataset).continued(first)))) == whole[first:]


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


def test_fewer_examples_than_hosts_are_refused():
    with pytest.raises(ValueError, match="'validation' for each of 900 hosts"):
        examples_of("numbered_mix", split="validation", shard_info=seqio.ShardInfo(5, 900))


def test_a_stock_mixture_of_cached_tasks_resumes_where_it_was(tmp_path):
    """It mixes by draws of its own, which are not by number, and the tasks in it are."""
    if "numbered_stock" not in seqio.MixtureRegistry.names():
        seqio.MixtureRegistry.add("numbered_stock", [("numbered_r1", 1), ("numbered_s", 2)])

    def build():
        return seqio.get_mixture_or_task("numbered_stock").get_dataset(LENGTHS, "train", use_cached=True, seed=3)

    iterator, resumed = saved_and_resumed(build, 30, tmp_path)
    for one, other in itertools.islice(zip(iterator, resumed), 60):
        assert all(np.array_equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize(
    "arguments",
    [{"num_epochs": -1}, {"num_epochs": 1.5}, {"shard_info": seqio.ShardInfo(2, 2)}, {"seed": 3.7}, {"seed": 1 << 63}],
)
def test_a_host_an_epoch_or_a_seed_that_is_none_is_refused(arguments):
    for use_cached in (True, False):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            examples_of("numbered_mix", 1, use_cached=use_cached, **arguments)


def test_a_place_that_is_none_is_refused():
    rows = rows_of("numbered_other_mix", pack=False)
    for first in (-3, 1.5):
        with pytest.raises(ValueError, match=rf"first must be an integer of at least 0, got {first}"):
            reading_of(rows).continued(first)


def uncached(**arguments):
    name = register("numbered_uncached", MemoryDataSource(lambda: TEXTS, validation=0), BYTES, modes=MODES)
    dataset = seqio.get_mixture_or_task(name).get_dataset(LENGTHS, shuffle=True, seed=5, **arguments)
    return [example["targets"].tolist() for example in dataset.take(400).as_numpy_iterator()], name


def test_an_epoch_without_a_cache_is_that_of_the_index_in_which_denoisers_share_the_corpus():
    targets, name = uncached(num_epochs=1)
    expected = ul2_tasks.examples(name, LENGTHS, seed=5)
    assert targets == [example["targets"].tolist() for example in expected][:400]
    assert len(expected) > 20


def test_a_run_without_a_cache_is_that_of_the_index():
    targets, name = uncached(num_epochs=None)
    epoch = [example["targets"].tolist() for example in ul2_tasks.examples(name, LENGTHS, seed=5)]
    assert targets[: len(epoch)] == epoch
