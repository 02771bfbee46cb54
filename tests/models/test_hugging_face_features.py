"""The converter for Hugging Face's models: what is made by hand of the same examples, and what the models themselves compute."""

import numpy as np
import pytest
import seqio
import tensorflow as tf

from tests.support import saved_and_resumed
from tests.tokenizers.test_hugging_face_vocabulary import exclamation_first
from ul2_tasks import seqio_converter
from ul2_tasks.example_features import IGNORED
from ul2_tasks.models.transformers import HuggingFaceFeatureConverter

LENGTHS = {"inputs": 24, "targets": 20}
FORMAT = {"padding": "longest", "pad_to_multiple_of": 8, "decoder_start_token_id": 0, "decoder_only": False}
PAIRS = [([5, 6, 1], [7, 8, 9, 1]), ([5, 1], [7, 1]), ([4, 4, 4, 4, 1], [3])]


def by_hand(pairs, lengths, **changed):
    """The model inputs of a batch, one example after the other."""
    row_format = {**FORMAT, **changed}
    multiple, start = row_format["pad_to_multiple_of"], row_format["decoder_start_token_id"]

    def rows(lists, length, padding):
        longest = max(map(len, lists))
        width = length if row_format["padding"] == "max_length" else longest + (-longest) % multiple
        return np.array([[*row, *[padding] * (width - len(row))] for row in lists])

    inputs, targets = (list(map(list, side)) for side in zip(*pairs))
    if row_format["decoder_only"]:
        length = lengths["inputs"] + lengths["targets"]
        return {
            "input_ids": rows([i + t for i, t in zip(inputs, targets)], length, 0),
            "attention_mask": rows([[1] * len(i + t) for i, t in zip(inputs, targets)], length, 0),
            "labels": rows([[-100] * len(i) + t for i, t in zip(inputs, targets)], length, -100),
        }
    labels = rows(targets, lengths["targets"], -100)
    return {
        "input_ids": rows(inputs, lengths["inputs"], 0),
        "attention_mask": rows([[1] * len(i) for i in inputs], lengths["inputs"], 0),
        "decoder_input_ids": np.array([[start, *row] for row in rows(targets, lengths["targets"], 0)])[:, :-1],
        "decoder_attention_mask": (labels != -100).astype(int),
        "labels": labels,
    }


def pairs_of(batch):
    """The examples of a batch of an encoder-decoder model, stripped of what is not theirs."""
    rows = zip(batch["input_ids"], batch["attention_mask"], batch["labels"])
    return [(ids[mask == 1].tolist(), labels[labels != IGNORED].tolist()) for ids, mask, labels in rows]


def assert_same(got, wanted):
    assert list(got) == list(wanted)
    for key in wanted:
        np.testing.assert_array_equal(got[key], wanted[key], err_msg=key)


def examples(pairs) -> tf.data.Dataset:
    return tf.data.Dataset.from_generator(
        lambda: ({"inputs": np.array(inputs, np.int32), "targets": np.array(targets, np.int32)} for inputs, targets in pairs),
        output_signature={key: tf.TensorSpec([None], tf.int32) for key in ("inputs", "targets")},
    )


def converted(pairs, lengths=LENGTHS, batch_size=None, **settings):
    """Batches, whichever side makes them."""
    longest = settings.get("padding") == "longest"
    converter = HuggingFaceFeatureConverter(**settings, batch_size=batch_size if longest else None)
    dataset = seqio_converter(converter, seqio.ByteVocabulary())(examples(pairs), lengths)
    return list((dataset if longest else dataset.batch(batch_size)).as_numpy_iterator())


def batches(pairs, size):
    return [pairs[start : start + size] for start in range(0, len(pairs), size)]


def stream(count):
    """Examples of any lengths within the bounds, of any ids, 0 among them: a task that is not ours may have it."""
    random = np.random.RandomState(count)
    sizes = [(1, 20), (24, 1), *zip(random.randint(1, 25, count), random.randint(1, 21, count))][:count]
    return [(random.randint(0, 9999, i).tolist(), random.randint(0, 9999, t).tolist()) for i, t in sizes]


@pytest.mark.parametrize(
    ("padding", "decoder_only", "count", "size", "multiple", "start"),
    [
        ("longest", True, 2, 5, 32, 3),
        ("max_length", False, 6, 1, 1, 9999),
        *((padding, decoder_only, 60, 7, 8, 0) for padding in ("longest", "max_length") for decoder_only in (False, True)),
    ],
)
def test_batches_are_those_made_by_hand(padding, decoder_only, count, size, multiple, start):
    pairs = stream(count)
    row_format = {
        "padding": padding,
        "pad_to_multiple_of": multiple,
        "decoder_start_token_id": start,
        "decoder_only": decoder_only,
    }
    got = converted(pairs, batch_size=size, **row_format)
    wanted = [by_hand(batch, LENGTHS, **row_format) for batch in batches(pairs, size)]
    assert len(got) == len(wanted) == -(-len(pairs) // size), "the last, smaller batch is kept"
    for batch, expected in zip(got, wanted):
        assert all(rows.dtype == np.int32 for rows in batch.values())
        assert_same(batch, expected)
        if padding == "longest":
            assert all(rows.shape[1] % multiple == 0 for rows in batch.values())
    if not decoder_only:
        assert [pair for batch in got for pair in pairs_of(batch)] == pairs


@pytest.fixture(scope="module")
def own_zero(tmp_path_factory):
    """A byte-level BPE whose 0 is "!", and the folder with it."""
    folder = tmp_path_factory.mktemp("own_zero")
    tokenizer = exclamation_first()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    tokenizer.add_special_tokens([*(f"<extra_id_{n}>" for n in range(256)), "[R]", "[S]", "[X]"])
    return tokenizer, str(folder)


@pytest.mark.parametrize(
    ("padding", "decoder_only", "key", "size"),
    [
        ("longest", False, "inputs", 0),
        ("longest", False, "targets", 25),
        ("max_length", True, "inputs", 25),
        ("max_length", True, "targets", 0),
    ],
)
def test_an_example_that_is_empty_or_too_long_is_an_error_with_its_number(padding, decoder_only, key, size):
    bad = {"inputs": [1], "targets": [1], key: [1] * size}
    pairs = [*PAIRS, ([1], [1]), (bad["inputs"], bad["targets"]), ([1], [1])]
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"example 4 of the dataset, counted from 0: its {key} must have"):
        converted(pairs, batch_size=3, padding=padding, decoder_only=decoder_only)


@pytest.mark.parametrize("padding", ["longest", "max_length"])
def test_it_resumes_where_it_was_and_counts_on(tmp_path, padding):
    rows = tf.data.Dataset.range(300, output_type=tf.int32).map(lambda id: {key: tf.fill([id % 20 + 1], id) for key in LENGTHS})
    dataset = rows.concatenate(rows.take(1).map(lambda _: {key: tf.ones([21], tf.int32) for key in LENGTHS}))

    def converted_anew():
        converter = HuggingFaceFeatureConverter(padding, 4 if padding == "longest" else None)
        return seqio_converter(converter, seqio.ByteVocabulary())(dataset, LENGTHS)

    first, resumed = saved_and_resumed(converted_anew, 40, tmp_path)
    for _ in range(30):
        assert_same(next(resumed), next(first))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"as task_feature_lengths says, got 21"):
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


def log_probabilities(logits, labels):
    return logits.log_softmax(-1).gather(-1, labels[..., None])[..., 0]


def t5(vocabulary_size):
    transformers = pytest.importorskip("transformers", reason="its T5")
    config = transformers.T5Config(
        vocab_size=vocabulary_size,
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
        pad_token_id=0,
    )
    transformers.set_seed(0)
    return transformers.T5ForConditionalGeneration(config).eval()


def llama(vocabulary_size):
    transformers = pytest.importorskip("transformers", reason="its Llama")
    config = transformers.LlamaConfig(
        vocab_size=vocabulary_size, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, pad_token_id=0
    )
    transformers.set_seed(0)
    return transformers.LlamaForCausalLM(config).eval()


def loss_alone(model, pairs, decoder_only):
    """The mean over all targets of -log p, each example computed by itself, without padding, masks or labels."""
    import torch

    parts = []
    with torch.no_grad():
        for inputs, targets in pairs:
            inputs, targets = torch.tensor([inputs]), torch.tensor([targets])
            if decoder_only:
                logits = model(input_ids=torch.cat([inputs, targets], 1)).logits[:, inputs.shape[1] - 1 : -1]
            else:
                start = torch.zeros([1, 1], dtype=torch.int64)
                logits = model(input_ids=inputs, decoder_input_ids=torch.cat([start, targets[:, :-1]], 1)).logits
            parts.append(log_probabilities(logits, targets)[0])
    return -torch.cat(parts).mean().item()


def loss_of(model, batch):
    import torch

    with torch.no_grad():
        return model(**{key: torch.tensor(np.array(rows)).long() for key, rows in batch.items()}).loss.item()


@pytest.mark.torch
@pytest.mark.parametrize(("padding", "decoder_only"), [("longest", False), ("max_length", True)])
def test_a_model_has_the_loss_of_each_example_alone(padding, decoder_only):
    model = (llama if decoder_only else t5)(64)
    random = np.random.RandomState(0)
    pairs = [tuple(random.randint(1, 64, random.randint(2, 20)).tolist() for _ in range(2)) for _ in range(5)]
    (batch,) = converted(pairs, batch_size=5, padding=padding, decoder_only=decoder_only)
    assert loss_of(model, batch) == pytest.approx(loss_alone(model, pairs, decoder_only), rel=1e-4)
    others = [(inputs, targets[::-1]) for inputs, targets in pairs]
    assert loss_of(model, batch) != pytest.approx(loss_alone(model, others, decoder_only), rel=1e-4)


@pytest.mark.parametrize("decoder_only", [False, True])
def test_an_id_that_the_model_has_no_row_for_is_an_error_with_the_examples_number(decoder_only):
    """Before it is an index error of the model. Where all ids have a row, nothing changes."""
    settings = {"padding": "longest", "batch_size": 2, "decoder_only": decoder_only}
    for got, wanted in zip(converted(PAIRS, embedding_rows=10, **settings), converted(PAIRS, **settings), strict=True):
        assert_same(got, wanted)
    told = r"the id 9, but embedding_rows is 9"
    with pytest.raises(tf.errors.InvalidArgumentError, match=told):
        converted([*PAIRS[1:], PAIRS[0]], embedding_rows=9, **settings)
