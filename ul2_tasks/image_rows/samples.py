"""A layout, measured: what of it is dropped, its ids and patches, its timesteps. No image is decoded for this."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from ul2_tasks.image_rows.custom import Custom
from ul2_tasks.image_rows.dropout import Dropout
from ul2_tasks.image_rows.sizes import VAE, VIT_EDIT, Grid, Size
from ul2_tasks.images.draws import Draws
from ul2_tasks.images.elements import Element, Image, Layout, Text, checked, clips

_STEP = 0.95  # of the sides, from one try to the next


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How large images are for the ViT, and as latents."""

    vit: Size = VIT_EDIT
    vae: Size = VAE

    def of(self, image: Image) -> Size:
        return self.vit if image.seen_as == "vit" else self.vae


def taken(counts: Mapping[str, int], budgets: Mapping[str, int]) -> list[int]:
    """What is taken of each of the budgets, where counts may lack those of kinds that do not occur."""
    return [counts.get(name, 0) for name in budgets]


def size_of_content(content: np.ndarray | Grid | int) -> int:
    """How many places an element has between its marks."""
    return content.patches if isinstance(content, Grid) else content if isinstance(content, int) else len(content)


class Sample(NamedTuple):
    """A layout, and for each of its elements what the arrays of a row need.

    The contents are the ids of a text, without its two marks, the patches of an image, or how many features there are. The
    timesteps are a normal draw for each image that is generated, and minus infinity for every other element.
    """

    layout: Layout
    kept: Sequence[bool]
    contents: Sequence[np.ndarray | Grid | int]
    timesteps: Sequence[float]

    @property
    def counts(self) -> dict[str, int]:
        """Places of the row ("tokens"), patches of the ViT ("vit") and of latents ("vae"), and features of each kind of your own.

        What is dropped takes nothing.
        """
        counts = {"tokens": 0, "vit": 0, "vae": 0}
        for element, kept, content in zip(self.layout, self.kept, self.contents):
            size = size_of_content(content)
            counts["tokens"] += size + 2 if kept else 0
            if not isinstance(element, Text):
                budget = "vae" if element.kind in ("clean", "noised") else element.kind
                counts[budget] = counts.get(budget, 0) + (size if kept else 0)
        return counts


def sample_of(
    layout: Sequence[Element],
    draws: Draws,
    encode: Callable[[str], Sequence[int]],
    size_of: Callable[[object], tuple[int, int]],
    sizes: Sizes,
    dropout: Dropout,
) -> Sample:
    """Measures a layout.

    `encode` gives the ids of a text, in which no text becomes a mark. `size_of` gives width and height of an element's image, as it
    is seen upright, and is asked once for each image. Of the draws "drop/NUMBER" and "timestep/NUMBER" are used, each with the
    number of the element from 0. A wrong layout, see `elements.checked`, and an image without a pixel raise a ValueError.

    >>> from ul2_tasks.images.draws import draws_of
    >>> layout = (Text("abc"), Image("cat.jpg", "noised"))
    >>> ids, size = (lambda text: list(text.encode())), (lambda image: (1024, 768))
    >>> sample = sample_of(layout, draws_of(0, 0, "r"), ids, size, Sizes(), Dropout())
    >>> sample.contents[1], sample.counts
    (Grid(rows=48, columns=64), {'tokens': 3079, 'vit': 0, 'vae': 3072})
    """
    layout = checked(layout)
    images = [element for element in layout if isinstance(element, Image)]
    held = {id(each.image): each.image for each in images}
    measured = {name: size_of(image) for name, image in held.items()}
    sharing = collections.Counter(each.kind == "vit" for each in images)
    contents: list[np.ndarray | Grid | int] = []
    for element in layout:
        if isinstance(element, Image):
            contents.append(sizes.of(element).grid(*measured[id(element.image)], sharing[element.kind == "vit"]))
        elif isinstance(element, Custom):
            contents.append(element.of.measured(element.value))
        else:
            assert isinstance(element, Text), "a layout has no other elements"
            contents.append(np.asarray(encode(element.text), np.int64))
    timesteps = [-np.inf] * len(layout)
    for _, numbers in clips(layout):
        if layout[numbers[0]].kind == "noised":
            timestep = draws.normal(f"timestep/{numbers[0]}")
            for number in numbers:
                timesteps[number] = timestep
    return Sample(layout, dropout.kept(layout, draws), contents, timesteps)


def dummy(kind: Literal["vit", "vae"]) -> Sample:
    """A sample of one patch, of which nothing is learned: for a row that lacks images of its kind.

    So every rank of a sharded model runs the same modules. No other sample sees it.

    >>> dummy("vit").counts
    {'tokens': 3, 'vit': 1, 'vae': 0}
    """
    return Sample((Image(None, "vit" if kind == "vit" else "clean"),), (True,), (Grid(1, 1),), (-np.inf,))


def smaller(size: Size) -> Size:
    """The rule with all its limits lower: by a twentieth of the sides, or by one patch where that is more.

    >>> smaller(Size(longest_edge=1024, shortest_edge=512, patch_size=16, max_pixels=1_000_000))
    Size(longest_edge=960, shortest_edge=480, patch_size=16, max_pixels=878906, shared=False)
    """
    longest = max(size.patch_size, int(size.longest_edge * _STEP) // size.patch_size * size.patch_size)
    scale = longest / size.longest_edge
    return dataclasses.replace(
        size,
        longest_edge=longest,
        shortest_edge=max(1, int(size.shortest_edge * scale)),
        max_pixels=max(1, int(size.max_pixels * scale**2)),
    )


def fitted(sample: Sample, measure: Callable[[Sizes], Sample], sizes: Sizes, room: Mapping[str, int], shrink: bool) -> Sample:
    """The sample, or one of the same layout with smaller images.

    `sample` is as it is with `sizes`, and `measure` gives it with others; `room` is what there is of each budget. With `shrink`
    images may be made smaller. Those for the ViT shrink until their budget holds, latents likewise, and both where there are too
    many tokens. A sample that does not fit raises a ValueError.
    """
    found = sample
    while above := {name for name, count, most in zip(room, taken(found.counts, room), room.values()) if count > most}:
        kinds = ("vit", "vae") if "tokens" in above else sorted(above & {"vit", "vae"})
        less = dataclasses.replace(sizes, **{kind: smaller(getattr(sizes, kind)) for kind in kinds})
        if not shrink or less == sizes:
            words = "{} places, {} ViT patches and {} of latents" + "".join(f", {{}} of {name}" for name in [*room][3:])
            raise ValueError(
                f"a sample must fit into {words.format(*room.values())}, got {words.format(*taken(sample.counts, room))}"
            )
        found, sizes = measure(less), less
    return found
