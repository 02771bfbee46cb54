"""The ids of interleaved image-text data: those of Transformers' processor, and nothing but whole runs between pieces of text."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.images.image_support import image
from ul2_tasks.images.elements import Image, Text
from ul2_tasks.images.interleaved import ImageTokens, interleaved

RUN = ImageTokens(boi_id=900, image_id=901, eoi_id=902, image_seq_length=3)
TEXTS = ["", "a", "cat", "a cat\n", "\ncat", "\n\n", "\n\n\nab\n\nc\n", "a b "]


def plan_of(texts):
    """Texts with an image between any two of them."""
    layout = [Text(texts[0])]
    for text in texts[1:]:
        layout += [Image(b"..", "vit"), Text(text)]
    return layout


@pytest.fixture(scope="module")
def processor():
    """Gemma 3's processor, with a tokenizer of letters that has, as Gemma's, runs of line feeds and the marks as pieces."""
    transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")
    from tokenizers import Tokenizer, models, pre_tokenizers

    pieces = ["<pad>", "<eos>", "<bos>", "<unk>", *"abcdefghijklmnopqrstuvwxyz ", *("\n" * n for n in range(1, 32))]
    marks = {"boi_token": "<start_of_image>", "image_token": "<image_soft_token>", "eoi_token": "<end_of_image>"}
    tokenizer = Tokenizer(models.WordLevel({piece: id for id, piece in enumerate(pieces)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.add_tokens([piece for piece in pieces if piece.startswith("\n")])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", extra_special_tokens=marks
    )
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    return transformers.Gemma3Processor(Gemma3ImageProcessorPil(size={"height": 4, "width": 4}), fast, image_seq_length=5)


@pytest.mark.parametrize("count", range(4))
def test_the_ids_are_those_of_the_processor(processor, count):
    from PIL import Image as PILImage

    tokenizer = processor.tokenizer
    run = ImageTokens(tokenizer.boi_token_id, tokenizer.image_token_id, tokenizer.eoi_token_id, image_seq_length=5)
    random = np.random.default_rng(count)
    for _ in range(20):
        texts = [TEXTS[number] for number in random.integers(0, len(TEXTS), count + 1)]
        if not count and not texts[0]:
            continue
        found = interleaved(plan_of(texts), lambda text: tokenizer.encode(text, add_special_tokens=False), run)
        images = [[PILImage.new("RGB", (4, 4))] * count] if count else None
        wanted = processor(images=images, text=[tokenizer.boi_token.join(texts)])["input_ids"][0]
        assert found.tokens.tolist() == wanted
        assert sum(found.pieces) == len(wanted)


@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=5), st.sampled_from(["", "\n\n", "|"]))
def test_pieces_are_texts_and_whole_runs_in_turn_and_all_text_is_there(texts, around):
    run = ImageTokens(900, 901, 902, image_seq_length=3, around=around)
    found = interleaved(plan_of(texts), lambda text: list(text.encode()), run)
    pieces = np.split(found.tokens, np.cumsum(found.pieces)[:-1])
    assert len(pieces) == 2 * len(texts) - 1
    assert all(not set(piece) & {900, 901, 902} for piece in pieces[::2])
    for piece in pieces[1::2]:
        middle = piece.tolist().index(900)
        assert piece.tolist()[middle : middle + 5] == [900, 901, 901, 901, 902]
        assert not set(bytes([*piece[:middle], *piece[middle + 5 :]]).decode()) - {"\n", "|"}
    text = bytes(id for id in found.tokens.tolist() if id < 900).decode()
    assert text == (2 * around).join(texts)
    assert len(found.images) == len(texts) - 1


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="image_tokens"):
        interleaved([Text("a")], lambda text: [901], RUN)
    with pytest.raises(ValueError, match="'vit'"):
        interleaved([Image(image(), "noised")], list, RUN)
    for wrong in ({"boi_id": 5, "image_id": 5}, {"image_seq_length": 0}, {"around": None}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ImageTokens(**wrong)


def test_the_default_run_is_that_of_t5gemma2():
    transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")
    if not hasattr(transformers, "T5Gemma2Config"):
        pytest.skip(f"transformers {transformers.__version__} has no T5Gemma 2")
    encoder = {"text_config": {"model_type": "t5gemma2_text"}}
    config = transformers.T5Gemma2Config(encoder=encoder, decoder={})
    wanted = (config.encoder.boi_token_index, config.image_token_index, config.eoi_token_index)
    assert ImageTokens().ids == wanted
    assert ImageTokens().image_seq_length == config.encoder.mm_tokens_per_image
