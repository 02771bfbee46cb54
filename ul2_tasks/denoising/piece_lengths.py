"""Which pieces make an example within two budgets, before its noise is drawn; see `pieces` for what an example in pieces is."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from ul2_tasks.denoising.denoisers import PIECES, Denoiser, SequentialDenoiser
from ul2_tasks.denoising.lengths import sentinels_needed
from ul2_tasks.example_features import TOKEN_FEATURES
from ul2_tasks.vocabulary.special_ids import SpecialTokens

# Why pieces make no example. Counts have these words; `piece_examples` has their places here.
CAUSES = _, NO_IMAGE, NO_TEXT_AFTER, NO_TEXT, SEVERAL_TEXTS, FEW_SENTINELS, LONG_INPUTS, LONG_TARGETS = (
    "",
    "there is no image at which it could be split",
    "no text comes after the last image",
    "there is no text",
    "there are several texts, and no sentinels that say which is which",
    "there are too few sentinels",
    "its inputs are too long",
    "its targets are too long",
)


class Longest(NamedTuple):
    """The longest inputs and targets that an example can have, in tokens, and its sentinels."""

    inputs: int
    targets: int
    sentinels: int


def longest(pieces: Sequence[int], denoiser: Denoiser, split: str, mode_tokens: int, add_eos: tuple[bool, bool]) -> Longest:
    """Measures an example before its noise is drawn.

    The pieces are the tokens of each text and of each run, in turn; a text comes first and last. `split` is "pieces"; or, for a
    sequential denoiser, "last_image". `add_eos` says whether the inputs end with an EOS, and whether the targets do. Raises a
    ValueError where nothing is there to be noise, or where no example could be put together again.

    >>> from ul2_tasks.denoising.denoisers import T5GEMMA2
    >>> longest([40, 260, 20], T5GEMMA2[0], "pieces", mode_tokens=1, add_eos=(True, True))  # 6 of 40 and 3 of 20 are noise
    Longest(inputs=316, targets=13, sentinels=3)
    """
    texts = [length for length in pieces[::2] if length]
    if splits_once(denoiser, split):
        if len(pieces) == 1:
            raise ValueError(NO_IMAGE)
        if not pieces[-1]:
            raise ValueError(NO_TEXT_AFTER)
        fewest = most = pieces[-1]
        sentinels = int(denoiser.sentinel)
    else:
        if not texts:
            raise ValueError(NO_TEXT)
        if not denoiser.sentinel and len(texts) > 1:
            raise ValueError(SEVERAL_TEXTS)
        ranges = [denoiser.noise_range(length) for length in texts]
        fewest, most = (sum(bounds) for bounds in zip(*ranges))
        sentinels = sum(sentinels_needed(denoiser, length) for length in texts)
    kept = sum(pieces) - fewest
    return Longest(mode_tokens + kept + sentinels + add_eos[0], most + sentinels + add_eos[1], sentinels)


def splits_once(denoiser: Denoiser, split: str) -> bool:
    """Whether the denoiser makes noise of all that stands after the last run, and of nothing else."""
    return split != PIECES and isinstance(denoiser, SequentialDenoiser)


class Problem(NamedTuple):
    """Why something makes no example. `cause` is for counting, and empty where it makes one. `numbers` follow it."""

    cause: str
    numbers: str = ""


@dataclasses.dataclass(frozen=True)
class PieceLimits:
    """What the examples of one task have to be.

    Attributes:
        name: of the task.
        denoiser, split, add_eos: see `longest`.
        special: the ids that the denoiser adds.
        lengths: the longest inputs and targets.
    """

    name: str
    denoiser: Denoiser
    split: str
    special: SpecialTokens
    lengths: tuple[int, int]
    add_eos: tuple[bool, bool]

    @property
    def splits_once(self) -> bool:
        """See `splits_once`."""
        return splits_once(self.denoiser, self.split)

    def problem(self, pieces: Sequence[int]) -> Problem:
        """Why a record of these pieces makes no example."""
        try:
            found = longest(pieces, self.denoiser, self.split, len(self.special.mode), self.add_eos)
        except ValueError as error:
            return Problem(str(error))
        if found.sentinels > len(self.special.sentinels):
            numbers = f": it needs {found.sentinels}, and the vocabulary has {len(self.special.sentinels)}"
            return Problem(FEW_SENTINELS, numbers)
        for cause, key, tokens, length in zip((LONG_INPUTS, LONG_TARGETS), TOKEN_FEATURES, found, self.lengths):
            if tokens > length:
                images = f" with all images, {len(pieces) // 2}" if key == "inputs" else ""
                return Problem(cause, f": up to {tokens} tokens{images}, of {length} in sequence_length")
        return Problem("")


def problem_of(limits: Sequence[PieceLimits], pieces: Sequence[int]) -> tuple[int, Problem]:
    """The first denoiser under which a record makes no example, and why. Its cause is empty where it makes one under each."""
    for number, each in enumerate(limits):
        if (problem := each.problem(pieces)).cause:
            return number, problem
    return 0, Problem("")
