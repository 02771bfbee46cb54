"""Each array of the table, written out by hand: of t5x and of Transformers, padded and packed, with masks and without."""

import numpy as np
import pytest
import seqio
import tensorflow as tf

import ul2_tasks
from tests.tokenizers.test_hugging_face_vocabulary import exclamation_first
from ul2_tasks import seqio_converter
from ul2_tasks.example_features import CHAT, IGNORED, PROMPT_COMPLETION
from ul2_tasks.tasks.datasets import with_id_shift

LENGTHS = {"inputs": 24, "targets": 20, "tokens": 32}
PAD, START = 7, 3


def examples(keys, masked, count=60):
    """Of any lengths, and of ids that are not 0, which SeqIO's own converters take for padding."""
    random = np.random.RandomState(count)
    for _ in range(count):
        example = {key: random.randint(1, 99, random.randint(1, LENGTHS[key] // 2)) for key in keys}
        spans = random.randint(0, 5, len(example[keys[-1]]))
        yield example | ({"loss_mask": (spans > 0).astype(int), "span_id": spans} if masked else {})


def dataset(found):
    dtypes = {key: feature.dtype for key, feature in {**CHAT, **PROMPT_COMPLETION}.items() if key in found[0]}
    signature = {key: tf.TensorSpec([None], dtype) for key, dtype in dtypes.items()}
    arrays = [{key: example[key].astype(dtype) for key, dtype in dtypes.items()} for example in found]
    return tf.data.Dataset.from_generator(lambda: arrays, output_signature=signature)


def batches(found, size):
    return [found[start : start + size] for start in range(0, len(found), size)]


def in_rows(found, keys, pack):
    """SeqIO's packing: an example is put after the one before, or into a new row, in each pool of as many as the longest row."""
    rows = []
    for pool in batches(found, max(LENGTHS[key] for key in keys)) if pack else ():
        rows.append([])
        for example in pool:
            if any(sum(len(each[key]) for each in [*rows[-1], example]) > LENGTHS[key] for key in keys):
                rows.append([])
            rows[-1].append(example)
    return rows if pack else [[example] for example in found]


def by_hand(of, keys, pack, joined):
    """What is in a row of these examples, by the names of t5x and of Transformers."""

    def line(parts, key, padding=0):
        width = LENGTHS["inputs"] + LENGTHS["targets"] if joined else LENGTHS[key]
        values = [int(value) for part in parts for value in part]
        rest = width - len(values)
        return values + (list(range(rest)) if padding == "on" else [padding] * rest)

    *_, said = keys
    read = [list(example[keys[0]]) for example in of]
    told = [[*example["inputs"], *example["targets"]] if joined else list(example[said]) for example in of]
    before = [len(example["inputs"]) if joined else 0 for example in of]
    spans = [[0] * n + list(example.get("span_id", [4] * len(example[said]))) for n, example in zip(before, of)]
    weights = [[0] * n + list(example.get("loss_mask", [1] * len(example[said]))) for n, example in zip(before, of)]
    labelled = weights if said == "targets" else [[0, *each[1:]] for each in weights]
    first = told if joined else read
    side, shown = (said, keys[0]) if not joined else (said, said)

    def numbered(parts):
        return [[number] * len(part) for number, part in enumerate(parts, 1)]

    def shifted(start, padding):
        if pack:
            return line([[start, *each[:-1]] for each in told], side, padding)
        return [start, *line(told, side, padding)[:-1]]

    found = {
        "encoder_input_tokens": line(read, shown),
        "decoder_target_tokens": line(told, side),
        "decoder_input_tokens": shifted(0, 0),
        "decoder_loss_weights": line(weights, side),
        "decoder_span_ids": line(spans, side),
        "decoder_causal_attention": line([[int(at <= n) for at in range(len(each))] for n, each in zip(before, told)], side),
        "encoder_segment_ids": line(numbered(read), shown),
        "encoder_positions": line(map(range, map(len, read)), shown),
        "decoder_segment_ids": line(numbered(told), side),
        "decoder_positions": line(map(range, map(len, told)), side),
        "attention_mask": line([[1] * len(each) for each in first], shown),
        "decoder_attention_mask": line([[1] * len(each) for each in told], side),
        "position_ids": line(map(range, map(len, first)), shown, "on") if pack else list(range(LENGTHS[side])),
        "decoder_position_ids": line(map(range, map(len, told)), side, "on"),
        "segment_ids": line(numbered(first), shown),
        "prefix_length": line([[n] * len(each) for n, each in zip(before, told)], side),
        "decoder_input_ids": shifted(START, PAD),
        "labels": line([[id if w else IGNORED for id, w in zip(*each)] for each in zip(told, labelled)], side, IGNORED),
        "span_id": line([[s if w else 0 for s, w in zip(*each)] for each in zip(spans, labelled)], side),
    }
    return found | dict.fromkeys(("input_ids", "packed_input_ids"), line(first, shown, PAD))


def transformers(**given):
    return lambda pack: seqio_converter(
        ul2_tasks.HuggingFaceFeatureConverter(pack=pack, pad_token_id=PAD, decoder_start_token_id=START, **given),
        seqio.ByteVocabulary(),
    )


PAIR, TOKENS = ("inputs", "targets"), ("tokens",)
MODELS = {
    "t5x": (ul2_tasks.EncDecFeatureConverter, PAIR, False),
    "t5x, spans": (ul2_tasks.PromptCompletionFeatureConverter, PAIR, False),
    "t5x, prefix": (ul2_tasks.PrefixLMFeatureConverter, PAIR, True),
    "t5x, chat": (ul2_tasks.ChatFeatureConverter, TOKENS, False),
    "Transformers": (transformers(), PAIR, False),
    "Transformers, decoder": (transformers(decoder_only=True), PAIR, True),
    "Transformers, spans": (transformers(span_id=True), PAIR, False),
    "Transformers, decoder, spans": (transformers(decoder_only=True, span_id=True), PAIR, True),
    "Transformers, chat": (
        lambda pack: seqio_converter(ul2_tasks.HuggingFaceChatConverter(pack, PAD), seqio.ByteVocabulary()),
        TOKENS,
        False,
    ),
}
SEQIO = {"t5x": seqio.EncDecFeatureConverter, "t5x, prefix": seqio.PrefixLMFeatureConverter}


@pytest.mark.parametrize("pack", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize(
    ("name", "masked"),
    [
        (name, masked)
        for name in MODELS
        for masked in (False, True)
        if masked or not name.endswith(("chat", "s, spans", "r, spans"))
    ],
)
def test_rows_are_those_written_by_hand(name, masked, pack):
    make, keys, joined = MODELS[name]
    lengths, found = {key: LENGTHS[key] for key in keys}, list(examples(keys, masked))
    converter = make(pack=pack)
    rows = list(converter(dataset(found), lengths).as_numpy_iterator())
    for row, of in zip(rows, in_rows(found, keys, pack), strict=True):
        expected = by_hand(of, keys, pack, joined)
        assert row.keys() == converter.get_model_feature_lengths(lengths).keys()
        for key, values in row.items():
            assert (values.dtype, values.tolist()) == (np.int32, expected[key]), key
    if name in SEQIO and not masked and not (joined and pack):  # SeqIO packs inputs and targets that are joined already
        for row, same in zip(rows, SEQIO[name](pack=pack)(dataset(found), lengths).as_numpy_iterator(), strict=True):
            assert row.keys() == same.keys()
            assert all(np.array_equal(row[key], values) for key, values in same.items())


WRONG = {  # how many values the last feature has, and its masks, and what is said of it
    "too long": (33, 33, "its {key} must have at most {most} tokens"),
    "empty": (0, 0, "its {key} must have a token"),
    "of another mask": (9, 8, "its loss_mask must have a value for each of its {key}"),
}


@pytest.mark.parametrize("pack", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("name", ["t5x", "t5x, spans", "t5x, prefix", "t5x, chat", "Transformers", "Transformers, chat"])
def test_an_example_that_no_row_can_hold_is_an_error(name, wrong, pack):
    make, keys, _ = MODELS[name]
    tokens, masks, said = WRONG[wrong]
    good = {key: np.ones([9], int) for key in (*keys, "loss_mask", "span_id")}
    bad = good | {keys[-1]: np.ones([tokens], int), "loss_mask": np.ones([masks], int), "span_id": np.ones([masks], int)}
    rows = make(pack=pack)(dataset([good, bad, good]), {key: LENGTHS[key] for key in keys})
    with pytest.raises(tf.errors.InvalidArgumentError, match="example 1 .*" + said.format(key=keys[-1], most=LENGTHS[keys[-1]])):
        list(rows.as_numpy_iterator())


@pytest.mark.parametrize("name", ["t5x", "Transformers"])
def test_a_mask_of_another_type_is_an_error(name):
    found = dataset(list(examples(PAIR, True))).map(lambda each: each | {"loss_mask": tf.cast(each["loss_mask"], tf.float32)})
    with pytest.raises(ValueError, match="loss_mask"):
        MODELS[name][0](pack=False)(found, {key: LENGTHS[key] for key in PAIR})


def test_as_many_rows_as_examples_are_announced_and_other_features_are_left_behind():
    """t5x asks for the length of a dataset before it predicts; rows that examples share cannot be known before."""
    lengths, converter = {key: LENGTHS[key] for key in PAIR}, ul2_tasks.EncDecFeatureConverter
    known = tf.data.Dataset.from_tensors({key: tf.ones([3], tf.int32) for key in PAIR} | {"name": "n"}).repeat(300)
    for examples in (known, known.repeat()):
        assert converter(pack=False)(examples, lengths).cardinality() == examples.cardinality()
    rows = list(converter(pack=False)(known, lengths))
    assert (len(rows), "name" in rows[0]) == (300, False)
    assert converter(pack=True)(known, lengths).cardinality() == tf.data.UNKNOWN_CARDINALITY
    assert list(converter(pack=True)(known.take(0), lengths)) == []


@pytest.fixture(scope="module")
def shifted(tmp_path_factory):
    """A vocabulary whose tokenizer has an id 0."""
    folder = tmp_path_factory.mktemp("shifted")
    exclamation_first().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    return ul2_tasks.open_vocabulary(str(folder))


def test_ids_are_the_tokenizers_own_of_the_task_or_as_the_user_says(shifted):
    chat = {"tokens": np.array([1, 3, 2]), "loss_mask": np.array([0, 1, 1]), "span_id": np.array([0, 1, 2])}
    of_task, converter = with_id_shift(dataset([chat]), shifted), ul2_tasks.HuggingFaceChatConverter()
    for examples, vocabulary in ((of_task, ()), (dataset([chat]), [shifted])):
        (row,) = seqio_converter(converter, *vocabulary)(examples, {"tokens": 3}).as_numpy_iterator()
        assert (row["packed_input_ids"].tolist(), row["labels"].tolist()) == ([0, 2, 1], [IGNORED, 2, 1])
    with pytest.raises(ValueError, match="vocabulary"):
        seqio_converter(converter, seqio.ByteVocabulary())(of_task, {"tokens": 3})


def test_what_is_wrong_is_named():
    chats = dataset([{key: np.ones([3], int) for key in CHAT}])
    for make, argument in (
        (lambda: ul2_tasks.HuggingFaceChatConverter(pad_token_id=-1), "pad_token_id"),
        (lambda: ul2_tasks.HuggingFaceChatConverter(pack=1), "pack"),
        (lambda: MODELS["Transformers, chat"][0](pack=True)(chats, {"targets": 4}), "task_feature_lengths"),
        (lambda: ul2_tasks.EncDecFeatureConverter(use_custom_packing_ops=True), "use_custom_packing_ops"),
        (lambda: ul2_tasks.PromptCompletionFeatureConverter(use_custom_packing_ops=True), "use_custom_packing_ops"),
    ):
        with pytest.raises(ValueError, match=argument):
            make()
