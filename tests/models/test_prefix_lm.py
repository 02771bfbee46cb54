"""Rows for decoder-only models of t5x: those of SeqIO's converter, but packed rows have an index."""

import numpy as np
import pytest
import seqio
import tensorflow as tf

import ul2_tasks
from ul2_tasks import PrefixLMFeatureConverter
from ul2_tasks.tasks.tf_data import reading_of

LENGTHS = {"inputs": 96, "targets": 96}
REGISTERED = {
    "a stream": {},
    "joined": {"chunk_tokens": 50},
    "random lengths": {"chunk_tokens": 50, "denoisers": ul2_tasks.UL2},
    "apart": {"merge_examples": False},
}


@pytest.fixture(scope="module")
def mixtures() -> dict[str, str]:
    return {key: ul2_tasks.register(f"plm_{key.replace(' ', '_')}", **given) for key, given in REGISTERED.items()}


def dataset(name, converter, lengths=LENGTHS, **settings):
    settings = {"dataset_split": "train", "shuffle": True, "seed": 3, "num_epochs": 1, **settings}
    return seqio.get_dataset(name, lengths, converter, **settings)


def assert_same(found, expected):
    rows = [*zip(found.as_numpy_iterator(), expected.as_numpy_iterator(), strict=True)]
    assert len(rows) > 8
    for row, same in rows:
        assert row.keys() == same.keys()
        for key, values in same.items():
            np.testing.assert_array_equal(row[key], values, err_msg=key)
            assert row[key].dtype == values.dtype


@pytest.mark.parametrize("key", REGISTERED)
def test_unpacked_rows_are_those_of_seqio(mixtures, key):
    converters = (cls(pack=False) for cls in (PrefixLMFeatureConverter, seqio.PrefixLMFeatureConverter))
    assert_same(*(dataset(mixtures[key], converter).take(30) for converter in converters))


@pytest.mark.parametrize("key", [key for key in REGISTERED if key != "a stream"])
def test_each_segment_of_a_packed_row_is_its_example_alone(mixtures, key):
    """The examples are those of random access, and the rest of a row is padding."""
    found = [*dataset(mixtures[key], PrefixLMFeatureConverter(pack=True), num_epochs=None).take(20).as_numpy_iterator()]
    packed = ul2_tasks.examples(mixtures[key], LENGTHS, seed=3, pack=True)
    counts = [int(packed[number]["inputs_segment_ids"].max()) for number in range(len(found))]

    def examples():
        for number, count in enumerate(counts):
            of_row = packed[number]
            for segment in range(1, count + 1):
                yield {name: of_row[name][of_row[f"{name}_segment_ids"] == segment] for name in LENGTHS}

    spec = dict.fromkeys(LENGTHS, tf.TensorSpec([None], tf.int32))
    stream = tf.data.Dataset.from_generator(examples, output_signature=spec)
    alone = seqio.PrefixLMFeatureConverter(pack=False)(stream, LENGTHS).as_numpy_iterator()
    for row, count in zip(found, counts):
        end = 0
        for segment in range(1, count + 1):
            same = next(alone)
            start, end = end, end + int((same["decoder_target_tokens"] != 0).sum())
            for name, values in same.items():
                np.testing.assert_array_equal(row[name][start:end], values[: end - start], err_msg=name)
            assert (row["decoder_segment_ids"][start:end] == segment).all()
            np.testing.assert_array_equal(row["decoder_positions"][start:end], np.arange(end - start))
        assert all((values[end:] == 0).all() and values.shape == (192,) for values in row.values())
    assert sum(counts) > len(found)


def test_rows_continue_at_any_row_and_are_shared_out_among_hosts(mixtures):
    def rows(**settings):
        return dataset(mixtures["apart"], PrefixLMFeatureConverter(pack=True), num_epochs=None, **settings)

    whole = [row["decoder_target_tokens"] for row in rows().take(24).as_numpy_iterator()]
    later = [row["decoder_target_tokens"] for row in reading_of(rows()).continued(17).take(7).as_numpy_iterator()]
    np.testing.assert_array_equal(later, whole[17:])
    second = rows(shard_info=seqio.ShardInfo(1, 3)).take(8).as_numpy_iterator()
    np.testing.assert_array_equal([row["decoder_target_tokens"] for row in second], whole[1::3])


def test_targets_that_are_masked_have_no_loss():
    lengths = {"inputs": 512, "targets": 512}
    told = ul2_tasks.register_chat("plm_told", format="prompt_completion")
    examples = ul2_tasks.examples(told, lengths, seed=3)
    rows = dataset(told, PrefixLMFeatureConverter(pack=False), lengths, num_epochs=None).take(20).as_numpy_iterator()
    for number, row in enumerate(rows):
        example = examples[number]
        start = len(example["inputs"])
        np.testing.assert_array_equal(
            row["decoder_loss_weights"][start : start + len(example["targets"])], example["loss_mask"].astype(np.int32)
        )
        assert row["decoder_loss_weights"].sum() == example["loss_mask"].sum() > 0


def test_an_example_that_is_too_long_is_an_error():
    too_long = tf.data.Dataset.from_tensors({"inputs": tf.constant([5, 6, 1]), "targets": tf.constant([7, 1])})
    with pytest.raises(tf.errors.InvalidArgumentError):
        [*PrefixLMFeatureConverter(pack=False)(too_long, {"inputs": 2, "targets": 3})]
