"""Which records in pieces, see `pieces`, make an example, in a loop: one that makes an example under each of several denoisers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ul2_tasks.compiled import compiled, part_of_compiled
from ul2_tasks.denoising.piece_lengths import (
    CAUSES,
    FEW_SENTINELS,
    LONG_INPUTS,
    LONG_TARGETS,
    NO_IMAGE,
    NO_TEXT,
    NO_TEXT_AFTER,
    SEVERAL_TEXTS,
    PieceLimits,
)
from ul2_tasks.denoising.write_pieces import recipe_of_pieces

_BYTES = 4  # of one of the values
_NO_IMAGE, _NO_TEXT_AFTER, _NO_TEXT, _SEVERAL_TEXTS, _FEW_SENTINELS, _LONG_INPUTS, _LONG_TARGETS = map(
    CAUSES.index, (NO_IMAGE, NO_TEXT_AFTER, NO_TEXT, SEVERAL_TEXTS, FEW_SENTINELS, LONG_INPUTS, LONG_TARGETS)
)


class Rules(NamedTuple):
    """What the loop has to know of D denoisers.

    Attributes:
        adds: [D, L + 1, 3] int64, of texts of 0 to L tokens: how many inputs, targets and sentinels one adds under each denoiser,
            at most. L is both budgets together, so that a longer text fits as little as one of L tokens.
        most: [D, 3] int64, how many inputs, targets and sentinels an example may have, without the mode and EOS.
        splits_once, has_sentinels: [D] bool, of each denoiser.
    """

    adds: np.ndarray
    most: np.ndarray
    splits_once: np.ndarray
    has_sentinels: np.ndarray


def rules_of(limits: Sequence[PieceLimits]) -> Rules:
    """The rules of the tasks of one mixture, which have the same budgets."""
    most = [
        (
            each.lengths[0] - len(each.special.mode) - each.add_eos[0] * len(each.special.ending),
            each.lengths[1] - each.add_eos[1] * len(each.special.ending),  # a vocabulary may have no EOS
            len(each.special.sentinels),
        )
        for each in limits
    ]
    return Rules(
        np.stack([_adds(each) for each in limits]),
        np.array(most, np.int64),
        np.array([each.splits_once for each in limits]),
        np.array([each.denoiser.sentinel for each in limits]),
    )


def _adds(limits: PieceLimits) -> np.ndarray:
    spans, fewest, most = recipe_of_pieces(limits).counts.T.astype(np.int64)
    sentinels = spans * limits.denoiser.sentinel
    return np.stack([np.arange(len(spans)) - fewest + sentinels, most + sentinels, sentinels], axis=1)


# Views of arrays, and arrays of a tuple, are counted references when machine code hands them on, which costs ten times what is
# done here.


@part_of_compiled
def _cause(adds, most, splits_once, has_sentinels, denoiser, values, first, last):
    """Why a record whose pieces are [first, last) of `values` makes no example under a denoiser: a place in `CAUSES`, or 0."""
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
            inputs += adds[denoiser, measured, 0]
            targets += adds[denoiser, measured, 1]
            sentinels += adds[denoiser, measured, 2]
    if once:
        if last - first == 1:
            return _NO_IMAGE
        if not targets:
            return _NO_TEXT_AFTER
        inputs, targets, sentinels = inputs + marks, targets + marks, np.int64(marks)
    elif not texts:
        return _NO_TEXT
    elif texts > 1 and not marks:
        return _SEVERAL_TEXTS
    if sentinels > most[denoiser, 2]:
        return _FEW_SENTINELS
    if inputs > most[denoiser, 0]:
        return _LONG_INPUTS
    return _LONG_TARGETS if targets > most[denoiser, 1] else 0


@compiled
def find_causes(rules, places, values, begin, causes, denoisers):
    """Writes why records from `begin` on make no example, a place in `CAUSES`, and the denoiser that says so first: [n] uint8 each.

    A record that makes an example under each denoiser has 0 in both. Record i has the pieces in `values`, int32, from byte
    places[i] on.
    """
    adds, most, splits_once, has_sentinels = rules
    for record in range(len(causes)):
        number = begin + record
        first = places[number] // _BYTES
        last = places[number + 1] // _BYTES if number + 1 < len(places) else len(values)
        causes[record] = denoisers[record] = 0
        for denoiser in range(len(most)):
            cause = _cause(adds, most, splits_once, has_sentinels, denoiser, values, first, last)
            if cause:
                causes[record], denoisers[record] = cause, denoiser
                break
