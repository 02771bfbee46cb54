"""Examples in pieces by their keys, one after the other; see `pieces` for what they are, and `write` for the same of chunks.

It gives the examples of `pieces.corrupt_pieces` with a key for each text, bit for bit. The keys of the texts are made of that of
the example, so that each has noise of its own. The first text has the example's: a text alone is an example of `write_examples`.
"""

from __future__ import annotations

import numpy as np

from ul2_tasks.compiled import compiled, part_of_compiled
from ul2_tasks.denoising.piece_lengths import PieceLimits
from ul2_tasks.denoising.write import Recipe, copied, draw_noise, draw_spans, recipe_of_texts
from ul2_tasks.order.permutation import GOLDEN, mix

_GOLDEN = np.uint64(GOLDEN)


def recipe_of_pieces(limits: PieceLimits) -> Recipe:
    """The recipe of a task's examples. No text of one has more tokens than both budgets together."""
    return recipe_of_texts(limits.denoiser, limits.special, sum(limits.lengths), limits.add_eos)


_mix = part_of_compiled(mix)


@part_of_compiled
def _text_key(key, text):
    """The key of a text of an example, by its number among all, empty ones included; `key` is the example's."""
    return _mix(key + np.uint64(text) * _GOLDEN) if text else key


@compiled
def piece_sizes(recipe, splits_once, pieces, firsts, keys):
    """How many inputs and targets `write_pieces` makes, [n, 2] int64, for the same arguments."""
    counts, _, _, sentinels, mode, inputs_end, targets_end = recipe
    sizes = np.zeros((len(firsts) - 1, 2), np.int64)
    for example in range(len(sizes)):
        first, last = firsts[example], firsts[example + 1] - 1
        whole = noise = written = np.int64(0)
        for piece in range(first, last + 1):
            length = np.int64(pieces[piece])
            whole += length
            if not splits_once and (piece - first) % 2 == 0 and length:
                noise += draw_noise(recipe, length, _text_key(keys[example], (piece - first) // 2))
                written += counts[length, 0]
            elif splits_once and piece == last:
                noise, written = length, np.int64(1)
        written = written if len(sentinels) else np.int64(0)
        sizes[example, 0] = len(mode) + whole - noise + written + len(inputs_end)
        sizes[example, 1] = noise + written + len(targets_end)
    return sizes


@compiled
def write_pieces(recipe, splits_once, tokens, starts, pieces, firsts, keys, rows, places, inputs, targets):
    """Makes n examples of one denoiser. Gives how many inputs, and how many targets, each has, [n, 2] int64.

    Example i has the pieces [firsts[i], firsts[i + 1]) of `pieces`, [pieces] int32, and so as many tokens from starts[i] on, and
    the key of its noise, of [n] uint64. `firsts` are [n + 1] int64 and `starts` [n] int64. It fits the limits whose
    `recipe_of_pieces` and `splits_once` these are. For the others see `write.write_examples`.
    """
    counts, _, _, sentinels, mode, inputs_end, targets_end = recipe
    sizes = np.zeros((len(starts), 2), np.int64)
    is_taken = np.zeros(len(counts) + 1, np.bool_)
    kept, noise = np.zeros(counts[:, 0].max() + 1, np.int64), np.zeros(counts[:, 0].max() + 1, np.int64)
    for example in range(len(starts)):
        token, key = starts[example], keys[example]
        own_inputs, own_targets = inputs[rows[example]], targets[rows[example]]
        start, target_start = places[example, 0], places[example, 1]
        place, target = copied(mode, 0, len(mode), own_inputs, start), target_start
        first, last = firsts[example], firsts[example + 1] - 1
        used = 0  # sentinels
        for piece in range(first, last + 1):
            length = np.int64(pieces[piece])
            if not splits_once and (piece - first) % 2 == 0 and length:
                text_key = _text_key(key, (piece - first) // 2)
                spans = draw_spans(recipe, length, text_key, is_taken, kept, noise)
                for span in range(spans):
                    place = copied(tokens, token, kept[span], own_inputs, place)
                    token += kept[span]
                    if len(sentinels):
                        place = copied(sentinels, used, 1, own_inputs, place)
                        target = copied(sentinels, used, 1, own_targets, target)
                    used += 1
                    target = copied(tokens, token, noise[span], own_targets, target)
                    token += noise[span]
                place = copied(tokens, token, kept[spans], own_inputs, place)
                token += kept[spans]
            elif splits_once and piece == last:
                if len(sentinels):
                    place = copied(sentinels, 0, 1, own_inputs, place)
                    target = copied(sentinels, 0, 1, own_targets, target)
                target = copied(tokens, token, length, own_targets, target)
                token += length
            else:
                place = copied(tokens, token, length, own_inputs, place)
                token += length
        place = copied(inputs_end, 0, len(inputs_end), own_inputs, place)
        target = copied(targets_end, 0, len(targets_end), own_targets, target)
        sizes[example, 0], sizes[example, 1] = place - start, target - target_start
    return sizes
