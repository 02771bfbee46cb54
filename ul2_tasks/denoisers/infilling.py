"""Fill in the middle, for decoder-only models (Bavarian and others, 2022, arXiv 2207.14255): documents in another order.

A document is cut at two places, drawn uniformly and independently, and its middle comes last. Models know two orders:

    document   A B C D E F G H   cut before D and before F
    PSM        <PRE> A B C <SUF> F G H <MID> D E </s>
    SPM        <PRE> <SUF> F G H <MID> A B C D E </s>      the paper's second variant, which released models have
    as it is   A B C D E F G H </s>

The sequence has a loss on all, or on the middle alone: what is before that is the inputs, and the rest the targets, which a
converter with `decoder_only=True` joins. The first id of a sequence has nothing before it, and so is always of the inputs.
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
from ul2_tasks.scalars import is_finite, is_integer
from ul2_tasks.tokenizers.special_ids import SpecialTokens, Token

# What stands before the prefix, the suffix and the middle, and for some models after the middle, in place of EOS.
FIM_TOKENS: Mapping[str, tuple[str, ...]] = {
    "qwen": ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    "starcoder": ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    "deepseek": ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    "codellama": ("▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"),
}
_LOSSES = ("all", "middle")
_ALWAYS = 1 << 32  # of a rate of 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class FIMDenoiser(Denoiser):
    """Fill in the middle, for decoder-only models, in a model's own special tokens; see `denoisers.infilling` for the orders.

    Read documents apart (`merge_examples=False`), so that no middle goes across documents, and pack the examples into rows.

    Attributes:
        name, mode, weight: as for `Denoiser`.
        tokens: the model's tokens, by their names or ids, before prefix, suffix and middle, and where a fourth is given after the
            middle, in place of EOS; or a model of `FIM_TOKENS`: "qwen", "starcoder", "deepseek", "codellama".
        rate: the fraction of examples whose middle is filled in; the others are as they are, with a loss on all.
        spm_rate: the fraction of these whose suffix comes first (SPM).
        loss: "all", as models are pre-trained; or the "middle" alone, with what ends it.
        keep_first: how many tokens at the beginning stay there, before <PRE>, such as a file's name; shorter examples are as
            they are.
    """

    name: str = "fim"
    mode: str | None = None
    weight: float = 1
    tokens: tuple[Token, ...] | str = "qwen"
    rate: float = 0.5
    spm_rate: float = 0.5
    loss: str = "all"
    keep_first: int = 0
    single_span = True
    sentinel = False
    lengths_follow_noise = False

    def __post_init__(self):
        super().__post_init__()
        for field in ("rate", "spm_rate"):
            value = getattr(self, field)
            self._check(field, "a number from 0 to 1", is_finite(value) and 0 <= value <= 1)
        self._check("loss", f"one of {_LOSSES}", self.loss in _LOSSES)
        self._check("keep_first", "an integer of at least 0", is_integer(self.keep_first, at_least=0))
        known = self.tokens in FIM_TOKENS if isinstance(self.tokens, str) else len(self.tokens) in (3, 4)
        self._check("tokens", f"one of {[*FIM_TOKENS]}, or 3 or 4 tokens", known)

    @property
    def own_tokens(self) -> tuple[Token, ...]:
        return FIM_TOKENS[self.tokens] if isinstance(self.tokens, str) else tuple(self.tokens)

    def noise_counts(self, length: int) -> tuple[int, int]:
        """Returns (n, 1), what has a loss: all tokens, or as many as the middle has on average."""
        middle = length / 3 if self.loss == "middle" else length
        return max(1, round(self.rate * middle + (1 - self.rate) * length)), 1

    def noise_range(self, length: int) -> tuple[int, int]:
        return (0 if self.loss == "middle" else length), length

    def example_lengths(self, length: int, mode_tokens: int, add_eos: tuple[bool, bool] = (True, True)) -> tuple[int, int]:
        if self.loss == "middle":
            return mode_tokens + length + 3, length + add_eos[1]
        return mode_tokens + 1, length + 2 + add_eos[1]

    def own_recipe(self, special: SpecialTokens, add_eos: tuple[bool, bool]) -> Filling:
        mode, marks, end = special.mode, special.sentinels[:3], special.ending if add_eos[1] else []
        ids = (np.array(each, np.int32) for each in (mode, marks, special.sentinels[3:] if end else (), end))
        rate, spm_rate = (round(rate * _ALWAYS) for rate in (self.rate, self.spm_rate))
        return Filling(rate, spm_rate, self.keep_first, self.loss == "all", *ids)

    def own_inverse(self, example: Mapping[str, ArrayLike], special: SpecialTokens) -> Reconstruction:
        """Raises a ValueError where the model's tokens, the mode or what ends a sequence are not where they belong."""
        inputs, targets = (np.asarray(example[key], np.int64) for key in ("inputs", "targets"))
        first, split = len(special.mode), len(inputs) - len(special.mode)
        ids = np.concatenate([inputs[first:], targets])
        marks = np.flatnonzero(np.isin(ids, special.sentinels[:3]))
        end = [*special.sentinels[3:], *special.ending][0 if marks.size else -1 :][: len(special.ending)]
        if tuple(inputs[:first]) != special.mode or ids[len(ids) - len(end) :].tolist() != end:
            raise ValueError(f"inputs must start with {list(special.mode)}, and targets must end with {end}, got another example.")
        ids = ids[: len(ids) - len(end)]
        places = np.arange(len(ids))
        if marks.size:
            if tuple(ids[marks]) != special.sentinels[:3]:
                raise ValueError(f"an example must have {special.sentinels[:3]}, each once and in this order, got {ids[marks]}.")
            prefix, suffix, middle = marks.tolist()
            parts = (0, prefix), (prefix + 1, suffix), (middle + 1, len(ids)), (suffix + 1, middle)
            places = np.concatenate([places[start:stop] for start, stop in parts])
        is_noise = places >= (split if marks.size and self.loss == "middle" else 0)
        at = np.where(places < split, first + places, places - split)
        return Reconstruction(ids[places], is_noise, np.array([is_noise.sum()]), at)


class Filling(NamedTuple):
    """What `write_filled` has to know of a denoiser: its rates in 2^-32, and ids, int32: the mode, three marks, and two endings.

    `middle_end` is what ends the middle in place of `end`, or nothing.
    """

    rate: int
    spm_rate: int
    keep_first: int
    is_all: bool
    mode: np.ndarray
    marks: np.ndarray
    middle_end: np.ndarray
    end: np.ndarray

    @property
    def loops(self):
        """See `write.Recipe.loops`."""
        return write_filled, filled_sizes


@part_of_compiled
def _draw_cuts(filling, length, key):
    """Whether the middle of a text is filled in, and whether after the suffix; and where it begins and ends."""
    own, drawn_from = mixed(~key), length - filling.keep_first + 1
    if drawn_from <= 1 or draw_below(_ALWAYS, own, 1) >= filling.rate:
        return False, False, length, length
    one, other = draw_below(drawn_from, own, 3), draw_below(drawn_from, own, 4)
    is_spm = draw_below(_ALWAYS, own, 2) < filling.spm_rate
    return True, is_spm, filling.keep_first + min(one, other), filling.keep_first + max(one, other)


@part_of_compiled
def _sizes(filling, length, key):
    """How many ids of a sequence, without the mode, are inputs, and how many are targets."""
    is_filled, _, start, stop = _draw_cuts(filling, length, key)
    whole = length + len(filling.marks) * is_filled
    inputs = 1 if filling.is_all or not is_filled else whole - (stop - start)
    return inputs, whole - inputs + len(filling.end)


@compiled
def filled_sizes(filling, pieces, firsts, keys):
    """See `write.example_sizes`; an example is of one piece."""
    sizes = np.zeros((len(keys), 2), np.int64)
    for example in range(len(keys)):
        sizes[example] = _sizes(filling, np.int64(pieces[firsts[example]]), keys[example])
        sizes[example, 0] += len(filling.mode)
    return sizes


@compiled
def write_filled(filling, tokens, starts, pieces, firsts, keys, rows, places, inputs, targets):
    """See `write.write_examples`; an example is of one piece."""
    mode, marks, end = filling.mode, filling.marks, filling.end
    sizes, whole = np.zeros((len(keys), 2), np.int64), np.zeros(pieces.max() + 3 if len(keys) else 0, tokens.dtype)
    for example in range(len(keys)):
        length, key, token = np.int64(pieces[firsts[example]]), keys[example], starts[example]
        is_filled, is_spm, start, stop = _draw_cuts(filling, length, key)
        at, prefix = copied(tokens, token, filling.keep_first if is_filled else length, whole, 0), start - filling.keep_first
        if is_filled:
            at = copied(marks, 0, 1, whole, at)
            at = at if is_spm else copied(tokens, token + filling.keep_first, prefix, whole, at)
            at = copied(marks, 1, 1, whole, at)
            at = copied(tokens, token + stop, length - stop, whole, at)
            at = copied(marks, 2, 1, whole, at)
            at = copied(tokens, token + filling.keep_first, prefix, whole, at) if is_spm else at
            at = copied(tokens, token + start, stop - start, whole, at)
        of_inputs, _ = _sizes(filling, length, key)
        row, (first, target) = rows[example], places[example]
        place = copied(mode, 0, len(mode), inputs[row], first)
        place = copied(whole, 0, of_inputs, inputs[row], place)
        stop = copied(whole, of_inputs, at - of_inputs, targets[row], target)
        own_end = filling.middle_end if is_filled and len(filling.middle_end) else end
        stop = copied(own_end, 0, len(end), targets[row], stop)
        sizes[example, 0], sizes[example, 1] = place - first, stop - target
    return sizes
