"""What the objective is: a denoiser is a row of a table, a preset is a table.

Nothing here touches TensorFlow. `lengths` turns a row into integers, `spans` and `corruption` into examples.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import ClassVar

from ul2_tasks.scalars import as_python, is_finite, is_integer

PLACEMENTS = ("t5", "uniform")
SPLITS = ("fixed", "uniform")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanDenoiser:
    """Span corruption: spans of a chunk are replaced by sentinels, and asked for (T5, arXiv 1910.10683, section 3.1.4).

    Attributes:
        name: ends the task's name, `ul2_<name>`; lower-case letters, digits and underscores.
        mean_span_length: mu, mean number of tokens in a noise span, at least 1.
        noise_density: r, the fraction of a chunk's tokens that is noise, in (0, 1).
        mode: the mode token that starts the inputs, by name; None for none.
        weight: mixing rate in examples, relative to the other denoisers', above 0.
        placement: where spans may stand. "t5" starts with kept tokens and ends with noise, as
            `t5.data.preprocessors.random_spans_noise_mask` does; "uniform" makes every mask with
            the same number of noise tokens and spans equally likely, the two ends included.
    """

    name: str
    mean_span_length: float
    noise_density: float
    mode: str | None = None
    weight: float = 1
    placement: str = "t5"
    sentinel: ClassVar[bool] = True
    targets_end_in_eos: ClassVar[bool] = True

    def __post_init__(self):
        _check_common(self)
        _check_noise_density(self)
        _check(
            self,
            "mean_span_length",
            "a number of at least 1",
            is_finite(self.mean_span_length) and self.mean_span_length >= 1,
        )
        _check(self, "placement", f"one of {PLACEMENTS}", self.placement in PLACEMENTS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequentialDenoiser:
    """Prefix language modelling: the noise is one span, the suffix (UL2's S-denoiser, arXiv 2205.05131, section 3.1.1).

    Attributes:
        name, noise_density, mode, weight: as for `SpanDenoiser`.
        split: "fixed" cuts every chunk of one length at the same place; "uniform" draws the number of noise
            tokens uniformly from the widest range within the chunk whose mean is the fixed one.
        sentinel: whether the suffix has a sentinel, as any span has; False is plain prefix LM.
    """

    name: str
    noise_density: float
    mode: str | None = None
    weight: float = 1
    split: str = "fixed"
    sentinel: bool = True
    targets_end_in_eos: ClassVar[bool] = True

    def __post_init__(self):
        _check_common(self)
        _check_noise_density(self)
        _check(self, "split", f"one of {SPLITS}", self.split in SPLITS)
        _check(self, "sentinel", "True or False", isinstance(self.sentinel, bool))


@dataclasses.dataclass(frozen=True, kw_only=True)
class CausalDenoiser:
    """Causal language modelling: all of a chunk is asked for, and nothing is given but the mode.

    The inputs are the mode and an EOS; the targets are a window of the corpus as it stands, without an EOS of their own, and
    as long as their budget. A decoder converter shifts them by one place. Documents end with an EOS each.

    Attributes:
        name, mode, weight: as for `SpanDenoiser`. The mode `[C]` is appended to a vocabulary opened by `register` that lacks it.
        stride: tokens from the start of a window to that of the next, at least 1 and at most a window's length; None for that
            length. Windows of a smaller stride overlap, and all but the first begin with tokens that were asked for before.
        keep_partial: whether the last window, where it is shorter, is an example, too; False drops it, and with it the tokens
            of the corpus that no full window holds.
        bos: whether each document begins with the vocabulary's BOS.
    """

    name: str = "lm"
    mode: str | None = "[C]"
    weight: float = 1
    stride: int | None = None
    keep_partial: bool = True
    bos: bool = False
    sentinel: ClassVar[bool] = False
    targets_end_in_eos: ClassVar[bool] = False

    def __post_init__(self):
        _check_common(self)
        expected = "an integer of at least 1, or None for the window's length"
        _check(self, "stride", expected, self.stride is None or is_integer(self.stride, at_least=1))
        _check(self, "keep_partial", "True or False", isinstance(self.keep_partial, bool))
        _check(self, "bos", "True or False", isinstance(self.bos, bool))


Denoiser = SpanDenoiser | SequentialDenoiser | CausalDenoiser


def check_denoisers(denoisers: Iterable[Denoiser] | Denoiser | str) -> tuple[Denoiser, ...]:
    """The denoisers of one mixture as a tuple.

    Args:
        denoisers: any number of them, one alone, or a preset's name, in capital or small letters.

    Raises:
        ValueError: none at all, a wrong type, two of one name; there is no such preset.
    """
    expected = f"expected SpanDenoiser, SequentialDenoiser or CausalDenoiser objects, or a preset, one of {sorted(PRESETS)}"
    if isinstance(denoisers, str):
        if denoisers.upper() not in PRESETS:
            raise ValueError(f"denoisers: got {denoisers!r}, {expected}")
        return PRESETS[denoisers.upper()]
    if isinstance(denoisers, Denoiser):
        return (denoisers,)
    if not isinstance(denoisers, Iterable):
        raise ValueError(f"denoisers: got {denoisers!r}, {expected}")
    denoisers = tuple(denoisers)
    if not denoisers:
        raise ValueError(f"denoisers: got none, {expected}")
    for denoiser in denoisers:
        if not isinstance(denoiser, Denoiser):
            raise ValueError(f"denoisers: one of them is {denoiser!r}, {expected}")
    names = [denoiser.name for denoiser in denoisers]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise ValueError(f"denoisers: name {duplicates} is given more than once in {names}; names must be unique")
    return denoisers


def _check_common(denoiser: Denoiser) -> None:
    for field in dataclasses.fields(denoiser):
        object.__setattr__(denoiser, field.name, as_python(getattr(denoiser, field.name)))  # a frozen dataclass has no other way
    valid_name = isinstance(denoiser.name, str) and re.fullmatch(r"[a-z0-9_]+", denoiser.name)
    _check(denoiser, "name", "lower-case letters, digits and underscores", valid_name)
    _check(
        denoiser,
        "mode",
        "None or a non-empty string",
        denoiser.mode is None or (isinstance(denoiser.mode, str) and denoiser.mode),
    )
    _check(denoiser, "weight", "a finite number above 0", is_finite(denoiser.weight) and denoiser.weight > 0)


def _check_noise_density(denoiser: SpanDenoiser | SequentialDenoiser) -> None:
    valid = is_finite(denoiser.noise_density) and 0 < denoiser.noise_density < 1
    _check(denoiser, "noise_density", "a number in the open range (0, 1)", valid)


def _check(denoiser: Denoiser, field: str, expected: str, valid: object) -> None:
    if not valid:
        raise ValueError(
            f"{type(denoiser).__name__} {denoiser.name!r}: {field} is {getattr(denoiser, field)!r}, expected {expected}"
        )


# T5Gemma 2 (arXiv 2512.14856, section 3.1): (3, .15, n), (12, .5, n), (32, .15, n), (32, .5, n), (3/4 L, .75, 1), mixed 1:1:1:1:4.
# The paper names neither modes nor sentinels and does not say how S splits: the names, the modes and the fixed split
# (its literal reading) are this project's. UL2's rule (mean span >= 12 or rate >= 0.3 is extreme) would call r2 [X].
T5GEMMA2 = (
    SpanDenoiser(name="r1", mode="[R]", mean_span_length=3, noise_density=0.15),
    SpanDenoiser(name="r2", mode="[R]", mean_span_length=12, noise_density=0.50),
    SpanDenoiser(name="x1", mode="[X]", mean_span_length=32, noise_density=0.15),
    SpanDenoiser(name="x2", mode="[X]", mean_span_length=32, noise_density=0.50),
    SequentialDenoiser(name="s", mode="[S]", noise_density=0.75, weight=4),
)

# UL2 (arXiv 2205.05131, Table 1), the seven rows mixed equally. As in its published code S splits uniformly and has no
# sentinel. The released checkpoints spell the modes [NLU] (R), [NLG] (X) and [S2S] (S), as plain text: give those with
# `modes={"[R]": "[NLU] ", ...}`.
UL2 = (
    SpanDenoiser(name="r1", mode="[R]", mean_span_length=3, noise_density=0.15),
    SpanDenoiser(name="r2", mode="[R]", mean_span_length=8, noise_density=0.15),
    SequentialDenoiser(name="s", mode="[S]", noise_density=0.25, split="uniform", sentinel=False),
    SpanDenoiser(name="x1", mode="[X]", mean_span_length=3, noise_density=0.50),
    SpanDenoiser(name="x2", mode="[X]", mean_span_length=8, noise_density=0.50),
    SpanDenoiser(name="x3", mode="[X]", mean_span_length=64, noise_density=0.15),
    SpanDenoiser(name="x4", mode="[X]", mean_span_length=64, noise_density=0.50),
)

# U-PaLM (arXiv 2210.11399): 50 % S split at a random point, 25 % R (3, .15), 25 % X, "mean span 32 or rate 0.5". Each
# alternative of X is half of the X share here, the other number staying R's: our reading.
UL2R = (
    SpanDenoiser(name="r", mode="[R]", mean_span_length=3, noise_density=0.15, weight=2),
    SpanDenoiser(name="x1", mode="[X]", mean_span_length=32, noise_density=0.15, weight=1),
    SpanDenoiser(name="x2", mode="[X]", mean_span_length=3, noise_density=0.50, weight=1),
    SequentialDenoiser(name="s", mode="[S]", noise_density=0.50, weight=4, split="uniform", sentinel=False),
)

PRESETS = {"T5GEMMA2": T5GEMMA2, "UL2": UL2, "UL2R": UL2R}
