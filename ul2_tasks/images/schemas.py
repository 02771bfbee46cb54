"""Record schemas: functions of a record and its draws that return a layout. BAGEL's three kinds; yours can be any function.

Each raises a ValueError, one sentence, where the record is not what its kind says. It does so whatever is drawn: a record is in
every epoch, or in none. The spaces around a text are removed.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ul2_tasks.images.draws import Draws
from ul2_tasks.images.elements import Image, Layout, Text
from ul2_tasks.images.pixels import kind_of
from ul2_tasks.images.video import FrameSampler

Record = Mapping[str, Any]
Frames = Callable[[object, Draws], Sequence[object]]

_OF_TEXTS = re.compile(r"\s*[\[{]\s*(['\"\[{]|null\b)")  # JSON's list or object of texts
_PLAIN = (str, bytes, int, float, list, dict)
IMAGE_MARK, VIDEO_MARK = "<image>", "<video>"
_SPEAKERS = {"human": "human", "user": "human", "gpt": "answer", "assistant": "answer", "system": "system"}


def t2i_pretrain(record: Record, draws: Draws) -> Layout:
    """A caption, droppable, and the image to generate: T N.

    The record has `image`, and `captions`: an object or a list of texts, also as JSON, of which one is drawn; or one text, which is
    taken as it stands, unless it begins as such JSON does. Null and empty ones do not count. Of the draws "caption" is used. A
    record without an image or a caption raises a ValueError.

    >>> from ul2_tasks.images.draws import draws_of
    >>> record = {"image": b"..", "captions": '{"short": "a cat", "long": "a cat on a mat"}'}
    >>> [t2i_pretrain(record, draws_of(0, epoch, "r"))[0].text for epoch in range(3)]
    ['a cat', 'a cat', 'a cat on a mat']
    """
    image, captions = image_and_captions(record)
    caption = captions[draws.number("caption", len(captions))]
    return Text(caption), Image(image, "noised")


def image_and_captions(record: Record) -> tuple[object, list[str]]:
    """The image and the captions of a record of `t2i_pretrain`.

    >>> image_and_captions({"image": "cat.png", "captions": '["a cat", null, "a cat on a mat"]'})
    ('cat.png', ['a cat', 'a cat on a mat'])
    """
    return _image(record.get("image"), "image"), _captions(record.get("captions"))


def unified_edit(record: Record, draws: Draws, max_steps: int = 2) -> Layout:
    """A drawn stretch of an image's edits, each with an instruction that is drawn: C V T N, or C V T N C V T N.

    The stretch begins at any image but the last, all equally likely, and has 1 to `max_steps` steps, all that remain equally
    likely. One with several steps is joined into a single instruction, C V T N, in half of the cases.

    The record has `image_list`, two images at least, and `instruction_list`, for each step a text, or a list of texts that say
    the same. Of the draws "start", "steps", "joined" and "instruction/STEP" are used. The default of `max_steps` is BAGEL's.

    >>> from ul2_tasks.images.draws import draws_of
    >>> from ul2_tasks.images.elements import letters
    >>> record = {"image_list": [b"0", b"1", b"2"], "instruction_list": ["add a dot", ["make it red", "red, please"]]}
    >>> for epoch in range(3, 6):
    ...     layout = unified_edit(record, draws_of(0, epoch, "r"))
    ...     print(letters(layout), [element.text for element in layout if isinstance(element, Text)])
    C V T N ['add a dot']
    C V T N ['add a dot']
    C V T N C V T N ['add a dot', 'make it red']
    """
    images, instructions = _edits(record)
    steps = len(images) - 1
    start = draws.number("start", steps)
    stop = start + 1 + draws.number("steps", min(max_steps, steps - start))
    said = [choices[draws.number(f"instruction/{step}", len(choices))] for step, choices in enumerate(instructions)][start:stop]
    results = images[start + 1 : stop + 1]
    if len(said) > 1 and draws.uniform("joined") < 0.5:
        said, results = [_joined(said)], results[-1:]
    elements: list[Text | Image] = []
    for before, text, after in zip([images[start], *results], said, results):
        elements += [Image(before, "clean"), Image(before, "vit"), Text(text), Image(after, "noised")]
    return tuple(elements)


def vlm_sft(record: Record, draws: Draws, frames: Frames | None = None) -> Layout:
    """A conversation about images, which a ViT sees where their marks stand. Answers are learned, and nothing is droppable.

    The record has `conversations`, turns with `from` (human or user, gpt or assistant, system) and `value`, a text with the marks
    <image> and <video>; and `image` and `video`, one or a list of them, as many as there are marks in the whole conversation. There
    is at least one answer, and none has a mark. `frames` gives the images of a video, for its file and those draws within
    "video/NUMBER"; without it a video is refused.

    >>> from ul2_tasks.images.draws import draws_of
    >>> turns = [{"from": "human", "value": "<image>\\nWhat is this?"}, {"from": "gpt", "value": "A cat."}]
    >>> layout = vlm_sft({"image": "cat.jpg", "conversations": turns}, draws_of(0, 0, "r"))
    >>> layout[0].seen_as, layout[1].text, layout[1].learned, layout[2].text, layout[2].learned
    ('vit', 'What is this?', False, 'A cat.', True)
    """
    turns = _turns(record.get("conversations"))
    waiting = {IMAGE_MARK: _files(record, "image"), VIDEO_MARK: _files(record, "video")}
    for mark, files in waiting.items():
        if (marks := sum(text.count(mark) for _, text in turns)) != len(files):
            raise ValueError(f"the conversation must have {mark} once for each of its {len(files)} files, got {marks} times.")
    if waiting[VIDEO_MARK] and frames is None:
        raise ValueError("frames must be given for a record with a video, got None. Pass frames=FrameSampler().")
    images = iter(waiting[IMAGE_MARK])
    videos = enumerate(waiting[VIDEO_MARK])
    elements: list[Text | Image] = []
    for speaker, turn in turns:
        for piece in _pieces(turn):
            if piece == IMAGE_MARK:
                elements.append(Image(next(images), "vit", droppable=False))
            elif piece == VIDEO_MARK and frames is not None:
                number, file = next(videos)
                elements += [Image(frame, "vit", droppable=False) for frame in frames(file, draws.within(f"video/{number}"))]
            else:
                elements.append(Text(piece, learned=speaker == "answer", droppable=False))
    return tuple(elements)


SCHEMAS: Mapping[str, Callable[[Record, Draws], Layout]] = {
    "t2i_pretrain": t2i_pretrain,
    "unified_edit": unified_edit,
    "vlm_sft": functools.partial(vlm_sft, frames=FrameSampler()),
}


def _image(value: object, what: str) -> object:
    """An image as its bytes or its path. Hugging Face's data sets have an object with either."""
    if isinstance(value, Mapping):
        value = value.get("bytes") or value.get("path")
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(value, str | bytes) or not value:
        shown = _short(value) if value is None or isinstance(value, _PLAIN) else kind_of(value)
        raise ValueError(f"{what} must be the bytes of an image, or its path, got {shown}.")
    return value


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{what} must be a string, got {_short(value)}.")
    return value.strip()


def _captions(value: object) -> list[str]:
    value = _read(value) if isinstance(value, str) else value
    found = list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else [value]
    captions = [_text(caption, "a caption") for caption in found if caption is not None]
    if not any(captions):
        raise ValueError(f"captions must have a caption that is not empty, got {_short(value)}.")
    return [caption for caption in captions if caption]


def _read(captions: str) -> object:
    """The value of a text that is JSON with several captions; else the text itself, such as "[Photo] a cat".

    What begins as a list or an object of texts does, and is no JSON, raises a ValueError: it is cut off, or written by Python.
    """
    if captions.lstrip()[:1] not in ("{", "["):
        return captions
    try:
        return json.loads(captions)
    except (ValueError, RecursionError) as error:
        if not _OF_TEXTS.match(captions):
            return captions
        raise ValueError(
            f"captions must be JSON where it begins with a bracket and a quotation mark, got {_short(captions)}: {error}. Write it"
            " as JSON; a caption that begins like this is a list of one."
        ) from error


def _edits(record: Record) -> tuple[list[object], list[list[str]]]:
    """The images, and for each step the texts of which one is drawn."""
    images, instructions = (_list(record.get(name), name) for name in ("image_list", "instruction_list"))
    if len(images) < 2:
        raise ValueError(f"image_list must have at least 2 images, got {len(images)}.")
    if len(instructions) != len(images) - 1:
        raise ValueError(f"instruction_list must have {len(images) - 1} steps for {len(images)} images, got {len(instructions)}.")
    choices = []
    for step, value in enumerate(instructions):
        what = f"instruction_list[{step}]"
        found = [_text(text, what) for text in ([value] if isinstance(value, str) else _list(value, what)) if text is not None]
        choices.append([text for text in found if text])
        if not choices[-1]:
            raise ValueError(f"{what} must have an instruction that is not empty, got {_short(value)}.")
    return [_image(image, f"image_list[{number}]") for number, image in enumerate(images)], choices


def _joined(instructions: Sequence[str]) -> str:
    """Several instructions as one; each ends with one stop, as in BAGEL, where an instruction with a stop has two.

    >>> _joined(["Add a dot.", "make it red", "why?", "turn it"])
    'Add a dot. make it red. why? turn it.'
    """
    return " ".join(text if text[-1] in ".!?。！？" else f"{text}." for text in instructions)


def _turns(value: object) -> list[tuple[str, str]]:
    """Who speaks (human, answer, system) and what."""
    turns = []
    for number, turn in enumerate(_list(value, "conversations")):
        what = f"conversations[{number}]"
        if not isinstance(turn, Mapping) or str(turn.get("from")) not in _SPEAKERS:
            raise ValueError(f"{what} must be an object whose 'from' is one of {list(_SPEAKERS)}, got {_short(turn)}.")
        speaker, text = _SPEAKERS[turn["from"]], _text(turn.get("value"), f"the value of {what}")
        if not text:
            raise ValueError(f"the value of {what} must not be empty, got {turn['value']!r}.")
        if speaker == "answer" and (mark := next((mark for mark in (IMAGE_MARK, VIDEO_MARK) if mark in text), None)):
            raise ValueError(f"{what}, an answer, must not have {mark}. Put it into a turn of another speaker.")
        turns.append((speaker, text))
    if not any(speaker == "answer" for speaker, _ in turns):
        raise ValueError(f"the conversation must have an answer to train on, got {len(turns)} turns and none.")
    return turns


def _pieces(text: str) -> list[str]:
    """A turn, cut at its marks: texts, and marks.

    >>> _pieces("<image> left,\\n<video>right")
    ['<image>', 'left,', '<video>', 'right']
    """
    return [piece.strip() for piece in re.split(f"({IMAGE_MARK}|{VIDEO_MARK})", text) if piece.strip()]


def _files(record: Record, name: str) -> list[object]:
    """The images or videos of a record: none, one, or a list. Some tools write the text "None" for none."""
    value = record.get(name)
    if value is None or value in ("", "None"):
        return []
    return [_image(file, name) for file in (value if isinstance(value, list | tuple) else [value])]


def _list(value: object, what: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{what} must be a list, got {_short(value)}.")
    return list(value)


def _short(value: object) -> str:
    shown = repr(value[:40] if isinstance(value, str | bytes) else value)
    return shown if len(shown) <= 60 else f"{shown[:60]}.."
