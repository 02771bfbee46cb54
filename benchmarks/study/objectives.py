"""What is compared: the objectives that models are trained on, and the denoisers that they are evaluated on."""

from __future__ import annotations

import dataclasses

from ul2_tasks import T5GEMMA2, UL2, CausalDenoiser, Denoiser

MODES = ("[R]", "[S]", "[X]", "[C]")
R1, R2, X1, X2, S = T5GEMMA2
CAUSAL = CausalDenoiser(name="causal")


@dataclasses.dataclass(frozen=True)
class Objective:
    """What a model is trained on.

    Attributes:
        title: for people.
        denoisers: mixed by their weights.
        continuing, infilling: those of the denoisers in whose form the model is asked to continue a text, and to fill a gap.
    """

    title: str
    denoisers: tuple[Denoiser, ...]
    continuing: Denoiser
    infilling: Denoiser


OBJECTIVES = {
    "r1": Objective("R1 alone", (R1,), R1, R1),
    "s": Objective("S alone", (S,), S, S),
    "causal": Objective("causal LM", (CAUSAL,), CAUSAL, CAUSAL),
    "ul2": Objective("UL2", UL2, next(denoiser for denoiser in UL2 if denoiser.mode == "[S]"), UL2[0]),
    "t5gemma2": Objective("T5Gemma 2", T5GEMMA2, S, R1),
}
HELD_OUT = (*T5GEMMA2, CAUSAL)
