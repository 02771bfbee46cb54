"""What the objective is: a denoiser is a row of a table, and a preset is a table.

A denoiser says in plain integers all that its kind does differently: `lengths` solves its chunks from that, and `write` draws its
noise and makes its examples, neither of them knowing the kinds.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from numpy.typing import ArrayLike

from ul2_tasks.scalars import as_python, is_finite
from ul2_tasks.tokenizers.borders import BORDERS
from ul2_tasks.tokenizers.special_ids import SpecialTokens, Token

PLACEMENTS = T5, UNIFORM, TOUCHING = ("t5", "uniform", "touching")
SPLITS = ("fixed", "uniform")
# Where a SequentialDenoiser splits interleaved image-text data.
PIECES, LAST_IMAGE = IMAGE_SPLITS = ("pieces", "last_image")


class Denoiser:
    """The base class of denoisers, which mask n of a chunk's L tokens in k noise spans.

    A denoiser is a frozen dataclass that inherits from this class. It has the fields `name`, `mode` and `weight` and the method
    `noise_counts`, and overrides what it does differently. Its fields alone decide what it does: equal denoisers share one graph.

    Attributes:
        name: ends the task's name, `ul2_<name>`; lower-case letters, digits and underscores.
        mode: the mode token that starts the inputs, by name; None for none.
        weight: mixing rate in examples, relative to the other denoisers', above 0.
        placement: where the spans are. "t5" begins with unmasked tokens and ends with noise, so that a single span is the
            chunk's end; "uniform" makes all positions equally likely; with "touching" spans may follow each other at once.
        targets: None for the noise; or "whole", all of the chunk without sentinels, as for ProtT5.
        borders: where spans shall begin and end: at "words", "lines" or "sentences", as the tokens tell them; None for anywhere.
        single_span: whether a chunk of any length has one span.
        sentinel: whether each span has a sentinel, in the inputs and in the targets.
        targets_end_in_eos: whether targets end with an EOS, if their feature asks for one.
        needs_inputs_length: whether `sequence_length` must have inputs. It need not where they hold no token of the chunk.
        lengths_follow_noise: whether nothing but the number of noise tokens decides the lengths of a chunk's inputs and targets.
        has_rates: whether targets have `example_features.RATES`.
        replaces: whether random ids of text replace tokens.
    """

    name: str
    mode: str | None
    weight: float
    placement: str = "t5"
    targets: str | None = None
    borders: str | None = None
    single_span: bool = False
    sentinel: bool = True
    targets_end_in_eos: bool = True
    needs_inputs_length: bool = True
    lengths_follow_noise: bool = True
    has_rates: bool = False
    replaces: bool = False
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]  # every kind is a dataclass

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            value = tuple(map(as_python, value)) if isinstance(value, tuple) else as_python(value)
            object.__setattr__(self, field.name, value)  # a frozen dataclass has no other way
        valid_name = isinstance(self.name, str) and re.fullmatch(r"[a-z0-9_]+", self.name)
        self._check("name", "lower-case letters, digits and underscores", valid_name)
        self._check("mode", "None or a non-empty string", self.mode is None or (isinstance(self.mode, str) and self.mode))
        self._check("weight", "a finite number above 0", is_finite(self.weight) and self.weight > 0)

    def noise_counts(self, length: int) -> tuple[int, int]:
        """Returns (n, k), the number of noise tokens of a chunk and the number of noise spans.

        If the number of noise tokens is sampled (see `noise_range`), n is its mean. A chunk of one token is all noise,
        n = k = 1. In a longer one each span has a token, and unmasked tokens are between the spans: for every n that can be
        sampled, k is at most min(n, L - n) with placement "t5", min(n, L - n + 1) with "uniform", and n with "touching". If the
        whole chunk is noise, k is 1.

        As L grows, neither k nor the longest inputs and targets may shrink: `lengths.chunk_length` searches by bisection.

        Args:
            length: L, the chunk's tokens, at least 1.
        """
        raise NotImplementedError

    def noise_range(self, length: int) -> tuple[int, int]:
        """Returns the fewest and the most noise tokens of a chunk of `length` tokens. All numbers between are equally likely."""
        noise, _ = self.noise_counts(length)
        return noise, noise

    def example_lengths(self, length: int, mode_tokens: int, add_eos: tuple[bool, bool] = (True, True)) -> tuple[int, int]:
        """Returns the longest inputs and targets, in tokens, that a chunk of `length` tokens can make."""
        fewest, most = self.noise_range(length)
        sentinels = self.noise_counts(length)[1] if self.sentinel else 0
        targets_eos = add_eos[1] and self.targets_end_in_eos
        in_targets = length if self.targets == "whole" else most + sentinels
        return mode_tokens + length - fewest + sentinels + add_eos[0], in_targets + targets_eos

    @property
    def own_tokens(self) -> tuple[Token, ...]:
        """Special tokens that it has in place of the mixture's sentinels, by their names or ids."""
        return ()

    def own_recipe(self, special: SpecialTokens, add_eos: tuple[bool, bool]) -> Any:
        """What makes examples of ids and keys, see `infilling.Filling`; None for spans, of which lengths and keys decide all."""

    def own_inverse(self, example: Mapping[str, ArrayLike], special: SpecialTokens) -> Any:
        """The `reconstruction.Reconstruction` of an example that an own recipe made."""

    @property
    def described(self) -> dict[str, Any]:
        """What it is, by its fields, without those that are left out, as JSON has it."""
        found = {key: list(value) if isinstance(value, tuple) else value for key, value in dataclasses.asdict(self).items()}
        return {key: value for key, value in found.items() if value is not None or key == "mode"}

    def _check(self, field: str, expected: str, valid: object) -> None:
        if not valid:
            raise ValueError(f"{type(self).__name__} {self.name!r}: {field} must be {expected}, got {getattr(self, field)!r}.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanDenoiser(Denoiser):
    """Span corruption: sentinels replace spans of a chunk, and the targets are these spans (T5, arXiv 1910.10683, section 3.1.4).

        chunk    A B C D E F G H   with the spans [B C] and [F G]
        inputs   A <0> D E <1> H
        targets  <0> B C <1> F G

    Attributes:
        name, mode, weight: as for `Denoiser`.
        mean_span_length: mu, mean number of tokens in a noise span, at least 1.
        noise_density: r, the fraction of a chunk's tokens that is noise, in (0, 1).
        placement: where the spans may be. "t5" starts with unmasked tokens and ends with noise, as
            `t5.data.preprocessors.random_spans_noise_mask` does; "uniform" makes every mask with
            the same number of noise tokens and spans equally likely, the two ends included; so does "touching", but nothing need
            be between two spans: with a mean of 1 any n tokens are equally likely to be masked, each on its own.
        targets: as for `Denoiser`.
        borders: None; or "words", "lines" or "sentences": spans begin and end where these do. Counts stay exact, so that now and
            then a span cannot, which `ul2 stats` counts. A lone span under placement "t5" never moves.
        mask: the token that stands for each span in place of sentinels, which are counted, by its name or id; or None.
    """

    name: str
    mean_span_length: float
    noise_density: float
    mode: str | None = None
    weight: float = 1
    placement: str = "t5"
    targets: str | None = None
    borders: str | None = None
    mask: Token | None = None

    def __post_init__(self):
        super().__post_init__()
        self._check("targets", "None or 'whole'", self.targets in (None, "whole"))
        self._check("borders", f"None or one of {BORDERS}", self.borders in (None, *BORDERS))
        self._check("noise_density", "a number in the open range (0, 1)", _is_fraction(self.noise_density))
        valid_mean = is_finite(self.mean_span_length) and self.mean_span_length >= 1
        self._check("mean_span_length", "a number of at least 1", valid_mean)
        self._check("placement", f"one of {PLACEMENTS}", self.placement in PLACEMENTS)

    def noise_counts(self, length: int) -> tuple[int, int]:
        """Returns n = clamp(round(L r), 1, L - 1) noise tokens in k = clamp(round(n / mu), 1, min(n, L - n)) spans.

        `round` is Python's, half to even.

        >>> SpanDenoiser(name="r2", mean_span_length=12, noise_density=0.5).noise_counts(128)  # 64 / 12 = 5.3
        (64, 5)
        """
        if length == 1:
            return 1, 1
        noise = _noise_tokens(length, self.noise_density)
        most = noise if self.placement == TOUCHING else min(noise, length - noise)
        return noise, min(max(round(noise / self.mean_span_length), 1), most)

    @property
    def own_tokens(self) -> tuple[Token, ...]:
        return () if self.mask is None else (self.mask,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequentialDenoiser(Denoiser):
    """Prefix language modelling: the noise is one span, the suffix (UL2's S-denoiser, arXiv 2205.05131, section 3.1.1).

        chunk    A B C D E F G H   with the suffix [F G H]
        inputs   A B C D E <0>
        targets  <0> F G H

    Attributes:
        name, mode, weight: as for `Denoiser`.
        noise_density: r, the fraction of a chunk's tokens that is noise, in (0, 1).
        split: "fixed" splits every chunk of one length at the same position; "uniform" samples the number of noise
            tokens uniformly from the widest range within the chunk whose mean is the fixed one.
        sentinel: whether the suffix has a sentinel, as any span has; False is plain prefix LM.
    """

    name: str
    noise_density: float
    mode: str | None = None
    weight: float = 1
    split: str = "fixed"
    sentinel: bool = True
    single_span = True

    def __post_init__(self):
        super().__post_init__()
        self._check("noise_density", "a number in the open range (0, 1)", _is_fraction(self.noise_density))
        self._check("split", f"one of {SPLITS}", self.split in SPLITS)
        self._check("sentinel", "True or False", isinstance(self.sentinel, bool))

    def noise_counts(self, length: int) -> tuple[int, int]:
        """Returns n = clamp(round(L r), 1, L - 1) noise tokens in one span; n is their mean if the split is uniform."""
        return _noise_tokens(length, self.noise_density) if length > 1 else 1, 1

    def noise_range(self, length: int) -> tuple[int, int]:
        """Returns (n, n) if the split is fixed; (n - j, n + j) if it is uniform, with the largest j that stays in 1 .. L - 1.

        >>> SequentialDenoiser(name="s", noise_density=0.25, split="uniform").noise_range(40)  # 10 on average
        (1, 19)
        """
        noise, _ = self.noise_counts(length)
        reach = max(0, min(noise - 1, length - 1 - noise)) if self.split == "uniform" else 0
        return noise - reach, noise + reach


@dataclasses.dataclass(frozen=True, kw_only=True)
class CausalDenoiser(Denoiser):
    """Causal language modelling: the targets are all of a chunk, and the inputs are the mode alone.

        chunk    A B C D E F G H
        inputs   [C] </s>
        targets  A B C D E F G H

    The chunk is a window of the corpus, as long as the targets' length, and gets no EOS at its end. With
    `register(separate_documents=True)` each document in it ends with one. A decoder's converter shifts the targets by one position.

    Attributes:
        name, weight: as for `Denoiser`.
        mode: as for `Denoiser`. `register` appends `[C]` to a vocabulary that it opens and that lacks it.
    """

    name: str = "lm"
    mode: str | None = "[C]"
    weight: float = 1
    single_span = True
    sentinel = False
    targets_end_in_eos = False
    needs_inputs_length = False

    def noise_counts(self, length: int) -> tuple[int, int]:
        """Returns (L, 1): all tokens are one span."""
        return length, 1


def _is_fraction(value: object) -> bool:
    return is_finite(value) and 0 < value < 1


def _noise_tokens(length: int, density: float) -> int:
    return min(max(round(length * density), 1), length - 1)


def _check_hashable(denoiser: Denoiser) -> None:
    """Equal denoisers share one traced graph, which finds them by their hash."""
    try:
        hash(denoiser)
    except TypeError as error:
        raise ValueError(
            f"denoisers must be hashable, got {denoiser!r} ({error}). Make it a frozen dataclass, with tuples in place of lists."
        ) from error


def check_denoisers(denoisers: Iterable[Denoiser] | Denoiser | str) -> tuple[Denoiser, ...]:
    """The denoisers of one mixture as a tuple.

    One may be given alone, or a preset by its name, in capital or small letters. None at all, two of one name, and one without a
    hash raise a ValueError.
    """
    expected = f"denoisers must be SpanDenoiser, SequentialDenoiser or CausalDenoiser objects, or a preset of {sorted(PRESETS)}"
    if isinstance(denoisers, str):
        if denoisers.upper() not in PRESETS:
            raise ValueError(f"{expected}, got {denoisers!r}.")
        return PRESETS[denoisers.upper()]
    if isinstance(denoisers, Denoiser):
        denoisers = (denoisers,)
    if not isinstance(denoisers, Iterable):
        raise ValueError(f"{expected}, got {denoisers!r}.")
    denoisers = tuple(denoisers)
    if not denoisers:
        raise ValueError(f"{expected}, got none.")
    for denoiser in denoisers:
        if not isinstance(denoiser, Denoiser):
            raise ValueError(f"{expected}, got {denoiser!r} among them.")
        _check_hashable(denoiser)
    names = [denoiser.name for denoiser in denoisers]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise ValueError(f"denoisers must have different names, got {duplicates} more than once in {names}. Rename one of them.")
    return denoisers


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
