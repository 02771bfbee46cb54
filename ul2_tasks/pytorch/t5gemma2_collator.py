"""`T5Gemma2Collator`: single examples of interleaved image-text data to a batch of T5Gemma 2's inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ul2_tasks.example_features import EXAMPLE, IGNORED, IMAGES, LOSS_MASK, TASK_ID
from ul2_tasks.extras import needs
from ul2_tasks.images.interleaved import ImageTokens
from ul2_tasks.images.t5gemma2 import PIXELS, check_placeholders, pixel_values
from ul2_tasks.models.arrays import side_by_side
from ul2_tasks.models.of_model import t5gemma2_settings
from ul2_tasks.models.transformers import RowFormat
from ul2_tasks.scalars import short

if TYPE_CHECKING:
    from ul2_tasks.models.of_model import Model

with needs("T5Gemma2Collator", "torch"):
    import torch

    from ul2_tasks.pytorch.elements import single_example, to_torch


class T5Gemma2Collator:
    """A collate function for a PyTorch DataLoader: pads texts, and decodes images, for `T5Gemma2ForConditionalGeneration`.

        dataset = UL2IterableDataset("mine_mix", {"inputs": 1024, "targets": 512})
        for batch in torch.utils.data.DataLoader(dataset, batch_size=8, collate_fn=T5Gemma2Collator(model=model)):
            loss = model(**batch).loss

    An example is one of `UL2IterableDataset` or of `ul2_tasks.examples`, or any dictionary of `input_ids` and `labels`, [tokens] in
    the tokenizer's own ids, and `images`, the bytes of each image in order; without it there are none. An image can also be as
    `datasets.Image(decode=False)` gives it, {"bytes": .., "path": ..}. Where some labels are -100, as in pairs of prompts and
    completions, the example has `targets`, too, which the decoder reads.
    """

    def __init__(
        self,
        pad_to_multiple_of: int | None = 8,
        decoder_start_token_id: int | None = None,
        pad_token_id: int | None = None,
        image_tokens: ImageTokens | None = None,
        image_size: int | None = None,
        *,
        embedding_rows: int | None = None,
        model: Model | None = None,
    ):
        """
        Args:
            pad_to_multiple_of: the length of rows is a multiple of it; None is 1.
            decoder_start_token_id, pad_token_id: by default the model's, without one 2, BOS, and 0.
            image_tokens: as in `register_image_text`; by default the model's, without one `ImageTokens()`.
            image_size: width and height of images, in pixels; by default the model's, without one 896.
            embedding_rows: the number of rows of the model's embedding, below which all ids must be; by default the model's,
                without one there is no check.
            model: a T5Gemma 2 of `transformers`, or its configuration, for what is left out of the arguments above. It is not kept.

        Raises:
            ValueError: an argument is invalid.
        """
        of_rows, self._image_tokens, self._image_size = t5gemma2_settings(
            model,
            pad_token_id=pad_token_id,
            decoder_start_token_id=decoder_start_token_id,
            embedding_rows=embedding_rows,
            image_tokens=image_tokens,
            image_size=image_size,
        )
        self._row_format = RowFormat(padding="longest", pad_to_multiple_of=pad_to_multiple_of, **of_rows)

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Makes a batch.

        Args:
            examples: at least one.

        Returns:
            `input_ids`, `attention_mask`, `decoder_input_ids`, `decoder_attention_mask` and `labels`, and `task_id` if the
            examples have it, [B, length] int64; and `pixel_values`, [images, 3, image_size, image_size] float32, if there is an
            image.

        Raises:
            ValueError: there is no example; the placeholders are not those of the images; an image cannot be read; an id has no row
                in the model's embedding; or labels are -100 without `targets`.
        """
        if not examples:
            raise ValueError("examples must have at least one example, got none.")
        examples = [_single(example) for example in examples]
        rows, sizes = {}, {}
        for key, values in (
            ("inputs", [example["input_ids"] for example in examples]),
            ("targets", [example.get("targets", example["labels"]) for example in examples]),
        ):
            rows[key], sizes[key] = side_by_side(values)
        if (rows["targets"] == IGNORED).any():
            raise ValueError("examples must have targets, all ids that a decoder reads, where some labels are -100. Pass both.")
        rows[LOSS_MASK], row_format = side_by_side([example["labels"] for example in examples])[0] != IGNORED, self._row_format
        if all(TASK_ID in example for example in examples):
            row_format = dataclasses.replace(row_format, task_id=True)
            rows[TASK_ID] = side_by_side([example[TASK_ID] for example in examples])[0]
        batch = row_format.arrays(rows, sizes)
        images = [_file_of(image) for example in examples for image in example.get(IMAGES, ())]
        check_placeholders(batch["input_ids"], len(images), self._image_tokens)
        if images:
            batch[PIXELS] = pixel_values(images, self._image_size)
        return {name: to_torch(values) for name, values in batch.items()}


def _single(example: Any) -> Mapping[str, Any]:
    """An example as `UL2IterableDataset` gives it, also one of `ul2_tasks.examples`. Raises a ValueError for anything else."""
    if isinstance(example, Mapping) and example.keys() >= EXAMPLE.keys():
        return {**single_example(example), IMAGES: example.get(IMAGES, ())}
    if not (isinstance(example, Mapping) and example.keys() >= {"input_ids", "labels"}):
        got = sorted(example) if isinstance(example, Mapping) else short(example)
        raise ValueError(
            f"an example must have input_ids and labels, got {got}. Pass those of UL2IterableDataset, or of ul2_tasks.examples."
        )
    return example


def _file_of(image: Any) -> Any:
    """The bytes, or the path, of an image of `datasets`; anything else as it is."""
    return (image["bytes"] or image["path"]) if isinstance(image, Mapping) else image
