"""gigatoken's ids are taken only where they are those of the reference."""

import json
import random
import unicodedata
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers

from tests.chat.chat_support import o200k_file
from tests.tokenizers.test_hugging_face_vocabulary import TEXTS, byte_fallback, byte_level, exclamation_first
from ul2_tasks import Mixture, open_source
from ul2_tasks.tokenizers import fast
from ul2_tasks.tokenizers.fast import FastEncoder, of_tokenizer_json
from ul2_tasks.tokenizers.hugging_face import HuggingFaceVocabulary
from ul2_tasks.tokenizers.o200k import O200kVocabulary

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


@pytest.fixture(autouse=True)
def from_the_first_text_on(monkeypatch):
    """Of planes beyond the first, whose code points take seconds, texts are encoded by the reference."""
    monkeypatch.setattr(fast, "_FIRST", 0)
    monkeypatch.setattr(fast, "_ENDS", 0x10000)


def o200k(folder) -> FastEncoder:
    pytest.importorskip("tiktoken")
    return O200kVocabulary(o200k_file(folder)).tokens.fast


@pytest.fixture(scope="module", params=[composed, byte_fallback, o200k], ids=lambda make: make.__name__)
def encoder(request, tmp_path_factory):
    return o200k(tmp_path_factory.mktemp("o200k")) if request.param is o200k else of_tokenizer_json(request.param())


def are_equal(encoder, texts) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ids = encoder.encode_batch(texts)
    assert encoder.made_by.startswith("gigatoken")
    return [each.tolist() for each in ids] == [each.tolist() for each in encoder._reference(texts)]


@given(st.lists(st.text() | st.sampled_from([*TEXTS.values()])))
def test_ids_are_those_of_the_reference(encoder, texts):
    assert are_equal(encoder, texts)


@given(st.lists(st.binary() | st.text().map(str.encode)))
def test_bytes_that_are_not_utf_8_are_encoded_as_if_replaced(encoder, texts):
    replaced = [text.decode(errors="replace") for text in texts]
    assert [each.tolist() for each in encoder.encode_batch(texts)] == [each.tolist() for each in encoder._reference(replaced)]


def test_no_order_of_marks_and_no_code_point_gives_others(encoder):
    draw = random.Random(0)
    marked = ["".join(draw.choices([*MARKS, "a", "\u0430", " "], k=60)) for _ in range(300)]
    numbers = [*range(0x20, 0xD7F8), *range(0xE000, 0x3FFF0, 5)][::11]
    points = [f"x{chr(point)}{chr(point + 7)}'s {chr(point)}1" for point in numbers]
    assert are_equal(encoder, marked)
    assert are_equal(encoder, points)


@pytest.mark.parametrize(("make", "made_by"), [(byte_level, "gigatoken"), (lower_case, "tokenizers"), (words, "tokenizers")])
def test_a_tokenizer_says_by_which_package_its_ids_are_made(make, made_by):
    assert of_tokenizer_json(make()).made_by.startswith(made_by)


def test_a_kind_that_gigatoken_does_not_have_is_encoded_by_tokenizers():
    reference = Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]))
    encoder = of_tokenizer_json(reference)
    assert [ids.tolist() for ids in encoder.encode_batch(["abb", ""])] == [[2, 1], []]
    assert encoder.made_by.startswith("tokenizers")


def test_a_difference_is_told_and_tokenizers_goes_on(monkeypatch):
    reference = exclamation_first()
    description = json.loads(reference.to_str())
    ids = description["model"]["vocab"]
    ids["and"], ids["Ġand"] = ids["Ġand"], ids["and"]
    made = gigatoken.Tokenizer.from_json
    monkeypatch.setattr(gigatoken.Tokenizer, "from_json", lambda _: made(json.dumps(description)))
    monkeypatch.setattr(fast, "_ENDS", 0x80)
    encoder = of_tokenizer_json(reference)
    assert encoder.encode_batch(["é"])[0].tolist() == reference.encode("é").ids
    with pytest.warns(RuntimeWarning):
        found = encoder.encode_batch(["so and so", "and"])
    assert found[0].tolist() == reference.encode("so and so").ids
    assert encoder.made_by.startswith("tokenizers")
    assert encoder.fallbacks == 3


def test_a_cache_counts_the_documents_that_the_reference_encodes(tmp_path, monkeypatch):
    monkeypatch.setattr(fast, "_ENDS", 0x80)
    (tmp_path / "a.txt").write_text("one\ntwö\nthree\nföur\n")
    byte_level().save(str(tmp_path / "tokenizer.json"))
    vocabulary = HuggingFaceVocabulary(tmp_path / "tokenizer.json", eos="<|endoftext|>")
    mixture = Mixture(source=open_source(str(tmp_path / "a.txt"), documents="line"), vocabulary=vocabulary)
    manifest = mixture.cache(tmp_path / "cache")
    assert manifest["versions"]["tokenizer"].startswith("gigatoken")
    assert manifest["totals"]["fallbacks"] == 2
