"""What is not to be learned: every converter of inputs and targets gives it the weight 0, or the label -100."""

import numpy as np
import pytest
import seqio
import tensorflow as tf

from ul2_tasks import (
    EncDecFeatureConverter,
    HuggingFaceFeatureConverter,
    PromptCompletionFeatureConverter,
    seqio_converter,
)
from ul2_tasks.example_features import IGNORED

# A header that is context, reasoning, an answer; and a reply of which all is learned.
REPLIES = [([5, 6, 1], [7, 8, 9, 4], [0, 0, 1, 2]), ([3, 2], [6, 5, 1], [1, 2, 2])]
LENGTHS = {"inputs": 8, "targets": 8}
LEARNED = [9, 4, 6, 5, 1]
NO = IGNORED


def replies(replies=REPLIES, mask=tf.uint8, **others) -> tf.data.Dataset:
    def examples():
        for inputs, targets, spans in replies:
            yield {
                "inputs": np.array(inputs, np.int32),
                "targets": np.array(targets, np.int32),
                "loss_mask": (np.array(spans) > 0).astype(mask.as_numpy_dtype),
                "span_id": np.array(spans, np.uint8),
            }

    dtypes = {"inputs": tf.int32, "targets": tf.int32, "loss_mask": mask, "span_id": tf.uint8}
    dataset = tf.data.Dataset.from_generator(
        examples, output_signature={key: tf.TensorSpec([None], dtype) for key, dtype in dtypes.items()}
    )
    return dataset.map(lambda example: example | others) if others else dataset


def rows_of(converter, dataset=None, lengths=LENGTHS) -> list[dict]:
    converted = converter(replies() if dataset is None else dataset, lengths)
    return [{key: row[key].tolist() for key in row} for row in converted.as_numpy_iterator()]


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("of", [EncDecFeatureConverter, PromptCompletionFeatureConverter])
def test_targets_that_are_not_learned_have_the_weight_0_in_t5x(of, pack):
    rows = rows_of(of(pack=pack))
    targets, weights = (np.array([row[f"decoder_{key}"] for row in rows]) for key in ("target_tokens", "loss_weights"))
    assert sorted(targets[weights == 1].tolist()) == sorted(LEARNED)
    assert sorted(targets[targets > 0].tolist()) == sorted(token for _, targets, _ in REPLIES for token in targets)


def test_golden_rows_of_replies_for_transformers():
    first, second = rows_of(
        seqio_converter(HuggingFaceFeatureConverter(span_id=True), seqio.ByteVocabulary()), lengths={"inputs": 4, "targets": 5}
    )
    assert first == {
        "input_ids": [5, 6, 1, 0],
        "attention_mask": [1, 1, 1, 0],
        "decoder_input_ids": [0, 7, 8, 9, 4],
        "decoder_attention_mask": [1, 1, 1, 1, 0],
        "labels": [NO, NO, 9, 4, NO],
        "span_id": [0, 0, 1, 2, 0],
    }
    assert (second["labels"], second["span_id"]) == ([6, 5, 1, NO, NO], [1, 2, 2, 0, 0])


@pytest.mark.parametrize(
    "converter",
    [
        EncDecFeatureConverter(),
        EncDecFeatureConverter(pack=False),
        seqio_converter(HuggingFaceFeatureConverter(), seqio.ByteVocabulary()),
    ],
)
def test_a_mask_of_another_length_is_refused(converter):
    trimmed = replies().map(lambda one: {**one, "targets": one["targets"][:3]})
    with pytest.raises(tf.errors.InvalidArgumentError, match="a value for each of its targets, got 4 for 3"):
        rows_of(converter, trimmed)


@pytest.mark.parametrize(
    "converter", [EncDecFeatureConverter(), seqio_converter(HuggingFaceFeatureConverter(), seqio.ByteVocabulary())]
)
def test_a_mask_that_is_none_is_refused(converter):
    with pytest.raises(ValueError, match="loss_mask"):
        rows_of(converter, replies(mask=tf.float32))
