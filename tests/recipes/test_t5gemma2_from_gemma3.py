"""The recipe that turns Gemma 3 into T5Gemma 2: each weight is where it belongs, and what is trained is saved and generates."""

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")

import ul2_tasks  # noqa: E402
from tests.recipes import recipe  # noqa: E402

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("seeded_torch")]

RECIPE = recipe.imported("t5gemma2_from_gemma3")
ROWS, EOI = 120, 7
SIZES = {
    "vocab_size": ROWS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "query_pre_attn_scalar": 4,
    "sliding_window": 6,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "max_position_embeddings": 256,
}
VISION = {"model_type": "siglip_vision_model", "image_size": 8, "patch_size": 4, "num_hidden_layers": 2, "num_attention_heads": 2}
VISION |= {"hidden_size": 16, "intermediate_size": 16}
SCALED = {  # as Gemma 3's larger checkpoints have it
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}


def text_only(**changed):
    return transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**SIZES | changed))


def multimodal():
    config = transformers.Gemma3Config(
        text_config=dict(SIZES), vision_config=dict(VISION), mm_tokens_per_image=4, eoi_token_index=EOI, boi_token_index=6
    )
    return transformers.Gemma3ForConditionalGeneration(config)


GEMMAS = {
    "text": text_only,
    "scaled rope": lambda: text_only(rope_parameters=SCALED),
    "an uneven window": lambda: text_only(sliding_window=7),
    "multimodal": multimodal,
}


@pytest.fixture(params=GEMMAS)
def both(request):
    """A Gemma 3 whose every weight matters, norms too, and the T5Gemma 2 that the recipe makes of it."""
    gemma = GEMMAS[request.param]().eval()
    for weight in gemma.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    model = RECIPE.t5gemma2_of(gemma)
    return gemma.to(torch.float64), model.to(torch.float64)


def test_a_decoder_that_attends_to_no_input_is_gemma(both):
    """Also beyond the sliding window, and whatever the encoder's outputs are."""
    gemma, model = both
    ids = torch.randint(8, ROWS, (2, 40))
    outputs = transformers.modeling_outputs.BaseModelOutput(torch.randn(2, 5, 32, dtype=torch.float64))
    found = model(encoder_outputs=outputs, attention_mask=torch.zeros(2, 5, dtype=torch.long), decoder_input_ids=ids).logits
    torch.testing.assert_close(found, gemma(input_ids=ids).logits)
    seen = model(encoder_outputs=outputs, attention_mask=torch.ones(2, 5, dtype=torch.long), decoder_input_ids=ids).logits
    assert (found - seen).abs().max() > 0.1, "where it attends to them, they count"


def test_the_encoder_is_gemma_with_masks_to_both_sides(both):
    gemma, model = both
    ids = torch.randint(8, ROWS, (2, 40))
    window = gemma.config.get_text_config().sliding_window
    behind = torch.arange(40)[:, None] - torch.arange(40)
    sliding = (behind < (window + 1) // 2) & (-behind < window // 2 + 1)  # as many tokens as the causal window has
    assert sliding[20].sum() == window
    masks = {"full_attention": torch.ones_like(sliding), "sliding_attention": sliding}
    masks = {kind: mask.expand(2, 1, 40, 40) for kind, mask in masks.items()}
    bidirectional = getattr(gemma.model, "language_model", gemma.model)(input_ids=ids, attention_mask=masks).last_hidden_state
    torch.testing.assert_close(model.get_encoder()(input_ids=ids).last_hidden_state, bidirectional)


def test_images_have_the_features_of_a_multimodal_checkpoint(tmp_path):
    gemma = multimodal()
    for weight in gemma.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    gemma.save_pretrained(tmp_path)
    gemma = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    model = RECIPE.t5gemma2_of(gemma)
    pixels = torch.randn(3, 3, 8, 8)
    expected = gemma.get_image_features(pixels, return_dict=True).pooler_output
    torch.testing.assert_close(model.get_image_features(pixels, return_dict=True).pooler_output, expected)


@pytest.mark.parametrize("packed", [False, True])
def test_the_script_converts_trains_saves_and_generates(run_recipe, tmp_path, packed):
    printed = run_recipe("t5gemma2_from_gemma3.py", "--steps", "30", *["--pack"] * packed, without=recipe.TENSORFLOW)
    assert "54 to the encoder" in printed
    assert "54 to the decoder" in printed
    assert "0 to nowhere" in printed
    masked = recipe.check_adapted(printed, "Gemma 3", sentinel="<unused")
    assert "<unused96>" not in masked, "the mode token is no sentinel"
    saved = tmp_path / "t5gemma2_run" / "t5gemma2"
    loaded = transformers.T5Gemma2ForConditionalGeneration.from_pretrained(saved)
    assert loaded.generation_config.decoder_start_token_id == 2
    assert ul2_tasks.open_vocabulary(str(saved), sentinels=0, modes=[]).decode([6, 105]).startswith("<unused0>")
