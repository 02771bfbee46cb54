"""Records to texts to tokens: what is no document is named or counted."""

import pytest
import tensorflow as tf

from tests.support import byte_vocabulary, features
from ul2_tasks.corpus.configuration import CorpusConfiguration
from ul2_tasks.sources.memory import MemoryDataSource
from ul2_tasks.tasks.tokenization import tokenize

BYTES = byte_vocabulary()[0]


def documents(dataset, source=None, **settings):
    configuration = CorpusConfiguration(**settings)
    return list(tokenize(dataset, features(BYTES), configuration=configuration, source=source).as_numpy_iterator())


def texts(dataset, **settings):
    """What the ids of the bytes say."""
    return [bytes((document["targets"] - 3).tolist()) for document in documents(dataset, **settings)]


def test_it_takes_dictionaries_and_bare_strings_and_names_a_missing_feature():
    assert texts(tf.data.Dataset.from_tensor_slices(["a", "b"])) == [b"a", b"b"]
    records = tf.data.Dataset.from_tensor_slices({"body": ["a"], "url": ["u"]})
    assert texts(records, text_key="body") == [b"a"]
    with pytest.raises(ValueError, match="text_key"):
        texts(records)


@pytest.mark.parametrize("document", [b"caf\xe9", b"\xff\xfe", b"\xed\xa0\x80", b"cut \xe2\x82"])
def test_what_is_not_utf8_fails_or_is_kept_without_text(document):
    dataset = tf.data.Dataset.from_tensor_slices([b"before", document, b"after"])
    with pytest.raises(tf.errors.InvalidArgumentError, match="UTF-8"):
        texts(dataset)
    assert texts(dataset, on_error="skip") == [b"before", b"", b"after"]
    kept = [document["document"].decode().split("/")[0] for document in documents(dataset, on_error="skip")]
    assert kept[1] == "skipped"
    assert "skipped" not in kept[::2]


def test_records_with_a_problem_fail_or_are_skipped_counted_and_told(caplog):
    problems = ["", "a.jsonl, line 2: is not JSON", *["broken"] * 9, ""]
    dataset = tf.data.Dataset.from_tensor_slices({"text": ["a", *[""] * 10, "b"], "problem": problems})
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"a\.jsonl, line 2: is not JSON"):
        texts(dataset)
    with caplog.at_level("WARNING"):
        assert texts(dataset, on_error="skip", source=MemoryDataSource(list, validation=0)) == [b"a", *[b""] * 10, b"b"]
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert all(f"skipped {number} records" in message for number, message in zip((1, 10), told))
