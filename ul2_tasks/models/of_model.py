"""What a model of `transformers` says of its inputs: its ids of padding and of the decoder's start, its kind and its embedding.

Of T5Gemma 2 also its images, see `t5gemma2_settings`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from ul2_tasks.images.interleaved import T5GEMMA2_IMAGE, ImageTokens
from ul2_tasks.images.t5gemma2 import T5GEMMA2_IMAGE_SIZE, T5GEMMA2_START
from ul2_tasks.scalars import is_integer, short
from ul2_tasks.tokenizers.base import Vocabulary

if TYPE_CHECKING:
    import transformers

    Model: TypeAlias = transformers.PreTrainedModel | transformers.PretrainedConfig


def settings_of(
    model: Model | None,
    *,
    pad_token_id: int | None,
    decoder_start_token_id: int | None,
    decoder_only: bool | None,
    embedding_rows: int | None,
    vocabulary: Vocabulary | None = None,
) -> dict[str, Any]:
    """The arguments of `RowFormat` that a model has. A given one wins, and without a model they are T5's.

    Configurations nest, and a model has one of generation beside its own: the first that names an id is asked. As in `generate`, a
    decoder without a start id begins with BOS. A model that names no padding has that of the vocabulary's tokenizer. What is named
    nowhere, and a `decoder_only` that is not the model's, raises a ValueError.
    """
    if model is None:
        return {
            "pad_token_id": 0 if pad_token_id is None else pad_token_id,
            "decoder_start_token_id": 0 if decoder_start_token_id is None else decoder_start_token_id,
            "names_start": decoder_start_token_id is not None,
            "decoder_only": False if decoder_only is None else decoder_only,
            "embedding_rows": embedding_rows,
        }
    model, config = _unwrapped(model), _config(model)
    name, of_text, no_start = type(model).__name__, config.get_text_config(decoder=True), not config.is_encoder_decoder
    if decoder_only not in (None, no_start):
        raise ValueError(f"decoder_only must be {no_start} for {name}, got {decoder_only!r}. Leave it out.")
    if no_start and not getattr(model, "can_generate", lambda: True)():
        raise ValueError(
            f"model must be a model that writes text, got {name}. Load it as an AutoModelForCausalLM or AutoModelForSeq2SeqLM, or"
            " pass decoder_only, pad_token_id and embedding_rows in its place."
        )
    configs = (config, of_text, getattr(model, "generation_config", None))

    def first(*names: str) -> int | None:
        named = (getattr(each, name, None) for name in names for each in configs)
        return next((id for id in named if is_integer(id, at_least=0)), None)

    pad = first("pad_token_id") if pad_token_id is None else pad_token_id
    pad = vocabulary.pad_id if pad is None and vocabulary is not None else pad
    if pad is None:
        raise ValueError(
            f"pad_token_id must be given for {name}, whose configuration names none. Pass pad_token_id=tokenizer.pad_token_id, or"
            " any id that it has a row for: the masks are 0 there."
        )
    start = first("decoder_start_token_id", "bos_token_id") if decoder_start_token_id is None else decoder_start_token_id
    if start is None and not no_start:
        raise ValueError(
            f"decoder_start_token_id must be given for {name}, whose configuration names none. Pass decoder_start_token_id=, 0"
            " for a T5."
        )
    return {
        "pad_token_id": pad,
        "decoder_start_token_id": decoder_start_token_id or 0 if no_start else start,
        "decoder_only": no_start,
        "embedding_rows": _rows(model, config) if embedding_rows is None else embedding_rows,
    }


def decoder_settings(model: Model | None, *, pad_token_id: int | None, embedding_rows: int | None) -> tuple[int, int | None]:
    """The id of padding and the rows of the embedding, see `settings_of`, for rows that only a decoder reads."""
    if model is not None and _config(model).is_encoder_decoder:
        raise ValueError(
            f"model must be a decoder-only model for HuggingFaceChatConverter, got {type(model).__name__}. Read pairs of prompts"
            " and completions, with lengths of inputs and targets, and HuggingFaceFeatureConverter."
        )
    found = settings_of(
        model, pad_token_id=pad_token_id, decoder_start_token_id=None, decoder_only=None, embedding_rows=embedding_rows
    )
    return found["pad_token_id"], found["embedding_rows"]


def t5gemma2_settings(
    model: Model | None,
    *,
    pad_token_id: int | None,
    decoder_start_token_id: int | None,
    embedding_rows: int | None,
    image_tokens: ImageTokens | None,
    image_size: int | None,
) -> tuple[dict[str, Any], ImageTokens, int]:
    """The arguments of `RowFormat`, the image token sequence and the size of images of a T5Gemma 2, see `settings_of`."""
    if model is None:
        decoder_start_token_id = T5GEMMA2_START if decoder_start_token_id is None else decoder_start_token_id
        tokens, size = T5GEMMA2_IMAGE, T5GEMMA2_IMAGE_SIZE
    else:
        encoder: Any = getattr(_config(model), "encoder", None)
        if not hasattr(encoder, "mm_tokens_per_image"):
            raise ValueError(
                f"model must be a T5Gemma 2, or its configuration, got {type(model).__name__}. Use HuggingFaceFeatureConverter for"
                " others, which have no images."
            )
        ids = (encoder.boi_token_index, encoder.image_token_index, encoder.eoi_token_index)
        tokens, size = ImageTokens(*ids, encoder.mm_tokens_per_image), encoder.vision_config.image_size
    of_rows = settings_of(
        model,
        pad_token_id=pad_token_id,
        decoder_start_token_id=decoder_start_token_id,
        decoder_only=None,
        embedding_rows=embedding_rows,
    )
    size = size if image_size is None else image_size
    if not is_integer(size, at_least=1):
        raise ValueError(f"image_size must be an integer of at least 1, got {size!r}.")
    return of_rows, image_tokens or tokens, int(size)


def _rows(model: Any, config: Any) -> int:
    """How many ids a model reads and predicts: the rows of its embedding, or of its head, where that has fewer."""
    if not hasattr(model, "get_input_embeddings"):
        return config.get_text_config(decoder=True).vocab_size  # of the encoder resize_token_embeddings keeps the old number
    head = model.get_output_embeddings()
    rows = [model.get_input_embeddings().num_embeddings, getattr(head, "out_features", None)]
    return min(each for each in rows if each is not None)


def _unwrapped(model: Any) -> Any:
    """A model without what trains it in parallel, such as DistributedDataParallel."""
    return model if hasattr(model, "config") else getattr(model, "module", model)


def _config(model: Model) -> Any:
    """The configuration of a model, or of what is one itself. Raises a ValueError for anything else."""
    config: Any = getattr(_unwrapped(model), "config", model)
    if not hasattr(config, "is_encoder_decoder") or not hasattr(config, "get_text_config"):
        raise ValueError(
            f"model must be a model of transformers, or its configuration, got {short(model)}. Load it, or pass pad_token_id,"
            " decoder_start_token_id and embedding_rows of another one."
        )
    return config
