"""The converter of conversations for Hugging Face's models: golden rows, each conversation once, masks that stay with tokens."""

import itertools
import random

import numpy as np
import pytest
import seqio
import tensorflow as tf

from tests.tokenizers.test_hugging_face_vocabulary import exclamation_first
from ul2_tasks import open_vocabulary, seqio_converter
from ul2_tasks.example_features import IGNORED
from ul2_tasks.models.transformers import HuggingFaceChatConverter
from ul2_tasks.tasks.datasets import with_id_shift

DTYPES = {"tokens": tf.int32, "loss_mask": tf.uint8, "span_id": tf.uint8}
# Tokens and spans: a prompt, reasoning, an answer, the end.
CHATS = [([5, 6, 7, 8, 9], [0, 0, 1, 2, 0]), ([4, 2, 3], [0, 2, 0])]


def chat_dataset(chats) -> tf.data.Dataset:
    def examples():
        for tokens, spans in chats:
            spans = np.array(spans, np.uint8)
            yield {"tokens": np.array(tokens, np.int32), "loss_mask": (spans > 0).astype(np.uint8), "span_id": spans}

    return tf.data.Dataset.from_generator(
        examples, output_signature={key: tf.TensorSpec([None], dtype) for key, dtype in DTYPES.items()}
    )


def rows_of(chats, length, **settings):
    converter = seqio_converter(HuggingFaceChatConverter(**settings), seqio.ByteVocabulary())
    converted = converter(chat_dataset(chats), {"tokens": length})
    return [{key: row[key].tolist() for key in row} for row in converted.as_numpy_iterator()]


def test_golden_packed_row():
    """As the top of the module has it. There is no attention mask, with which models would not see where conversations begin."""
    no = IGNORED
    assert rows_of(CHATS, 10) == [
        {
            "packed_input_ids": [5, 6, 7, 8, 9, 4, 2, 3, 0, 0],
            "labels": [no, no, 7, 8, no, no, 2, no, no, no],
            "span_id": [0, 0, 1, 2, 0, 0, 2, 0, 0, 0],
            "position_ids": [0, 1, 2, 3, 4, 0, 1, 2, 0, 1],
        }
    ]


def test_golden_padded_rows():
    first, second = rows_of(CHATS, 6, pack=False, pad_token_id=11)
    assert first == {
        "input_ids": [5, 6, 7, 8, 9, 11],
        "labels": [IGNORED, IGNORED, 7, 8, IGNORED, IGNORED],
        "span_id": [0, 0, 1, 2, 0, 0],
        "position_ids": [0, 1, 2, 3, 4, 5],
        "attention_mask": [1, 1, 1, 1, 1, 0],
    }
    assert second["input_ids"] == [4, 2, 3, 11, 11, 11]


@pytest.mark.parametrize("pack", [True, False])
def test_each_conversation_is_there_once_with_its_spans(pack):
    """Also where ids are 0, and masks begin or end with 0, by which SeqIO's packer would take them for padding."""
    draw = random.Random(0)
    sizes = [draw.randint(1, 7) for _ in range(300)]
    chats = [([draw.randint(0, 9) for _ in range(size)], [draw.randint(0, 4) for _ in range(size)]) for size in sizes]
    found = []
    for row in rows_of(chats, 8, pack=pack, pad_token_id=99):
        columns = list(zip(row["packed_input_ids" if pack else "input_ids"], row["labels"], row["span_id"]))
        starts = [place for place, position in enumerate(row["position_ids"]) if position == 0]
        found += [columns[start:stop] for start, stop in itertools.pairwise([*starts, len(columns)])]
        assert pack or [id != 99 for id in row["input_ids"]] == list(map(bool, row["attention_mask"]))
    found = [[column for column in part if column != (99, IGNORED, 0)] for part in found]
    expected = [
        [(token, token if span and place else IGNORED, span if place else 0) for place, (token, span) in enumerate(zip(*chat))]
        for chat in chats
    ]
    assert sorted(part for part in found if part) == sorted(expected)


@pytest.fixture(scope="module")
def shifted(tmp_path_factory) -> seqio.Vocabulary:
    """A vocabulary whose tokenizer has an id 0."""
    folder = tmp_path_factory.mktemp("shifted")
    exclamation_first().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    return open_vocabulary(str(folder))


@pytest.mark.parametrize("given_by", ["the task", "the user"])
def test_ids_are_the_tokenizers_own(shifted, given_by):
    dataset = chat_dataset([([1, 3, 2], [0, 1, 2])])
    if given_by == "the task":
        converter, dataset = seqio_converter(HuggingFaceChatConverter()), with_id_shift(dataset, shifted)
    else:
        converter = seqio_converter(HuggingFaceChatConverter(), shifted)
    (row,) = converter(dataset, {"tokens": 3}).as_numpy_iterator()
    assert row["packed_input_ids"].tolist() == [0, 2, 1]
    assert row["labels"].tolist() == [IGNORED, 2, 1]


def test_a_shift_that_the_vocabulary_does_not_have_is_refused(shifted):
    dataset = with_id_shift(chat_dataset(CHATS), shifted)
    with pytest.raises(ValueError, match="vocabulary"):
        seqio_converter(HuggingFaceChatConverter(), seqio.ByteVocabulary())(dataset, {"tokens": 8})


@pytest.mark.parametrize("pack", [True, False])
def test_a_conversation_that_is_too_long_is_an_error_with_its_length(pack):
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"must have at most 4 tokens, as task_feature_lengths says, got 5. .*truncation"
    ):
        rows_of(CHATS[::-1], 4, pack=pack)


@pytest.mark.parametrize(
    ("given", "length", "argument"),
    [({"pad_token_id": -1}, "tokens", "pad_token_id"), ({"pack": 1}, "tokens", "pack"), ({}, "targets", "task_feature_lengths")],
)
def test_what_is_wrong_is_named(given, length, argument):
    with pytest.raises(ValueError, match=argument):
        seqio_converter(HuggingFaceChatConverter(**given), seqio.ByteVocabulary())(chat_dataset(CHATS), {length: 4})
