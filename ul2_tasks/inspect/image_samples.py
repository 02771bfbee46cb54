"""Examples of interleaved image-text data to look at: as text, in which each image has its place."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ul2_tasks.example_features import TOKEN_FEATURES
from ul2_tasks.images.interleaved import ImageTokens
from ul2_tasks.images.pixels import size_of
from ul2_tasks.inspect.readable import Stretch, stretches
from ul2_tasks.inspect.samples import DenoisedTask, Sample, reconstructed


@dataclasses.dataclass(frozen=True)
class ImagePlace:
    """An image of an example.

    Attributes:
        number: 1, 2 .. within the example.
        size: its width and height in pixels.
        feature: "inputs" or "targets".
        start, stop: its tokens [start, stop) there, from begin to end of image.
    """

    number: int
    size: tuple[int, int]
    feature: str
    start: int
    stop: int

    @property
    def in_words(self) -> str:
        """For people.

        >>> ImagePlace(2, (400, 160), "inputs", 13, 19).in_words
        'image 2: 400x160 pixels, tokens 13 to 18 of inputs'
        """
        width, height = self.size
        return f"image {self.number}: {width}x{height} pixels, tokens {self.start} to {self.stop - 1} of {self.feature}"


class ImageTextShown(NamedTuple):
    """What is known of a task whose examples are looked at. The ids of `image_tokens` are the vocabulary's."""

    task: DenoisedTask
    image_tokens: ImageTokens


def image_text_sample(shown: ImageTextShown, number: int, example: Mapping[str, np.ndarray], images: Iterable[object]) -> Sample:
    """A sample of an example, see `samples.reconstructed`, in which an image is `[image 1024x768]`.

    `images` are those of the example, encoded.
    """
    task, image_tokens = shown
    held = iter(images)

    def read(feature: str, ids: Sequence[int], _: Sequence[int]) -> list[Stretch]:
        """Inputs or targets as `readable.stretches` has them, with a stretch for each image token sequence."""
        found, end = list[Stretch](), 0
        while end < len(ids):
            start, stop = end, ids.index(image_tokens.boi_id, end) if image_tokens.boi_id in ids[end:] else len(ids)
            special = task.special if start == 0 else dataclasses.replace(task.special, mode=())
            found += stretches(task.vocabulary, ids[start:stop], special, feature)
            end = stop
            if stop < len(ids):
                end = ids.index(image_tokens.eoi_id, stop) + 1
                found.append(Stretch("image", "[image {}x{}]".format(*size_of(next(held))), end - stop, None))
        return found

    return reconstructed(task, number, example, np.zeros(0, np.int64), read)


def image_places(sample: Sample, images: Iterable[object]) -> list[ImagePlace]:
    """The images of a sample, for which see `image_text_sample`, in their order."""
    sizes, found = map(size_of, images), list[ImagePlace]()
    for feature in TOKEN_FEATURES:
        for start, stretch in _with_starts(getattr(sample, feature)):
            if stretch.kind == "image":
                found.append(ImagePlace(len(found) + 1, next(sizes), feature, start, start + stretch.tokens))
    return found


def _with_starts(of_feature: Iterable[Stretch]) -> Iterator[tuple[int, Stretch]]:
    """Stretches, each with its first token."""
    start = 0
    for stretch in of_feature:
        yield start, stretch
        start += stretch.tokens
