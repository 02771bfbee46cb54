"""Of a tokenizer whose id 0 is a token: none that something else needs is a sentinel, a mode, or what a decoder begins with."""

import functools
import json

import pytest
import seqio
from tokenizers import AddedToken, Tokenizer

import ul2_tasks
from tests.tokenizers.test_hugging_face_vocabulary import byte_fallback, exclamation_first
from ul2_tasks import (
    HuggingFaceFeatureConverter,
    MemoryDataSource,
    SpanDenoiser,
    UL2DataCollator,
    register,
    seqio_converter,
)
from ul2_tasks.tokenizers.special_ids import as_vocabulary, special_tokens

LENGTHS = {"inputs": 48, "targets": 48}
TEXTS = [f"so! the document of number {number}, and so on!" + " and more!" * (number % 5) for number in range(60)]
UNUSED = [f"<unused{number}>" for number in range(30)]
R = SpanDenoiser(name="r", mean_span_length=3, noise_density=0.3, mode="[R]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tokenizer whose id 0 is "!", with Qwen's files beside it, BERT's and Gemma's unused tokens, and some that a user added."""
    folder, tokenizer = tmp_path_factory.mktemp("qwen"), exclamation_first()
    tokenizer.add_special_tokens(["<|im_start|>", "<|fim_prefix|>", "<|vision_start|>", "<loc0000>", "<mine>", "[MASK]"])
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in ("</think>", "<tool_call>", *UNUSED, "[R]", "<my_0>")])
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for message in messages %}<|im_start|>{{ message.content }}<|im_end|><tool_call></think>{% endfor %}"
    roles = {"eos_token": "<|endoftext|>", "pad_token": {"content": "<mine>"}, "add_bos_token": False, "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(roles))
    return folder


@pytest.fixture(scope="module")
def own(folder):
    """The tokenizer's own ids by name."""
    return Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab(with_added_tokens=True)


@pytest.fixture(scope="module")
def unknown_first(tmp_path_factory):
    """A tokenizer as Llama's: its id 0 is <unk>, which no text becomes, and it names no padding."""
    folder = tmp_path_factory.mktemp("unknown")
    byte_fallback().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    return folder


@pytest.mark.torch
def test_a_decoder_begins_with_no_token_that_nobody_named(folder, unknown_first):
    """Without a model it is id 0, the padding of T5's tokenizer. Of others that is a token like any other."""
    name = register("own_ids", MemoryDataSource(lambda: TEXTS, validation=0), folder, R)
    uses = [lambda: seqio.get_dataset(name, LENGTHS, seqio_converter(HuggingFaceFeatureConverter()), num_epochs=1)]
    for vocabulary in (folder, unknown_first):
        mixture = ul2_tasks.Mixture("own_start", MemoryDataSource(lambda: TEXTS, validation=0), vocabulary, R)
        for pack in (False, True):
            found, converter = ul2_tasks.examples(mixture, LENGTHS, pack=pack), HuggingFaceFeatureConverter(pack=pack)
            uses.append(functools.partial(ul2_tasks.ExamplesCollator, converter, found))
            uses.append(functools.partial(ul2_tasks.UL2IterableDataset, found, feature_converter=converter))
            named = HuggingFaceFeatureConverter(pack=pack, decoder_start_token_id=3)
            ul2_tasks.ExamplesCollator(named, found), ul2_tasks.UL2IterableDataset(found, feature_converter=named)
        uses.append(functools.partial(UL2DataCollator, vocabulary, LENGTHS, return_tensors="np"))
        assert "labels" in UL2DataCollator(vocabulary, LENGTHS, return_tensors="np", decoder_only=True)(["so and so"])
    for use in uses:
        with pytest.raises(ValueError, match="decoder_start_token_id"):
            use()


TAKEN = {
    "d": "ordinary",
    "</think>": "in the chat template",
    "<|im_start|>": "in the chat template",
    "<mine>": "pad_token in tokenizer_config.json",
    "<|endoftext|>": "EOS",
}


@pytest.mark.parametrize("by", ["id", "token", "mode", "mode by id"])
@pytest.mark.parametrize("token", TAKEN)
def test_what_something_else_needs_is_no_sentinel_and_no_mode(token, by, folder, own):
    vocabulary = ul2_tasks.open_vocabulary(folder, sentinels=4, modes=[])
    if token == "d" and by == "mode":
        assert special_tokens(vocabulary, "[Q]", modes={"[Q]": "d"}).mode == (own["d"],), "a text, which is tokenized"
        return
    given = {"id": {"sentinels": [own[token]]}, "token": {"sentinels": [token]}, "mode": {"modes": {"[Q]": token}}}.get(
        by, {"modes": {"[Q]": own[token]}}
    )
    what = r"mode '\[Q\]'" if "mode" in by else "sentinels"
    with pytest.raises(ValueError, match=f"{what} .*got {own[token]}, .*{TAKEN[token]}"):
        special_tokens(vocabulary, "[Q]" if "mode" in by else None, **given)


def test_tokens_that_are_free_are_taken_by_token_and_by_id_and_kept_out_of_text(folder, own):
    vocabulary = ul2_tasks.open_vocabulary(folder, sentinels=0, modes=[])
    names = ["<my_0>", "<unused7>"]
    special = special_tokens(vocabulary, "[Q]", names, {"[Q]": "[R]"})
    assert special == special_tokens(vocabulary, "[Q]", [own[name] for name in names], {"[Q]": own["[R]"]})
    assert special.sentinels == tuple(own[name] for name in names)
    assert special.mode == (own["[R]"],)
    assert special.reserved == {*special.mode, *special.sentinels}
    text = vocabulary.never_encoding(special.reserved)
    assert not special.reserved & set(text.encode("a <my_0> [R]<unused7> b"))
    with pytest.raises(ValueError, match="<unused99>"):
        special_tokens(vocabulary, None, ["<unused0>", "<unused99>"])
    with pytest.raises(ValueError, match="<a>"):
        special_tokens(as_vocabulary(seqio.ByteVocabulary(extra_ids=3)), None, ["<a>"])
