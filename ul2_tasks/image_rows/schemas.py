"""Record schemas: functions of a record and its draws that return a layout. BAGEL's three kinds; yours can be any function.

Each raises a ValueError, one sentence, where the record is not what its kind says. It does so whatever is drawn: a record is in
every epoch, or in none. The spaces around a text are removed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from ul2_tasks.image_rows.video import FrameSampler
from ul2_tasks.images.draws import Draws
from ul2_tasks.images.elements import Element, Image, Layout, Text
from ul2_tasks.images.schemas import Record, image_and_captions, image_of, list_of, short, text_of, vlm_sft


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
        # Each ends with one stop; in BAGEL one that has a stop has two.
        said, results = [" ".join(text if text[-1] in ".!?。！？" else f"{text}." for text in said)], results[-1:]
    elements: list[Text | Image] = []
    for before, text, after in zip([images[start], *results], said, results):
        elements += [Image(before, "clean"), Image(before, "vit"), Text(text), Image(after, "noised")]
    return tuple(elements)


def story(record: Record, draws: Draws) -> Layout:
    """A schema of your own for pages of text and image: T V C T V C .. T N. The last image is the one to generate.

    The record has as many `texts` as `images`; its draws are not used.

    >>> from ul2_tasks.images.elements import letters
    >>> letters(story({"texts": ["one", "two"], "images": [b"..", b".."]}, draws=None))
    'T V C T N'
    """
    *pages, (text, image) = zip(record["texts"], record["images"])
    elements: list[Element] = []
    for said, seen in pages:
        elements += [Text(said, learned=True, droppable=False), Image(seen, "vit"), Image(seen, "clean")]
    return (*elements, Text(text), Image(image, "noised"))


SCHEMAS: Mapping[str, Callable[[Record, Draws], Layout]] = {
    "t2i_pretrain": t2i_pretrain,
    "unified_edit": unified_edit,
    "vlm_sft": functools.partial(vlm_sft, frames=FrameSampler()),
}


def _edits(record: Record) -> tuple[list[object], list[list[str]]]:
    """The images, and for each step the texts of which one is drawn."""
    images, instructions = (list_of(record.get(name), name) for name in ("image_list", "instruction_list"))
    if len(images) < 2:
        raise ValueError(f"image_list must have at least 2 images, got {len(images)}.")
    if len(instructions) != len(images) - 1:
        raise ValueError(f"instruction_list must have {len(images) - 1} steps for {len(images)} images, got {len(instructions)}.")
    choices = []
    for step, value in enumerate(instructions):
        what = f"instruction_list[{step}]"
        found = [text_of(text, what) for text in ([value] if isinstance(value, str) else list_of(value, what)) if text is not None]
        choices.append([text for text in found if text])
        if not choices[-1]:
            raise ValueError(f"{what} must have an instruction that is not empty, got {short(value)}.")
    return [image_of(image, f"image_list[{number}]") for number, image in enumerate(images)], choices
