"""The recipe that turns Qwen3 into an encoder-decoder: each weight is in its place, and packing, padding, generation are exact."""

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")

import recipe  # noqa: E402

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("seeded_torch")]

ROWS = 120
SIZES = {"vocab_size": ROWS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
SIZES |= {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 256}
RECIPE = recipe.imported("encoder_decoder_from_qwen3")


class Tokenizer:
    pad_token_id, eos_token_id = 3, 3


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def both(request):
    """A Qwen3 whose every weight matters, norms too, and the encoder-decoder that the recipe makes of it."""
    config = transformers.Qwen3Config(**SIZES, tie_word_embeddings=request.param)
    qwen = transformers.Qwen3ForCausalLM(config).eval()
    for weight in qwen.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    model = RECIPE.encoder_decoder_of(qwen, Tokenizer)
    return qwen.to(torch.float64), model.to(torch.float64)


def test_a_decoder_that_attends_to_no_input_is_qwen(both):
    qwen, model = both
    ids = torch.randint(0, ROWS, (2, 40))
    outputs = transformers.modeling_outputs.BaseModelOutput(torch.randn(2, 5, 32, dtype=torch.float64))
    found = model(encoder_outputs=outputs, attention_mask=torch.zeros(2, 5, dtype=torch.long), decoder_input_ids=ids).logits
    torch.testing.assert_close(found, qwen(input_ids=ids).logits)
    seen = model(encoder_outputs=outputs, attention_mask=torch.ones(2, 5, dtype=torch.long), decoder_input_ids=ids).logits
    assert (found - seen).abs().max() > 0.1, "where it attends to them, they count"


def test_the_encoder_is_qwen_without_the_causal_mask(both):
    qwen, model = both
    ids = torch.randint(0, ROWS, (2, 40))
    everything = {"full_attention": torch.ones(2, 1, 40, 40, dtype=torch.bool)}
    expected = qwen.model(input_ids=ids, attention_mask=everything).last_hidden_state
    torch.testing.assert_close(model.encoder(ids, torch.ones_like(ids)).last_hidden_state, expected)


def test_packed_rows_give_what_their_examples_give_alone(both):
    _, model = both
    inputs, targets = [torch.randint(0, ROWS, (1, n)) for n in (5, 9, 2)], [torch.randint(0, ROWS, (1, n)) for n in (4, 3, 6)]
    alone = [
        model(input_ids=of_inputs, attention_mask=torch.ones_like(of_inputs), decoder_input_ids=of_targets).logits
        for of_inputs, of_targets in zip(inputs, targets)
    ]

    def joined(parts, padding):  # with a padding that no example may attend to
        segments = [torch.full_like(part, number) for number, part in enumerate(parts, 1)]
        positions = [torch.arange(part.shape[1])[None] for part in parts]
        return tuple(torch.cat([*each, torch.zeros(1, padding, dtype=torch.long)], dim=1) for each in (parts, segments, positions))

    ids, segments, positions = joined(inputs, 3)
    decoder_ids, decoder_segments, decoder_positions = joined(targets, 2)
    found = model(
        packed_input_ids=ids,
        segment_ids=segments,
        position_ids=positions,
        decoder_input_ids=decoder_ids,
        decoder_segment_ids=decoder_segments,
        decoder_position_ids=decoder_positions,
    ).logits
    torch.testing.assert_close(found[:, :-2], torch.cat(alone, dim=1))


def test_padding_changes_nothing_and_generation_is_greedy(both):
    _, model = both
    short, long = torch.randint(4, ROWS, (1, 6)), torch.randint(4, ROWS, (1, 9))
    padded = torch.cat([torch.cat([short, torch.full((1, 3), 3)], dim=1), long])
    mask = torch.ones_like(padded)
    mask[0, 6:] = 0
    written = model.generate(input_ids=padded, attention_mask=mask, max_new_tokens=7, do_sample=False)
    for row, alone in zip(written.tolist(), (short, long)):
        ids = torch.tensor([[3]])  # the decoder's start
        while ids.shape[1] < 8 and (ids.shape[1] == 1 or ids[0, -1] != 3):
            logits = model(input_ids=alone, attention_mask=torch.ones_like(alone), decoder_input_ids=ids).logits
            ids = torch.cat([ids, logits[:, -1:].argmax(-1)], dim=1)
        assert row[: ids.shape[1]] == ids[0].tolist()


def test_what_is_saved_is_loaded(both, tmp_path):
    qwen, model = both
    model.save_pretrained(tmp_path)
    loaded = RECIPE.Qwen3EncoderDecoder.from_pretrained(tmp_path, dtype=torch.float64)
    assert all(torch.equal(tensor, loaded.state_dict()[name]) for name, tensor in model.state_dict().items())
    for each in (model, loaded):
        is_tied = each.get_input_embeddings().weight is each.get_output_embeddings().weight
        assert is_tied == qwen.config.tie_word_embeddings
    assert loaded.generation_config.decoder_start_token_id == 3


def test_sliding_windows_are_an_error():
    config = transformers.Qwen3Config(**SIZES, use_sliding_window=True, sliding_window=4, max_window_layers=1)
    with pytest.raises(AssertionError, match="sliding windows are not written here"):
        RECIPE.encoder_decoder_of(transformers.Qwen3ForCausalLM(config), Tokenizer)


@pytest.mark.parametrize("packed", [False, True])
def test_the_script_converts_trains_saves_and_generates(run_recipe, tmp_path, packed):
    printed = run_recipe("encoder_decoder_from_qwen3.py", "--steps", "30", *["--pack"] * packed, without=recipe.TENSORFLOW)
    assert "1,067 tokens, 1,024 rows of the embedding, which become 1,067" in printed
    assert "35 to the encoder" in printed
    assert "34 to the decoder" in printed
    assert "0 to nowhere" in printed
    recipe.check_adapted(printed, "Qwen3", sentinel="<extra_id_")
    saved = tmp_path / "qwen3_run" / "encoder_decoder"
    tokenizer = transformers.AutoTokenizer.from_pretrained(saved)
    model = RECIPE.Qwen3EncoderDecoder.from_pretrained(saved)
    assert model.get_input_embeddings().num_embeddings == len(tokenizer) == 1067
    assert tokenizer.convert_tokens_to_ids(["<extra_id_0>", "[R]", "[X]"]) == [1000, 1064, 1066]
