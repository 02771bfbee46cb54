"""Turns interleaved image-text data into the inputs of T5Gemma 2 in Transformers: `T5Gemma2FeatureConverter`.

input_ids               5 6 <start> <image> <image> <end> 7 1     8 9 1 0 0 0 0 0     a row for each example, padded
pixel_values            [images of the batch, 3, 896, 896]
decoder_input_ids       2 ..                                     the decoder starts with BOS
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.converters.hugging_face_graph import batch_inputs, shift_of_ids
from ul2_tasks.converters.marks import absent, example_spec
from ul2_tasks.converters.of_model import t5gemma2_settings
from ul2_tasks.converters.row_format import RowFormat
from ul2_tasks.example_features import EXAMPLE, IMAGES
from ul2_tasks.graphs import no_autograph, python_op
from ul2_tasks.images.interleaved import ImageTokens
from ul2_tasks.images.t5gemma2 import PIXELS, check_placeholders, pixel_values
from ul2_tasks.scalars import is_integer

if TYPE_CHECKING:
    from ul2_tasks.converters.of_model import Model


class T5Gemma2FeatureConverter(seqio.FeatureConverter):
    """A SeqIO converter of interleaved image-text data for `T5Gemma2ForConditionalGeneration` of `transformers`.

        converter = T5Gemma2FeatureConverter(batch_size=8, model=model)
        dataset = UL2IterableDataset("mine_mix", {"inputs": 1024, "targets": 512}, feature_converter=converter)
        for batch in torch.utils.data.DataLoader(dataset, batch_size=None):
            loss = model(**batch).loss

    An element is a batch: the model inputs of `HuggingFaceFeatureConverter`, [B, length] int32 each, and `pixel_values`
    [images, 3, 896, 896] float32, the images of all rows in their order. Where a batch has no image `pixel_values` is empty.
    `UL2IterableDataset` then leaves it out, as the model expects. SeqIO does not: pass the model only what is not empty.

    Examples are padded, never packed: the model has no mask for several examples in a row. Nothing is trimmed: an example that is
    longer than `task_feature_lengths`, or whose images do not match its placeholders, is an error. `task_feature_lengths` has
    inputs and targets alone. Examples of tasks without images need `images`, with none; `mix` gives them that.

    **Ids** are the tokenizer's own, see `HuggingFaceFeatureConverter`.
    """

    TASK_FEATURES: Mapping[str, seqio.FeatureConverter.FeatureSpec] = {
        **seqio.EncDecFeatureConverter.TASK_FEATURES,
        IMAGES: seqio.FeatureConverter.FeatureSpec(dtype=tf.string),
    }
    PACKING_FEATURE_DTYPES: Mapping[str, tf.DType] = {}

    def __init__(
        self,
        batch_size: int,
        padding: str = "longest",
        *,
        pad_to_multiple_of: int | None = 8,
        decoder_start_token_id: int | None = None,
        pad_token_id: int | None = None,
        image_tokens: ImageTokens | None = None,
        image_size: int | None = None,
        vocabulary: seqio.Vocabulary | None = None,
        embedding_rows: int | None = None,
        model: Model | None = None,
    ):
        """
        Args:
            batch_size: examples in a batch; do not pass it to SeqIO, too.
            padding, pad_to_multiple_of, vocabulary: see `HuggingFaceFeatureConverter`.
            decoder_start_token_id, pad_token_id, image_tokens, image_size, embedding_rows, model: see `T5Gemma2Collator`.

        Raises:
            ValueError: an argument is invalid.
        """
        if not is_integer(batch_size, at_least=1):
            raise ValueError(f"batch_size must be an integer of at least 1, got {batch_size!r}.")
        of_rows, self._image_tokens, self._image_size = t5gemma2_settings(
            model,
            pad_token_id=pad_token_id,
            decoder_start_token_id=decoder_start_token_id,
            embedding_rows=embedding_rows,
            image_tokens=image_tokens,
            image_size=image_size,
        )
        self._row_format = RowFormat(padding=padding, pad_to_multiple_of=pad_to_multiple_of, **of_rows)
        self._batch_size, self._vocabulary = int(batch_size), vocabulary
        of_rows = dict.fromkeys(self._row_format.names, seqio.FeatureConverter.FeatureSpec(dtype=tf.int32, rank=2))
        self.MODEL_FEATURES = of_rows | {PIXELS: seqio.FeatureConverter.FeatureSpec(dtype=tf.float32, rank=4)}
        super().__init__(pack=False, apply_length_check=False, bos_id=self._row_format.decoder_start_token_id)

    def __call__(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
        """
        Args:
            ds: examples, with `inputs` and `targets` int32, and `images` strings.
            task_feature_lengths: {"inputs": int, "targets": int}.

        Returns:
            A dataset of batches.

        Raises:
            ValueError: there are other lengths; the dataset has no such feature; or the vocabulary is not that of the tasks.
        """
        if task_feature_lengths.keys() != EXAMPLE.keys():
            raise ValueError(
                f"task_feature_lengths must have lengths of inputs and targets alone, got {dict(task_feature_lengths)}."
            )
        return super().__call__(ds, {**task_feature_lengths, IMAGES: 0})  # SeqIO wants one for each feature

    @property
    def batch_size(self) -> int:
        """How many examples an element has."""
        return self._batch_size

    def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, int]) -> Mapping[str, int]:
        """The length of each model input with padding "max_length"; of `pixel_values` the image size."""
        return self._row_format.row_lengths(task_feature_lengths) | {PIXELS: self._image_size}

    @no_autograph
    def _convert_features(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]) -> tf.data.Dataset:
        shift, spec = shift_of_ids(ds, self._vocabulary), example_spec(ds)

        def seen(input_ids: np.ndarray, images: np.ndarray) -> np.ndarray:
            found = [image for image in images.reshape(-1).tolist() if image]
            check_placeholders(input_ids, len(found), self._image_tokens)
            return pixel_values(found, self._image_size)

        def convert(number: tf.Tensor, examples: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            first = number * self._batch_size
            rows = batch_inputs(examples, task_feature_lengths, self._row_format, spec, shift=shift, first=first)
            values = python_op(seen, [rows["input_ids"], examples[IMAGES]], tf.float32)
            return {**rows, PIXELS: tf.ensure_shape(values, [None, 3, self._image_size, self._image_size])}

        padding = {key: absent(feature) for key, feature in spec.items()} | {IMAGES: tf.constant("")}
        examples = ds.map(lambda example: {key: example[key] for key in padding})
        return (
            examples.padded_batch(self._batch_size, padding_values=padding)
            .enumerate()
            .map(convert, num_parallel_calls=tf.data.AUTOTUNE)
        )
