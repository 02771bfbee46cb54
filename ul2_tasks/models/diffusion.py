"""Rows of diffusion denoisers: each place is to say the clean token of its own place, and `block_ids` say what it attends to.

    targets         A B C D E F                      two blocks of 3; B and D are masked
    clean=False     A ? C ? E F                      position_ids  0 1 2 3 4 5              block_ids  1 1 1 3 3 3
    clean=True      A ? C ? E F  A B C D E F                       0 1 2 3 4 5 0 1 2 3 4 5             1 1 1 3 3 3 2 2 2 4 4 4
    labels          . B . D . .  . . . . . .

A place attends to those of its segment with its own block id, and to those with lower even ones, which are clean.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ul2_tasks.example_features import BLOCK_IDS, DIFFUSION, IGNORED, LOSS_WEIGHT, RATE, Feature
from ul2_tasks.models.of_model import decoder_settings
from ul2_tasks.models.transformers import HuggingFaceFeatureConverter, RowFormat

if TYPE_CHECKING:
    from ul2_tasks.models.of_model import Model


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiffusionRows(RowFormat):
    """How examples of diffusion denoisers become rows; with `clean` a row has the noised sequences, and then the clean ones."""

    clean: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return "input_ids", "labels", LOSS_WEIGHT, RATE, "position_ids", "segment_ids", BLOCK_IDS

    @property
    def features(self) -> Mapping[str, Feature]:
        return DIFFUSION

    def row_lengths(self, lengths: Mapping[str, int]) -> dict[str, int]:
        return dict.fromkeys(self.names, lengths["targets"] + (lengths["inputs"] if self.clean else 0))

    def arrays(self, rows, sizes=None, lengths=None, *, first=0, shift=0) -> dict[str, np.ndarray]:
        """See `RowFormat.arrays`. Raises a ValueError where examples of another denoiser are among them, too."""
        self._check_embedded(rows, first, shift)
        ids, rates, weights, segments = (rows[key] for key in ("targets", RATE, LOSS_WEIGHT, "targets_segment_ids"))
        is_noised, is_input = rates > 0, rows["inputs_segment_ids"] > 0
        if (is_noised.sum(axis=1) != is_input.sum(axis=1)).any():
            raise ValueError("examples must be of diffusion denoisers for a DiffusionConverter, got others. Mix none with them.")
        noised = np.zeros_like(ids)
        noised[is_noised] = rows["inputs"][is_input]
        parts: dict[str, Any] = dict(
            zip(self.names, (noised, ids, weights, rates, rows["targets_positions"], segments, rows[BLOCK_IDS]))
        )
        if self.clean:
            said = _following(np.where(is_noised, 0, weights), segments)
            clean = ids, _following(ids, segments), said, 0 * rates, *[*parts.values()][4:6], rows[BLOCK_IDS] + is_noised
            parts = {key: _beside(is_input, is_noised, *pair) for key, *pair in zip(parts, parts.values(), clean)}
        elif ((weights > 0) > is_noised).any():
            raise ValueError("clean must be True for a loss on clean tokens, got False. Pass DiffusionConverter(clean=True).")
        else:
            parts["input_ids"] = np.where(is_noised, noised, ids)
        parts["input_ids"] = np.where(parts["segment_ids"] > 0, parts["input_ids"] - shift, self.pad_token_id).astype(np.int32)
        parts["labels"] = np.where(parts[LOSS_WEIGHT] > 0, parts["labels"] - shift, IGNORED).astype(np.int32)
        return parts


def _following(values: np.ndarray, segments: np.ndarray) -> np.ndarray:
    """The value of the place after each; 0 where a text ends."""
    following = np.zeros_like(values)
    following[:, :-1] = np.where(segments[:, 1:] == segments[:, :-1], values[:, 1:], 0)
    return following


def _beside(is_input: np.ndarray, is_noised: np.ndarray, noised: np.ndarray, clean: np.ndarray) -> np.ndarray:
    """The values of noised places, as inputs have them, and then of all places of the clean sequences."""
    first = np.zeros(is_input.shape, clean.dtype)
    first[is_input] = noised[is_noised]
    return np.concatenate([first, clean], axis=1)


class DiffusionConverter(HuggingFaceFeatureConverter):
    """Converts packed examples of diffusion denoisers for models that read both ways.

        converter = DiffusionConverter(model=model)
        dataset = UL2IterableDataset(mixture, {"inputs": 4096, "targets": 4096}, feature_converter=converter)
        for batch in torch.utils.data.DataLoader(dataset, batch_size=8):
            mask = packed_attention_masks(batch)["decoder"]
            logits = model(batch["input_ids"], attention_mask=mask, position_ids=batch["position_ids"]).logits

    An element is a row, [length] for each of:

    * `input_ids`: the tokenizer's own ids, noised; with `clean` also as they are.
    * `labels`: of each place its own clean id, where that has a loss, -100 elsewhere. No model is to shift them.
    * `loss_weight`, float32: of each label, 1 / t for a masked one; 0 elsewhere.
    * `t`, float32: the rate at which a place was noised; 0 of clean places.
    * `position_ids`, `segment_ids`: of each text of the row, from 0 and from 1.
    * `block_ids`: a place attends to those of its segment with its own block id, and to those with lower even ones.
      `packed_attention_masks` makes masks of them.
    """

    def __init__(
        self, clean: bool = False, *, pad_token_id: int | None = None, embedding_rows: int | None = None, model: Model | None = None
    ):
        """
        Args:
            clean: whether rows have the clean sequences after the noised ones, as `BlockDiffusion` and `CanvasDiffusion` need;
                rows are as long as inputs and targets together, else as targets.
            pad_token_id: the id that pads `input_ids`; by default the model's, without one 0.
            embedding_rows: the number of rows of the model's embedding, below which all ids must be; by default the model's,
                without one there is no check.
            model: a model of `transformers`, or its configuration, for what is left out. It is not kept.
        """
        if not isinstance(clean, bool):
            raise ValueError(f"clean must be True or False, got {clean!r}.")
        pad, rows = decoder_settings(model, pad_token_id=pad_token_id, embedding_rows=embedding_rows)
        of_rows: dict[str, Any] = {"padding": "max_length", "pad_to_multiple_of": None, "decoder_start_token_id": 0}
        of_rows |= {"pad_token_id": pad, "embedding_rows": rows, "decoder_only": True, "pack": True}
        self.row_format = DiffusionRows(**of_rows, clean=clean)
