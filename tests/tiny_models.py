"""Tiny models of Transformers with random weights, large enough for the ids of the default vocabulary."""

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")

import ul2_tasks  # noqa: E402

ROWS = ul2_tasks.embedding_rows(ul2_tasks.default_vocabulary())
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
WINDOWS = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"] * 2, "num_hidden_layers": 4}
GEMMA = SIZES | WINDOWS | {"max_position_embeddings": 128, "query_pre_attn_scalar": 8, "dropout_rate": 0.0, "pad_token_id": 0}
VISION = {"model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
VISION |= {"num_attention_heads": 1, "image_size": 8, "patch_size": 2}
OF_OTHERS = {  # what some types of decoders have in place of these sizes, or beside them
    **{"ffn_dim": 48, "word_embed_proj_dim": 32, "moe_intermediate_size": 16, "num_experts_per_tok": 2},
    **dict.fromkeys(("num_experts", "num_local_experts"), 4),
    **dict.fromkeys(("dropout", "attention_dropout", "hidden_dropout", "attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0),
}


def _made(kind, config, implementation):
    torch.manual_seed(0)
    return getattr(transformers, kind)._from_config(config, attn_implementation=implementation)


def t5(rows=ROWS, kind="T5", implementation="sdpa", **settings):
    """T5, MT5 or UMT5."""
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "relative_attention_max_distance": 20}
    config = getattr(transformers, f"{kind}Config")(vocab_size=rows, **{**sizes, "dropout_rate": 0.0, **settings})
    return _made(f"{kind}ForConditionalGeneration", config, implementation)


def t5gemma(rows=ROWS, implementation="eager", **ids):
    stack = GEMMA | {"vocab_size": rows}
    decoder = stack | ids | {"is_decoder": True, "cross_attention_hidden_size": 32}
    config = transformers.T5GemmaConfig(encoder=stack, decoder=decoder, dropout_rate=0.0, vocab_size=rows, **ids)
    return _made("T5GemmaForConditionalGeneration", config, implementation)


def t5gemma2(rows=ROWS, implementation="sdpa", encoder=(), **ids):
    """Of images of 8 x 8 pixels, which are 4 tokens each."""
    if not hasattr(transformers, "T5Gemma2Config"):
        pytest.skip(f"transformers {transformers.__version__} has no T5Gemma 2")
    stack = GEMMA | {"vocab_size": rows}
    seen = {"text_config": dict(stack), "vision_config": VISION, "mm_tokens_per_image": 4, **dict(encoder)}
    config = transformers.T5Gemma2Config(encoder=seen, decoder=stack, dropout_rate=0.0, **ids)
    return _made("T5Gemma2ForConditionalGeneration", config, implementation)


def decoder(kind="llama", rows=ROWS, implementation="sdpa", **settings):
    """A decoder-only model of any type, with windows of 5 tokens where it has windows."""
    has_windows = kind not in ("llama", "gpt2", "opt")
    windows = {"sliding_window": 5, "use_sliding_window": True, "max_window_layers": 1} if has_windows else {}
    given = SIZES | OF_OTHERS | windows | {"num_hidden_layers": 2, "max_position_embeddings": 128, "vocab_size": rows}
    given |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **given | settings)
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation=implementation)
