"""How large an image is for a model: from its width and height alone, before it is decoded."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from ul2_tasks.scalars import is_integer


class Grid(NamedTuple):
    """The patches of an image: how many rows and columns of them."""

    rows: int
    columns: int

    @property
    def patches(self) -> int:
        return self.rows * self.columns


@dataclasses.dataclass(frozen=True)
class Size:
    """The rule by which images are resized. The ratio of their sides is kept, up to rounding.

    An image is enlarged until its short side has `shortest_edge` pixels, then shrunk until its long side has at most `longest_edge`
    and the whole at most `max_pixels`. Where these contradict each other, `longest_edge` and `max_pixels` win, and the short side
    is shorter.

    Attributes:
        longest_edge: pixels of the longest side there may be, a multiple of `patch_size`.
        shortest_edge: of the shortest side there should be.
        patch_size: pixels of a side of a patch. Both sides are multiples of it, one patch at least.
        max_pixels: of width times height.
        shared: whether `max_pixels` are those of all images of a sample together; else each has them to itself.

    >>> VAE.fit(3000, 2000), VAE.grid(3000, 2000)
    ((1024, 688), Grid(rows=43, columns=64))
    >>> VIT_CONVERSATION.fit(980, 980, images=8)
    (490, 490)
    """

    longest_edge: int
    shortest_edge: int
    patch_size: int
    max_pixels: int
    shared: bool = False

    def __post_init__(self):
        for name in ("longest_edge", "shortest_edge", "patch_size", "max_pixels"):
            if not is_integer(getattr(self, name), at_least=1):
                raise ValueError(f"{name} must be an integer of at least 1, got {getattr(self, name)!r}.")
        if self.longest_edge % self.patch_size:
            raise ValueError(f"longest_edge must be a multiple of patch_size, {self.patch_size}, got {self.longest_edge}.")
        if self.shortest_edge > self.longest_edge:
            raise ValueError(f"shortest_edge must be at most longest_edge, {self.longest_edge}, got {self.shortest_edge}.")

    @property
    def patches_per_side(self) -> int:
        """The most patches that a side can have."""
        return self.longest_edge // self.patch_size

    def grid(self, width: int, height: int, images: int = 1) -> Grid:
        """The patches of an image, see `fit`."""
        width, height = self.fit(width, height, images)
        return Grid(height // self.patch_size, width // self.patch_size)

    def fit(self, width: int, height: int, images: int = 1) -> tuple[int, int]:
        """The width and the height that an image gets.

        Width and height are of the image as it is seen upright. `images` is how many the sample has that this rule is for,
        which counts where they share `max_pixels`.
        """
        if width < 1 or height < 1:
            raise ValueError(f"the image must have at least 1 x 1 pixels, got {width} x {height}.")
        scale = max(min(self.longest_edge / max(width, height), 1), self.shortest_edge / min(width, height))
        sides = self._scaled((width, height), scale)
        ratio = self.max_pixels / (images if self.shared else 1) / (sides[0] * sides[1])
        if ratio * max(sides) > self.longest_edge:
            # The cut of the long side, below, is the greater one. This one, as BAGEL makes it, only rounds the short side.
            sides = self._scaled(sides, min(ratio, 1))
        elif ratio < 1:
            # Rounded down to whole patches, so that a limit of their product is kept.
            width, height = (max(1, math.floor(side * math.sqrt(ratio) / self.patch_size)) for side in sides)
            sides = (width * self.patch_size, height * self.patch_size)
        return self._scaled(sides, min(self.longest_edge / max(sides), 1))

    def _scaled(self, sides: tuple[int, int], scale: float) -> tuple[int, int]:
        """Both sides, rounded to whole pixels, and then to the nearest whole patch."""
        width, height = (max(1, round(round(side * scale) / self.patch_size)) * self.patch_size for side in sides)
        return width, height


# As BAGEL was trained: latents of 8 x 8 pixels, two by two; a ViT for edits, and one for conversations, of the same patches.
VAE = Size(longest_edge=1024, shortest_edge=512, patch_size=16, max_pixels=1_806_336)
VIT_EDIT = Size(longest_edge=518, shortest_edge=224, patch_size=14, max_pixels=1_806_336)
VIT_CONVERSATION = Size(longest_edge=980, shortest_edge=378, patch_size=14, max_pixels=2_007_040, shared=True)
