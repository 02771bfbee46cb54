"""Rows as BAGEL's trainer takes them."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ul2_tasks.image_rows.patches import image
from ul2_tasks.image_rows.row_arrays import MODES

_AS_THEY_ARE = (
    "packed_position_ids",
    "packed_text_ids",
    "packed_text_indexes",
    "packed_vit_position_ids",
    "packed_vit_token_indexes",
    "vit_token_seqlens",
    "packed_latent_position_ids",
    "packed_vae_token_indexes",
    "packed_timesteps",
)
_NO_LABEL = -100  # of which PyTorch's cross entropy is 0
_NO_WEIGHT = 1e-6  # more than nothing, as it is divided by, and too little to count beside others


class BagelBatch(types.SimpleNamespace):
    """A batch as BAGEL's loop takes it: with the attributes that its packer gives it."""

    def cuda(self, device: Any) -> BagelBatch:
        """Moves all tensors to a device."""
        return self._changed(lambda tensor: tensor.to(device))

    def pin_memory(self) -> BagelBatch:
        """Moves all tensors to pinned memory, as a DataLoader with `pin_memory` does."""
        return self._changed(lambda tensor: tensor.pin_memory())

    def to_dict(self) -> dict[str, Any]:
        """The arguments of the model's `forward`, and what the loop takes out: images, weights and names of records."""
        return dict(vars(self))

    def _changed(self, function: Callable[[torch.Tensor], torch.Tensor]) -> BagelBatch:
        vars(self).update({name: function(value) for name, value in vars(self).items() if isinstance(value, torch.Tensor)})
        return self


def bagel_batch(row: Mapping[str, Any], max_num_tokens: int | None = None) -> BagelBatch:
    """Converts a row of `ImageTextDataset` to a batch of BAGEL's trainer, with `use_flex=True`.

        for data in map(bagel_batch, loader):
            data = data.cuda(device).to_dict()

    Pixels become floats from -1 to 1, which are four times as large. So call it in the training process, and not in a worker.

    BAGEL's trainer divides each loss by the number of its tokens in all processes, even if that is 0. So a row without a token for
    one of the losses gets one, whose loss and gradient are 0.

    Args:
        row: a row with images of both kinds, see `required_modalities`. Without them BAGEL's model fails.
        max_num_tokens: that of BAGEL's packer. The row is padded to it by one more split and sample. None for no padding.

    Returns:
        an object with `cuda(device)`, `pin_memory()` and `to_dict()`, and with tensors and lists as attributes.
        `batch_data_indexes` has for each sample `dataset_name`, the file of its record, and `data_indexes`, its place there and
        its epoch.

    Raises:
        ValueError: the row has more tokens, or no images of a kind.
    """
    length = len(row["packed_position_ids"])
    if max_num_tokens is not None and length > max_num_tokens:
        raise ValueError(f"row must have at most {max_num_tokens} tokens, got {length}.")
    if not len(row["packed_vit_patches"]) or not len(row["packed_vae_patches"]):
        raise ValueError(
            "row must have ViT patches and VAE patches, got none. Use ImageTextDataset(.., required_modalities=('vit', 'vae'))."
        )
    padding = [] if max_num_tokens is None else [max_num_tokens - length]
    return BagelBatch(
        **{name: row[name] for name in _AS_THEY_ARE},
        **_learned(row),
        sequence_length=length,
        sample_lens=row["sample_lens"].tolist() + padding,
        split_lens=row["split_lens"].tolist() + padding,
        attn_modes=[MODES[mode] for mode in row["attn_modes"].tolist()] + ["causal"] * len(padding),
        packed_vit_tokens=_scaled(row["packed_vit_patches"]),
        padded_images=_padded(row["packed_vae_patches"], row["vae_latent_shapes"].tolist()),
        patchified_vae_latent_shapes=[tuple(shape) for shape in row["vae_latent_shapes"].tolist()],
        batch_data_indexes=[_data_indexes(name) for name in row["samples"] if name != "dummy"],
    )


def _data_indexes(name: str) -> dict[str, Any]:
    """The name of a record in the form that BAGEL's trainer keeps: of each data set and worker the last one.

    >>> _data_indexes("edits/0.parquet, row group 3, row 17, epoch 2")
    {'dataset_name': 'edits/0.parquet', 'worker_id': 0, 'data_indexes': 'row group 3, row 17, epoch 2'}
    """
    found = re.fullmatch(r"(.*), ((?:row group|line|sample|record) \d+.*)", name, re.DOTALL)
    file, place = found.groups() if found else (name, "")
    return {"dataset_name": file, "worker_id": 0, "data_indexes": place}


def _learned(row: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Where each loss is, and of what: somewhere at least."""
    found = {name: row[name] for name in ("packed_label_ids", "ce_loss_indexes", "ce_loss_weights", "mse_loss_indexes")}
    if not len(found["ce_loss_indexes"]):
        fillers = {"packed_label_ids": _NO_LABEL, "ce_loss_indexes": 0, "ce_loss_weights": _NO_WEIGHT}
        found |= {name: found[name].new_full([1], value) for name, value in fillers.items()}
    if not len(found["mse_loss_indexes"]):
        # Its model takes one prediction from as many targets as patches are noised. One from none is none (broadcasting).
        found["mse_loss_indexes"] = found["mse_loss_indexes"].new_zeros(1)
    return found


def _padded(patches: torch.Tensor, shapes: list[list[int]]) -> torch.Tensor:
    """[images, 3, height, width] float32, each in the upper left corner of zeros."""
    sizes = [rows * columns for rows, columns in shapes]
    images = [_scaled(image(of, *shape)).permute(2, 0, 1) for of, shape in zip(patches.split(sizes), shapes)]
    padded = torch.zeros(len(images), 3, max(one.shape[1] for one in images), max(one.shape[2] for one in images))
    padded = padded.to(patches.device)
    for place, one in zip(padded, images):
        place[:, : one.shape[1], : one.shape[2]] = one
    return padded


def _scaled(values: torch.Tensor) -> torch.Tensor:
    return (values / 255 - 0.5) / 0.5
