"""The special tokens and the position embeddings of a model that reads and makes images."""

from __future__ import annotations

import dataclasses

import numpy as np

from ul2_tasks.image_rows.samples import Sizes
from ul2_tasks.scalars import is_integer


@dataclasses.dataclass(frozen=True)
class SpecialTokenConfig:
    """The special tokens of a model that reads and makes images, and its tables of position embeddings.

    Attributes:
        bos_id, eos_id: the ids around a text.
        boi_id, eoi_id: the ids around an image.
        vit_patches_per_side, vae_patches_per_side: how many patches each table of position embeddings has on a side.
        interpolate_pos: whether the patches of an image are spread over the whole table; else they are its first rows and columns.
    """

    bos_id: int
    eos_id: int
    boi_id: int
    eoi_id: int
    vit_patches_per_side: int = 70
    vae_patches_per_side: int = 64
    interpolate_pos: bool = False

    def __post_init__(self):
        for field in dataclasses.fields(self)[:-1]:
            least = 1 if field.name.endswith("per_side") else 0
            if not is_integer(getattr(self, field.name), at_least=least):
                raise ValueError(f"{field.name} must be an integer of at least {least}, got {getattr(self, field.name)!r}.")

    def check(self, sizes: Sizes) -> None:
        """Raises a ValueError for sizes whose images would have positions beyond the table."""
        for name, size, side in (("vit", sizes.vit, self.vit_patches_per_side), ("vae", sizes.vae, self.vae_patches_per_side)):
            if size.patches_per_side > side and not self.interpolate_pos:
                raise ValueError(
                    f"{name}_patches_per_side must be at least {size.patches_per_side} for images of {size.longest_edge} pixels,"
                    f" got {side}. Raise it, or pass smaller sizes."
                )

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the marks."""
        return self.bos_id, self.eos_id, self.boi_id, self.eoi_id

    def check_ids(self, ids: np.ndarray, *others: int) -> None:
        """Raises a ValueError for ids of texts, [ids] integers, with a mark among them, or one of others."""
        if (marks := np.isin(ids, (*self.ids, *others))).any():
            raise ValueError(
                f"a text must not have the ids of special_tokens, got {ids[marks][0]}. Pass a vocabulary that adds none of them."
            )
