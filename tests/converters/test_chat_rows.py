"""Rows of conversations: every token keeps its mask and loss group, each conversation is whole and once."""

import collections
import functools

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

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


def random_examples(form, count, seed):
    """Examples of any lengths; loss groups of any number, trained on where it is not 0."""
    _, spec, lengths = FORMATS[form]
    random = np.random.RandomState(seed)
    examples = []
    for _ in range(count):
        sizes = {key: random.randint(1, length + 1) for key, length in lengths.items()}
        example = {key: random.randint(1, 300_000, size).tolist() for key, size in sizes.items()}
        example["span_id"] = random.randint(0, 5, sizes[spec["span_id"].per_token_of]).tolist()
        example["loss_mask"] = [int(span > 0) for span in example["span_id"]]
        examples.append(example)
    return examples


def examples_in(form, row) -> list[dict[str, list[int]]]:
    """The examples of a packed row, with the features of each of its segments checked against the definition."""
    _, spec, lengths = FORMATS[form]
    assert all(values.dtype == np.int32 for values in row.values())
    sides = {key: "decoder" if key == spec["loss_mask"].per_token_of else "encoder" for key in lengths}
    names = {"loss_mask": "decoder_loss_weights", "span_id": "decoder_span_ids"}
    names |= {key: "decoder_target_tokens" if side == "decoder" else "encoder_input_tokens" for key, side in sides.items()}
    count = row["decoder_segment_ids"].max()
    found = []
    for segment in range(1, count + 1):
        places = {key: np.flatnonzero(row[f"{side}_segment_ids"] == segment) for key, side in sides.items()}
        for key, place in places.items():
            assert place.tolist() == list(range(place[0], place[0] + len(place))), "in one piece"
            assert row[f"{sides[key]}_positions"][place].tolist() == list(range(len(place)))
        example = {key: row[names[key]][places[feature.per_token_of]].tolist() for key, feature in spec.items()}
        said = example[spec["loss_mask"].per_token_of]
        assert row["decoder_input_tokens"][places[spec["loss_mask"].per_token_of]].tolist() == [0, *said[:-1]]
        found.append(example)
    for key, feature in spec.items():
        padding = row[f"{sides[feature.per_token_of]}_segment_ids"] == 0
        assert (row[names[key]][padding] == 0).all(), key
        first = np.argmax(padding) if padding.any() else len(padding)
        assert padding[first:].all(), "at the end"
    return found


def counted(examples) -> collections.Counter:
    return collections.Counter(str(sorted(example.items())) for example in examples)


@hypothesis.settings(max_examples=5)  # each draws dozens of examples, and costs what it costs to start a dataset
@hypothesis.example("chat", 0, 0)
@hypothesis.example("prompt_completion", 40, 0)
@given(st.sampled_from(list(FORMATS)), st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_every_conversation_comes_out_of_the_packed_rows_whole_and_once(form, count, seed):
    examples = random_examples(form, count, seed)
    rows = rows_of(form, examples)
    assert counted(example for row in rows for example in examples_in(form, row)) == counted(examples)


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
