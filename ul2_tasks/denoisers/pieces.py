"""Which records in pieces make an example within two budgets, under each of several denoisers; see `write` for what they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ul2_tasks.compiled import compiled, part_of_compiled
from ul2_tasks.denoisers.denoisers import PIECES, Denoiser, SequentialDenoiser
from ul2_tasks.denoisers.write import Recipe, recipe_of_texts
from ul2_tasks.tokenizers.special_ids import SpecialTokens

# Why pieces make no example. Counts have these words.
CAUSES = (
    "",
    "there is no image at which it could be split",
    "no text comes after the last image",
    "there is no text",
    "there are several texts, and no sentinels that say which is which",
    "there are too few sentinels",
    "its inputs are too long",
    "its targets are too long",
)
_NO_IMAGE, _NO_TEXT_AFTER, _NO_TEXT, _SEVERAL_TEXTS, _FEW_SENTINELS, _LONG_INPUTS, _LONG_TARGETS = range(1, len(CAUSES))
_BYTES = 4  # of one of the values


class Problem(NamedTuple):
    """Why something makes no example. `cause` is for counting, and empty where it makes one. `numbers` follow it."""

    cause: str
    numbers: str = ""


@dataclasses.dataclass(frozen=True)
class PieceLimits:
    """What the examples of one task have to be.

    Attributes:
        name: of the task.
        denoiser: the denoiser.
        split: "pieces"; or, where a sequential denoiser splits once, after the last run, "last_image".
        special: the ids that the denoiser adds.
        lengths: the longest inputs and targets.
        add_eos: whether the inputs end with an EOS, and whether the targets do.
    """

    name: str
    denoiser: Denoiser
    split: str
    special: SpecialTokens
    lengths: tuple[int, int]
    add_eos: tuple[bool, bool]

    @property
    def recipe(self) -> Recipe:
        """The recipe of the task's examples. No text of one has more tokens than both budgets together."""
        once = self.split != PIECES and isinstance(self.denoiser, SequentialDenoiser)
        return recipe_of_texts(self.denoiser, self.special, sum(self.lengths), self.add_eos, once)


class Rules(NamedTuple):
    """What the loop has to know of D denoisers.

    Attributes:
        adds: [D, L + 1, 3] int64, of texts of 0 to L tokens: how many sentinels, inputs and targets one adds under each denoiser,
            at most. L is both budgets together, so that a longer text fits as little as one of L tokens.
        most: [D, 3] int64, how many sentinels, inputs and targets an example may have, without the mode and EOS.
        splits_once, has_sentinels: [D] bool, of each denoiser.
    """

    adds: np.ndarray
    most: np.ndarray
    splits_once: np.ndarray
    has_sentinels: np.ndarray


def rules_of(limits: Sequence[PieceLimits]) -> Rules:
    """The rules of the tasks of one mixture, which have the same budgets."""
    adds, most = [], []
    for each in limits:
        recipe, (inputs, targets) = each.recipe, each.lengths
        spans, fewest, noise = recipe.counts.T.astype(np.int64)
        sentinels = spans * each.denoiser.sentinel
        adds.append(np.stack([sentinels, np.arange(len(spans)) - fewest + sentinels, noise + sentinels], axis=1))
        ends = len(recipe.mode) + len(recipe.inputs_end), len(recipe.targets_end)  # a vocabulary may have no EOS
        most.append((len(each.special.sentinels), inputs - ends[0], targets - ends[1]))
    once, has_sentinels = [each.recipe.splits_once for each in limits], [each.denoiser.sentinel for each in limits]
    return Rules(np.stack(adds), np.array(most, np.int64), np.array(once), np.array(has_sentinels))


def problem_of(limits: Sequence[PieceLimits], pieces: Sequence[int] | np.ndarray) -> tuple[int, Problem]:
    """The first denoiser under which a record makes no example, and why. Its cause is empty where it makes one under each."""
    found = np.zeros(1, np.uint8), np.zeros(1, np.uint8), np.zeros(1, np.int64)
    rules = rules_of(limits)
    find_causes(rules, np.zeros(1, np.int64), np.asarray(pieces, np.int32), 0, *found)
    cause, denoiser, needed = (int(each[0]) for each in found)
    each = limits[denoiser]
    if cause == _FEW_SENTINELS:
        return denoiser, Problem(CAUSES[cause], f": it needs {needed}, and the vocabulary has {len(each.special.sentinels)}")
    if cause not in (_LONG_INPUTS, _LONG_TARGETS):
        return denoiser, Problem(CAUSES[cause])
    length = each.lengths[cause - _LONG_INPUTS]
    tokens = needed + length - int(rules.most[denoiser, 1 + cause - _LONG_INPUTS])
    images = f" with all images, {len(pieces) // 2}" if cause == _LONG_INPUTS else ""
    is_cut = max(pieces[::2]) >= rules.adds.shape[1] and not rules.splits_once[denoiser]
    numbers = f"{'more than' if is_cut else 'up to'} {tokens} tokens{images}, of {length} in sequence_length"
    return denoiser, Problem(CAUSES[cause], f": {numbers}")


# Views of arrays, and arrays of a tuple, are counted references when machine code hands them on, which costs ten times what is
# done here.


@part_of_compiled
def _cause(adds, most, splits_once, has_sentinels, denoiser, values, first, last):
    """Why a record whose pieces are [first, last) of `values` makes no example under a denoiser, a place in `CAUSES`, or 0; and how
    much it needs of what there is too little of."""
    once, marks = splits_once[denoiser], has_sentinels[denoiser]
    inputs = targets = sentinels = texts = np.int64(0)
    for place in range(first, last):
        length = np.int64(values[place])
        if once and place == last - 1:
            targets = length
        elif once or (place - first) % 2:
            inputs += length
        elif length:
            texts += 1
            measured = min(length, adds.shape[1] - 1)
            sentinels += adds[denoiser, measured, 0]
            inputs += adds[denoiser, measured, 1]
            targets += adds[denoiser, measured, 2]
    if once:
        if last - first == 1:
            return _NO_IMAGE, np.int64(0)
        if not targets:
            return _NO_TEXT_AFTER, np.int64(0)
        inputs, targets, sentinels = inputs + marks, targets + marks, np.int64(marks)
    elif not texts:
        return _NO_TEXT, np.int64(0)
    elif texts > 1 and not marks:
        return _SEVERAL_TEXTS, np.int64(0)
    if sentinels > most[denoiser, 0]:
        return _FEW_SENTINELS, sentinels
    if inputs > most[denoiser, 1]:
        return _LONG_INPUTS, inputs
    return (_LONG_TARGETS, targets) if targets > most[denoiser, 2] else (0, targets)


@compiled
def find_causes(rules, places, values, begin, causes, denoisers, needed):
    """Writes why records from `begin` on make no example, a place in `CAUSES`, and the denoiser that says so first: [n] uint8 each.

    A record that makes an example under each denoiser has 0 in both. Record i has the pieces in `values`, int32, from byte
    places[i] on. `needed`, [n] int64, is how many sentinels, inputs or targets, without mode and EOS, one has that has too many.
    """
    adds, most, splits_once, has_sentinels = rules
    for record in range(len(causes)):
        number = begin + record
        first = places[number] // _BYTES
        last = places[number + 1] // _BYTES if number + 1 < len(places) else len(values)
        causes[record] = denoisers[record] = 0
        for denoiser in range(len(most)):
            cause, needed[record] = _cause(adds, most, splits_once, has_sentinels, denoiser, values, first, last)
            if cause:
                causes[record], denoisers[record] = cause, denoiser
                break
