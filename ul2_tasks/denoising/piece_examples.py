"""The examples that records in pieces make under several denoisers, the same ones under each, found without their tokens.

A record is an example, or where images are codes and each denoiser may join records, it is cut into chunks, each the longest
beginning of what is left that makes an example under every denoiser. Text alone is cut into chunks of one length, the shortest of
the denoisers' own. An image is never cut; a chunk of images alone gets the last text token of the chunk before it, if that has
one to spare, see `joined_pieces`. So how many examples a record makes does not depend on the denoiser that an order chooses for
one, or on the other records.

The loops here are over the pieces of many records, whose arrays are those of a cache: `values` has the pieces of all records of a
file, and `places`, [records] int64, at which byte of these each record begins.
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

RECORDS = 256  # that are looked at for one example, in the worst case
UNKNOWN = len(CAUSES)  # the cause is for `problem_of` to find: a text is longer than both budgets together
LOST = UNKNOWN + 1  # a chunk of the record has no text
_NO_IMAGE, _NO_TEXT_AFTER, _NO_TEXT, _SEVERAL_TEXTS, _FEW_SENTINELS, _LONG_INPUTS, _LONG_TARGETS, _LONG_IMAGE = map(
    CAUSES.index, (NO_IMAGE, NO_TEXT_AFTER, NO_TEXT, SEVERAL_TEXTS, FEW_SENTINELS, LONG_INPUTS, LONG_TARGETS, LONG_IMAGE)
)


class Rules(NamedTuple):
    """What the loops have to know of D denoisers.

    `counts` are [D, L + 1, 3] int32: spans, and the fewest and the most noise tokens of a text of each length up to L. `added` are
    [D, 2] int64, the tokens before and after inputs and targets; `most`, [D, 3] int64, the most inputs, targets and sentinels;
    `noise_places` [D] int64; `has_sentinels` [D] bool. `are_cut` says whether records are cut.
    """

    counts: np.ndarray
    added: np.ndarray
    most: np.ndarray
    noise_places: np.ndarray
    has_sentinels: np.ndarray
    are_cut: bool


def rules_of(limits: Sequence[PieceLimits]) -> Rules:
    """The rules of the tasks of one mixture, which have the same budgets."""
    added = [(len(each.special.mode) + each.add_eos[0], int(each.add_eos[1])) for each in limits]
    return Rules(
        np.stack([recipe_of_pieces(each).counts for each in limits]),
        np.array(added, np.int64),
        np.array([(*each.lengths, len(each.special.sentinels)) for each in limits], np.int64),
        np.array([noise_place(each) for each in limits], np.int64),
        np.array([each.denoiser.sentinel for each in limits]),
        are_cut(limits),
    )


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


@part_of_compiled
def _piece(at, length, start, stop):
    """How many tokens of a piece are in [start, stop), if it has `length` tokens from token `at` of its record on."""
    return max(min(at + length, stop) - max(at, start), 0)


@part_of_compiled
def _measure(rules, denoiser, pieces, start, stop):
    """The cause why the tokens [start, stop) of a record make no example, or 0; and the longest inputs and targets."""
    counts, noise_place = rules.counts[denoiser], rules.noise_places[denoiser]
    at = texts = spans = fewest = most = 0
    is_known = True
    for number in range(len(pieces)):
        length = _piece(at, np.int64(pieces[number]), start, stop)
        at += np.int64(pieces[number])
        if number % 2 == 0 and length:
            texts += 1
            is_known = is_known and length < len(counts)
            length = min(length, len(counts) - 1)
            spans += counts[length, 0]
            fewest += counts[length, 1]
            most += counts[length, 2]
    if noise_place != EACH:
        if len(pieces) == 1:
            return _NO_IMAGE, 0, 0
        if noise_place == AFTER_IT and not pieces[len(pieces) - 1]:
            return _NO_TEXT_AFTER, 0, 0
        fewest = np.int64(pieces[len(pieces) - 1])
        if noise_place == WITH_IT:
            fewest += np.int64(pieces[len(pieces) - 2])
        most, spans = fewest, 1
    else:
        if not texts:
            return _NO_TEXT, 0, 0
        if not rules.has_sentinels[denoiser] and texts > 1:
            return _SEVERAL_TEXTS, 0, 0
        if not is_known:
            return UNKNOWN, 0, 0
    sentinels = spans if rules.has_sentinels[denoiser] else 0
    inputs = rules.added[denoiser, 0] + stop - start - fewest + sentinels
    targets = rules.added[denoiser, 1] + most + sentinels
    cause = 0
    if sentinels > rules.most[denoiser, 2]:
        cause = _FEW_SENTINELS
    elif inputs > rules.most[denoiser, 0]:
        cause = _LONG_INPUTS
    elif targets > rules.most[denoiser, 1]:
        cause = _LONG_TARGETS
    return cause, inputs, targets


@part_of_compiled
def _fit(rules, sums, runs, text, more):
    """Whether a text of `text` tokens, and one of `more`, fit with texts that have these sums, and with so many tokens of runs.

    `sums` are [D, 3] int64: inputs, targets and sentinels.
    """
    if max(text, more) >= rules.counts.shape[1]:
        return False
    for denoiser in range(len(rules.counts)):
        inputs, targets, sentinels = sums[denoiser, 0] + runs, sums[denoiser, 1], sums[denoiser, 2]
        for each in range(2):
            length = more if each else text
            spans = rules.counts[denoiser, length, 0] if rules.has_sentinels[denoiser] else 0
            inputs += length - rules.counts[denoiser, length, 1] + spans
            targets += rules.counts[denoiser, length, 2] + spans
            sentinels += spans
        if (
            sentinels > rules.most[denoiser, 2]
            or inputs + rules.added[denoiser, 0] > rules.most[denoiser, 0]
            or targets + rules.added[denoiser, 1] > rules.most[denoiser, 1]
        ):
            return False
    return True


@part_of_compiled
def _add(rules, sums, text):
    """Adds a text of so many tokens."""
    for denoiser in range(len(rules.counts)):
        spans = rules.counts[denoiser, text, 0] if rules.has_sentinels[denoiser] else 0
        sums[denoiser, 0] += text - rules.counts[denoiser, text, 1] + spans
        sums[denoiser, 1] += rules.counts[denoiser, text, 2] + spans
        sums[denoiser, 2] += spans


@part_of_compiled
def _cut(rules, sums, pieces, wanted):
    """Cuts a record, each of whose runs fits with a token of text.

    Gives how many chunks are examples, and how many have no text; and the tokens [start, stop) of example `wanted`.
    """
    made = lost = start = stop = 0
    # The chunk before: its tokens, those that are text, and those of its last piece, of which it may have to give one.
    before_start = before_stop = before_texts = before_last = 0
    at, number, left = 0, 0, np.int64(pieces[0])  # the next token, its text, and how much of that is left
    while left or number < len(pieces) - 1:
        sums[:] = 0
        begin, texts, runs = at, 0, 0
        while True:
            taken = left
            if not _fit(rules, sums, runs, left, 0):
                taken, beyond = 0, min(left, rules.counts.shape[1])  # `taken` fits, `beyond` does not
                while beyond - taken > 1:
                    middle = (taken + beyond) // 2
                    if _fit(rules, sums, runs, middle, 0):
                        taken = middle
                    else:
                        beyond = middle
            _add(rules, sums, taken)
            last = taken
            texts, at, left = texts + taken, at + taken, left - taken
            if left or number == len(pieces) - 1:
                break
            run = np.int64(pieces[number + 1])
            if not _fit(rules, sums, runs + run, 0, 0 if texts else 1):
                break
            runs, at, number = runs + run, at + run, number + 2
            left, last = np.int64(pieces[number]), 0
        if at == begin:
            raise ValueError("a run must fit with a token of text")
        if not texts and before_last and before_texts > 1:
            before_stop, begin, texts = before_stop - 1, begin - 1, 1
        if before_texts:
            if made == wanted:
                start, stop = before_start, before_stop
            made += 1
        elif before_stop:
            lost += 1
        before_start, before_stop, before_texts, before_last = begin, at, texts, last
    if before_texts:
        if made == wanted:
            start, stop = before_start, before_stop
        made += 1
    else:
        lost += 1
    return made, lost, start, stop


@part_of_compiled
def _problem(rules, pieces):
    """The first denoiser under which a record makes no example, or cannot be cut, and the cause; or 0 and 0."""
    whole, longest_run = np.int64(0), np.int64(0)
    for number in range(len(pieces)):
        whole += pieces[number]
        if number % 2:
            longest_run = max(longest_run, np.int64(pieces[number]))
    run_with_text = np.array([1, longest_run, 0])
    for denoiser in range(len(rules.counts)):
        if rules.are_cut:
            cause = _LONG_IMAGE if _measure(rules, denoiser, run_with_text, 0, longest_run + 1)[0] else 0
        else:
            cause = _measure(rules, denoiser, pieces, 0, whole)[0]
        if cause:
            return denoiser, cause
    return 0, 0


@part_of_compiled
def _pieces(places, values, record):
    """The pieces of a record."""
    first = places[record] // values.itemsize
    return values[first : places[record + 1] // values.itemsize if record + 1 < len(places) else len(values)]


@compiled
def count_examples(rules, places, values, first, made, causes, left_out):
    """Counts the examples of the records from `first` on, into `made`, [n] int64.

    Adds to `left_out`, [D, causes] int64, how many records, or chunks without a text, make none, by the first denoiser that says
    so. Writes into `causes`, [n] uint8, the cause of each record that makes fewer than it could, else 0.
    """
    sums = np.zeros((len(rules.counts), 3), np.int64)
    for place in range(len(made)):
        pieces = _pieces(places, values, first + place)
        denoiser, cause = _problem(rules, pieces)
        number, lost = 0 if cause else 1, 0
        if not cause and rules.are_cut:
            number, lost, _, _ = _cut(rules, sums, pieces, -1)
            left_out[0, _NO_TEXT] += lost
        elif cause and cause != UNKNOWN:
            left_out[denoiser, cause] += 1
        made[place], causes[place] = number, LOST if lost else cause


@compiled
def find_examples(rules, places, values, blocks, ranks, is_whole):
    """Finds examples by their numbers among those of 256 records, `ranks`, [n] int64; `blocks`, [n] int64, says of which.

    Where `is_whole`, [n] bool, each of these records makes one. Gives [n, 3] int64: the record, and the tokens [start, stop) of it.
    """
    found = np.zeros((len(ranks), 3), np.int64)
    sums = np.zeros((len(rules.counts), 3), np.int64)
    for example in range(len(ranks)):
        record, rank = blocks[example] * RECORDS, ranks[example]
        if is_whole[example]:
            record, rank = record + rank, 0
        while True:
            pieces = _pieces(places, values, record)
            made = start = stop = 0
            if is_whole[example] or not _problem(rules, pieces)[1]:
                if rules.are_cut:
                    made, _, start, stop = _cut(rules, sums, pieces, rank)
                else:
                    made, stop = 1, pieces.sum()
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
    for example in range(len(found)):
        pieces = _pieces(places, values, found[example, 0])
        _, sizes[example, 0], sizes[example, 1] = _measure(rules, denoisers[example], pieces, found[example, 1], found[example, 2])
    return sizes


@compiled
def pieces_of(places, values, found):
    """The pieces of examples that were found, one after the other, int32; and where those of each begin, [n + 1] int64."""
    firsts = np.zeros(len(found) + 1, np.int64)
    for example in range(len(found)):
        firsts[example + 1] = firsts[example] + len(_pieces(places, values, found[example, 0])) + 2
    held = np.zeros(firsts[-1], np.int32)
    place = 0
    for example in range(len(found)):
        pieces, start, stop = _pieces(places, values, found[example, 0]), found[example, 1], found[example, 2]
        firsts[example] = place
        at = 0
        for number in range(len(pieces)):
            length = np.int64(pieces[number])
            is_after_it = at > stop or (at == stop and number % 2 == 1)
            is_before_it = at + length < start or (at + length == start and number % 2 == 1)
            if not is_after_it and not is_before_it:
                held[place] = _piece(at, length, start, stop)
                place += 1
            at += length
    firsts[len(found)] = place
    return held[:place], firsts
