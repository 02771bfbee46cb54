"""Conversations as layouts, and elements and layouts that make no sense: the same sentence in every epoch."""

import pytest

from ul2_tasks.images.draws import draws_of
from ul2_tasks.images.elements import Image, Text, checked, letters
from ul2_tasks.images.schemas import vlm_sft


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


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        (
            talk("<image> one", "a", "<image> two", "b", image="0.png"),
            "the conversation must have <image> once for each of its 1 files, got 2 times.",
        ),
        (talk("<image>", "a", image=["0", "1"]), "the conversation must have <image> once for each of its 2 files, got 1 times."),
        (talk("<video>", "a", image="0.png"), "the conversation must have <image> once for each of its 1 files, got 0 times."),
        (talk("<video>", "a"), "the conversation must have <video> once for each of its 0 files, got 1 times."),
        (
            talk("<video>", "a", video="0.mp4"),
            "frames must be given for a record with a video, got None. Pass frames=FrameSampler().",
        ),
        (talk("hi", ""), "the value of conversations[1] must not be empty, got ''."),
        (talk("hi"), "the conversation must have an answer to train on, got 1 turns and none."),
        ({}, "conversations must be a list, got None."),
        (
            talk("hi", "see <image>", image="0.png"),
            "conversations[1], an answer, must not have <image>. Put it into a turn of another speaker.",
        ),
        (
            {"conversations": [{"from": "tool", "value": "hi"}]},
            "conversations[0] must be an object whose 'from' is one of ['human', 'user', 'gpt', 'assistant', 'system'], got"
            " {'from': 'tool', 'value': 'hi'}.",
        ),
        (talk(None, "a"), "the value of conversations[0] must be a string, got None."),
    ],
)
def test_a_conversation_that_does_not_fit_is_refused_with_its_numbers(record, sentence):
    assert problem(vlm_sft, record) == sentence


@pytest.mark.parametrize(
    ("elements", "sentence"),
    [
        ([], "a layout must have at least one element, got none"),
        (["a cat"], "an element of a layout must be a Text or an Image, got a value of type str"),
        ([Image(b"", "vit", group=1), Text(""), Image(b"", "vit", group=1)], "the images of group 1 must be adjacent"),
        (
            [Image(b"", "vit", group=1), Image(b"", "clean", group=1)],
            "the images of group 1 must have one seen_as and one droppable",
        ),
    ],
)
def test_a_layout_that_makes_no_sense_is_refused(elements, sentence):
    with pytest.raises(ValueError, match=sentence):
        checked(elements)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Text(7), "text must be a string, got a value of type int"),
        (lambda: Text("half \ud800"), "text must be Unicode, got .*: surrogates not allowed"),
        (lambda: Text("", after="picture"), "after must be an id .*, got 'picture'"),
        (lambda: Image(b"", "vit", after=-1), "after must be an id .*, got -1"),
        (lambda: Image(b"", "vae"), "seen_as must be one of .*, got 'vae'"),
        (lambda: Image(b"", "noised", droppable=True), "droppable must be False for a noised image, got True"),
        (lambda: Image(b"", "vit", advance=-1), "advance must be an integer of at least 0, or None, got -1"),
    ],
)
def test_an_element_that_makes_no_sense_is_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
