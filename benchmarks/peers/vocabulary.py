"""The one vocabulary of all sides, and the lengths that they solve: no TensorFlow."""

from __future__ import annotations

import functools
import pathlib

from ul2_tasks import T5GEMMA2, SpanDenoiser, open_vocabulary
from ul2_tasks.denoisers.denoisers import Denoiser
from ul2_tasks.denoisers.lengths import Chunk, chunk_length
from ul2_tasks.tokenizers.special_ids import SpecialTokens, special_tokens

MODEL = pathlib.Path(__file__).resolve().parents[2] / "ul2_tasks" / "data" / "default.model"
SENTINELS = tuple(range(258, 2, -1))  # those of the model, the last one first, as T5's
SPAN = SpanDenoiser(name="span", mode=None, mean_span_length=3, noise_density=0.15)  # T5's
DENOISERS = {"span": (SPAN,), "ul2": T5GEMMA2, "packed": T5GEMMA2}


@functools.cache
def vocabulary():
    return open_vocabulary(str(MODEL))


def special(denoiser: Denoiser) -> SpecialTokens:
    return special_tokens(vocabulary(), denoiser.mode, SENTINELS)


def solved(denoiser: Denoiser, length: int) -> Chunk:
    return chunk_length(denoiser, {"inputs": length, "targets": length}, num_sentinels=len(SENTINELS))


def lengths(case: str, length: int) -> dict[str, int]:
    """Of inputs and targets. Span corruption alone has targets no longer than they become."""
    return {"inputs": length, "targets": solved(SPAN, length).targets if case == "span" else length}


def fixed_chunk(case: str, length: int) -> int:
    """The tokens of the longest chunk that fits whichever denoiser takes it, for sides that cut before they draw one."""
    return min(solved(denoiser, length).length for denoiser in DENOISERS[case])
