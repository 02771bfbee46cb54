"""Records in memory: what tells them apart, and codes as arrays of NumPy."""

import numpy as np
import pytest
from image_support import record_of

from ul2_tasks import open_image_text
from ul2_tasks.corpus.identity import source_identity
from ul2_tasks.images.draws import draws_of
from ul2_tasks.images.elements import Image
from ul2_tasks.images.interleaved import texts_and_images
from ul2_tasks.sources.records import PROBLEM


def records(codes) -> list[dict]:
    return [{"texts": ["a"], "images": [codes]}]


@pytest.mark.parametrize("codes", [[0], [3, 0, 1], [7] * 2000])
def test_codes_as_an_array_are_those_of_a_list(codes):
    as_list, as_array = (texts_and_images(records(each)[0], draws_of(0, 0, "r")) for each in (codes, np.array(codes)))
    assert as_list == as_array
    assert isinstance(as_array[-1], Image), "none is lost"
    assert source_identity(open_image_text(records(codes))) == source_identity(open_image_text(records(np.array(codes))))


@pytest.mark.parametrize(
    "codes", [[1.5], [-1], [[1, 2], [3, 4]], np.array([1.0, 2.0]), np.array([1 << 32]), [True, False]], ids=str
)
def test_what_is_no_code_is_refused(codes):
    """As int32 1.5 would be 1, and 2**32 would be 0."""
    (record,) = open_image_text(records(codes)).get_dataset("train", shuffle=False).as_numpy_iterator()
    assert b"the codes of an image must be a list of integers from 0" in record[PROBLEM]


def test_arrays_that_differ_in_one_code_are_other_records():
    """As text NumPy leaves out the middle of a long array."""
    codes = np.arange(2000)
    others = codes.copy()
    others[1000] = 0
    assert source_identity(open_image_text(records(codes))) != source_identity(open_image_text(records(others)))


def test_records_are_hashed_once(monkeypatch):
    """They may be gigabytes, and messages of each batch name them."""
    source = open_image_text([record_of(["a", b"image"])])
    said = repr(source)
    monkeypatch.setattr("hashlib.sha256", None)
    assert repr(source) == said
