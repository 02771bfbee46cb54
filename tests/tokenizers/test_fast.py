"""gigatoken's ids are taken only where they are those of `tokenizers`."""

import json
import random
import unicodedata
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers

from tests.tokenizers.test_hugging_face_vocabulary import TEXTS, byte_fallback, byte_level, exclamation_first
from ul2_tasks.tokenizers.fast import FastEncoder

gigatoken = pytest.importorskip("gigatoken", reason="needs the extra fast")
MARKS = [chr(point) for point in range(0x110000) if unicodedata.combining(chr(point))]


def composed() -> Tokenizer:
    tokenizer = byte_level()
    tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def lower_case() -> Tokenizer:
    tokenizer = byte_level()
    tokenizer.normalizer = normalizers.Lowercase()
    return tokenizer


def words() -> Tokenizer:
    return Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))


@pytest.fixture(scope="module", params=[composed, byte_fallback], ids=lambda make: make.__name__)
def encoders(request):
    """The same tokenizer with gigatoken from the first text on, and without."""
    return FastEncoder(request.param(), first=0), request.param()


def are_equal(encoders, texts) -> bool:
    encoder, reference = encoders
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ids = encoder.encode_batch(texts)
    assert encoder.made_by.startswith("gigatoken")
    return [each.tolist() for each in ids] == [each.ids for each in reference.encode_batch(texts, add_special_tokens=False)]


@given(st.lists(st.text() | st.sampled_from([*TEXTS.values()])))
def test_ids_are_those_of_tokenizers(encoders, texts):
    assert are_equal(encoders, texts)


def test_no_order_of_marks_and_no_code_point_gives_others(encoders):
    draw = random.Random(0)
    marked = ["".join(draw.choices([*MARKS, "a", "\u0430", " "], k=60)) for _ in range(300)]
    points = [f"x{chr(point)}{chr(point + 7)}'s {chr(point)}1" for point in [*range(0x20, 0xD7F8), *range(0xE000, 0x3FFF0)][::11]]
    assert are_equal(encoders, marked)
    assert are_equal(encoders, points)


@pytest.mark.parametrize(("make", "made_by"), [(byte_level, "gigatoken"), (lower_case, "tokenizers"), (words, "tokenizers")])
def test_a_tokenizer_says_by_which_package_its_ids_are_made(make, made_by):
    assert FastEncoder(make()).made_by.startswith(made_by)


def test_a_kind_that_gigatoken_does_not_have_is_encoded_by_tokenizers():
    reference = Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]))
    encoder = FastEncoder(reference, first=0)
    assert [ids.tolist() for ids in encoder.encode_batch(["abb", ""])] == [[2, 1], []]
    assert encoder.made_by.startswith("tokenizers")


def test_a_difference_is_told_and_tokenizers_goes_on(monkeypatch):
    reference = exclamation_first()
    description = json.loads(reference.to_str())
    ids = description["model"]["vocab"]
    ids["and"], ids["Ġand"] = ids["Ġand"], ids["and"]
    made = gigatoken.Tokenizer.from_json
    monkeypatch.setattr(gigatoken.Tokenizer, "from_json", lambda _: made(json.dumps(description)))
    encoder = FastEncoder(reference, first=0)
    with pytest.warns(RuntimeWarning):
        found = encoder.encode_batch(["so and so"])
    assert found[0].tolist() == reference.encode("so and so").ids
    assert encoder.made_by.startswith("tokenizers")
