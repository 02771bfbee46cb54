"""Elements of a kind of your own beside texts and images, such as audio: each has a budget and arrays of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, get_args

import numpy as np

from ul2_tasks.images.elements import After, Element, SeenAs, check_after
from ul2_tasks.scalars import is_finite, is_integer

_TAKEN = {"text", "tokens", "vae", *get_args(SeenAs)}


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
        if not (isinstance(self.name, str) and self.name.isidentifier()) or self.name in _TAKEN:
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


def marks_of(kinds: Iterable[ElementKind]) -> tuple[int, ...]:
    """The ids of their marks."""
    return tuple(id for kind in kinds for id in (kind.start_id, kind.end_id))


@dataclasses.dataclass(frozen=True)
class Custom(Element):
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
        check_after(self.after)

    @property
    def kind(self) -> str:
        return self.of.name
