"""Which elements of a layout are dropped, for classifier-free guidance."""

from __future__ import annotations

import dataclasses

from ul2_tasks.image_rows.custom import Custom
from ul2_tasks.images.draws import Draws
from ul2_tasks.images.elements import Layout, clips
from ul2_tasks.scalars import is_finite


@dataclasses.dataclass(frozen=True)
class Dropout:
    """With which probability droppable elements are dropped. The defaults are those of BAGEL's paper.

    Attributes:
        text, vit, clean: the probability for each kind, from 0 to 1.
        together: whether all elements of a kind in a sample are dropped, or none: this is what a model is given where guidance
            leaves out a condition. Else each is dropped on its own, as BAGEL does it.
    """

    text: float = 0.1
    vit: float = 0.5
    clean: float = 0.1
    together: bool = False

    def __post_init__(self):
        for name in ("text", "vit", "clean"):
            chance = getattr(self, name)
            if not is_finite(chance) or not 0 <= chance <= 1:
                raise ValueError(f"{name} must be a probability from 0 to 1, got {chance!r}.")

    def kept(self, layout: Layout, draws: Draws) -> tuple[bool, ...]:
        """Which elements remain. A clip is dropped whole.

        >>> from ul2_tasks.images.draws import draws_of
        >>> from ul2_tasks.images.elements import Image, Text
        >>> layout = (Text("a circle"), Image(b"..", "noised"))
        >>> [Dropout(text=0.5).kept(layout, draws_of(0, 0, record)) for record in ("a", "b", "c")]
        [(False, True), (True, True), (False, True)]
        """
        kept = [True] * len(layout)
        for _, numbers in clips(layout):
            first = layout[numbers[0]]
            if first.droppable:
                chance = first.of.dropout if isinstance(first, Custom) else getattr(self, first.kind)
                remains = draws.uniform(f"drop/{first.kind if self.together else numbers[0]}") >= chance
                for number in numbers:
                    kept[number] = remains
        return tuple(kept)
