"""How examples become rows of model inputs of Hugging Face's models."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from ul2_tasks.example_features import EXAMPLE, IGNORED, SPAN_ID
from ul2_tasks.scalars import is_integer

PADDINGS = ("longest", "max_length")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowFormat:
    """How examples become rows of model inputs.

    Attributes:
        padding: "longest", to the longest of the batch, rounded up to a multiple; "max_length", to the lengths that are given.
        pad_to_multiple_of: that multiple, in tokens, at least 1; None is 1.
        pad_token_id: the id that pads rows of ids; the masks are 0 there.
        decoder_start_token_id: the id that the decoder reads before the first target.
        decoder_only: whether an example is one row, `[inputs; targets]`, instead of one for the encoder and one for the decoder.
        embedding_rows: how many ids the model has an embedding of; None where that is not known. It changes no row.
        span_id: whether labels have spans beside them.
    """

    padding: str
    pad_to_multiple_of: int | None
    pad_token_id: int
    decoder_start_token_id: int
    decoder_only: bool
    embedding_rows: int | None = dataclasses.field(default=None, repr=False)  # states of datasets hold the other attributes
    # States of datasets have this repr from a time when there were no spans; with spans the model inputs differ, too.
    span_id: bool = dataclasses.field(default=False, repr=False)

    def __post_init__(self):
        if self.pad_to_multiple_of is None:
            object.__setattr__(self, "pad_to_multiple_of", 1)  # so that states call both the same
        for key, expected, valid in (
            ("padding", f"one of {PADDINGS}", self.padding in PADDINGS),
            ("pad_to_multiple_of", "an integer of at least 1", is_integer(self.pad_to_multiple_of, at_least=1)),
            ("pad_token_id", "an id, 0 or more", is_integer(self.pad_token_id, at_least=0)),
            ("decoder_start_token_id", "an id, 0 or more", is_integer(self.decoder_start_token_id, at_least=0)),
            ("decoder_only", "True or False", isinstance(self.decoder_only, bool)),
            (
                "embedding_rows",
                "how many rows the model's embedding has, model.get_input_embeddings().num_embeddings, or None",
                self.embedding_rows is None or is_integer(self.embedding_rows, at_least=1),
            ),
            ("span_id", "True or False", isinstance(self.span_id, bool)),
        ):
            if not valid:
                raise ValueError(f"{key} is {getattr(self, key)!r:.100}, expected {expected}")
        for key in ("pad_token_id", *(() if self.decoder_only else ("decoder_start_token_id",))):
            if self.embedding_rows is not None and getattr(self, key) >= self.embedding_rows:
                raise ValueError(f"{key} is {getattr(self, key)}, expected an id below embedding_rows, {self.embedding_rows}")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the model inputs."""
        of_decoder = () if self.decoder_only else ("decoder_input_ids", "decoder_attention_mask")
        return "input_ids", "attention_mask", *of_decoder, "labels", *((SPAN_ID,) if self.span_id else ())

    def row_lengths(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """The length of each model input with padding "max_length", in tokens, for these lengths of inputs and targets."""
        if self.decoder_only:
            return dict.fromkeys(self.names, lengths["inputs"] + lengths["targets"])
        return {name: lengths["inputs" if name in ("input_ids", "attention_mask") else "targets"] for name in self.names}


def padded_inputs(
    rows: Mapping[str, np.ndarray], sizes: Mapping[str, np.ndarray], lengths: Mapping[str, int], row_format: RowFormat
) -> dict[str, np.ndarray]:
    """`hugging_face.model_inputs` without TensorFlow: the model inputs of a batch, [B, length] int64 each.

    `rows` are [B, width] integers of inputs and of targets, in the tokenizer's own ids, of which `sizes`, [B] int64, are used.
    """
    fixed = row_format.row_lengths(lengths)
    multiple = row_format.pad_to_multiple_of or 1

    def width(name: str, longest: int) -> int:
        return fixed[name] if row_format.padding == "max_length" else -(-longest // multiple) * multiple

    (inputs, of_inputs), (targets, of_targets) = ((rows[key], sizes[key][:, None]) for key in EXAMPLE)
    pad = row_format.pad_token_id
    if row_format.decoder_only:
        places = np.arange(width("input_ids", int((of_inputs + of_targets).max())))
        is_input, is_token = places < of_inputs, places < of_inputs + of_targets
        of_target = _at(targets, places - of_inputs)
        input_ids = np.where(is_input, _at(inputs, places), np.where(is_token, of_target, pad))
        labels = np.where(is_token & ~is_input, of_target, IGNORED)
        return {"input_ids": input_ids, "attention_mask": is_token.astype(np.int64), "labels": labels}
    places = np.arange(width("input_ids", int(of_inputs.max())))
    targets_places = np.arange(width("labels", int(of_targets.max())))
    is_input, is_target = places < of_inputs, targets_places < of_targets
    target = _at(targets, targets_places)
    read = np.full(target.shape, row_format.decoder_start_token_id, np.int64)
    read[:, 1:] = np.where(is_target, target, pad)[:, :-1]
    return {
        "input_ids": np.where(is_input, _at(inputs, places), pad),
        "attention_mask": is_input.astype(np.int64),
        "decoder_input_ids": read,
        "decoder_attention_mask": is_target.astype(np.int64),
        "labels": np.where(is_target, target, IGNORED),
    }


def _at(rows: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The values of rows, [B, width], at places, [length] or [B, length]; at places beyond them any value. [B, length] int64."""
    within = np.clip(places, 0, rows.shape[1] - 1)
    return (rows[:, within] if within.ndim == 1 else np.take_along_axis(rows, within, axis=1)).astype(np.int64)
