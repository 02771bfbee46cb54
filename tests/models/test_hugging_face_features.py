"""Batches to the longest for the models of Transformers, and what these compute of them. `test_table.py` has what is in a row."""

import numpy as np
import pytest
import seqio
import tensorflow as tf

from tests.support import saved_and_resumed
from ul2_tasks import seqio_converter
from ul2_tasks.example_features import IGNORED
from ul2_tasks.models.transformers import HuggingFaceFeatureConverter

LENGTHS = {"inputs": 24, "targets": 24}
PAIRS = [([5, 6, 1], [7, 8, 9, 1]), ([5, 1], [7, 1]), ([4, 4, 4, 4, 1], [3])]


def pairs_of(batch):
    """The examples of a batch of an encoder-decoder model, stripped of what is not theirs."""
    rows = zip(batch["input_ids"], batch["attention_mask"], batch["labels"])
    return [(ids[mask == 1].tolist(), labels[labels != IGNORED].tolist()) for ids, mask, labels in rows]


def assert_same(got, wanted):
    assert list(got) == list(wanted)
    for key in wanted:
        np.testing.assert_array_equal(got[key], wanted[key], err_msg=key)


def converted(pairs, lengths=LENGTHS, batch_size=None, **settings):
    """Batches, whichever side makes them."""
    longest = settings.get("padding") == "longest"
    converter = HuggingFaceFeatureConverter(**settings, batch_size=batch_size if longest else None)
    examples = tf.data.Dataset.from_generator(
        lambda: ({"inputs": np.array(inputs, np.int32), "targets": np.array(targets, np.int32)} for inputs, targets in pairs),
        output_signature={key: tf.TensorSpec([None], tf.int32) for key in ("inputs", "targets")},
    )
    dataset = seqio_converter(converter, seqio.ByteVocabulary())(examples, lengths)
    return list((dataset if longest else dataset.batch(batch_size)).as_numpy_iterator())


def stream(count, ids=9999):
    """Examples of any lengths within the bounds, of any ids, 0 among them: a task that is not ours may have it."""
    random = np.random.RandomState(count)
    sizes = [(1, 24), (24, 1), *zip(*random.randint(1, 25, (2, count)))][:count]
    return [(random.randint(0, ids, i).tolist(), random.randint(0, ids, t).tolist()) for i, t in sizes]


@pytest.mark.parametrize(
    ("decoder_only", "count", "size", "multiple"), [(True, 2, 5, 32), (False, 60, 7, 8), (True, 60, 7, 8), (False, 6, 1, 1)]
)
def test_batches_to_the_longest_are_the_rows_cut_where_all_are_padding(decoder_only, count, size, multiple):
    settings = {"decoder_only": decoder_only, "decoder_start_token_id": 3}
    (rows,) = converted(stream(count), batch_size=count, **settings)
    got = converted(stream(count), batch_size=size, padding="longest", pad_to_multiple_of=multiple, **settings)
    assert len(got) == -(-count // size), "the last, smaller batch is kept"
    for number, batch in enumerate(got):
        own = {key: values[number * size : (number + 1) * size] for key, values in rows.items()}
        assert all(values.dtype == np.int32 for values in batch.values())
        for key in own:
            of_targets = not decoder_only and (key == "labels" or key.startswith("decoder"))
            longest = (own["labels"] != IGNORED if of_targets else own["attention_mask"] == 1).sum(1).max()
            own[key] = own[key][:, : longest + -longest % multiple]
        assert_same(batch, own)
    if not decoder_only:
        assert [pair for batch in got for pair in pairs_of(batch)] == stream(count)


def test_it_resumes_where_it_was_and_counts_on(tmp_path):
    rows = tf.data.Dataset.range(300, output_type=tf.int32).map(lambda id: {key: tf.fill([id % 20 + 1], id) for key in LENGTHS})
    dataset = rows.concatenate(rows.take(1).map(lambda _: {key: tf.ones([25], tf.int32) for key in LENGTHS}))

    def converted_anew():
        return seqio_converter(HuggingFaceFeatureConverter("longest", 4), seqio.ByteVocabulary())(dataset, LENGTHS)

    first, resumed = saved_and_resumed(converted_anew, 40, tmp_path)
    for _ in range(30):
        assert_same(next(resumed), next(first))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"example 300 .* its inputs must have .*, got 25"):
        list(resumed)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"padding": "shortest"}, "padding"),
        ({"padding": "longest", "batch_size": 0}, "batch_size"),
        ({"batch_size": 8}, "batch_size"),
        ({"pad_to_multiple_of": 0}, "pad_to_multiple_of"),
        ({"pad_token_id": -1}, "pad_token_id"),
        ({"decoder_start_token_id": -1}, "decoder_start_token_id"),
        ({"decoder_only": 1}, "decoder_only"),
        ({"embedding_rows": 9, "decoder_start_token_id": 9}, "decoder_start_token_id"),
        ({"padding": "longest", "batch_size": 4, "pack": True}, "padding"),
        ({"pack": 1}, "pack"),
    ],
)
def test_arguments_out_of_range_are_named(arguments, named):
    with pytest.raises(ValueError, match=f"^{named}"):
        HuggingFaceFeatureConverter(**arguments)


def loss_alone(model, pairs, decoder_only):
    """The mean over all targets of -log p, each example computed by itself, without padding, masks or labels."""
    import torch

    parts = []
    for inputs, targets in pairs:
        inputs, targets = torch.tensor([inputs]), torch.tensor([targets])
        if decoder_only:
            logits = model(input_ids=torch.cat([inputs, targets], 1)).logits[:, inputs.shape[1] - 1 : -1]
        else:
            start = torch.zeros([1, 1], dtype=torch.int64)
            logits = model(input_ids=inputs, decoder_input_ids=torch.cat([start, targets[:, :-1]], 1)).logits
        parts.append(logits.log_softmax(-1).gather(-1, targets[..., None]).flatten())
    return -torch.cat(parts).mean().item()


@pytest.mark.torch
@pytest.mark.parametrize(("padding", "decoder_only"), [("longest", False), ("max_length", True)])
def test_a_model_has_the_loss_of_each_example_alone(padding, decoder_only):
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    from tests import tiny_models

    model = (tiny_models.decoder("llama", 64) if decoder_only else tiny_models.t5(64, decoder_start_token_id=0)).eval()
    pairs = stream(5, ids=64)
    (batch,) = converted(pairs, batch_size=5, padding=padding, decoder_only=decoder_only)
    found = model(**{key: torch.tensor(rows).long() for key, rows in batch.items()}).loss.item()
    assert found == pytest.approx(loss_alone(model, pairs, decoder_only), rel=1e-4)
    others = [(inputs, targets[::-1]) for inputs, targets in pairs]
    assert found != pytest.approx(loss_alone(model, others, decoder_only), rel=1e-4)


@pytest.mark.parametrize("decoder_only", [False, True])
def test_an_id_that_the_model_has_no_row_for_is_an_error_with_the_examples_number(decoder_only):
    """Before it is an index error of the model. Where all ids have a row, nothing changes."""
    settings = {"padding": "longest", "batch_size": 2, "decoder_only": decoder_only}
    for got, wanted in zip(converted(PAIRS, embedding_rows=10, **settings), converted(PAIRS, **settings), strict=True):
        assert_same(got, wanted)
    with pytest.raises(tf.errors.InvalidArgumentError, match="the id 9, but embedding_rows is 9"):
        converted([*PAIRS[1:], PAIRS[0]], embedding_rows=9, **settings)
