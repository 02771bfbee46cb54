"""The converter of conversations for Hugging Face's models: whose ids, and errors. `test_table.py` has the rows."""

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


@pytest.mark.parametrize(
    ("given", "length", "argument"),
    [({"pad_token_id": -1}, "tokens", "pad_token_id"), ({"pack": 1}, "tokens", "pack"), ({}, "targets", "task_feature_lengths")],
)
def test_what_is_wrong_is_named(given, length, argument):
    with pytest.raises(ValueError, match=argument):
        seqio_converter(HuggingFaceChatConverter(**given), seqio.ByteVocabulary())(chat_dataset(CHATS), {length: 4})
