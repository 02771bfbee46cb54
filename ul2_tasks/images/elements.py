"""What a sample is made of: a layout is a tuple of texts and images, in their order.

t2i_pretrain   T N              T text, N image as it is generated, from noise
unified_edit   C V T N          C image as clean latents, V image as a ViT sees it
vlm_sft        V T T
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, get_args

from ul2_tasks.scalars import is_integer

SeenAs = Literal["vit", "clean", "noised"]
After = Literal["text", "image"]
LETTERS = {"text": "T", "vit": "V", "clean": "C", "noised": "N"}


class Element:
    """A part of a layout: a `Text`, an `Image`, or a `Custom` of `image_rows.custom`. Its attributes are those of a `Text`."""

    droppable: bool
    after: After | int | None

    @property
    def kind(self) -> str:
        """What it is: "text", how an image is seen, or the name of a kind of your own."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Text(Element):
    """A text between its two marks.

    Attributes:
        text: any, an empty one, too. Nothing that is written in it becomes a mark.
        learned: whether the model learns to write it, and to end it.
        droppable: whether it may be dropped, for classifier-free guidance, see `Dropout`. By default it may, as with the functions
            that BAGEL's schemas call (`enable_cfg=True`); pass False for what must stay, such as a question and its answer.
        after: the id that the model learns after its last mark, in the tokenizer's own ids; "text" and "image" are those with which
            a text and an image begin; None for nothing.
    """

    text: str
    learned: bool = False
    droppable: bool = True
    after: After | int | None = None

    def __post_init__(self):
        if not isinstance(self.text, str):
            raise ValueError(f"text must be a string, got a value of type {type(self.text).__name__}.")
        try:
            self.text.encode()
        except UnicodeEncodeError as error:  # JSON can have half a character
            raise ValueError(f"text must be Unicode, got {self.text[:40]!r}: {error.reason}.") from error
        check_after(self.after)

    @property
    def kind(self) -> str:
        return "text"


@dataclasses.dataclass(frozen=True)
class Image(Element):
    """An image between its two marks. All of it is at one position.

    Attributes:
        image: the bytes of the image, or what its reader finds it by, such as a path.
        seen_as: "vit", to be understood; "clean", latents that are a condition; "noised", latents to be generated.
        droppable: see `Text`. What is generated is never dropped; None for all else.
        after: see `Text`.
        group: adjacent images with the same number see each other, have one timestep, and are dropped together: a clip. None for
            an image alone.
        advance: how many positions further the next element is. None for what BAGEL has: 0 after a noised image, whose
            clean twin takes the same position, else 1.
    """

    image: object = dataclasses.field(repr=False)
    seen_as: SeenAs
    droppable: bool = None  # type: ignore[assignment]  # which __post_init__ sets
    after: After | int | None = None
    group: int | None = None
    advance: int | None = None

    def __post_init__(self):
        if self.seen_as not in get_args(SeenAs):
            raise ValueError(f"seen_as must be one of {list(get_args(SeenAs))}, got {self.seen_as!r}.")
        if self.droppable is None:
            object.__setattr__(self, "droppable", self.seen_as != "noised")
        if self.seen_as == "noised" and self.droppable:
            raise ValueError("droppable must be False for a noised image, got True. Drop the elements that it is made from.")
        if self.advance is not None and not is_integer(self.advance, at_least=0):
            raise ValueError(f"advance must be an integer of at least 0, or None, got {self.advance!r}.")
        check_after(self.after)

    @property
    def kind(self) -> str:
        return self.seen_as

    @property
    def step(self) -> int:
        """How many positions further the next element is."""
        return self.advance if self.advance is not None else int(self.seen_as != "noised")


Layout = tuple[Element, ...]


def checked(elements: Sequence[Element]) -> Layout:
    """The elements as a layout. A group in two places, or of images that are not alike, is refused.

    >>> layout = checked([Text("a red square"), Image(b"..", "noised")])
    >>> letters(layout)
    'T N'
    """
    if not elements:
        raise ValueError("a layout must have at least one element, got none.")
    for element in elements:
        if not isinstance(element, Element):
            raise ValueError(f"an element of a layout must be a Text or an Image, got a value of type {type(element).__name__}.")
    ended = set()
    for group, numbers in clips(elements):
        first, *others = (elements[number] for number in numbers)
        if group in ended:
            raise ValueError(f"the images of group {group} must be adjacent, got other elements between them.")
        if any((other.kind, other.droppable) != (first.kind, first.droppable) for other in others):
            raise ValueError(f"the images of group {group} must have one seen_as and one droppable, got several.")
        ended |= {group} - {None}
    return tuple(elements)


def elements_of(schema: Callable[[Any, Any], Iterable[Element]], record: object, draws: object) -> tuple[Element, ...]:
    """What a schema gives for a record; it may be a generator. What is no element raises a ValueError.

    >>> elements_of(lambda record, draws: (Text(each) for each in record), "ab", None)
    (Text(text='a', learned=False, droppable=True, after=None), Text(text='b', learned=False, droppable=True, after=None))
    """
    found = schema(record, draws)
    if not isinstance(found, Iterable):
        raise ValueError(f"schema must return a list of Text and Image, got a value of type {type(found).__name__}.")
    return tuple(found)


def clips(elements: Sequence[Element]) -> list[tuple[int | None, list[int]]]:
    """The numbers of the elements that belong together: a clip's images; each other element alone.

    >>> frames = [Image(b"..", "vit", group=0) for _ in range(3)]
    >>> clips([Text("first"), *frames, Text("last")])
    [(None, [0]), (0, [1, 2, 3]), (None, [4])]
    """

    def belongs(number: int) -> tuple[int | None, int]:
        group = getattr(elements[number], "group", None)
        return (group, -1) if group is not None else (None, number)

    return [(group, list(numbers)) for (group, _), numbers in itertools.groupby(range(len(elements)), key=belongs)]


def letters(elements: Sequence[Element]) -> str:
    """A layout as letters: C clean, V ViT, T text, N noised, and others of your own kinds."""
    return " ".join(map(letter, elements))


def letter(element: Element) -> str:
    """The letter of an element; of a kind of your own the first one of its name."""
    return LETTERS.get(element.kind, element.kind[0].upper())


def check_after(after: object) -> None:
    if after is not None and after not in get_args(After) and not is_integer(after, at_least=0):
        raise ValueError(f"after must be an id of at least 0, one of {list(get_args(After))}, or None, got {after!r}.")
