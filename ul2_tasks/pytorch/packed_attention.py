"""Keeps attention within the examples of packed sequences: the masks, and models of Transformers that make them.

segment_ids          1 1 1 2 2 0           encoder   each place attends to all of its own segment
decoder_segment_ids  1 1 2 2 2             decoder   .. to its own segment, up to itself
                                           cross     .. to the inputs of its own segment

A place of padding attends to padding, and to the first place of the inputs, so that each attends to something.

Packed rows have `packed_input_ids`, and no `input_ids`: so each model that was not made to accept them fails, as no model of
Transformers ignores that it has no inputs, while most ignore what else they do not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ul2_tasks.example_features import BLOCK_IDS, PACKED_IDS
from ul2_tasks.extras import needs

with needs("packed_attention_masks", "torch"):
    import torch
    from torch.nn.attention import flex_attention

# Whether a query attends to a key, of indices of batch, head, query and key: a mask_mod of FlexAttention.
Attends = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

IMPLEMENTATIONS = ("sdpa", "eager", "flex_attention")
_ANY = 1 << 30  # a distance that no row has
ENCODER_DECODERS = ("t5", "mt5", "umt5", "t5gemma", "t5gemma2")
DECODERS = (
    *("llama", "mistral", "mixtral", "ministral3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text"),
    *("gpt2", "gpt_neox", "gpt_oss", "opt", "olmo", "olmo2", "olmo3", "olmoe", "phi", "phi3", "smollm3", "granite", "starcoder2"),
    *("stablelm", "cohere", "cohere2", "glm", "glm4", "exaone4", "apertus"),
)
# All layers of these have a window where their configuration has one, which says no types of layers.
_WINDOWED = ("mistral", "mixtral", "ministral3", "qwen3_moe", "phi3", "starcoder2")
_UNTOLD = ("gpt2", "opt", "cohere2")  # which do not tell flash attention the positions, in some versions of Transformers
_OF_PACKED_ROWS = (PACKED_IDS, "segment_ids", "decoder_segment_ids", "prefix_length")


def packed_attention_masks(
    batch: Mapping[str, torch.Tensor], implementation: str = "sdpa", dtype: torch.dtype = torch.float32
) -> dict[str, torch.Tensor | flex_attention.BlockMask]:
    """Returns the attention masks of packed rows, by which no token attends to another example.

    Args:
        batch: what `HuggingFaceFeatureConverter(pack=True)` or `DiffusionConverter()` makes, [B, length] each.
        implementation: "sdpa", for masks that are True where a query attends to a key; "eager", for masks that are added to the
            scores, 0 there and the lowest number elsewhere; both are [B, 1, queries, keys]. "flex_attention", for block masks.
        dtype: of the masks of "eager".

    Returns:
        For an encoder-decoder model {"encoder": .., "decoder": .., "cross": ..}: self-attention of the encoder, causal
        self-attention of the decoder, and cross-attention. For a decoder-only model {"decoder": ..}: causal, but all of an example
        attends to all of its inputs, which is prefix LM. Without the key "prefix_length" in the batch it is causal. With
        "block_ids" it is what these say.

    >>> segment_ids = torch.tensor([[1, 1, 2, 0]])
    >>> masks = packed_attention_masks({"segment_ids": segment_ids, "decoder_segment_ids": torch.tensor([[1, 2, 2]])})
    >>> masks["encoder"].int().tolist()
    [[[[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1]]]]
    >>> masks["decoder"].int().tolist()
    [[[[1, 0, 0], [0, 1, 0], [0, 1, 1]]]]
    >>> masks["cross"].int().tolist()
    [[[[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0]]]]
    """
    if "segment_ids" not in batch:
        raise ValueError(
            f"batch must have segment_ids, got {sorted(batch)}. Pass HuggingFaceFeatureConverter(pack=True) to the dataset; with"
            " Trainer also remove_unused_columns=False."
        )
    of_encoder = batch["segment_ids"]
    if BLOCK_IDS in batch:
        return {"decoder": _written(_by_blocks(of_encoder, batch[BLOCK_IDS]), of_encoder, of_encoder, implementation, dtype)}
    if "decoder_segment_ids" not in batch:
        prefix = batch["prefix_length"] if "prefix_length" in batch else torch.zeros_like(of_encoder)
        if prefix.shape != of_encoder.shape:
            raise ValueError(
                f"prefix_length must have the shape of segment_ids, {list(of_encoder.shape)}, got {list(prefix.shape)}. Pass both"
                " as they are in the batch."
            )
        attends = _within_after_prefix(of_encoder, _positions(of_encoder) < prefix)
        return {"decoder": _written(attends, of_encoder, of_encoder, implementation, dtype)}
    of_decoder = batch["decoder_segment_ids"]
    masks = {
        "encoder": (_within(of_encoder, of_encoder), of_encoder, of_encoder),
        "decoder": (_within(of_decoder, of_decoder, after=0), of_decoder, of_decoder),
        "cross": (_within(of_decoder, of_encoder), of_decoder, of_encoder),
    }
    return {name: _written(*of_each, implementation, dtype) for name, of_each in masks.items()}


def accept_packed_sequences(model: Any) -> Any:
    """Makes a model of Transformers attend within the examples of packed rows, and returns it.

        model = accept_packed_sequences(transformers.T5ForConditionalGeneration(config))
        loss = model(**batch).loss  # of a batch with packed_input_ids

    It is for encoder-decoder models of the types `ENCODER_DECODERS`, T5, mT5, UMT5, T5Gemma and T5Gemma 2, and for decoder-only
    models of the types `DECODERS`, such as Llama, Qwen3 and Gemma 3. A packed row in a model that was not made to accept them is an
    error of that model, because it gets no `input_ids`.

    This registers a hook before the encoder and one before the decoder, which make the masks of the batch's segment ids or
    positions. A batch that is not packed is as before, and so are weights, checkpoints and generation. It works in whatever calls
    the model: `Trainer` with remove_unused_columns=False, DistributedDataParallel, FSDP, gradient checkpointing, torch.compile.

    A decoder-only model keeps no cache of packed rows, and attends to what is before a token, also in the inputs.

    Raises:
        ValueError: the model is another one; or a batch comes to it without the segment ids or positions, or with an attention
            implementation that cannot keep its examples apart.
        ImportError: transformers is older than 5.17, or than 4.53 for a decoder-only model.
    """
    import transformers

    config = getattr(model, "config", None)
    model_type, has_encoder = getattr(config, "model_type", None), getattr(config, "is_encoder_decoder", False)
    if model_type not in (ENCODER_DECODERS if has_encoder else DECODERS):
        raise ValueError(
            f"model must be a model of Transformers of the types {ENCODER_DECODERS + DECODERS}, got {type(model).__name__}. Pass"
            " the masks of ul2_tasks.packed_attention_masks to the attention of others."
        )
    # Before, layers had other windows (T5Gemma 5.0), or made them beside the masks that a model is given (decoders 4.50).
    needed = (5, 17) if has_encoder else (4, 53)
    if tuple(map(int, re.findall(r"\d+", transformers.__version__)[:2])) < needed:
        raise ImportError(
            f"packed rows of a {type(model).__name__} need transformers {needed[0]}.{needed[1]} or later, got"
            f" {transformers.__version__}. Upgrade it."
        )
    hooks = [(model.get_decoder(), _mask_decoder_only)]
    if has_encoder:
        hooks = [(model.get_encoder(), _mask_encoder), (model.get_decoder(), _mask_decoder)]
    for module, mask in hooks:
        if not getattr(module, "accepts_packed_sequences", False):
            module.register_forward_pre_hook(mask, with_kwargs=True)
            module.accepts_packed_sequences = True
    return model


def _mask_encoder(module: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Gives an encoder its ids, and the mask of its segment ids."""
    if not _is_packed(args, kwargs, ("segment_ids", "decoder_segment_ids")):
        return args, kwargs
    of_encoder, config = kwargs["segment_ids"], getattr(module.config, "text_config", module.config)
    masks = _of_layers(of_encoder, of_encoder, module, config, {}, _window_of_encoder(config))
    return args[1:], _with_ids(args, kwargs) | {"attention_mask": masks}


def _mask_decoder(module: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Gives a decoder, which has its ids, the masks of its segment ids, and of those of the encoder."""
    if not _is_packed(args, kwargs, ("segment_ids", "decoder_segment_ids")):
        return args, kwargs
    of_encoder, of_decoder, config = kwargs["segment_ids"], kwargs["decoder_segment_ids"], module.config
    own = _of_layers(of_decoder, of_decoder, module, config, {"after": 0}, _window_of_decoder(config))
    cross = _of_layers(of_decoder, of_encoder, module, config, {}, None)
    return args, _without_segments(kwargs) | {"attention_mask": own, "encoder_attention_mask": cross}


def _mask_decoder_only(module: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Gives a decoder without an encoder its ids, and the mask of its positions, which are 0 where an example begins."""
    if not _is_packed(args, kwargs, ("position_ids",)):
        return args, kwargs
    positions, config = kwargs["position_ids"], module.config
    if "flash_attention" in config._attn_implementation:  # whose kernel finds the examples of one row by their positions
        if len(positions) > 1 or config.model_type in _UNTOLD:
            raise ValueError(
                f"the batch must have one row for {config._attn_implementation}, and the model be none of {_UNTOLD}, got"
                f" {len(positions)} for a {type(module).__name__}: it does not tell their examples apart. Use sdpa."
            )
        masks = None
    else:
        of_each = (positions == 0).cumsum(1)
        masks = _of_layers(of_each, of_each, module, config, {"after": 0}, _window_of_decoder(config))
    return args[1:], _with_ids(args, kwargs) | {"attention_mask": masks, "use_cache": False}


def _is_packed(args: tuple, kwargs: Mapping[str, Any], names: tuple[str, ...]) -> bool:
    """Whether a module is called with packed rows. They must have all of these names, and other rows must have ids."""
    given = {name for name in kwargs if kwargs[name] is not None}
    if BLOCK_IDS in given:
        raise ValueError(
            f"a batch of a DiffusionConverter must come as input_ids, position_ids and attention_mask, got {sorted(given)}. Pass"
            ' attention_mask=packed_attention_masks(batch)["decoder"], and compute the loss of the logits.'
        )
    is_packed = not given.isdisjoint(_OF_PACKED_ROWS)
    has_ids = any(each is not None for each in args[:1]) or not given.isdisjoint(("input_ids", "inputs_embeds", PACKED_IDS))
    missing = [*([] if has_ids else [PACKED_IDS]), *(name for name in names if is_packed and name not in given)]
    if missing:
        raise ValueError(
            f"a batch of packed rows must have {missing}, got {sorted(given)}. Pass all of the batch to the model; for"
            " transformers.Trainer set remove_unused_columns=False."
        )
    return is_packed


def _with_ids(args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What a module gets of packed rows, with their ids as `input_ids`."""
    ids = kwargs.get(PACKED_IDS)
    return _without_segments(kwargs) | {"input_ids": kwargs.get("input_ids", *args[:1]) if ids is None else ids}


def _without_segments(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if name not in _OF_PACKED_ROWS}


def _of_layers(
    queries: torch.Tensor, keys: torch.Tensor, module: Any, config: Any, reach: dict[str, int], window: dict[str, int] | None
) -> Any:
    """The mask of a module; where its layers are of several types, as Gemma's are, that of each type."""
    implementation = module.config._attn_implementation

    def write(reach: dict[str, int]) -> torch.Tensor | flex_attention.BlockMask:
        return _written(_within(queries, keys, **reach), queries, keys, implementation, module.dtype)

    if getattr(config, "layer_types", None) is None:
        if hasattr(config, "relative_attention_num_buckets") and implementation == "flex_attention" and len(queries) > 1:
            raise ValueError(
                f"the batch must have one row for a {type(module).__name__} with flex_attention, got {len(queries)}: Transformers"
                " reads the position bias of the second row, which has none. Pass one row at a time, or use sdpa."
            )
        return write(window if window and config.model_type in _WINDOWED else reach)
    masks = {"full_attention": write(reach)}
    return masks if window is None else {**masks, "sliding_attention": write(window)}


def _written(
    attends: Attends, queries: torch.Tensor, keys: torch.Tensor, implementation: str, dtype: torch.dtype
) -> torch.Tensor | flex_attention.BlockMask:
    """A mask, of segment ids of queries and of keys, [B, length] each."""
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(
            f"the attention implementation must be one of {IMPLEMENTATIONS} for packed sequences, got {implementation!r}. Pass it"
            " to from_pretrained(.., attn_implementation=..), or call model.set_attn_implementation."
        )
    (batch, of_queries), of_keys, device = queries.shape, keys.shape[1], queries.device
    if implementation == "flex_attention":
        return flex_attention.create_block_mask(attends, batch, None, of_queries, of_keys, device=device)
    indices = [torch.arange(length, device=device) for length in (batch, 1, of_queries, of_keys)]
    shaped = (index.reshape([-1 if axis == own else 1 for own in range(4)]) for axis, index in enumerate(indices))
    mask = attends(*shaped)
    if implementation == "sdpa":
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=device).masked_fill(~mask, torch.finfo(dtype).min)


def _within(queries: torch.Tensor, keys: torch.Tensor, *, before: int = _ANY, after: int = _ANY) -> Attends:
    """Of segment ids: the same segment, and a key so many places before the query, and after it, at most.

    A query of padding also attends to the first key, where no key may be padding. All masks have this one function, and what
    differs is in tensors: FlexAttention compiles its kernel again for another function, and for other numbers in it.
    """
    reach = torch.tensor([before, after], device=queries.device)

    def attends(batch, head, query, key):
        segment = queries[batch, query]
        is_own = (segment == keys[batch, key]) | ((segment == 0) & (key == 0))
        return is_own & (query - key <= reach[0]) & (key - query <= reach[1])

    return attends


def _within_after_prefix(segment_ids: torch.Tensor, is_prefix: torch.Tensor) -> Attends:
    """Of a decoder: the same segment, and a key that is not after the query or is in the prefix of its example."""

    def attends(batch, head, query, key):
        return (segment_ids[batch, query] == segment_ids[batch, key]) & ((key <= query) | is_prefix[batch, key])

    return attends


def _by_blocks(segment_ids: torch.Tensor, blocks: torch.Tensor) -> Attends:
    """Of diffusion: the same segment, and a key of the same block, or of a lower even one, which is clean."""

    def attends(batch, head, query, key):
        own, other = blocks[batch, query], blocks[batch, key]
        return (segment_ids[batch, query] == segment_ids[batch, key]) & ((own == other) | ((other < own) & (other % 2 == 0)))

    return attends


def _positions(segment_ids: torch.Tensor) -> torch.Tensor:
    """Which place of its segment each place is, from 0."""
    places = torch.arange(segment_ids.shape[1], device=segment_ids.device).expand_as(segment_ids)
    is_first = torch.ones_like(segment_ids, dtype=torch.bool)
    is_first[:, 1:] = segment_ids[:, 1:] != segment_ids[:, :-1]
    return places - torch.where(is_first, places, 0).cummax(1).values


def _window(config: Any) -> int:
    return getattr(config, "sliding_window", None) or _ANY


def _window_of_decoder(config: Any) -> dict[str, int]:
    return {"before": _window(config) - 1, "after": 0}


def _window_of_encoder(config: Any) -> dict[str, int]:
    """That of Transformers 5: T5Gemma's is a distance to both sides, T5Gemma 2's is a number of places."""
    window = _window(config)
    if "gemma2" not in config.model_type:
        return {"before": window, "after": window}
    return {"before": (window - 1) // 2, "after": window // 2}
