"""Samples that are too long for a row: refused, or their images are made smaller, by the rule of their sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from ul2_tasks.image_rows.samples import Counts, Sample, Sizes, taken
from ul2_tasks.image_rows.sizes import Size

_STEP = 0.95  # of the sides, from one try to the next


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


def fitted(sample: Sample, measure: Callable[[Sizes], Sample], sizes: Sizes, room: Counts, shrink: bool) -> Sample:
    """The sample, or one of the same layout with smaller images.

    `sample` is as it is with `sizes`, and `measure` gives it with others; `room` is what there is of each budget. With `shrink`
    images may be made smaller. Those for the ViT shrink until their budget holds, latents likewise, and both where there are too
    many tokens. A sample that does not fit raises a ValueError.
    """
    found = sample
    names: Sequence[str] = room._fields
    while above := {name for name, count, most in zip(names, taken(found.counts, room), room) if count > most}:
        kinds = ("vit", "vae") if "tokens" in above else sorted(above & {"vit", "vae"})
        less = dataclasses.replace(sizes, **{kind: smaller(getattr(sizes, kind)) for kind in kinds})
        if not shrink or less == sizes:
            words = "{} places, {} ViT patches and {} of latents" + "".join(f", {{}} of {name}" for name in names[3:])
            raise ValueError(f"a sample must fit into {words.format(*room)}, got {words.format(*taken(sample.counts, room))}")
        found, sizes = measure(less), less
    return found
