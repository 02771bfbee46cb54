"""Record schemas: functions of a record and its draws that return a layout. BAGEL's three kinds; yours can be any function.

Each raises a ValueError, one sentence, where the record is not what its kind says. It does so whatever is drawn: a record is in
every epoch, or in none. The spaces around a text are removed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ul2_tasks.images.draws import Draws
from ul2_tasks.images.elements import Image, Layout, Text
from ul2_tasks.images.pixels import kind_of

Record = Mapping[str, Any]
Frames = Callable[[object, Draws], Sequence[object]]

_OF_TEXTS = re.compile(r"\s*[\[{]\s*(['\"\[{]|null\b)")  # JSON's list or object of texts
_PLAIN = (str, bytes, int, float, list, dict)
IMAGE_MARK, VIDEO_MARK = "<image>", "<video>"
_SPEAKERS = {"human": "human", "user": "human", "gpt": "answer", "assistant": "answer", "system": "system"}


def image_and_captions(record: Record) -> tuple[object, list[str]]:
    """The image and the captions of a record of `t2i_pretrain`.

    >>> image_and_captions({"image": "cat.png", "captions": '["a cat", null, "a cat on a mat"]'})
    ('cat.png', ['a cat', 'a cat on a mat'])
    """
    return image_of(record.get("image"), "image"), _captions(record.get("captions"))


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


def image_of(value: object, what: str) -> object:
    """An image as its bytes or its path. Hugging Face's data sets have an object with either."""
    if isinstance(value, Mapping):
        value = value.get("bytes") or value.get("path")
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(value, str | bytes) or not value:
        shown = short(value) if value is None or isinstance(value, _PLAIN) else kind_of(value)
        raise ValueError(f"{what} must be the bytes of an image, or its path, got {shown}.")
    return value


def text_of(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{what} must be a string, got {short(value)}.")
    return value.strip()


def _captions(value: object) -> list[str]:
    value = _read(value) if isinstance(value, str) else value
    found = list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else [value]
    captions = [text_of(caption, "a caption") for caption in found if caption is not None]
    if not any(captions):
        raise ValueError(f"captions must have a caption that is not empty, got {short(value)}.")
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
            f"captions must be JSON where it begins with a bracket and a quotation mark, got {short(captions)}: {error}. Write it"
            " as JSON; a caption that begins like this is a list of one."
        ) from error


def _turns(value: object) -> list[tuple[str, str]]:
    """Who speaks (human, answer, system) and what."""
    turns = []
    for number, turn in enumerate(list_of(value, "conversations")):
        what = f"conversations[{number}]"
        if not isinstance(turn, Mapping) or str(turn.get("from")) not in _SPEAKERS:
            raise ValueError(f"{what} must be an object whose 'from' is one of {list(_SPEAKERS)}, got {short(turn)}.")
        speaker, text = _SPEAKERS[turn["from"]], text_of(turn.get("value"), f"the value of {what}")
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
    return [image_of(file, name) for file in (value if isinstance(value, list | tuple) else [value])]


def list_of(value: object, what: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{what} must be a list, got {short(value)}.")
    return list(value)


def short(value: object) -> str:
    shown = repr(value[:40] if isinstance(value, str | bytes) else value)
    return shown if len(shown) <= 60 else f"{shown[:60]}.."
