"""Forms of JSON: what has the form passes, with other fields, too; what has not is told with its place."""

import doctest

import pytest

from ul2_tasks.jobs import forms
from ul2_tasks.jobs.forms import EACH, NAME, check_form

FORM = {"most": int | None, "splits": {EACH: [{"file": NAME, "bytes": int}]}}
GOOD = {"most": None, "splits": {"train": [{"file": "a.bin", "bytes": 1, "more": []}]}, "other": 7}


def with_file(**changed):
    return GOOD | {"splits": {"train": [{"file": "a.bin", "bytes": 1} | changed]}}


def test_examples_of_the_docstrings():
    assert doctest.testmod(forms) == (0, 1)


def test_what_has_the_form_passes():
    check_form(GOOD, FORM, "m.json", "Write it again.")


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ([], "it must be an object, got []"),
        ({}, "it has no field 'most'"),
        (GOOD | {"most": "7"}, "most must be int | None, got '7'"),
        (GOOD | {"most": True}, "most must be int | None, got True"),
        (GOOD | {"splits": {"train": {}}}, "splits.train must be a list, got {}"),
        (GOOD | {"splits": {"../train": []}}, "splits must be fields that are a name without a folder, got {'../train': '..'}"),
        (with_file(bytes=1.0), "splits.train.0.bytes must be int, got 1.0"),
        (with_file(file=7), "splits.train.0.file must be a name without a folder, got 7"),
        *((with_file(file=name), "must be a name without a folder") for name in ("", ".", "..", "a/b", "/a", "a\\b", "a\x00")),
    ],
)
def test_what_has_another_form_is_told_with_its_place(value, wrong):
    with pytest.raises(ValueError, match=r"^m\.json is not as it was written: ") as raised:
        check_form(value, FORM, "m.json", "Write it again.")
    assert wrong in str(raised.value)
    assert str(raised.value).endswith(". Write it again.")
