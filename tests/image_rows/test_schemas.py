"""The three kinds of records as layouts, and what is refused: the same sentence in every epoch."""

import collections
import json
import re

import pytest
import scipy.stats

from ul2_tasks.image_rows.custom import Custom, ElementKind
from ul2_tasks.image_rows.dropout import Dropout
from ul2_tasks.image_rows.schemas import t2i_pretrain, unified_edit
from ul2_tasks.images.draws import draws_of
from ul2_tasks.images.elements import Image, Text, checked, letters


def layouts(function, record, epochs=200, **options):
    return [function(record, draws_of(0, epoch, "a record"), **options) for epoch in range(epochs)]


def texts(layout):
    return [element.text for element in layout if isinstance(element, Text)]


def images(layout):
    return [(element.seen_as, element.image) for element in layout if isinstance(element, Image)]


def problem(function, record):
    """What a record is refused with, whatever is drawn."""
    found = set()
    for epoch in range(20):
        with pytest.raises(ValueError, match=r"\w") as caught:
            function(record, draws_of(0, epoch, "a record"))
        found.add(str(caught.value))
    (sentence,) = found
    return sentence


CAPTIONS = {"short": "a cat", "long": " a cat on a mat\n", "none": None, "empty": ""}


@pytest.mark.parametrize("captions", [CAPTIONS, list(CAPTIONS.values()), json.dumps(CAPTIONS), json.dumps([*CAPTIONS.values()])])
def test_one_of_the_captions_is_drawn_each_epoch(captions):
    """An object or a list, as it is or as JSON; a list ends BAGEL's worker."""
    found = layouts(t2i_pretrain, {"image": b"cat", "captions": captions})
    assert {letters(layout) for layout in found} == {"T N"}
    assert all(layout[0].droppable and not layout[0].learned for layout in found)
    counts = collections.Counter(text for layout in found for text in texts(layout))
    assert counts.keys() == {"a cat", "a cat on a mat"}
    assert scipy.stats.chisquare(list(counts.values())).pvalue > 0.001
    assert images(found[0]) == [("noised", b"cat")]


@pytest.mark.parametrize(
    ("captions", "text"),
    [
        *((text, text) for text in ("[Photo] a cat", "{red|blue} cat", "[] a box", '"a cat"')),
        (' "a\\ncat" ', '"a\\ncat"'),
    ],
)
def test_a_caption_may_be_a_text_and_keeps_its_characters(captions, text):
    assert texts(t2i_pretrain({"image": "cat.jpg", "captions": captions}, draws_of(0, 0, ""))) == [text]


@pytest.mark.parametrize(
    ("record", "named"),
    [
        ({"image": b"cat", "captions": "[null]"}, "captions .* not empty"),
        ({"image": b"cat"}, "captions .* not empty"),
        ({"image": b"cat", "captions": [7]}, "a caption .* string"),
        ({"image": b"cat", "captions": '["a cat", "a c'}, "captions .* JSON"),
        ({"image": b"cat", "captions": "['a cat', 'a dog']"}, "captions .* JSON"),
        ({"image": {"bytes": None, "path": None}, "captions": "a cat"}, "image .* bytes"),
    ],
)
def test_an_image_without_a_caption_is_refused_and_one_without_bytes(record, named):
    assert re.match(named, problem(t2i_pretrain, record))


FOUR = {
    "image_list": [b"0", b"1", b"2", {"bytes": b"3", "path": "3.png"}],
    "instruction_list": [["add a dot", "put a dot"], "make it red.", ["turn it"]],
}


def test_a_stretch_of_edits_is_drawn_by_the_stated_law():
    """Of four images: 3 starts; then 1 or 2 steps, as far as there are so many; half of those with 2 steps joined."""
    found = layouts(unified_edit, FOUR, 1200)
    counts = collections.Counter((letters(layout), images(layout)[0][1], images(layout)[-1][1]) for layout in found)
    one, two = "C V T N", "C V T N C V T N"
    law = {(one, b"0", b"1"): 1 / 6, (one, b"1", b"2"): 1 / 6, (one, b"2", b"3"): 1 / 3}
    law |= {(form, start, stop): 1 / 12 for form in (one, two) for start, stop in ((b"0", b"2"), (b"1", b"3"))}
    assert counts.keys() == law.keys()
    assert scipy.stats.chisquare([counts[key] for key in law], [1200 * share for share in law.values()]).pvalue > 0.001


def test_joined_instructions_are_sentences():
    """BAGEL appends ". " to each, to one that ends in a stop, too; and of three images it never joins any."""
    record = {"image_list": [b"0", b"1", b"2"], "instruction_list": [["Make it red."], ["turn it "]]}
    joined = {text for layout in layouts(unified_edit, record) if letters(layout) == "C V T N" for text in texts(layout)}
    assert joined == {"Make it red.", "turn it", "Make it red. turn it."}
    record["instruction_list"][0] = ["make it red"]
    assert "make it red. turn it." in {texts(layout)[0] for layout in layouts(unified_edit, record)}


@pytest.mark.parametrize(
    ("images", "instructions", "named"),
    [
        ([b"0"], [], "image_list"),
        ([b"0", b"1"], [["a"], ["b"]], "instruction_list .* 1 steps"),
        ([b"0", b"1"], [["", " "]], r"instruction_list\[0\] .* not empty"),
        ([b"0", b"1"], [[3]], r"instruction_list\[0\] .* string"),
        ([b"0", b"1"], "make it red", "instruction_list .* list"),
        ([b"0", None], ["a"], r"image_list\[1\]"),
    ],
)
def test_edits_that_do_not_fit_together_are_refused(images, instructions, named):
    assert re.match(named, problem(unified_edit, {"image_list": images, "instruction_list": instructions}))


def test_what_is_no_noise_is_droppable_as_with_bagels_helpers():
    """Their `enable_cfg` is True by default, of a learned text, too; a function that its own conversations call has none."""
    audio = ElementKind("audio", 7, 8, len, lambda value: value, width=1)
    elements = [Text(""), Text("", learned=True), Image(b"", "vit"), Image(b"", "clean"), Custom(audio, []), Image(b"", "noised")]
    assert [element.droppable for element in elements] == [True] * 5 + [False]
    assert not any((Text("", droppable=False).droppable, Image(b"", "vit", droppable=False).droppable))
    kept = [Dropout(text=1, vit=1, clean=1).kept(checked(elements), draws_of(0, 0, "r"))]
    assert kept == [(False, False, False, False, True, True)]  # a kind of your own has a dropout of its own, 0 by default
