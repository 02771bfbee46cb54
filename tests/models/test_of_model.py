"""What a converter and the collator take from a model is what its own code uses, and what one would pass by hand."""

import numpy as np
import pytest
import tensorflow as tf

transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")
torch = pytest.importorskip("torch", reason="the extra torch is not installed")

import ul2_tasks  # noqa: E402
from tests.tiny_models import ROWS, decoder, t5, t5gemma, t5gemma2  # noqa: E402
from ul2_tasks import (  # noqa: E402
    ExamplesCollator,
    HuggingFaceChatConverter,
    HuggingFaceFeatureConverter,
    ImageTokens,
    T5Gemma2Collator,
    UL2DataCollator,
    UL2IterableDataset,
)

pytestmark = pytest.mark.torch

LENGTHS = {"inputs": 96, "targets": 80}
TEXTS = ["The metaclass of a class is determined by its bases.", "naïve café, 東京", "a"]
SEVERAL = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}


def bart(rows=ROWS):
    config = transformers.BartConfig(vocab_size=rows, d_model=16, encoder_layers=1, decoder_layers=1, **SEVERAL)
    return transformers.BartForConditionalGeneration(config)


ENCODER_DECODER = {  # each with its ids of padding and of the decoder's start
    "t5": (lambda rows=ROWS: t5(rows, decoder_start_token_id=0), 0, 0),
    "mt5": (lambda rows=ROWS: t5(rows, "MT5", decoder_start_token_id=7), 0, 7),
    "umt5": (lambda rows=ROWS: t5(rows, "UMT5", pad_token_id=9), 9, 0),
    "bart": (bart, 1, 2),
    "t5gemma": (lambda rows=ROWS: t5gemma(rows, bos_token_id=5), 0, 5),
    "t5gemma2": (t5gemma2, 0, 2),
}
DECODER_ONLY = {
    "llama": (lambda rows=ROWS: decoder("llama", rows, pad_token_id=None), None, None),
    "qwen3": (lambda rows=ROWS: decoder("qwen3", rows, pad_token_id=None), None, None),
    "gemma3": (lambda rows=ROWS: decoder("gemma3_text", rows, pad_token_id=3), 3, None),
}
MODELS = ENCODER_DECODER | DECODER_ONLY


@pytest.fixture(params=ENCODER_DECODER)
def encoder_decoder(request):
    make, pad, start = ENCODER_DECODER[request.param]
    return make(), pad, start


def assert_same(got, expected):
    assert list(got) == list(expected)
    for key in expected:
        np.testing.assert_array_equal(got[key], expected[key], err_msg=key)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_its_arguments(name):
    make, pad, start = MODELS[name]
    model, is_one_row = make(), name in DECODER_ONLY
    by_hand = {"pad_token_id": 4 if pad is None else pad, "decoder_start_token_id": start or 0, "decoder_only": is_one_row}
    left = {"pad_token_id": 4} if pad is None else {}
    for source in (model, model.config, torch.nn.DataParallel(model)):
        taken = HuggingFaceFeatureConverter(model=source, **left)
        expected = HuggingFaceFeatureConverter(**by_hand, embedding_rows=ROWS)
        assert (taken.row_format, repr(taken)) == (expected.row_format, repr(expected))
        settings = {"return_tensors": "np"}
        batch = UL2DataCollator("default", LENGTHS, model=source, **left, **settings)(TEXTS)
        assert_same(batch, UL2DataCollator("default", LENGTHS, **by_hand, embedding_rows=ROWS, **settings)(TEXTS))


def test_decoders_read_what_the_model_makes_of_the_labels(encoder_decoder):
    model, pad, start = encoder_decoder
    batch = UL2DataCollator("default", LENGTHS, model=model)(TEXTS)
    shifted = model.prepare_decoder_input_ids_from_labels(labels=batch["labels"])
    is_read = batch["decoder_attention_mask"] == 1
    assert batch["decoder_input_ids"][is_read].equal(shifted[is_read])
    assert set(batch["decoder_input_ids"][:, 0].tolist()) == {start}
    assert set(batch["input_ids"][batch["attention_mask"] == 0].tolist()) == {pad}
    assert model(**batch).loss.isfinite()


@pytest.mark.parametrize("name", MODELS)
def test_too_few_rows_are_an_error_with_the_number_that_ends_it(name):
    """Of the model's embedding as it is, also after it was made larger."""
    make, pad, _ = MODELS[name]
    model, left = make(300), {"pad_token_id": 4} if pad is None else {}
    mixture = ul2_tasks.Mixture(vocabulary="bytes")

    def use():
        converter = HuggingFaceFeatureConverter(model=model, **left)
        UL2IterableDataset(mixture, LENGTHS, feature_converter=converter)
        ExamplesCollator(converter, ul2_tasks.examples(mixture, LENGTHS))
        return UL2DataCollator("bytes", LENGTHS, model=model, **left)(TEXTS)

    with pytest.raises(ValueError, match=r"embedding_rows must be above 517, .*, got 300\. Call model") as error:
        use()
    assert "model.resize_token_embeddings(640)" in str(error.value)
    model.resize_token_embeddings(640)
    assert model(**use()).loss.isfinite()
    assert HuggingFaceFeatureConverter(model=model.config, **left).row_format.embedding_rows == 640


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_a_model_that_names_no_padding_has_the_tokenizers_in_the_collator_alone(name):
    tokenizers = pytest.importorskip("tokenizers", reason="the extra huggingface is not installed")
    model = DECODER_ONLY[name][0]()
    words = {word: id for id, word in enumerate(["a", "b", "<end>", "<pad>"])}
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="a"))
    core.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    core.add_special_tokens(["<end>", "<pad>"])
    told = "pad_token_id"
    with pytest.raises(ValueError, match=told):
        HuggingFaceFeatureConverter(model=model)
    without = transformers.PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>")
    with pytest.raises(ValueError, match=told):
        UL2DataCollator(without, LENGTHS, model=model)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>", pad_token="<pad>")
    batch = UL2DataCollator(tokenizer, LENGTHS, model=model)(["a b", "a b b a"])
    assert set(batch["input_ids"][batch["attention_mask"] == 0].tolist()) == {3}
    model.generation_config.pad_token_id = 1
    assert HuggingFaceFeatureConverter(model=model).row_format.pad_token_id == 1


def test_what_is_no_model_or_says_too_little_is_an_error():
    for wrong in ("google/t5-v1_1-small", 7, torch.nn.Linear(2, 2)):
        for call in (HuggingFaceFeatureConverter, lambda **given: UL2DataCollator("default", LENGTHS, **given)):
            with pytest.raises(ValueError, match=r"^model must be"):
                call(model=wrong)
    model = t5()
    with pytest.raises(ValueError, match="decoder_start_token_id"):
        HuggingFaceFeatureConverter(model=model)
    model.generation_config.decoder_start_token_id = 0
    assert HuggingFaceFeatureConverter(model=model).row_format == HuggingFaceFeatureConverter(embedding_rows=ROWS).row_format
    with pytest.raises(ValueError, match="decoder_only"):
        HuggingFaceFeatureConverter(model=model, decoder_only=True)
    with pytest.raises(ValueError, match="pad_token_id"):
        HuggingFaceFeatureConverter(model=t5(20, "UMT5", pad_token_id=0), pad_token_id=20)


def test_a_head_with_fewer_rows_counts_and_an_encoder_writes_no_text():
    """A label beyond the head would be an assertion of the device; an encoder is not "decoder-only"."""
    untied = t5(decoder_start_token_id=0, tie_word_embeddings=False)
    untied.lm_head = torch.nn.Linear(32, 300, bias=False)
    assert HuggingFaceFeatureConverter(model=untied).row_format.embedding_rows == 300
    bert = transformers.BertConfig(vocab_size=ROWS, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    for made in (transformers.BertForMaskedLM(bert), transformers.T5EncoderModel(t5().config)):
        with pytest.raises(ValueError, match=r"^model must be"):
            HuggingFaceFeatureConverter(model=made)


@pytest.mark.parametrize("name", DECODER_ONLY)
@pytest.mark.parametrize("pack", [True, False])
def test_conversations_take_the_same_of_a_model(name, pack):
    make, pad, _ = DECODER_ONLY[name]
    model, left = make(4096 + 128), {"pad_token_id": 4} if pad is None else {}
    talks = ul2_tasks.Chat("of_model", truncation="drop")
    taken = HuggingFaceChatConverter(pack, model=model, **left)
    assert repr(taken) == repr(HuggingFaceChatConverter(pack, pad_token_id=pad or 4, embedding_rows=4096 + 128))
    few = HuggingFaceChatConverter(pack, model=make(4000), **left)
    for mixture in (talks, ul2_tasks.register_chat("of_model", truncation="drop")):
        with pytest.raises((ValueError, tf.errors.OpError), match="embedding_rows"):
            next(iter(UL2IterableDataset(mixture, {"tokens": 512}, feature_converter=few)))
        row = next(iter(UL2IterableDataset(mixture, {"tokens": 512}, feature_converter=taken)))
    batch = {key: values[None] for key, values in row.items() if key != "span_id"}
    assert (ul2_tasks.accept_packed_sequences(model) if pack else model)(**batch).loss.isfinite()


def test_a_chat_is_for_a_decoder_and_images_are_for_t5gemma2():
    for given, argument in (
        ({"model": t5()}, "model"),
        ({"model": decoder(pad_token_id=None)}, "pad_token_id"),
        ({"pad_token_id": 7, "embedding_rows": 7}, "pad_token_id"),
    ):
        with pytest.raises(ValueError, match=f"^{argument}"):
            HuggingFaceChatConverter(**given)
    for wrong in (t5gemma(), decoder(pad_token_id=None), 7):
        with pytest.raises(ValueError, match=r"^model must be"):
            T5Gemma2Collator(model=wrong)


def test_t5gemma2_has_the_images_of_its_model():
    model = t5gemma2()
    tokens = ImageTokens(255_999, 256_001, 256_000, image_seq_length=4)
    by_hand = {"pad_token_id": 0, "decoder_start_token_id": 2, "image_tokens": tokens, "image_size": 8, "embedding_rows": ROWS}
    for source in (model, model.config):
        taken, expected = T5Gemma2Collator(model=source), T5Gemma2Collator(**by_hand)
        assert vars(taken) == vars(expected)
    assert vars(T5Gemma2Collator(model=model, image_size=16))["_image_size"] == 16
    with pytest.raises(ValueError, match="embedding_rows"):
        taken([{"input_ids": [5], "labels": [1]}, {"input_ids": [5], "labels": [ROWS, 1]}])
