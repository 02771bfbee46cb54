"""Pixels as the patches that a model takes, in the order of their positions, and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def patches(pixels: np.ndarray, patch_size: int) -> np.ndarray:
    """The patches of an image, row by row, each of them pixel by pixel.

    They stay bytes: a quarter of the memory of the floats that a model computes from them, `patches / 127.5 - 1`.

    Pixels are [height, width, channels], both sides multiples of `patch_size`. Returns
    [patches, patch_size * patch_size * channels], of their type.

    >>> patches(np.arange(8).reshape(2, 4, 1), patch_size=2).tolist()
    [[0, 1, 4, 5], [2, 3, 6, 7]]
    """
    height, width, channels = pixels.shape
    if height % patch_size or width % patch_size:
        raise ValueError(f"width and height must be multiples of {patch_size}, got {width} x {height} pixels.")
    blocks = pixels.reshape(height // patch_size, patch_size, width // patch_size, patch_size, channels)
    return blocks.transpose(0, 2, 1, 3, 4).reshape(-1, patch_size * patch_size * channels)


def image(patches: Any, rows: int, columns: int) -> Any:
    """The pixels of an image in three colours, from its patches: the inverse of `patches`.

    From [rows * columns, side * side * 3], an array or a tensor, it makes [rows * side, columns * side, 3], the same.

    >>> pixels = np.arange(6 * 4 * 3).reshape(6, 4, 3)
    >>> bool((image(patches(pixels, patch_size=2), rows=3, columns=2) == pixels).all())
    True
    """
    side = math.isqrt(patches.shape[1] // 3)
    return patches.reshape(rows, columns, side, side, 3).swapaxes(1, 2).reshape(rows * side, columns * side, 3)
