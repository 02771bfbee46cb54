"""Patches are BAGEL's, and stand at the places that their positions say."""

import pathlib

import numpy as np
import pytest

from ul2_tasks.image_rows.patches import patches
from ul2_tasks.image_rows.row_arrays import patch_positions


def test_patches_are_bagels():
    pixels = (np.arange(28 * 28 * 3) % 251).astype(np.uint8).reshape(28, 28, 3)
    expected = np.load(pathlib.Path(__file__).parent / "bagel" / "patch_pixels.npy")
    found = patches(pixels, 14)
    assert found.dtype == np.uint8
    np.testing.assert_allclose(found / 127.5 - 1, expected, atol=1e-6)
    np.testing.assert_array_equal((found.astype(np.float32) / 255 - np.float32(0.5)) / np.float32(0.5), expected)


def test_each_patch_stands_where_its_position_says():
    """An image whose pixels are the positions of their patches."""
    rows, columns, side = 3, 5, 7
    pixels = np.arange(rows).repeat(2)[:, np.newaxis] * side + np.arange(columns).repeat(2)
    found = patches(pixels[..., np.newaxis], 2)
    assert (found == patch_positions(np.array([rows]), np.array([columns]), side)[:, np.newaxis]).all()


def test_an_image_that_is_no_whole_number_of_patches_is_refused():
    with pytest.raises(ValueError, match="width and height must be multiples of 14, got 30 x 28"):
        patches(np.zeros((28, 30, 3), np.uint8), 14)
