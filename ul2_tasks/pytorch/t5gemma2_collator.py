"""`T5Gemma2Collator`: single examples of interleaved image-text data to a batch of T5Gemma 2's inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ul2_tasks.converters.row_format import RowFormat, padded_inputs
from ul2_tasks.example_features import IMAGES, SINGLE_EXAMPLE, TASK_ID
from ul2_tasks.images.interleaved import T5GEMMA2_IMAGE, ImageTokens
from ul2_tasks.images.t5gemma2 import PIXELS, T5GEMMA2_IMAGE_SIZE, T5GEMMA2_START, check_placeholders, pixel_values
from ul2_tasks.scalars import is_integer

try:
    import torch
except ImportError as error:
    raise ImportError(
        f"ul2_tasks.pytorch.t5gemma2_collator needs the package torch ({error}); pip install 'ul2_tasks[torch]'"
    ) from error


class T5Gemma2Collator:
    """A collate function for a PyTorch DataLoader: pads texts, and decodes images, for `T5Gemma2ForConditionalGeneration`.

        dataset = UL2IterableDataset("mine_mix", {"inputs": 1024, "targets": 512})
        for batch in torch.utils.data.DataLoader(dataset, batch_size=8, collate_fn=T5Gemma2Collator()):
            loss = model(**batch).loss

    An example is one of `UL2IterableDataset` of `register_image_text`, or any dictionary of `input_ids` and `labels`, [tokens] in
    the tokenizer's own ids, and `images`, the bytes of each image in order; without it there are none. An image can also be as
    `datasets.Image(decode=False)` gives it, {"bytes": .., "path": ..}.
    """

    def __init__(
        self,
        pad_to_multiple_of: int | None = 8,
        decoder_start_token_id: int = T5GEMMA2_START,
        pad_token_id: int = 0,
        image_tokens: ImageTokens = T5GEMMA2_IMAGE,
        image_size: int = T5GEMMA2_IMAGE_SIZE,
    ):
        """
        Args:
            pad_to_multiple_of: the length of rows is a multiple of it; None is 1.
            decoder_start_token_id, pad_token_id: the model's.
            image_tokens: as in `register_image_text`.
            image_size: width and height of the model's images, in pixels.

        Raises:
            ValueError: an argument is invalid.
        """
        if not is_integer(image_size, at_least=1):
            raise ValueError(f"image_size must be an integer of at least 1, got {image_size!r}.")
        self._row_format = RowFormat(
            padding="longest",
            pad_to_multiple_of=pad_to_multiple_of,
            pad_token_id=pad_token_id,
            decoder_start_token_id=decoder_start_token_id,
            decoder_only=False,
        )
        self._image_size, self._image_tokens = image_size, image_tokens

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Makes a batch.

        Args:
            examples: at least one.

        Returns:
            `input_ids`, `attention_mask`, `decoder_input_ids`, `decoder_attention_mask` and `labels`, and `task_id` if the
            examples have it, [B, length] int64; and `pixel_values`, [images, 3, image_size, image_size] float32, if there is an
            image.

        Raises:
            ValueError: there is no example; the placeholders are not those of the images; an image cannot be read.
        """
        if not examples:
            raise ValueError("examples must have at least one example, got none.")
        rows, sizes = {}, {}
        for key, name in SINGLE_EXAMPLE.items():
            rows[key], sizes[key] = _side_by_side([np.asarray(example[name]) for example in examples])
        row_format, marks = self._row_format, {}
        if all(TASK_ID in example for example in examples):
            row_format = dataclasses.replace(row_format, task_id=True)
            marks[TASK_ID] = _side_by_side([np.asarray(example[TASK_ID]) for example in examples])[0]
        batch = padded_inputs(rows, sizes, {}, row_format, marks)
        images = [_file_of(image) for example in examples for image in example.get(IMAGES, ())]
        check_placeholders(batch["input_ids"], len(images), self._image_tokens)
        if images:
            batch[PIXELS] = pixel_values(images, self._image_size)
        return {name: torch.from_numpy(values) for name, values in batch.items()}


def _file_of(image: Any) -> Any:
    """The bytes, or the path, of an image of `datasets`; anything else as it is."""
    return (image["bytes"] or image["path"]) if isinstance(image, Mapping) else image


def _side_by_side(examples: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ids, [B, longest] int64, and how many of each are used, [B] int64."""
    sizes = np.array([len(ids) for ids in examples])
    rows = np.zeros((len(examples), sizes.max()), np.int64)
    rows[np.arange(rows.shape[1]) < sizes[:, None]] = np.concatenate(examples)
    return rows, sizes
