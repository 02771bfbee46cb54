"""Images as T5Gemma 2 takes them, and the check that a batch has those of its placeholders."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ul2_tasks.images.interleaved import ImageTokens
from ul2_tasks.images.pixels import pixels, resized

T5GEMMA2_START, T5GEMMA2_IMAGE_SIZE = 2, 896  # BOS, and the pixels of an image's sides
PIXELS = "pixel_values"


def pixel_values(images: Sequence[object], image_size: int = T5GEMMA2_IMAGE_SIZE) -> np.ndarray:
    """Images as SigLIP sees them in T5Gemma 2: squares, whatever their ratio, with values from -1 to 1.

    They are those of Transformers' `Gemma3ImageProcessorPil`. Gives [images, 3, image_size, image_size] float32. An image is what
    `images.pixels.pixels` takes.

    >>> pixel_values([]).shape
    (0, 3, 896, 896)
    """
    found = np.empty((len(images), 3, image_size, image_size), np.float32)
    for number, image in enumerate(images):
        seen = resized(pixels(image), image_size, image_size, "bilinear")
        found[number] = (seen.transpose(2, 0, 1) / np.float32(255) - np.float32(0.5)) / np.float32(0.5)
    return found


def check_placeholders(input_ids: np.ndarray, images: int, image_tokens: ImageTokens) -> None:
    """Refuses a batch whose placeholders are not those of its images: some were trimmed, or are of another image token sequence.

    The ids are [B, length], of any dtype.

    >>> check_placeholders(np.array([[7, 8, 8, 9, 5]]), 1, ImageTokens(7, 8, 9, image_seq_length=2))
    """
    found = int((input_ids == image_tokens.image_id).sum())
    if found != images * image_tokens.image_seq_length:
        raise ValueError(
            f"a batch of {images} images must have {images * image_tokens.image_seq_length} placeholders (id"
            f" {image_tokens.image_id}), got {found}. Pass the image_tokens of register_image_text, and do not trim examples."
        )
