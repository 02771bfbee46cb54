"""The examples that records in pieces make under several denoisers, the same ones under each, found without their tokens.

A record is an example, or where images are codes and each denoiser may join records, it is cut into chunks, each the longest
beginning of what is left that makes an example under every denoiser. Text alone is cut into chunks of one length, the shortest of
the denoisers' own. An image is never cut; a chunk of images alone gets the last text token of the chunk before it, if that has
one to spare, see `joined_pieces`. So how many examples a record makes does not depend on the denoiser that an order chooses for
one, or on the other records.

The loops here are over the pieces of many records, whose arrays are those of a cache: `values` has the pieces of all records of a
file, int32, and `places`, [records] int64, at which byte of these each record begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ul2_tasks.compiled import compiled, part_of_compiled
from ul2_tasks.denoising.piece_lengths import (
    CAUSES,
    FEW_SENTINELS,
    LONG_IMAGE,
    LONG_INPUTS,
    LONG_TARGETS,
    NO_IMAGE,
    NO_TEXT,
    NO_TEXT_AFTER,
    NONE,
    SEVERAL_TEXTS,
    PieceLimits,
    Problem,
    problem_of_chunk,
)
from ul2_tasks.denoising.write_pieces import AFTER_IT, EACH, WITH_IT, noise_place, recipe_of_pieces

RECORDS = 16  # that are looked at for one example, in the worst case; one integer is held of so many
UNKNOWN = len(CAUSES)  # the cause is for `problem_of` to find: a text is longer than both budgets together
_BYTES = 4  # of one of the values
_EVERYTHING = 1 << 62  # tokens
LOST = UNKNOWN + 1  # a chunk of the record has no text
_NO_IMAGE, _NO_TEXT_AFTER, _NO_TEXT, _SEVERAL_TEXTS, _FEW_SENTINELS, _LONG_INPUTS, _LONG_TARGETS, _LONG_IMAGE = map(
    CAUSES.index, (NO_IMAGE, NO_TEXT_AFTER, NO_TEXT, SEVERAL_TEXTS, FEW_SENTINELS, LONG_INPUTS, LONG_TARGETS, LONG_IMAGE)
)


class Rules(NamedTuple):
    """What the loops have to know of D denoisers.

    Attributes:
        adds: [L + 1, 3 D] int32, of texts of 0 to L tokens: how many inputs, targets and sentinels one adds under each denoiser, at
            most.
        most: [3 D] int64, how many inputs, targets and sentinels an example may have, without the mode and EOS.
        facts: [D, 4] int64: where noise is, see `noise_place`, whether there are sentinels, and the tokens of the mode and EOS in
            inputs, and in targets.
        are_plain: whether all denoisers make noise of each text, with sentinels.
        are_cut: whether records are cut.
    """

    adds: np.ndarray
    most: np.ndarray
    facts: np.ndarray
    are_plain: bool
    are_cut: bool


def rules_of(limits: Sequence[PieceLimits]) -> Rules:
    """The rules of the tasks of one mixture, which have the same budgets."""
    modes = [len(each.special.mode) for each in limits]
    most = [
        (each.lengths[0] - mode - each.add_eos[0], each.lengths[1] - each.add_eos[1], len(each.special.sentinels))
        for each, mode in zip(limits, modes)
    ]
    eos = [[end * len(each.special.ending) for end in each.add_eos] for each in limits]  # a vocabulary may have none
    facts = [
        (noise_place(each), int(each.denoiser.sentinel), mode + ends[0], ends[1]) for each, mode, ends in zip(limits, modes, eos)
    ]
    adds = np.concatenate([_adds(each) for each in limits], axis=1)
    are_plain = all(place == EACH and has_sentinels for place, has_sentinels, *_ in facts)
    return Rules(adds, np.array(most, np.int64).ravel(), np.array(facts, np.int64), are_plain, are_cut(limits))


def _adds(limits: PieceLimits) -> np.ndarray:
    """[L + 1, 3] int32, see `Rules`."""
    spans, fewest, most = recipe_of_pieces(limits).counts.T
    sentinels = spans * limits.denoiser.sentinel
    return np.stack([np.arange(len(spans), dtype=np.int32) - fewest + sentinels, most + sentinels, sentinels], axis=1)


def are_cut(limits: Sequence[PieceLimits]) -> bool:
    """Whether records are cut: where one denoiser needs them whole, all others have them whole, too."""
    return all(each.joins_records for each in limits)


def problem_of(limits: Sequence[PieceLimits], pieces: Sequence[int]) -> tuple[int, Problem]:
    """The first denoiser under which a record makes no example, and why. Its cause is empty where it makes one under each.

    Of one that is cut, it is what keeps it from being cut, or that it has no text.
    """
    cut = are_cut(limits)
    for number, each in enumerate(limits):
        problem = each.problem_of_run(pieces) if cut else each.problem(pieces)
        if problem.cause:
            return number, problem
    return 0, problem_of_chunk(pieces) if cut else NONE


# A record is `values` and where its pieces begin and end there. Views of arrays, and arrays of a tuple, are counted references when
# machine code hands them on, which costs ten times what is done here.


@part_of_compiled
def _pieces(places, values, record):
    """Where the pieces of a record begin in `values`, and where they end."""
    return places[record] // _BYTES, places[record + 1] // _BYTES if record + 1 < len(places) else len(values)


@part_of_compiled
def _total(values, first, last):
    """The tokens of a record."""
    total = np.int64(0)
    for place in range(first, last):
        total += values[place]
    return total


@part_of_compiled
def _within(at, length, start, stop):
    """How many tokens of a piece are in [start, stop), if it has `length` tokens from token `at` of its record on."""
    return max(min(at + length, stop) - max(at, start), 0)


@part_of_compiled
def _add(sums, adds, text):
    """Adds a text of so many tokens."""
    for place in range(len(sums)):
        sums[place] += adds[text, place]


@part_of_compiled
def _sum(adds, sums, values, first, last, start, stop):
    """Adds up what the texts among the tokens [start, stop) of a record add, into `sums`, [3 D] int64.

    Gives how many tokens of runs there are, and how many texts; and whether no text is too long to say.
    """
    for place in range(len(sums)):
        sums[place] = 0
    at = runs = texts = np.int64(0)
    is_known = True
    for place in range(first, last):
        length = _within(at, np.int64(values[place]), start, stop)
        at += values[place]
        if (place - first) % 2:
            runs += length
        elif length:
            texts += 1
            if length < len(adds):
                _add(sums, adds, length)
            else:
                is_known = False
    return runs, texts, is_known


@part_of_compiled
def _measure(most, facts, denoiser, values, first, last, sums, runs, texts, is_known):
    """The cause why what was summed up makes no example, or 0; and the longest inputs and targets."""
    place, has_sentinels = facts[denoiser, 0], facts[denoiser, 1]
    inputs, targets, sentinels = sums[3 * denoiser] + runs, sums[3 * denoiser + 1], sums[3 * denoiser + 2]
    if place != EACH:
        if last - first == 1:
            return _NO_IMAGE, inputs, targets
        noise = np.int64(values[last - 1])
        if place == AFTER_IT and not noise:
            return _NO_TEXT_AFTER, inputs, targets
        if place == WITH_IT:
            noise += values[last - 2]
        sentinels = has_sentinels
        inputs, targets = _total(values, first, last) - noise + sentinels, noise + sentinels
    elif not texts:
        return _NO_TEXT, inputs, targets
    elif texts > 1 and not has_sentinels:
        return _SEVERAL_TEXTS, inputs, targets
    elif not is_known:
        return UNKNOWN, inputs, targets
    cause = 0
    if sentinels > most[3 * denoiser + 2]:
        cause = _FEW_SENTINELS
    elif inputs > most[3 * denoiser]:
        cause = _LONG_INPUTS
    elif targets > most[3 * denoiser + 1]:
        cause = _LONG_TARGETS
    return cause, inputs + facts[denoiser, 2], targets + facts[denoiser, 3]


@part_of_compiled
def _fit(adds, most, sums, runs, text, more):
    """Whether a text of `text` tokens, and one of `more`, fit with what was summed up, and with runs of so many tokens."""
    if max(text, more) >= len(adds):
        return False
    for place in range(len(sums)):
        added = np.int64(adds[text, place]) + adds[more, place] + (0 if place % 3 else runs)
        if sums[place] + added > most[place]:
            return False
    return True


@part_of_compiled
def _problem(adds, most, facts, are_plain, are_cut, sums, values, first, last):
    """The first denoiser under which a record makes no example, or cannot be cut, and the cause; or 0 and 0."""
    if are_cut:
        longest_run = np.int64(0)
        for place in range(first + 1, last, 2):
            longest_run = max(longest_run, np.int64(values[place]))
        for place in range(len(sums)):
            if adds[1, place] + (0 if place % 3 else longest_run) > most[place]:
                return place // 3, _LONG_IMAGE
        return 0, 0
    runs, texts, is_known = _sum(adds, sums, values, first, last, 0, _EVERYTHING)
    if are_plain and is_known and texts and _fit(adds, most, sums, runs, 0, 0):
        return 0, 0
    for denoiser in range(len(facts)):
        cause, _, _ = _measure(most, facts, denoiser, values, first, last, sums, runs, texts, is_known)
        if cause:
            return denoiser, cause
    return 0, 0


@part_of_compiled
def _cut(adds, most, sums, values, first, last, wanted):
    """Cuts a record, each of whose runs fits with a token of text.

    Gives how many chunks are examples, and how many have no text; and the tokens [start, stop) of example `wanted`.
    """
    made = lost = start = stop = np.int64(0)
    # The chunk before: its tokens, those that are text, and those of its last piece, of which it may have to give one.
    before_start = before_stop = before_texts = before_last = np.int64(0)
    at, piece, left = np.int64(0), first, np.int64(values[first])  # the next token, its text, and how much of that is left
    while left or piece < last - 1:
        for place in range(len(sums)):
            sums[place] = 0
        begin, texts, runs = at, np.int64(0), np.int64(0)
        while True:
            taken = left
            if not _fit(adds, most, sums, runs, left, 0):
                taken, beyond = np.int64(0), min(left, len(adds))  # `taken` fits, `beyond` does not
                while beyond - taken > 1:
                    middle = (taken + beyond) // 2
                    if _fit(adds, most, sums, runs, middle, 0):
                        taken = middle
                    else:
                        beyond = middle
            _add(sums, adds, taken)
            end = taken
            texts, at, left = texts + taken, at + taken, left - taken
            if left or piece == last - 1:
                break
            run = np.int64(values[piece + 1])
            if not _fit(adds, most, sums, runs + run, 0, 0 if texts else 1):
                break
            runs, at, piece = runs + run, at + run, piece + 2
            left, end = np.int64(values[piece]), np.int64(0)
        if at == begin:
            break  # cannot be: each run fits with a token, and so does a token
        if not texts and before_last and before_texts > 1:
            before_stop, begin, texts = before_stop - 1, begin - 1, texts + 1
        if before_texts:
            if made == wanted:
                start, stop = before_start, before_stop
            made += 1
        elif before_stop:
            lost += 1
        before_start, before_stop, before_texts, before_last = begin, at, texts, end
    if before_texts:
        if made == wanted:
            start, stop = before_start, before_stop
        made += 1
    else:
        lost += 1
    return made, lost, start, stop


@compiled
def count_examples(rules, places, values, begin, made, causes, left_out):
    """Counts the examples of the records from `begin` on, into `made`, [n] int64.

    Adds to `left_out`, [D, causes] int64, how many records, or chunks without a text, make none, by the first denoiser that says
    so. Writes into `causes`, [n] uint8, the cause of each record that makes fewer than it could, else 0.
    """
    adds, most, facts, are_plain, are_cut = rules
    sums = np.zeros(len(most), np.int64)
    for record in range(len(made)):
        first, last = _pieces(places, values, begin + record)
        denoiser, cause = _problem(adds, most, facts, are_plain, are_cut, sums, values, first, last)
        number, lost = np.int64(0 if cause else 1), np.int64(0)
        if not cause and are_cut:
            number, lost, _, _ = _cut(adds, most, sums, values, first, last, -1)
            left_out[0, _NO_TEXT] += lost
        elif cause and cause != UNKNOWN:
            left_out[denoiser, cause] += 1
        made[record], causes[record] = number, LOST if lost else cause


@compiled
def find_examples(rules, places, values, blocks, ranks, is_whole):
    """Finds examples by their numbers among those of `RECORDS` records, `ranks`, [n] int64; `blocks`, [n] int64, says of which.

    Where `is_whole`, [n] bool, each of these records makes one. Gives [n, 3] int64: the record, and the tokens [start, stop) of it.
    """
    found = np.zeros((len(ranks), 3), np.int64)
    adds, most, facts, are_plain, are_cut = rules
    sums = np.zeros(len(most), np.int64)
    for example in range(len(ranks)):
        record, rank = blocks[example] * RECORDS, ranks[example]
        if is_whole[example]:
            record, rank = record + rank, 0
        while True:
            first, last = _pieces(places, values, record)
            made = start = stop = np.int64(0)
            if is_whole[example] or not _problem(adds, most, facts, are_plain, are_cut, sums, values, first, last)[1]:
                if are_cut:
                    made, _, start, stop = _cut(adds, most, sums, values, first, last, rank)
                else:
                    made, stop = np.int64(1), _total(values, first, last)
            if rank < made:
                break
            rank -= made
            record += 1
        found[example, 0], found[example, 1], found[example, 2] = record, start, stop
    return found


@compiled
def measure_examples(rules, places, values, found, denoisers):
    """The longest inputs and targets of examples that were found, [n, 2] int64; each under the denoiser of its number, of [n]."""
    sizes = np.zeros((len(found), 2), np.int64)
    adds, most, facts, _, _ = rules
    sums = np.zeros(len(most), np.int64)
    for example in range(len(found)):
        first, last = _pieces(places, values, found[example, 0])
        of_texts = _sum(adds, sums, values, first, last, found[example, 1], found[example, 2])
        _, sizes[example, 0], sizes[example, 1] = _measure(most, facts, denoisers[example], values, first, last, sums, *of_texts)
    return sizes


@compiled
def pieces_of(places, values, found):
    """The pieces of examples that were found, one after the other, int32; and where those of each begin, [n + 1] int64."""
    most = np.int64(0)
    for example in range(len(found)):
        first, last = _pieces(places, values, found[example, 0])
        most += last - first
    held, firsts = np.zeros(most, np.int32), np.zeros(len(found) + 1, np.int64)
    written = 0
    for example in range(len(found)):
        first, last = _pieces(places, values, found[example, 0])
        start, stop, at = found[example, 1], found[example, 2], np.int64(0)
        for place in range(first, last):
            length, is_run = np.int64(values[place]), (place - first) % 2 == 1
            is_before_it = at + length < start or (at + length == start and is_run)
            is_after_it = at > stop or (at == stop and is_run)
            if not is_before_it and not is_after_it:
                held[written] = _within(at, length, start, stop)
                written += 1
            at += length
        firsts[example + 1] = written
    return held[:written], firsts
