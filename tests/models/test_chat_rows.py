"""Rows of conversations: what a reader sees, and errors."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from ul2_tasks import ChatFeatureConverter, PromptCompletionFeatureConverter
from ul2_tasks.example_features import CHAT, PROMPT_COMPLETION

ROW = 24
FORMATS = {
    "chat": (ChatFeatureConverter, CHAT, {"tokens": ROW}),
    "prompt_completion": (PromptCompletionFeatureConverter, PROMPT_COMPLETION, {"inputs": 16, "targets": ROW}),
}


def dataset(examples, spec) -> tf.data.Dataset:
    """Reads the list `examples` anew in each pass."""
    signature = {key: tf.TensorSpec([None], feature.dtype) for key, feature in spec.items()}

    def arrays():
        for example in examples:
            yield {key: np.array(example[key], feature.dtype) for key, feature in spec.items()}

    return tf.data.Dataset.from_generator(arrays, output_signature=signature)


@functools.cache
def built(form, pack, lengths):
    """A list to fill with examples, and the dataset of their rows, whose graph takes seconds to build."""
    converter, spec, _ = FORMATS[form]
    examples = []
    return examples, converter(pack=pack)(dataset(examples, spec), dict(lengths))


def rows_of(form, examples, pack=True, lengths=None):
    given, rows = built(form, pack, tuple((lengths or FORMATS[form][2]).items()))
    given[:] = examples
    return list(rows.as_numpy_iterator())


def test_golden_rows_that_a_reader_sees():
    """Three conversations of 5, 4 and 7 tokens in rows of 10: the first two share one. Masks begin and end in 0."""
    conversations = [
        {"tokens": [5, 6, 7, 8, 9], "loss_mask": [0, 0, 1, 1, 0], "span_id": [0, 0, 1, 2, 0]},
        {"tokens": [5, 3, 2, 9], "loss_mask": [0, 1, 0, 0], "span_id": [0, 3, 0, 0]},
        {"tokens": [5, 1, 1, 1, 2, 2, 9], "loss_mask": [0, 0, 0, 1, 1, 1, 0], "span_id": [0, 0, 0, 2, 2, 2, 0]},
    ]
    first, second = rows_of("chat", conversations, lengths={"tokens": 10})
    assert {key: values.tolist() for key, values in first.items()} == {
        "decoder_target_tokens": [5, 6, 7, 8, 9, 5, 3, 2, 9, 0],
        "decoder_input_tokens": [0, 5, 6, 7, 8, 0, 5, 3, 2, 0],
        "decoder_loss_weights": [0, 0, 1, 1, 0, 0, 1, 0, 0, 0],
        "decoder_span_ids": [0, 0, 1, 2, 0, 0, 3, 0, 0, 0],
        "decoder_segment_ids": [1, 1, 1, 1, 1, 2, 2, 2, 2, 0],
        "decoder_positions": [0, 1, 2, 3, 4, 0, 1, 2, 3, 0],
    }
    assert second["decoder_loss_weights"].tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0, 0]


LONG = {"tokens": [7] * 25, "loss_mask": [1] * 25, "span_id": [1] * 25}


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize(
    ("example", "message"),
    [
        (LONG, r"its tokens must have at most 24 tokens, as task_feature_lengths says, got 25. .*truncation="),
        (
            {**LONG, "tokens": [7] * 24},
            r"its loss_mask must have a value for each of its tokens, got 25 for 24. .* trim_output",
        ),
        ({"tokens": [7], "loss_mask": [1], "span_id": []}, r"its span_id must have .* got 0 for 1"),
        ({"tokens": [], "loss_mask": [], "span_id": []}, r"its tokens must have a token, got none"),
    ],
)
def test_what_no_row_can_hold_is_an_error_with_its_lengths(pack, example, message):
    good = {"tokens": [1, 2], "loss_mask": [0, 1], "span_id": [0, 1]}
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        rows_of("chat", [good, example, good], pack=pack)


@pytest.mark.parametrize("lengths", [{"tokens": 24, "loss_mask": 24, "span_id": 24}, {"targets": 24}, {}])
def test_lengths_are_of_tokens_alone(lengths):
    with pytest.raises(ValueError, match="task_feature_lengths"):
        ChatFeatureConverter()(dataset([], CHAT), lengths)
