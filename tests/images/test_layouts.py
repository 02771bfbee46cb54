"""Conversations as layouts, and elements and layouts that make no sense."""

import pytest

from ul2_tasks.images.draws import draws_of
from ul2_tasks.images.elements import Image, Text, checked, letters
from ul2_tasks.images.schemas import vlm_sft


def texts(layout):
    return [element.text for element in layout if isinstance(element, Text)]


def images(layout):
    return [(element.seen_as, element.image) for element in layout if isinstance(element, Image)]


def talk(*values, **files):
    speakers = ("human", "gpt")
    return {"conversations": [{"from": speakers[number % 2], "value": value} for number, value in enumerate(values)], **files}


def test_images_stand_where_their_marks_are_and_answers_are_learned():
    record = talk("Left <image>\nright <image>", "Two cats. ", "And <image>?", "A dog.", image=["0.png", "1.png", "2.png"])
    record["conversations"].insert(0, {"from": "system", "value": "Be short."})
    layout = vlm_sft(record, draws_of(0, 0, ""))
    assert letters(layout) == "T T V T V T T V T T"
    assert texts(layout) == ["Be short.", "Left", "right", "Two cats.", "And", "?", "A dog."]
    assert images(layout) == [("vit", "0.png"), ("vit", "1.png"), ("vit", "2.png")]
    assert [element.text for element in layout if isinstance(element, Text) and element.learned] == ["Two cats.", "A dog."]
    assert not any(element.droppable for element in layout)


def test_a_video_is_the_frames_that_its_reader_gives_and_each_has_draws_of_its_own():
    record = talk("Look:", "Yes?", "<video> <video>and<image>", "A cat.", video=["0.mp4", "1.mp4"], image="0.png")

    def frames(file, draws):
        return [(file, draws.number("frame", 1000), number) for number in range(3)]

    layout = vlm_sft(record, draws_of(0, 0, ""), frames=frames)
    assert letters(layout) == "T T V V V V V V T V T"
    first, second = layout[2].image, layout[5].image
    assert (first[0], second[0]) == ("0.mp4", "1.mp4")
    assert first[1] != second[1]


def conversation(record):
    return lambda: vlm_sft(record, draws_of(0, 0, ""))


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (conversation(talk("<image> one", "a", "<image> two", "b", image="0.png")), "<image>"),
        (conversation(talk("<image>", "a", image=["0", "1"])), "<image>"),
        (conversation(talk("<video>", "a")), "<video>"),
        (conversation(talk("<video>", "a", video="0.mp4")), "frames"),
        (conversation(talk("hi", "")), r"conversations\[1\]"),
        (conversation(talk("hi")), "answer"),
        (conversation({}), "conversations"),
        (conversation(talk("hi", "see <image>", image="0.png")), r"conversations\[1\]"),
        (conversation({"conversations": [{"from": "tool", "value": "hi"}]}), r"conversations\[0\]"),
        (conversation(talk(None, "a")), r"conversations\[0\]"),
        (lambda: checked([]), "layout"),
        (lambda: checked(["a cat"]), "element"),
        (lambda: checked([Image(b"", "vit", group=1), Text(""), Image(b"", "vit", group=1)]), "group 1"),
        (lambda: checked([Image(b"", "vit", group=1), Image(b"", "clean", group=1)]), "group 1"),
        (lambda: Text(7), "text"),
        (lambda: Text("half \ud800"), "text"),
        (lambda: Text("", after="picture"), "after"),
        (lambda: Image(b"", "vit", after=-1), "after"),
        (lambda: Image(b"", "vae"), "seen_as"),
        (lambda: Image(b"", "noised", droppable=True), "droppable"),
        (lambda: Image(b"", "vit", advance=-1), "advance"),
    ],
)
def test_what_makes_no_sense_is_refused(make, named):
    with pytest.raises(ValueError, match=named):
        make()
