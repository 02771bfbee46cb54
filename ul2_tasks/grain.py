"""The objective as a transformation of grain: `dataset.seed(0).random_map(Denoise(T5GEMMA2))`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ul2_tasks.denoisers.denoisers import Denoiser
from ul2_tasks.denoisers.objective import denoise_one_of
from ul2_tasks.extras import needs

with needs("ul2_tasks.grain", "grain"):
    import grain


class Denoise(grain.transforms.RandomMap):
    """Masks the "input_ids" of an element, and gives its "inputs" and "targets" instead, beside its other features.

    Each element gets one of the denoisers, drawn by their weights. `settings` are those of `denoise`, such as `vocabulary`.
    """

    def __init__(self, denoisers: Denoiser | Sequence[Denoiser], **settings: Any):
        self._denoisers, self._settings = denoisers, settings

    def random_map(self, element: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        others = {key: value for key, value in element.items() if key != "input_ids"}
        return others | denoise_one_of(element["input_ids"], self._denoisers, rng, **self._settings)
