"""What a model of `transformers` says of its inputs: its ids of padding and of the decoder's start, its kind and its embedding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from ul2_tasks.scalars import is_integer

if TYPE_CHECKING:
    import seqio
    import transformers

    Model: TypeAlias = transformers.PreTrainedModel | transformers.PretrainedConfig


def settings_of(
    model: Model | None,
    *,
    pad_token_id: int | None,
    decoder_start_token_id: int | None,
    decoder_only: bool | None,
    embedding_rows: int | None,
    vocabulary: seqio.Vocabulary | None = None,
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
            "decoder_only": False if decoder_only is None else decoder_only,
            "embedding_rows": embedding_rows,
        }
    config: Any = getattr(model, "config", model)
    if not hasattr(config, "is_encoder_decoder") or not hasattr(config, "get_text_config"):
        got = repr(model) if isinstance(model, str) else f"a {type(model).__name__}"
        raise ValueError(
            f"model must be a model of transformers, or its configuration, got {got}. Load it, or pass pad_token_id,"
            " decoder_start_token_id and embedding_rows of another one."
        )
    name, of_text, no_start = type(model).__name__, config.get_text_config(decoder=True), not config.is_encoder_decoder
    if decoder_only not in (None, no_start):
        raise ValueError(f"decoder_only must be {no_start} for a {name}, got {decoder_only!r}. Leave it out.")
    configs = (config, of_text, getattr(model, "generation_config", None))

    def first(*names: str) -> int | None:
        named = (getattr(each, name, None) for name in names for each in configs)
        return next((id for id in named if is_integer(id, at_least=0)), None)

    pad = first("pad_token_id") if pad_token_id is None else pad_token_id
    pad = getattr(vocabulary, "own_pad_id", None) if pad is None else pad
    if pad is None:
        raise ValueError(
            f"pad_token_id must be given for a {name} whose configuration names none. Pass pad_token_id=tokenizer.pad_token_id, or"
            " any id that it has a row for: the masks are 0 there."
        )
    start = first("decoder_start_token_id", "bos_token_id") if decoder_start_token_id is None else decoder_start_token_id
    if start is None and not no_start:
        raise ValueError(
            f"decoder_start_token_id must be given for a {name} whose configuration names none. Pass decoder_start_token_id=, 0"
            " for a T5."
        )
    embedding: Any = getattr(model, "get_input_embeddings", None)
    rows = of_text.vocab_size if embedding is None else embedding().num_embeddings
    return {
        "pad_token_id": pad,
        "decoder_start_token_id": decoder_start_token_id or 0 if no_start else start,
        "decoder_only": no_start,
        "embedding_rows": rows if embedding_rows is None else embedding_rows,
    }
