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

import numpy as np

from ul2_tasks.scalars import is_finite, is_integer

SeenAs = Literal["vit", "clean", "noised"]
After = Literal["text", "image"]
LETTERS = {"text": "T", "vit": "V", "clean": "C", "noised": "N"}


@dataclasses.dataclass(frozen=True)
class Text:
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
        _check_after(self.after)

    @property
    def kind(self) -> str:
        return "text"


@dataclasses.dataclass(frozen=True)
class Image:
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
        _check_after(self.after)

    @property
    def kind(self) -> str:
        return self.seen_as

    @property
    def step(self) -> int:
        """How many positions further the next element is."""
        return self.advance if self.advance is not None else int(self.seen_as != "noised")


@dataclasses.dataclass(frozen=True)
class ElementKind:
    """A kind of elements of your own, such as audio, with a budget and arrays of its own.

    Each feature of a `Custom` of this kind is a place of the row; two marks are around them. Nothing of it is generated.

    Attributes:
        name: of the budget and of the arrays, such as "audio".
        start_id, end_id: the ids of its marks, in the tokenizer's own ids.
        size_of: how many features a value has, 1 or more; from its header, as nothing should be decoded for it.
        read: the features of a value, [size, width], see `size_of`; called when its row is made.
        width, dtype: of the features.
        causal: whether a feature attends to those before it alone, and has a position of its own; else all attend to each other,
            and are at one position, as the patches of an image.
        dropout: the probability with which a droppable one is dropped, from 0 to 1.
    """

    name: str
    start_id: int
    end_id: int
    size_of: Callable[[Any], int]
    read: Callable[[Any], np.ndarray]
    width: int
    dtype: str = "float32"
    causal: bool = False
    dropout: float = 0.0

    def __post_init__(self):
        if not (isinstance(self.name, str) and self.name.isidentifier()) or self.name in (
            "text",
            "tokens",
            "vae",
            *get_args(SeenAs),
        ):
            raise ValueError(f"name must be that of a new kind, letters and digits such as 'audio', got {self.name!r}.")
        for name, least in (("start_id", 0), ("end_id", 0), ("width", 1)):
            if not is_integer(getattr(self, name), at_least=least):
                raise ValueError(f"{name} must be an integer of at least {least}, got {getattr(self, name)!r}.")
        if not is_finite(self.dropout) or not 0 <= self.dropout <= 1:
            raise ValueError(f"dropout must be a probability from 0 to 1, got {self.dropout!r}.")
        np.dtype(self.dtype)  # which says what it does not know

    def measured(self, value: object) -> int:
        """How many features a value has. A ValueError says that `size_of` gives no such number."""
        size = self.size_of(value)
        if not is_integer(size, at_least=1):
            raise ValueError(f"size_of of {self.name} must return an integer of at least 1, got {size!r:.100}.")
        return int(size)

    def features(self, value: object, size: int) -> np.ndarray:
        """[size, width] of the dtype. A ValueError says that `read` gives others."""
        found = np.asarray(self.read(value))
        if found.shape != (size, self.width):
            raise ValueError(f"read of {self.name} must return [{size}, {self.width}] features, got {list(found.shape)}.")
        return found.astype(self.dtype, copy=False)


@dataclasses.dataclass(frozen=True)
class Custom:
    """An element of a kind of your own.

    Attributes:
        of: its kind, which must be among the `kinds` of the dataset.
        value: what the kind's functions take, such as the bytes of a file.
        droppable, after: see `Text`.
    """

    of: ElementKind
    value: object = dataclasses.field(repr=False)
    droppable: bool = True
    after: After | int | None = None

    def __post_init__(self):
        if not isinstance(self.of, ElementKind):
            raise ValueError(f"of must be an ElementKind, got a value of type {type(self.of).__name__}.")
        _check_after(self.after)

    @property
    def kind(self) -> str:
        return self.of.name


Element = Text | Image | Custom
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


def _check_after(after: object) -> None:
    if after is not None and after not in get_args(After) and not is_integer(after, at_least=0):
        raise ValueError(f"after must be an id of at least 0, one of {list(get_args(After))}, or None, got {after!r}.")
