"""Keeps attention within the examples of packed sequences: the masks, and models of Transformers that make them of segment ids.

segment_ids          1 1 1 2 2 0           encoder   each place attends to all of its own segment
decoder_segment_ids  1 1 2 2 2             decoder   .. to its own segment, up to itself
                                           cross     .. to the inputs of its own segment

A place of padding attends to padding, and to the first place of the inputs, so that each attends to something.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

try:
    import torch
    from torch.nn.attention import flex_attention
except ImportError as error:
    raise ImportError(
        f"ul2_tasks.pytorch.packed_attention needs the package torch, 2.5 or later ({error}). Run `pip install 'ul2_tasks[torch]'`."
    ) from error

# Whether a query attends to a key, of indices of batch, head, query and key: a mask_mod of FlexAttention.
Attends = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

IMPLEMENTATIONS = ("sdpa", "eager", "flex_attention")
_ANY = 1 << 30  # a distance that no row has
MODEL_TYPES = ("t5", "mt5", "umt5", "t5gemma", "t5gemma2")


def packed_attention_masks(
    batch: Mapping[str, torch.Tensor], implementation: str = "sdpa", dtype: torch.dtype = torch.float32
) -> dict[str, torch.Tensor | flex_attention.BlockMask]:
    """Returns the attention masks of packed rows, by which no token attends to another example.

    Args:
        batch: what `HuggingFaceFeatureConverter(pack=True)` makes, [B, length] each.
        implementation: "sdpa", for masks that are True where a query attends to a key; "eager", for masks that are added to the
            scores, 0 there and the lowest number elsewhere; both are [B, 1, queries, keys]. "flex_attention", for block masks.
        dtype: of the masks of "eager".

    Returns:
        For an encoder-decoder model {"encoder": .., "decoder": .., "cross": ..}: self-attention of the encoder, causal
        self-attention of the decoder, and cross-attention. For a decoder-only model {"decoder": ..}: causal, but all of an example
        attends to all of its inputs, which is prefix LM. Without the key "prefix_length" in the batch it is causal.

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
    if "decoder_segment_ids" not in batch:
        prefix = batch["prefix_length"] if "prefix_length" in batch else torch.zeros_like(of_encoder)
        attends = _within_after_prefix(of_encoder, batch.get("position_ids", of_encoder) < prefix)
        return {"decoder": _written(attends, of_encoder, of_encoder, implementation, dtype)}
    of_decoder = batch["decoder_segment_ids"]
    masks = {
        "encoder": (_within(of_encoder, of_encoder), of_encoder, of_encoder),
        "decoder": (_within(of_decoder, of_decoder, after=0), of_decoder, of_decoder),
        "cross": (_within(of_decoder, of_encoder), of_decoder, of_encoder),
    }
    return {name: _written(*of_each, implementation, dtype) for name, of_each in masks.items()}


def accept_packed_sequences(model: Any) -> Any:
    """Makes a T5, mT5, UMT5, T5Gemma or T5Gemma 2 of Transformers attend within the examples of packed rows, and returns it.

        model = accept_packed_sequences(transformers.T5ForConditionalGeneration(config))
        loss = model(**batch).loss  # of a batch with segment_ids

    These models have one argument for the masks of the encoder and of cross-attention, so no mask that is passed to them can
    separate examples. This registers a hook before the encoder and one before the decoder, which make the masks of the batch's
    `segment_ids` and `decoder_segment_ids`. A batch without these is as before, and so are weights, checkpoints and generation. In
    training a warning says so where there is no attention mask, either, because Trainer leaves segment ids out by default. It works
    in whatever calls the model: `Trainer`, DistributedDataParallel, FSDP, gradient checkpointing.

    Raises:
        ValueError: the model is another one, or a batch comes to it with an attention implementation that takes no such masks.
    """
    model_type = getattr(getattr(model, "config", None), "model_type", None)
    if model_type not in MODEL_TYPES or not getattr(model.config, "is_encoder_decoder", True):
        raise ValueError(
            f"model must be an encoder-decoder model of Transformers of the types {MODEL_TYPES}, got {type(model).__name__}. Pass"
            " the masks of ul2_tasks.packed_attention_masks to the attention of others."
        )
    for module, mask in ((model.get_encoder(), _mask_encoder), (model.get_decoder(), _mask_decoder)):
        if not getattr(module, "accepts_packed_sequences", False):
            module.register_forward_pre_hook(mask, with_kwargs=True)
            module.accepts_packed_sequences = True
    return model


def check_accepted(model: Any) -> None:
    """Raises a ValueError for a model that ignores the segment ids of packed batches, whose examples would attend to each other."""
    is_known = getattr(getattr(model, "config", None), "model_type", None) in MODEL_TYPES
    if is_known and not getattr(model.get_encoder(), "accepts_packed_sequences", False):
        raise ValueError(
            f"model must accept packed sequences for a batch with segment_ids, got {type(model).__name__}, which ignores them. Call"
            " ul2_tasks.accept_packed_sequences(model)."
        )


def _mask_encoder(module: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Gives an encoder the mask of its segment ids."""
    of_encoder, _, kwargs = _without_segments(kwargs)
    if of_encoder is None:
        if module.training and kwargs.get("attention_mask") is None:
            warnings.warn(
                "accept_packed_sequences: a batch has neither segment_ids nor attention_mask. If it is packed, its examples attend"
                " to each other. Pass segment_ids to the model; for transformers.Trainer set remove_unused_columns=False.",
                stacklevel=2,
            )
        return args, kwargs
    config = getattr(module.config, "text_config", module.config)
    masks = _of_layers(of_encoder, of_encoder, module, config, {}, _window_of_encoder(config))
    return args, {**kwargs, "attention_mask": masks}


def _mask_decoder(module: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Gives a decoder the masks of its segment ids, and of those of the encoder."""
    of_encoder, of_decoder, kwargs = _without_segments(kwargs)
    if of_encoder is None or of_decoder is None:
        return args, kwargs
    config = module.config
    own = _of_layers(of_decoder, of_decoder, module, config, {"after": 0}, {"before": _window(config) - 1, "after": 0})
    cross = _of_layers(of_decoder, of_encoder, module, config, {}, None)
    return args, {**kwargs, "attention_mask": own, "encoder_attention_mask": cross}


def _without_segments(kwargs: Mapping[str, Any]) -> tuple[torch.Tensor | None, torch.Tensor | None, dict[str, Any]]:
    rest = dict(kwargs)
    return rest.pop("segment_ids", None), rest.pop("decoder_segment_ids", None), rest


def _of_layers(
    queries: torch.Tensor, keys: torch.Tensor, module: Any, config: Any, reach: dict[str, int], window: dict[str, int] | None
) -> Any:
    """The mask of a module; where its layers are of several types, as Gemma's are, that of each type."""
    implementation = module.config._attn_implementation

    def write(reach: dict[str, int]) -> torch.Tensor | flex_attention.BlockMask:
        return _written(_within(queries, keys, **reach), queries, keys, implementation, module.dtype)

    if not hasattr(config, "layer_types"):
        if implementation == "flex_attention" and len(queries) > 1:
            raise ValueError(
                f"the batch must have one row for a {type(module).__name__} with flex_attention, got {len(queries)}: Transformers"
                " reads the position bias of the second row, which has none. Pass one row at a time, or use sdpa."
            )
        return write(reach)
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


def _window(config: Any) -> int:
    return getattr(config, "sliding_window", None) or _ANY


def _window_of_encoder(config: Any) -> dict[str, int]:
    """That of Transformers 5: T5Gemma's is a distance to both sides, T5Gemma 2's is a number of places."""
    window = _window(config)
    if "gemma2" not in config.model_type:
        return {"before": window, "after": window}
    return {"before": (window - 1) // 2, "after": window // 2}
