"""Interleaved image-text data as ids, for encoders that read images as sequences of placeholders, such as T5Gemma 2's.

    A cat: [image] It sleeps.     A cat: \\n\\n <boi> <image> .. <image> <eoi> \\n\\n It sleeps.
    pieces                          3      260                                        4

A piece of text, then an image token sequence, then a piece of text, and so on: texts can be empty, sequences cannot. The
ids are those of Transformers' `Gemma3Processor`, which writes two line feeds on either side of an image, and tokenizes the text
between two images as a whole. So line feeds of a text next to those of an image are one token with them there, and belong to the
image token sequence here.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ul2_tasks.images.draws import Draws
from ul2_tasks.images.elements import Element, Image, Layout, Text, checked
from ul2_tasks.images.schemas import image_and_captions
from ul2_tasks.scalars import is_integer


@dataclasses.dataclass(frozen=True)
class ImageTokens:
    """The image token sequence: begin of image, placeholders, end of image. The defaults are T5Gemma 2's.

    Ids are the tokenizer's own.

    Attributes:
        boi_id, image_id, eoi_id: the ids before, for and after the features of an image.
        image_seq_length: how many features, and so placeholders, an image has.
        around: the text on either side of it; "" for none.

    >>> ImageTokens(boi_id=7, image_id=8, eoi_id=9, image_seq_length=3, around="").ids
    (7, 8, 9)
    """

    boi_id: int = 255_999
    image_id: int = 256_001
    eoi_id: int = 256_000
    image_seq_length: int = 256
    around: str = "\n\n"

    def __post_init__(self):
        for name in ("boi_id", "image_id", "eoi_id", "image_seq_length"):
            if not is_integer(getattr(self, name), at_least=1):
                raise ValueError(f"{name} must be an integer of at least 1, got {getattr(self, name)!r}.")
        if len(set(self.ids)) < 3:
            raise ValueError(f"boi_id, image_id and eoi_id must be three different ids, got {self.ids}.")
        if not isinstance(self.around, str):
            raise ValueError(f"around must be a string, got {self.around!r}.")

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids that no text and no denoiser may have."""
        return self.boi_id, self.image_id, self.eoi_id

    @property
    def sequence(self) -> list[int]:
        """The ids of an image, without the text around it."""
        return [self.boi_id, *[self.image_id] * self.image_seq_length, self.eoi_id]


T5GEMMA2_IMAGE = ImageTokens()


class Interleaved(NamedTuple):
    """A record as ids: [tokens] int32, and `images`, its P images as the layout has them.

    `pieces` are [2 P + 1] int32, how many of the tokens each piece of text has, and in turn each of the P image token sequences.
    """

    tokens: np.ndarray
    pieces: np.ndarray
    images: list[object]


def interleaved(layout: Sequence[Element], encode: Callable[[str], Sequence[int]], image_tokens: ImageTokens) -> Interleaved:
    """The ids of a layout. Texts that are neighbours become one, with a line feed between them.

    Images are seen by a ViT. One that is to be generated raises a ValueError, and so does a text that becomes an id that marks
    images.

    >>> ids = lambda text: list(text.encode())
    >>> found = interleaved([Text("ab"), Image("c.png", "vit"), Text("d")], ids, ImageTokens(256, 257, 258, image_seq_length=2))
    >>> found.tokens.tolist(), found.pieces.tolist()
    ([97, 98, 10, 10, 256, 257, 257, 258, 10, 10, 100], [2, 8, 1])
    """
    texts, images = _texts_and_images(layout)
    reserved = _reserved(image_tokens)
    parts: list[list[int]] = []
    for number, text in enumerate(texts):
        before, inner, after = _around(text, number > 0, number < len(images), image_tokens.around)
        ids = [_encoded(part, encode, reserved) for part in (before, inner, after)]
        if number:
            parts[-1] += ids[0]
        parts.append(ids[1])
        if number < len(images):
            parts.append(ids[2] + image_tokens.sequence)
    return Interleaved(
        np.array(list(itertools.chain.from_iterable(parts)), np.int32), np.array([len(part) for part in parts], np.int32), images
    )


def texts_and_images(record: Mapping[str, Any], draws: Draws) -> Layout:
    """The layout of a record of `texts` and `images`, two lists of one length: each place has a text, an image, or both.

    Where both stand, the text comes first. An image is its bytes, its path, or Hugging Face's object with either. The draws are not
    used.

    >>> from ul2_tasks.images.draws import draws_of
    >>> from ul2_tasks.images.elements import letters
    >>> letters(texts_and_images({"texts": ["A cat.", None], "images": [None, "cat.png"]}, draws_of(0, 0, "r")))
    'T V'
    """
    texts, images = record.get("texts"), record.get("images")
    if not isinstance(texts, list | tuple) or not isinstance(images, list | tuple) or len(texts) != len(images):
        raise ValueError(f"a record must have texts and images, two lists of one length, got the fields {sorted(record)}.")
    layout: list[Element] = []
    for text, image in zip(texts, images):
        if isinstance(image, Mapping):
            image = image.get("bytes") or image.get("path")
        layout += [Text(text)] if text else []
        layout += [Image(image, "vit")] if isinstance(image, np.ndarray) or image else []  # an array is refused where it is read
    return tuple(layout)


def captioned(record: Mapping[str, Any], draws: Draws) -> list[Layout]:
    """An image and then a caption, for each caption of a record of `image` and `captions`, see `schemas.t2i_pretrain`.

    The draws are not used.

    >>> from ul2_tasks.images.draws import draws_of
    >>> layouts = captioned({"image": "cat.png", "captions": ["A cat.", "It sits."]}, draws_of(0, 0, "r"))
    >>> [layout[1].text for layout in layouts]
    ['A cat.', 'It sits.']
    """
    image, captions = image_and_captions(record)
    return [(Image(image, "vit"), Text(caption)) for caption in captions]


def _texts_and_images(layout: Sequence[Element]) -> tuple[list[str], list[object]]:
    """The P images, and the P + 1 texts between them, before the first and after the last."""
    texts: list[list[str]] = [[]]
    images: list[object] = []
    for element in checked(layout):
        if isinstance(element, Text):
            texts[-1].append(element.text)
        elif not isinstance(element, Image) or element.seen_as != "vit":
            raise ValueError(f"images must be seen as 'vit', got {element.kind!r}: this model generates no images.")
        else:
            images.append(element.image)
            texts.append([])
    return ["\n".join(filter(None, between)) for between in texts], images


def _around(text: str, is_after: bool, is_before: bool, around: str) -> tuple[str, str, str]:
    """A text without what belongs to the images next to it; before and after it, what does.

    >>> _around("\\nHe sleeps.", is_after=True, is_before=True, around="\\n\\n")
    ('\\n\\n\\n', 'He sleeps.', '\\n\\n')
    """
    inner = text.lstrip(around) if is_after else text
    before = around + text[: len(text) - len(inner)] if is_after else ""
    rest = inner.rstrip(around) if is_before else inner
    after = inner[len(rest) :] + around if is_before else ""
    return (before, rest, after) if rest or not is_after else (before + after, "", "")


@functools.lru_cache
def _reserved(image_tokens: ImageTokens) -> frozenset[int]:
    return frozenset(image_tokens.ids)


def _encoded(text: str, encode: Callable[[str], Sequence[int]], reserved: frozenset[int]) -> list[int]:
    ids = list(encode(text)) if text else []
    if marks := sorted(reserved.intersection(ids)):
        raise ValueError(
            f"a text must not have the ids of image_tokens, got {marks}. Pass a tokenizer that makes none of them of a text."
        )
    return ids
