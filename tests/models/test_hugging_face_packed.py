"""Packed rows for Hugging Face's models: each example in a row is what it is alone."""

import itertools

import numpy as np
import pytest
import seqio
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import ul2_tasks
from tests.tokenizers.test_hugging_face_vocabulary import exclamation_first
from ul2_tasks import HuggingFaceFeatureConverter, Mixture, open_vocabulary, register, seqio_converter
from ul2_tasks.models.transformers import RowFormat
from ul2_tasks.sources.memory import texts_in_memory
from ul2_tasks.store.write import PairWriter

LENGTHS = {"inputs": 24, "targets": 20}
CHUNKS = {"r1": 8, "r2": 8, "x1": 8, "x2": 8, "s": 8}
FORMAT = {"padding": "max_length", "pad_to_multiple_of": 8, "pad_token_id": 7, "decoder_start_token_id": 3}
SIDES = {"packed_input_ids": "segment_ids", "decoder_input_ids": "decoder_segment_ids", "labels": "decoder_segment_ids"}

example = st.tuples(st.lists(st.integers(0, 99), min_size=1, max_size=6), st.lists(st.integers(0, 99), min_size=1, max_size=5))
rows_of_examples = st.lists(st.lists(example, min_size=1, max_size=4), min_size=1, max_size=3)


def packed(rows):
    """What `make_batch` gives, example after example."""
    made = {}
    for side, key in enumerate(("inputs", "targets")):
        for name in (key, f"{key}_segment_ids", f"{key}_positions"):
            made[name] = np.zeros([len(rows), LENGTHS[key]], np.int32)
        for row, examples in enumerate(rows):
            ids = [token for each in examples for token in each[side]]
            of_each = [len(each[side]) for each in examples]
            made[key][row, : len(ids)] = ids
            made[f"{key}_segment_ids"][row, : len(ids)] = np.repeat(np.arange(len(examples)) + 1, of_each)
            made[f"{key}_positions"][row, : len(ids)] = [place for size in of_each for place in range(size)]
    trained = made["targets"] % 3 > 0
    return made | {"loss_mask": trained.astype(np.uint8), "span_id": (made["targets"] % 3).astype(np.uint8)}


def alone(pair, row_format):
    """The model inputs of one example, without padding."""
    sizes = {key: np.array([len(each)]) for key, each in zip(("inputs", "targets"), pair)}
    rows = {key: np.array([each]) for key, each in zip(("inputs", "targets"), pair)}
    of_targets = rows["targets"] % 3
    marks = {"loss_mask": (of_targets > 0).astype(np.uint8), "span_id": of_targets.astype(np.uint8)}
    return row_format.arrays(rows | marks, sizes)


@settings(deadline=None)
@given(rows_of_examples, st.booleans())
def test_each_example_of_a_row_is_what_it_is_alone(rows, decoder_only):
    made = RowFormat(**FORMAT, decoder_only=decoder_only, span_id=True, pack=True).arrays(packed(rows))
    unpacked = RowFormat(**{**FORMAT, "padding": "longest", "pad_to_multiple_of": 1}, decoder_only=decoder_only, span_id=True)
    for row, examples in enumerate(rows):
        for number, pair in enumerate(examples):
            expected = alone(pair, unpacked)
            expected["packed_input_ids"] = expected.pop("input_ids")
            for name in expected.keys() & made.keys():
                of = "decoder_segment_ids" if not decoder_only and name != "packed_input_ids" else "segment_ids"
                got = made[name][row][made[of][row] == number + 1]
                assert got.tolist() == expected[name][0].tolist(), name
            for ids in made.keys() & {"segment_ids", "decoder_segment_ids"}:
                positions = made[ids.replace("segment", "position")][row][made[ids][row] == number + 1]
                assert positions.tolist() == list(range(len(positions)))
            if decoder_only:
                assert set(made["prefix_length"][row][made["segment_ids"][row] == number + 1]) == {len(pair[0])}
        is_padding = {name: made[ids][row] == 0 for name, ids in SIDES.items() if name in made and ids in made}
        for name, padding in is_padding.items():
            assert set(made[name][row][padding]) <= {-100 if name == "labels" else FORMAT["pad_token_id"]}
    assert (made["labels"] >= 0).sum() == sum(token % 3 > 0 for row in rows for pair in row for token in pair[1])


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    """A name whose rows are packed as a stream, and whose vocabulary's ids are offset."""
    folder = tmp_path_factory.mktemp("own_zero")
    exclamation_first().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    texts = texts_in_memory([f"the letters of text {number} are a few" for number in range(60)])
    return register("packed_stream", texts, open_vocabulary(str(folder)), merge_examples=False)


@pytest.mark.parametrize("decoder_only", [False, True])
def test_a_stream_packs_the_examples_that_it_pads(stream, decoder_only):
    def rows(**settings):
        converter = HuggingFaceFeatureConverter(decoder_only=decoder_only, decoder_start_token_id=7, **settings)
        dataset = seqio.get_dataset(
            stream,
            {"inputs": 64, "targets": 48},
            seqio_converter(converter),
            dataset_split="train",
            shuffle=False,
            num_epochs=1,
            seed=0,
        )
        return list(dataset.as_numpy_iterator())

    def of_each(row, ids):
        numbers = range(1, int(row[ids].max()) + 1)
        return [row["packed_input_ids"][row[ids] == number].tolist() for number in numbers]

    padded = sorted(row["input_ids"][row["attention_mask"] == 1].tolist() for row in rows())
    found = rows(pack=True)
    assert len(found) < len(padded)
    assert {name: values.dtype for name, values in found[0].items()} == dict.fromkeys(found[0], np.dtype(np.int32))
    assert sorted(example for row in found for example in of_each(row, "segment_ids")) == padded


@pytest.mark.torch
def test_a_name_with_random_access_gives_seqio_and_pytorch_the_rows_of_examples(tmp_path):
    torch_dataset = pytest.importorskip("ul2_tasks.pytorch.dataset")
    with PairWriter(str(tmp_path / "pair.bin"), str(tmp_path / "pair.idx"), np.dtype(np.uint16)) as pair:
        pair.add(np.arange(300, 3500, dtype=np.int32), np.array([1500, 1700]))
    source = f"megatron:{tmp_path}/pair"
    register("packed_numbers", source, chunk_tokens=CHUNKS)
    mixture = Mixture("packed_numbers", source, chunk_tokens=CHUNKS)
    converter = HuggingFaceFeatureConverter(pack=True, decoder_start_token_id=5)
    examples = ul2_tasks.examples(mixture, LENGTHS, pack=True)
    expected = [
        converter.row_format.arrays({key: values[None] for key, values in row.items()}) for row in itertools.islice(examples, 5)
    ]
    described = torch_dataset.UL2IterableDataset(mixture, LENGTHS, feature_converter=converter)
    same = torch_dataset.UL2IterableDataset(examples, feature_converter=converter)
    by_name = torch_dataset.UL2IterableDataset("packed_numbers_mix", LENGTHS, feature_converter=converter)
    of_seqio = seqio.get_dataset("packed_numbers_mix", LENGTHS, seqio_converter(converter), shuffle=True, num_epochs=None, seed=0)
    for rows in (described, same, by_name, of_seqio.as_numpy_iterator()):
        for row, of_examples in zip(itertools.islice(rows, 5), expected, strict=True):
            assert row.keys() == of_examples.keys() == set(converter.row_format.row_lengths(LENGTHS))
            for name, values in row.items():
                assert np.asarray(values).tolist() == of_examples[name][0].tolist()


@pytest.mark.torch
def test_a_state_of_padded_examples_is_not_taken_for_one_of_packed_rows():
    torch_dataset = pytest.importorskip("ul2_tasks.pytorch.dataset")
    mixture = Mixture("packed_numbers", chunk_tokens=CHUNKS)
    padded, packs = (
        torch_dataset.UL2IterableDataset(mixture, LENGTHS, feature_converter=HuggingFaceFeatureConverter(pack=pack))
        for pack in (False, True)
    )
    rows = iter(packs)
    next(rows)
    state = packs.state_dict()
    expected = next(rows)
    packs.load_state_dict(state)
    assert {name: values.tolist() for name, values in next(iter(packs)).items()} == {
        name: values.tolist() for name, values in expected.items()
    }
    padded.load_state_dict(state)
    with pytest.raises(ValueError, match="feature_converter"):
        iter(padded)


def test_an_id_that_the_model_has_no_row_for_is_an_error():
    few = RowFormat(**FORMAT, decoder_only=False, pack=True, embedding_rows=90)
    with pytest.raises(ValueError, match="embedding_rows"):
        few.arrays(packed([[([5, 6], [7]), ([9, 90], [1])]]))


def test_examples_of_a_stream_that_are_empty_or_too_long_are_errors():
    def convert(inputs, targets):
        spec = {key: tf.TensorSpec([None], tf.int32) for key in LENGTHS}
        one = {"inputs": np.array(inputs, np.int32), "targets": np.array(targets, np.int32)}
        dataset = tf.data.Dataset.from_generator(lambda: [one], output_signature=spec)
        converter = seqio_converter(HuggingFaceFeatureConverter(pack=True), seqio.ByteVocabulary())
        return list(converter(dataset, LENGTHS).as_numpy_iterator())

    assert convert([5, 1], [6, 1])[0]["labels"].tolist() == [6, 1] + [-100] * 18
    with pytest.raises(tf.errors.InvalidArgumentError, match="its targets must have a token, got none"):
        convert([5, 1], [])
    with pytest.raises(tf.errors.InvalidArgumentError, match="its inputs must have at most 24 tokens"):
        convert([5] * 25, [6])
