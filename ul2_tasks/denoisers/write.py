"""Examples by their keys, one after the other: the spans of each are drawn, and its inputs and targets written into rows.

An example has pieces: texts that are corrupted, and runs between them, such as images, that stay whole. A chunk is one of one text.

    pieces   A B C D | P P P | E F G H I J    two texts, and a run
    inputs   A <0> D   P P P   E <1> H <2>
    targets  <0> B C <1> F G <2> I J

Each text has the noise tokens and spans that its denoiser has for its length, and noise of its own. Sentinels are numbered on
through the example. A sequential denoiser may also split once, after the last run: nothing is noise then but all that follows.

Span lengths are uniformly random compositions: all ways to write a total as an ordered sum of positive integers are equally likely.
That is the distribution of `t5.data.preprocessors.random_spans_noise_mask`. It is also what papers call geometric span lengths:
independent geometric lengths, given their number and their sum, are uniform over compositions, whatever their mean. Of n noise
tokens in k spans, a span has l with the probability C(n-l-1, k-2) / C(n-1, k-1).

A random number is `mix(key + number * GOLDEN)`, as SplitMix64 has it (Steele and others, 2014): a key gives the same noise in any
batch. `tasks.preprocessors` has the same arithmetic as a TensorFlow graph.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from ul2_tasks.compiled import compiled, part_of_compiled
from ul2_tasks.denoisers.denoisers import PLACEMENTS, T5, TOUCHING, UNIFORM, Denoiser
from ul2_tasks.order.permutation import GOLDEN, mix
from ul2_tasks.tokenizers.borders import AFTER, AT, BEFORE
from ul2_tasks.tokenizers.special_ids import SpecialTokens

_GOLDEN, _32 = np.uint64(GOLDEN), np.uint64(32)
_T5, _UNIFORM, _TOUCHING = map(PLACEMENTS.index, (T5, UNIFORM, TOUCHING))


class Recipe(NamedTuple):
    """What `write_examples` has to know of a denoiser, for texts of L tokens at most.

    `counts` are [L + 1, 3] int32, of each length of a text: spans, and the fewest and the most noise tokens; `is_drawn` says
    whether these two differ for some length, and `placement` is where spans may be, as its place in `PLACEMENTS`. With `is_whole`
    targets are the texts as they are, and with `splits_once` all of the last piece is noise, and nothing else. The others are ids,
    int32: sentinels, of which there may be none, those before the inputs, and those after inputs and targets. `borders` are
    [ids + 1] uint8, see `borders.border_table`, or an empty tuple.
    """

    counts: np.ndarray
    is_drawn: bool
    placement: int
    is_whole: bool
    splits_once: bool
    sentinels: np.ndarray
    mode: np.ndarray
    inputs_end: np.ndarray
    targets_end: np.ndarray
    borders: np.ndarray | tuple[()]

    @property
    def loops(self):
        """What makes its examples, and what says how long they are."""
        return write_examples, example_sizes


@functools.lru_cache(maxsize=256)
def recipe(denoiser: Denoiser, special: SpecialTokens, length: int, add_eos: tuple[bool, bool]) -> Any:
    """A recipe of chunks of so many tokens at most. Raises a ValueError where one needs more sentinels than there are."""
    made = recipe_of_texts(denoiser, special, length, add_eos)
    if not isinstance(made, Recipe):
        return made
    spans = made.counts[:, 0]
    if denoiser.sentinel and not denoiser.own_tokens and spans.max() > len(special.sentinels):
        raise ValueError(
            f"{type(denoiser).__name__} {denoiser.name!r}: a chunk of {spans.argmax()} tokens must have at most"
            f" {len(special.sentinels)} spans, one for each sentinel, got {spans.max()}. Open the vocabulary with more sentinels"
            " (ul2_tasks.open_vocabulary)."
        )
    return made


@functools.lru_cache(maxsize=256)
def recipe_of_texts(
    denoiser: Denoiser, special: SpecialTokens, length: int, add_eos: tuple[bool, bool], splits_once: bool = False
) -> Any:
    """A recipe of texts of so many tokens at most, whatever number of sentinels they need; or the denoiser's own."""
    if own := denoiser.own_recipe(special, add_eos):
        return own
    each = [(denoiser.noise_counts(tokens)[1], *denoiser.noise_range(tokens)) for tokens in range(1, length + 1)]
    counts = np.array([(0, 0, 0), *each], np.int32)
    _check_counts(denoiser, counts)
    endings = (special.ending if add_eos[0] else (), special.ending if add_eos[1] and denoiser.targets_end_in_eos else ())
    sentinels = special.sentinels * (int(counts[:, 0].max()) if denoiser.own_tokens else 1) if denoiser.sentinel else ()
    sentinel_ids, mode, *ends = (np.array(each, np.int32) for each in (sentinels, special.mode, *endings))
    borders = np.array(bytearray(special.borders)) if special.borders else ()
    is_drawn = bool((counts[:, 1] < counts[:, 2]).any())
    placement, is_whole = PLACEMENTS.index(denoiser.placement), denoiser.targets == "whole"
    return Recipe(counts, is_drawn, placement, is_whole, splits_once, sentinel_ids, mode, ends[0], ends[1], borders)


def _check_counts(denoiser: Denoiser, counts: np.ndarray) -> None:
    """Machine code checks no index: what a user's own denoiser says of lengths must hold."""
    (spans, fewest, most), lengths = counts[1:].T, np.arange(1, len(counts))
    room = fewest if denoiser.placement == TOUCHING else lengths - most + (denoiser.placement == UNIFORM)
    right = (spans >= 1) & (spans <= fewest) & (fewest <= most) & (most <= lengths) & ((spans <= room) | (spans == 1))
    if not right.all():
        wrong = int(np.argmin(right))
        raise ValueError(
            f"{type(denoiser).__name__} {denoiser.name!r}: noise_counts must give spans and noise tokens that fit each other, got"
            f" {spans[wrong]} spans and {fewest[wrong]} to {most[wrong]} noise tokens for a chunk of {lengths[wrong]} tokens. See"
            " Denoiser.noise_counts for the conditions."
        )


mixed = part_of_compiled(mix)  # of one uint64; it is the streams' own, and never changes


@part_of_compiled
def draw_below(bound, key, number):
    """Draw `number`, from 1, of a key: an integer in [0, bound), of whose probabilities none is off by more than 2^-32."""
    return np.int64((mixed(key + np.uint64(number) * _GOLDEN) >> _32) * np.uint64(bound) >> _32)


@part_of_compiled
def _draw_composition(total, parts, key, is_taken, composition):
    """Writes one of the C(total-1, parts-1) ways to write `total` as an ordered sum of so many positive integers.

    A part can end after any unit but the last. So the ends of all parts but the last are `parts - 1` of `total - 1` places, and
    every such set of places shall be equally likely. Floyd's algorithm draws it with one random number for each of its elements
    (Bentley and Floyd, "A sample of brilliance", CACM 30(9), 1987). Step i draws a place from 0 .. total - parts + i, and takes it,
    or, if an earlier step took that one, the last place of its range. For total = 9, parts = 4:

        step                   0        1        2
        range                  0 .. 5   0 .. 6   0 .. 7
        drawn                  4        4        6
        taken                  4        6        7         step 0 took 4, so step 1 takes 6, and step 2 takes 7

        units                  o o o o o | o o | o | o
        the place after each   0 1 2 3 4   5 6   7           composition: 5 + 2 + 1 + 1

    `is_taken` is all False before and after.
    """
    for step in range(parts - 1):
        last = total - parts + step
        place = draw_below(last + 1, key, step + 1)
        is_taken[last if is_taken[place] else place] = True
    part, start = 0, 0
    for place in range(total - 1):
        if is_taken[place]:
            is_taken[place] = False
            composition[part] = place + 1 - start
            part, start = part + 1, place + 1
    composition[parts - 1] = total - start


@part_of_compiled
def _draw_noise(recipe, length, key):
    """How many tokens of a text are noise. It has `length` tokens, at least one."""
    fewest, most = np.int64(recipe.counts[length, 1]), np.int64(recipe.counts[length, 2])
    return fewest + draw_below(most - fewest + 1, mixed(~key), 1) if recipe.is_drawn else fewest


@part_of_compiled
def _draw_spans(recipe, length, key, is_taken, kept, noise):
    """Writes the tokens before each span, and after the last, into `kept`, and those of each into `noise`. Returns the spans.

    The text has `length` tokens, at least one. `is_taken` is all False before and after.
    """
    spans, noise_tokens = np.int64(recipe.counts[length, 0]), _draw_noise(recipe, length, key)
    noise_key, kept_key = mixed(~key), mixed(~(key + _GOLDEN))
    if recipe.is_drawn:
        noise_key = mixed(noise_key ^ _GOLDEN)  # so that the span lengths do not depend on the draw of their sum
    _draw_composition(noise_tokens, spans, noise_key, is_taken, noise)
    if (
        recipe.placement == _UNIFORM
    ):  # the first and the last kept run may be empty, so each is drawn with a token that is not there
        _draw_composition(length - noise_tokens + 2, spans + 1, kept_key, is_taken, kept)
        kept[0] -= 1
        kept[spans] -= 1
    elif recipe.placement == _TOUCHING:  # any may be empty
        _draw_composition(length - noise_tokens + spans + 1, spans + 1, kept_key, is_taken, kept)
        kept[: spans + 1] -= 1
    else:
        _draw_composition(length - noise_tokens, spans, kept_key, is_taken, kept)
        kept[spans] = 0
    return spans


@part_of_compiled
def _is_border(borders, text, place):
    """Whether a span may begin or end before the token at a place of a text."""
    if place == 0 or place == len(text):
        return True
    before, at = borders[min(np.uint32(text[place - 1]), len(borders) - 1)], borders[min(np.uint32(text[place]), len(borders) - 1)]
    return bool(before & AFTER) or bool(before & BEFORE and at & AT)


@part_of_compiled
def _nearest_border(borders, text, wanted, lowest, highest, length):
    """The border nearest to a place, from `lowest` to `highest`, with another one `length` after it; -1 if there is none."""
    for reach in range(highest - lowest + 1):
        for place in (wanted - reach, wanted + reach):
            if lowest <= place <= highest and _is_border(borders, text, place) and _is_border(borders, text, place + length):
                return place
    return -1


@part_of_compiled
def _snap_spans(borders, placement, text, spans, kept, noise):
    """Moves the spans of a text to the nearest borders, with as many noise tokens as before; see `_draw_spans` for the arrays.

    They are moved one after the other, the last one of placement "t5" first. The last to be moved has what is left of the noise.
    So it needs two borders at that distance, or else begins at one; a span that finds no border stays as near as can be.
    """
    if len(borders) == 0:  # of an empty tuple the compiler knows it, and leaves all of this out
        return
    is_t5, gap = placement == _T5, np.int64(placement != _TOUCHING)
    left, limit, moved = noise[:spans].sum(), len(text), spans
    if is_t5:
        if spans == 1:
            return
        moved, wanted = spans - 1, len(text) - noise[spans - 1]
        last = _nearest_border(borders, text, wanted, len(text) - left + moved, len(text) - 1, 0)
        last = wanted if last < 0 else last
        left, limit = left - (len(text) - last), last - 1
    end, drawn_end, over = np.int64(0), np.int64(0), np.int64(0)
    for span in range(moved):
        others = moved - 1 - span
        drawn_start, drawn = drawn_end + kept[span], noise[span]
        drawn_end = drawn_start + drawn
        lowest, highest = end + gap if span else np.int64(is_t5), limit - left - others * gap
        wanted = min(max(drawn_start, lowest), highest)
        start = _nearest_border(borders, text, wanted, lowest, highest, np.int64(0) if others else left)
        if start < 0:
            start = _nearest_border(borders, text, wanted, lowest, highest, 0)
        start = wanted if start < 0 else start
        length = left
        if others:
            length = min(max(drawn - over, 1), left - others)
            stop = _nearest_border(borders, text, start + length, start + 1, start + left - others, 0)
            length = length if stop < 0 else stop - start
        kept[span], noise[span] = start - end, length
        end, left, over = start + length, left - length, over + length - drawn
    if is_t5:
        kept[moved], noise[moved], end = last - end, len(text) - last, len(text)
    kept[spans] = len(text) - end


@part_of_compiled
def _text_key(key, text):
    """The key of a text of an example, by its number among all, empty ones included; `key` is the example's, and the first's."""
    return mixed(key + np.uint64(text) * _GOLDEN) if text else key


@part_of_compiled
def copied(values, start, count, row, at):
    """Writes `count` values into `row`, from place `at` on. Returns the place after them."""
    to, given = np.uint64(at), np.uint64(start)  # no index is negative, so none is counted from the end: a third faster
    for place in range(np.uint64(count)):
        row[to + place] = values[given + place]
    return at + count


@compiled
def write_examples(recipe, tokens, starts, pieces, firsts, keys, rows, places, inputs, targets):
    """Makes n examples of one denoiser. Gives how many inputs, and how many targets, each has, [n, 2] int64.

    Example i has the pieces [firsts[i], firsts[i + 1]) of `pieces`, [pieces] int32: the tokens of each text and of each run, in
    turn, a text first and last. It is made of as many tokens from starts[i] on, with the key of its noise, of [n] uint64. `firsts`
    are [n + 1] int64 and `starts` [n] int64. It is written into row rows[i], [n] int64, of inputs and targets, [rows, length]
    int32, in which there is room for it from place places[i], of [n, 2] int64, on.
    """
    counts, _, placement, is_whole, splits_once, sentinels, mode, inputs_end, targets_end, borders = recipe
    sizes = np.zeros((len(starts), 2), np.int64)
    is_taken = np.zeros(len(counts) + 1, np.bool_)
    kept, noise = np.zeros(counts[:, 0].max() + 1, np.int64), np.zeros(counts[:, 0].max() + 1, np.int64)
    for example in range(len(starts)):
        token, key = starts[example], keys[example]
        own_inputs, own_targets = inputs[rows[example]], targets[rows[example]]
        start, target = places[example, 0], places[example, 1]
        place = copied(mode, 0, len(mode), own_inputs, start)
        first, last = firsts[example], firsts[example + 1] - 1
        used = 0  # sentinels
        for piece in range(first, last + 1):
            length = np.int64(pieces[piece])
            if splits_once and piece == last:
                spans, kept[0], noise[0], kept[1] = 1, 0, length, 0
            elif splits_once or (piece - first) % 2 or not length:
                spans, kept[0] = 0, length
            else:
                spans = _draw_spans(recipe, length, _text_key(key, (piece - first) // 2), is_taken, kept, noise)
                _snap_spans(borders, placement, tokens[token : token + length], spans, kept, noise)
            if is_whole:
                target = copied(tokens, token, length, own_targets, target)
            for span in range(spans):
                place = copied(tokens, token, kept[span], own_inputs, place)
                token += kept[span]
                if len(sentinels):
                    place = copied(sentinels, used, 1, own_inputs, place)
                    if not is_whole:
                        target = copied(sentinels, used, 1, own_targets, target)
                used += 1
                if not is_whole:
                    target = copied(tokens, token, noise[span], own_targets, target)
                token += noise[span]
            place = copied(tokens, token, kept[spans], own_inputs, place)
            token += kept[spans]
        place = copied(inputs_end, 0, len(inputs_end), own_inputs, place)
        target = copied(targets_end, 0, len(targets_end), own_targets, target)
        sizes[example, 0], sizes[example, 1] = place - start, target - places[example, 1]
    return sizes


@compiled
def example_sizes(recipe, pieces, firsts, keys):
    """How many inputs and targets `write_examples` makes, [n, 2] int64, for the same arguments."""
    counts, _, _, is_whole, splits_once, sentinels, mode, inputs_end, targets_end, _ = recipe
    sizes = np.zeros((len(firsts) - 1, 2), np.int64)
    for example in range(len(sizes)):
        first, last = firsts[example], firsts[example + 1] - 1
        whole = noise = spans = np.int64(0)
        for piece in range(first, last + 1):
            length = np.int64(pieces[piece])
            whole += length
            if splits_once and piece == last:
                noise, spans = length, np.int64(1)
            elif not splits_once and (piece - first) % 2 == 0 and length:
                noise += _draw_noise(recipe, length, _text_key(keys[example], (piece - first) // 2))
                spans += counts[length, 0]
        spans = spans if len(sentinels) else np.int64(0)
        sizes[example, 0] = len(mode) + whole - noise + spans + len(inputs_end)
        sizes[example, 1] = (whole if is_whole else noise + spans) + len(targets_end)
    return sizes


def exact_sizes(
    recipe: Any, tokens: np.ndarray, starts: np.ndarray, pieces: np.ndarray, firsts: np.ndarray, keys: np.ndarray
) -> np.ndarray:
    """How many inputs and targets `write_examples` makes of tokens: of most recipes their number says that.

    Of others examples may be shorter than `Recipe.loops` say.
    """
    if hasattr(recipe, "sizes_of_tokens"):
        return recipe.sizes_of_tokens(recipe, tokens, starts, pieces, firsts, keys)
    _, sizes_of = recipe.loops
    return sizes_of(recipe, pieces, firsts, keys)


def made(
    recipe: Any, tokens: np.ndarray, pieces: np.ndarray, firsts: np.ndarray, keys: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray]:
    """Inputs and targets, [tokens] int32 each, of examples one after the other, and their sizes, [n, 2] int64.

    The examples' tokens, int32, are one after the other, too. For the rest see `write_examples`.
    """
    write, _ = recipe.loops
    starts = np.append(0, np.cumsum(pieces, dtype=np.int64))[firsts[:-1]]
    sizes = exact_sizes(recipe, tokens, starts, pieces, firsts, keys)
    features = [np.zeros([1, total], np.int32) for total in sizes.sum(axis=0).tolist()]
    places = np.cumsum(sizes, axis=0) - sizes
    write(recipe, tokens, starts, pieces, firsts, keys, np.zeros_like(starts), places, *features)
    return [feature[0] for feature in features], sizes


@compiled
def write_segments(rows, starts, sizes, numbers, segment_ids, positions):
    """Writes which example of its row each token is of, and which token of the example it is, [rows, length] int32 each.

    `rows`, `starts`, `sizes` and `numbers` are [n] int64: of each example its row, its first place there, how many places it has,
    and which example of the row it is, from 1.
    """
    for example in range(len(rows)):
        row, start, stop = rows[example], starts[example], starts[example] + sizes[example]
        segment_ids[row][start:stop] = numbers[example]
        own = positions[row][start:stop]
        for place in range(len(own)):
            own[place] = place
