"""Diffusion over text, for models that read both ways: tokens of a text are replaced at a rate t, and a model says what they were.

    chunk    A B C D E F G H </s>   with t = 0.4
    mask     A ? C D ? F G ? </s>   each with the probability t: LLaDA (arXiv 2502.09992), Dream (2508.15487)
    uniform  A K C D B F G H </s>   random ids of text in place of the mask
    block    A ? C ? ? ? G H ?      t of each block, which attends to itself and to clean ones before: BD3-LM (2503.09573)
    canvas           D K F          one block, drawn and replaced as in uniform; what is before is clean: DiffusionGemma

The targets of an example are the clean sequence, with mode and EOS. The inputs are those tokens that are, or might be, noised:
their `t` is above 0. A rate is uniform in [eps, 1), and stratified: of 1,024 elements in a row, and of each 2^k of them from
a multiple of 2^k on, each has a part of that range of its own. The element's index says which, so that this needs no state, and no
host to know of others. Strata are shuffled, for each block of a text and each text of a packed row in another way.

    key of an example   10 bits: its number within 1,024 | 22 bits: which shuffle | 32 bits of its noise
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ul2_tasks.compiled import compiled, part_of_compiled
from ul2_tasks.denoisers.denoisers import Denoiser
from ul2_tasks.denoisers.reconstruction import Reconstruction
from ul2_tasks.denoisers.write import copied, draw_below, mixed
from ul2_tasks.example_features import RATE, RATES
from ul2_tasks.order.permutation import GOLDEN
from ul2_tasks.order.permutation import keys as keyed
from ul2_tasks.scalars import is_finite, is_integer
from ul2_tasks.tokenizers.special_ids import SpecialTokens, Token

WHOLE, BLOCKS, CANVAS = range(3)  # what is noised, and attends to what
_STRATA = 10  # bits
_GOLDEN, _32, _LOW = np.uint64(GOLDEN), np.uint64(32), np.uint64((1 << 32) - 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Diffusion(Denoiser):
    """What diffusion denoisers have in common; see `MaskDiffusion` for the fields."""

    name: str
    mode: str | None = None
    weight: float = 1
    eps: float = 1e-3
    block_length: int | None = None
    targets_end_in_eos: bool = True
    single_span = True
    sentinel = False
    lengths_follow_noise = False
    has_rates = True
    form = WHOLE
    clean_weight = 0.0

    def __post_init__(self):
        super().__post_init__()
        self._check("eps", "a number in the open range (0, 1)", is_finite(self.eps) and 0 < self.eps < 1)
        of_blocks = is_integer(self.block_length, at_least=1)
        expected = "an integer of at least 1" + (", or None" if self.form == WHOLE else "")
        self._check("block_length", expected, of_blocks or (self.form == WHOLE and self.block_length is None))
        self._check("targets_end_in_eos", "True or False", isinstance(self.targets_end_in_eos, bool))

    def noise_counts(self, length: int) -> tuple[int, int]:
        """Returns (n, 1), how many tokens have a loss, on average."""
        return min(length, self.block_length or 1) if self.form == CANVAS else length, 1

    def noise_range(self, length: int) -> tuple[int, int]:
        return 0, length

    def example_lengths(self, length: int, mode_tokens: int, add_eos: tuple[bool, bool] = (True, True)) -> tuple[int, int]:
        whole = length + (add_eos[1] and self.targets_end_in_eos)
        return min(whole, self.block_length or 1) if self.form == CANVAS else whole, mode_tokens + whole

    def own_recipe(self, special: SpecialTokens, add_eos: tuple[bool, bool]) -> Noising:
        end = special.ending if add_eos[1] and self.targets_end_in_eos else []
        mask = special.sentinels[0] if self.own_tokens else -1
        mode, end_ids = (np.array(each, np.int32) for each in (special.mode, end))
        ids = np.frombuffer(special.text_ids, np.int32).copy()
        return Noising(self.form, self.block_length or 0, self.eps, float(self.clean_weight), mask, mode, end_ids, ids)

    def own_inverse(self, example: Mapping[str, ArrayLike], special: SpecialTokens) -> Reconstruction:
        """Raises a ValueError where the mode or EOS is not where it belongs, or a token became another one than the mask."""
        inputs, targets = (np.asarray(example[key], np.int64) for key in ("inputs", "targets"))
        first, end = len(special.mode), special.ending if self.targets_end_in_eos else []
        length = len(targets) - first - len(end)
        if tuple(targets[:first]) != special.mode or targets[first + length :].tolist() != end:
            raise ValueError(f"targets must start with {list(special.mode)} and end with {end}, got {targets.tolist()!r:.100}.")
        noised = np.flatnonzero(np.asarray(example[RATE])[first:] > 0) if RATE in example else np.arange(len(targets) - first)
        if len(noised) != len(inputs):
            raise ValueError(f"inputs must have a token for each of {len(noised)} targets with a rate t, got {len(inputs)}.")
        is_noise, at = np.zeros(length + len(end), bool), np.full(length + len(end), -1)
        is_noise[noised], at[noised] = (inputs == special.sentinels[0]) if self.own_tokens else True, np.arange(len(inputs))
        if self.own_tokens and (others := (inputs != targets[first + noised]) & ~is_noise[noised]).any():
            raise ValueError(f"inputs must be the targets or the mask, got {inputs[others].tolist()!r:.100} for other tokens.")
        places, is_noise = np.where(is_noise, first + np.arange(len(at)), at)[:length], is_noise[:length]
        return Reconstruction(targets[first : first + length], is_noise, np.array([is_noise.sum()]), places)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskDiffusion(_Diffusion):
    """Masked diffusion: each token becomes the mask with the probability t, and what is masked has the loss weight 1 / t.

    Examples also have `t`, `loss_weight` and `block_ids` of each target, see `DiffusionConverter`. Inputs and targets have the
    same lengths.

    Attributes:
        name, weight: as for `Denoiser`.
        mode: as for `Denoiser`; it begins the targets, and is never masked.
        mask: the mask's token, by its name or id.
        eps: the lowest rate, above 0.
        block_length: how many tokens have a rate of their own; None for all of an example.
        targets_end_in_eos: False for windows of joined documents, as in LLaDA's pre-training. An EOS is masked like a token.
    """

    name: str = "mask"
    mask: Token = "[MASK]"

    @property
    def own_tokens(self) -> tuple[Token, ...]:
        return (self.mask,)

    def noise_counts(self, length: int) -> tuple[int, int]:
        """Returns (n, 1), how many tokens are masked, on average."""
        return max(1, round(length * (1 + self.eps) / 2)), 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockDiffusion(MaskDiffusion):
    """Masked diffusion by blocks: each has a rate of its own, and attends to itself and to clean blocks before it.

    `DiffusionConverter(clean=True)` makes its rows, with the clean sequences beside those that are masked.

    Attributes:
        name, mode, weight, mask, eps, targets_end_in_eos: as for `MaskDiffusion`.
        block_length: how many tokens a block has; the last one of a text may have fewer.
    """

    name: str = "block"
    block_length: int | None = 32
    form = BLOCKS


@dataclasses.dataclass(frozen=True, kw_only=True)
class UniformDiffusion(_Diffusion):
    """Uniform diffusion: with the probability t a random id of text replaces a token. All have a loss, of weight 1.

    Attributes:
        name, mode, weight, eps, block_length, targets_end_in_eos: as for `MaskDiffusion`.
    """

    name: str = "uniform"
    replaces = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class CanvasDiffusion(_Diffusion):
    """A canvas after a clean prefix of a random number of blocks, as public guides describe DiffusionGemma's training.

    Tokens of one block are replaced as by `UniformDiffusion`. It attends to itself, and to the prefix, which is causal.

    `DiffusionConverter(clean=True)` makes rows of the canvas and then of the whole text, without the noise; or else of the text
    with the canvas in its place.

    Attributes:
        name, mode, weight, eps, targets_end_in_eos: as for `MaskDiffusion`.
        block_length: how many tokens a canvas has; the last one of a text may have fewer.
        clean_weight: the loss weight of the next token in the text, but for the canvas: the encoder's causal loss; 0 for none.
    """

    name: str = "canvas"
    block_length: int | None = 256
    clean_weight: float = 0
    replaces = True
    form = CANVAS

    def __post_init__(self):
        super().__post_init__()
        self._check("clean_weight", "a number of at least 0", is_finite(self.clean_weight) and self.clean_weight >= 0)


class Noising(NamedTuple):
    """What `write_noised` has to know of a denoiser; ids are int32: the mode, what ends targets, and those of text.

    `mask` is -1 where random ids of text replace tokens, and `block` 0 where an example has one rate.
    """

    form: int
    block: int
    eps: float
    clean_weight: float
    mask: int
    mode: np.ndarray
    end: np.ndarray
    ids: np.ndarray

    @property
    def loops(self):
        """See `write.Recipe.loops`."""
        return write_noised, noised_sizes

    def mark(
        self, keys: np.ndarray, sizes: np.ndarray, rows: np.ndarray, places: np.ndarray, written: Mapping[str, np.ndarray]
    ) -> None:
        """Writes `RATES` of targets whose ids are in rows already, see `write.write_examples`; weights are multiplied."""
        mark_noised(self, keys, sizes, rows, places, written["inputs"], *(written[key] for key in RATES))


def spread(keys: np.ndarray, indices: np.ndarray, texts: np.ndarray, seed: int) -> np.ndarray:
    """Keys of noise, [n] uint64, with stratified rates, by the indices of elements, and each one's place in a row, [n] int64."""
    strata = 1 << _STRATA
    shuffles = keyed(seed, indices // strata, texts) >> np.uint64(32 + _STRATA)
    return ((indices % strata).astype(np.uint64) << np.uint64(64 - _STRATA)) | (shuffles << _32) | (keys & _LOW)


@part_of_compiled
def _rate(noising, key, block):
    """The rate t of a block of an example, in [eps, 1)."""
    number, stratum = key >> np.uint64(64 - _STRATA), np.uint64(0)
    own = mixed(((key >> _32) & np.uint64((1 << (32 - _STRATA)) - 1)) * _GOLDEN + np.uint64(block))
    for bit in range(_STRATA):  # of 2^k numbers each has k first bits of its own: flips depend on the bits before, and on which 2^k
        place, before = np.uint64(bit), (np.uint64(1) << np.uint64(bit)) | stratum
        flip = mixed(own + (before << np.uint64(_STRATA) | number >> (place + np.uint64(1))) * _GOLDEN) & np.uint64(1)
        stratum = (stratum << np.uint64(1)) | (((number >> place) & np.uint64(1)) ^ flip)
    within = mixed(key + np.uint64(block) * _GOLDEN) >> _32
    return noising.eps + (1 - noising.eps) * (np.float64((stratum << _32) | within) / 2.0 ** (32 + _STRATA))


@part_of_compiled
def _noised(noising, length, key):
    """Which tokens of a sequence are noised, or might be: [start, stop)."""
    if noising.form != CANVAS:
        return np.int64(0), length
    start = draw_below((length + noising.block - 1) // noising.block, mixed(~(key & _LOW)), 1) * noising.block
    return start, min(length, start + noising.block)


@compiled
def noised_sizes(noising, pieces, firsts, keys):
    """See `write.example_sizes`; an example is of one piece."""
    sizes = np.zeros((len(keys), 2), np.int64)
    for example in range(len(keys)):
        length = np.int64(pieces[firsts[example]]) + len(noising.end)
        start, stop = _noised(noising, length, keys[example])
        sizes[example, 0], sizes[example, 1] = stop - start, len(noising.mode) + length
    return sizes


@compiled
def write_noised(noising, tokens, starts, pieces, firsts, keys, rows, places, inputs, targets):
    """See `write.write_examples`; an example is of one piece."""
    mode, end, ids, sizes = noising.mode, noising.end, noising.ids, np.zeros((len(keys), 2), np.int64)
    for example in range(len(keys)):
        length, key, row = np.int64(pieces[firsts[example]]), keys[example], rows[example]
        noisy, (place, target) = inputs[row], places[example]
        first = copied(mode, 0, len(mode), targets[row], target)
        last = copied(end, 0, len(end), targets[row], copied(tokens, starts[example], length, targets[row], first))
        start, stop = _noised(noising, last - first, key)
        own, clean, below, border = mixed(~key), targets[row][first:], np.uint64(0), start
        for at in range(start, stop):
            if at == border:  # of a block, which has another rate
                below = np.uint64(_rate(noising, key, at // max(noising.block, 1)) * 2.0**32)
                border = at + noising.block
            bits, token = mixed(own + np.uint64(at + 1) * _GOLDEN), clean[at]
            if bits >> _32 < below:
                token = noising.mask if noising.mask >= 0 else ids[(bits & _LOW) * np.uint64(len(ids)) >> _32]
            noisy[place + at - start] = token
        sizes[example, 0], sizes[example, 1] = stop - start, last - target
    return sizes


@compiled
def mark_noised(noising, keys, sizes, rows, places, inputs, rates, weights, blocks):
    """See `Noising.mark`. Blocks are odd where tokens are noised and even where they are clean: all see a lower even one."""
    mode = len(noising.mode)
    for example in range(len(keys)):
        key, row, (place, target) = keys[example], rows[example], places[example]
        start, stop = _noised(noising, sizes[example, 1] - mode, key)
        first, rate, inverse, block, border = target + mode, 0.0, 1.0, np.int64(1), start
        for at in range(-mode, sizes[example, 1] - mode):
            if start <= at < stop:
                if at == border:
                    number, border = at // max(noising.block, 1), at + noising.block
                    rate = _rate(noising, key, number)
                    if noising.mask >= 0:
                        inverse = 1 / rate
                    if noising.form != WHOLE:
                        block = 2 * (number if noising.form == BLOCKS else mode + start) + 1
                rates[row, first + at], blocks[row, first + at] = rate, block
                weights[row, first + at] *= inverse * (noising.mask < 0 or inputs[row, place + at - start] == noising.mask)
            else:
                weights[row, first + at] *= noising.clean_weight if at >= 0 else 0.0
                blocks[row, first + at] = 1 if noising.form == WHOLE else 2 * (mode + at) + 2 if noising.form == CANVAS else 0
