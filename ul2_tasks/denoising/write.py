"""Examples by their keys, one after the other: the spans of each are drawn, and its inputs and targets written into rows.

It gives the examples of `preprocessors.corrupt_chunks` with a key for each row, bit for bit. There every step is taken for a whole
block, by some hundred ops of a graph, and each writes all that it makes to memory. Here an example is made while its tokens are at
hand, at a tenth of the cost.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from ul2_tasks.compiled import compiled, part_of_compiled
from ul2_tasks.denoising.denoisers import Denoiser
from ul2_tasks.denoising.lengths import example_lengths
from ul2_tasks.denoising.solution import Solution
from ul2_tasks.order.permutation import GOLDEN, mix
from ul2_tasks.vocabulary.special_ids import SpecialTokens

_GOLDEN, _32 = np.uint64(GOLDEN), np.uint64(32)


class Recipe(NamedTuple):
    """What `write_examples` has to know of a denoiser, for chunks of L tokens at most.

    `counts` are [L + 1, 3] int32, of each length of a chunk: spans, and the fewest and the most noise tokens; `is_drawn` says
    whether these two differ for some length, and `is_uniform` whether spans may stand anywhere, see `SpanDenoiser.placement`. The
    others are ids, int32: sentinels, of which there may be none, those before the inputs, and those after inputs and targets.
    """

    counts: np.ndarray
    is_drawn: bool
    is_uniform: bool
    sentinels: np.ndarray
    mode: np.ndarray
    inputs_end: np.ndarray
    targets_end: np.ndarray


def recipe_of(solution: Solution) -> Recipe:
    """The recipe of a task's examples."""
    return recipe(solution.configuration.denoiser, solution.special, solution.full.length, solution.add_eos)


def longest_examples(solution: Solution) -> np.ndarray:
    """The longest inputs and targets of chunks of 0 .. L tokens, [L + 1, 2] int64; where noise is not drawn, all are so long."""
    return longest(solution.configuration.denoiser, solution.full.length, len(solution.special.mode), solution.add_eos)


@functools.lru_cache(maxsize=256)
def recipe(denoiser: Denoiser, special: SpecialTokens, length: int, add_eos: tuple[bool, bool]) -> Recipe:
    made = recipe_of_texts(denoiser, special, length, add_eos)
    spans = made.counts[:, 0]
    if denoiser.sentinel and spans.max() > len(special.sentinels):
        raise ValueError(
            f"{type(denoiser).__name__} {denoiser.name!r}: a chunk of {spans.argmax()} tokens must have at most"
            f" {len(special.sentinels)} spans, one for each sentinel, got {spans.max()}. Open the vocabulary with more sentinels"
            " (ul2_tasks.open_vocabulary)."
        )
    return made


@functools.lru_cache(maxsize=256)
def recipe_of_texts(denoiser: Denoiser, special: SpecialTokens, length: int, add_eos: tuple[bool, bool]) -> Recipe:
    """A recipe of texts of so many tokens at most, whatever number of sentinels they need."""
    each = [(denoiser.noise_counts(tokens)[1], *denoiser.noise_range(tokens)) for tokens in range(1, length + 1)]
    counts = np.array([(0, 0, 0), *each], np.int32)
    _check_counts(denoiser, counts)
    endings = (special.ending if add_eos[0] else (), special.ending if add_eos[1] and denoiser.targets_end_in_eos else ())
    ids = (np.array(each, np.int32) for each in (special.sentinels if denoiser.sentinel else (), special.mode, *endings))
    return Recipe(counts, bool((counts[:, 1] < counts[:, 2]).any()), denoiser.placement == "uniform", *ids)


def _check_counts(denoiser: Denoiser, counts: np.ndarray) -> None:
    """Machine code checks no index: what a user's own denoiser says of lengths must hold."""
    (spans, fewest, most), lengths = counts[1:].T, np.arange(1, len(counts))
    room = lengths - most + (denoiser.placement == "uniform")
    right = (spans >= 1) & (spans <= fewest) & (fewest <= most) & (most <= lengths) & ((spans <= room) | (spans == 1))
    if not right.all():
        wrong = int(np.argmin(right))
        raise ValueError(
            f"{type(denoiser).__name__} {denoiser.name!r}: noise_counts must give spans and noise tokens that fit each other, got"
            f" {spans[wrong]} spans and {fewest[wrong]} to {most[wrong]} noise tokens for a chunk of {lengths[wrong]} tokens. See"
            " Denoiser.noise_counts for the conditions."
        )


@functools.lru_cache(maxsize=256)
def longest(denoiser: Denoiser, length: int, mode_tokens: int, add_eos: tuple[bool, bool]) -> np.ndarray:
    each = [example_lengths(denoiser, tokens, mode_tokens, add_eos) for tokens in range(1, length + 1)]
    longest = np.array([(0, 0), *each], np.int64)
    shrinks = np.flatnonzero((np.diff(longest, axis=0) < 0).any(axis=1))
    if len(shrinks):
        tokens = int(shrinks[0])
        raise ValueError(
            f"{type(denoiser).__name__} {denoiser.name!r}: noise_counts must not let inputs or targets shrink as a chunk grows,"
            f" got up to {longest[tokens].tolist()} of them for a chunk of {tokens} tokens, and {longest[tokens + 1].tolist()}"
            f" for {tokens + 1}. See Denoiser.noise_counts for the conditions."
        )
    return longest


_mix = part_of_compiled(mix)  # of one uint64; it is the streams' own, and never changes


@part_of_compiled
def _draw_below(bound, key, number):
    """Draw `number`, from 1, of a key: an integer in [0, bound). See `spans.random_below`."""
    return np.int64((_mix(key + np.uint64(number) * _GOLDEN) >> _32) * np.uint64(bound) >> _32)


@part_of_compiled
def _draw_composition(total, parts, key, is_taken, composition):
    """Writes into `composition` what `spans.random_composition` returns. `is_taken` is all False before and after."""
    for step in range(parts - 1):
        last = total - parts + step
        place = _draw_below(last + 1, key, step + 1)
        is_taken[last if is_taken[place] else place] = True
    part, start = 0, 0
    for place in range(total - 1):
        if is_taken[place]:
            is_taken[place] = False
            composition[part] = place + 1 - start
            part, start = part + 1, place + 1
    composition[parts - 1] = total - start


@part_of_compiled
def draw_noise(recipe, length, key):
    """How many tokens of a text are noise. It has `length` tokens, at least one."""
    fewest, most = np.int64(recipe.counts[length, 1]), np.int64(recipe.counts[length, 2])
    return fewest + _draw_below(most - fewest + 1, _mix(~key), 1) if recipe.is_drawn else fewest


@part_of_compiled
def draw_spans(recipe, length, key, is_taken, kept, noise):
    """Writes the tokens before each span, and after the last, into `kept`, and those of each into `noise`. Returns the spans.

    The text has `length` tokens, at least one. `is_taken` is all False before and after.
    """
    spans, noise_tokens = np.int64(recipe.counts[length, 0]), draw_noise(recipe, length, key)
    noise_key, kept_key = _mix(~key), _mix(~(key + _GOLDEN))
    if recipe.is_drawn:
        noise_key = _mix(noise_key ^ _GOLDEN)
    _draw_composition(noise_tokens, spans, noise_key, is_taken, noise)
    if recipe.is_uniform:  # the first and the last kept run may be empty, so each is drawn with a token that is not there
        _draw_composition(length - noise_tokens + 2, spans + 1, kept_key, is_taken, kept)
        kept[0] -= 1
        kept[spans] -= 1
    else:
        _draw_composition(length - noise_tokens, spans, kept_key, is_taken, kept)
        kept[spans] = 0
    return spans


@part_of_compiled
def copied(values, start, count, row, at):
    """Writes `count` values into `row`, from place `at` on. Returns the place after them."""
    for place in range(count):
        row[at + place] = values[start + place]
    return at + count


@compiled
def write_examples(recipe, tokens, starts, stops, keys, rows, places, inputs, targets):
    """Makes n examples of one denoiser. Gives how many inputs, and how many targets, each has, [n, 2] int64.

    Example i is made of the tokens [starts[i], stops[i]), at least one, both [n] int64, with the key of its noise, of [n] uint64.
    It is written into row rows[i], [n] int64, of inputs and targets, [rows, length] int32, in which there is room for it from place
    places[i], of [n, 2] int64, on.
    """
    counts, _, _, sentinels, mode, inputs_end, targets_end = recipe
    sizes = np.zeros((len(starts), 2), np.int64)
    is_taken = np.zeros(len(counts) + 1, np.bool_)
    kept, noise = np.zeros(counts[:, 0].max() + 1, np.int64), np.zeros(counts[:, 0].max() + 1, np.int64)
    for example in range(len(starts)):
        token = starts[example]
        spans = draw_spans(recipe, stops[example] - token, keys[example], is_taken, kept, noise)
        own_inputs, own_targets = inputs[rows[example]], targets[rows[example]]
        first, first_target = places[example, 0], places[example, 1]
        place, target = copied(mode, 0, len(mode), own_inputs, first), first_target
        for span in range(spans):
            place = copied(tokens, token, kept[span], own_inputs, place)
            token += kept[span]
            if len(sentinels):
                place = copied(sentinels, span, 1, own_inputs, place)
                target = copied(sentinels, span, 1, own_targets, target)
            target = copied(tokens, token, noise[span], own_targets, target)
            token += noise[span]
        place = copied(tokens, token, kept[spans], own_inputs, place)
        place = copied(inputs_end, 0, len(inputs_end), own_inputs, place)
        target = copied(targets_end, 0, len(targets_end), own_targets, target)
        sizes[example, 0], sizes[example, 1] = place - first, target - first_target
    return sizes


@compiled
def example_sizes(recipe, lengths, keys):
    """How many inputs and targets `write_examples` makes of chunks of these lengths with these keys, [n, 2] int64."""
    counts, _, _, sentinels, mode, inputs_end, targets_end = recipe
    sizes = np.zeros((len(lengths), 2), np.int64)
    for example in range(len(lengths)):
        length = lengths[example]
        noise_tokens = draw_noise(recipe, length, keys[example])
        written = np.int64(counts[length, 0]) if len(sentinels) else 0
        sizes[example, 0] = len(mode) + length - noise_tokens + written + len(inputs_end)
        sizes[example, 1] = noise_tokens + written + len(targets_end)
    return sizes


@compiled
def write_segments(rows, starts, sizes, numbers, segment_ids, positions):
    """Writes which example of its row each token is of, and which token of the example it is, [rows, length] int32 each.

    `rows`, `starts`, `sizes` and `numbers` are [n] int64: of each example its row, its first place there, how many places it has,
    and which example of the row it is, from 1.
    """
    for example in range(len(rows)):
        own_ids, own_positions, start = segment_ids[rows[example]], positions[rows[example]], starts[example]
        for place in range(sizes[example]):
            own_ids[start + place] = numbers[example]
            own_positions[start + place] = place
