"""Where the noise goes: span lengths for a block of rows, from counts and a seed.

The n noise tokens of a row are split into k spans, and its L - n kept tokens into the runs between them. Both splits are
uniformly random compositions: all ways to write the total as an ordered sum of positive integers are equally likely. That is
the distribution of `t5.data.preprocessors.random_spans_noise_mask`. It is also what papers call geometric span lengths:
independent geometric lengths, given their number and their sum, are uniform over compositions, whatever their mean. One span
alone has the length l with the probability

    P(l) = C(n-l-1, k-2) / C(n-1, k-1)

All functions are vectorised over rows of different lengths, use stateless ops only, and can be traced.

A seed is either [2] integers for the whole block, or [R] uint64, a key for each row. With keys a row has the same spans in any
block: draw number t of a row is `mix(key + (t + 1) * GOLDEN)`, as SplitMix64 has it (Steele and others, 2014).
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from ul2_tasks.denoising.denoisers import Denoiser
from ul2_tasks.graphs import folded, no_autograph, random_bits
from ul2_tasks.order.permutation import GOLDEN, MULTIPLIERS


@no_autograph
def random_spans(denoiser: Denoiser, lengths: tf.Tensor, max_length: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Draws the spans of each row.

    `lengths` are [R] int32, at most `max_length`, which fixes the width K, the number of spans. `seed` is [2] int32 or int64, or
    [R] uint64. Gives `kept`, [R, K + 1] int32, the tokens before each noise span, and after the last; and `noise`, [R, K] int32,
    the tokens of each noise span. A row with fewer spans ends in zeros. A row reads kept[0] noise[0] kept[1] noise[1] .. kept[K],
    and sums to its length.

    Nothing is random in a row with one span of a fixed length, which is the row's end:

    >>> from ul2_tasks.denoising.denoisers import SequentialDenoiser
    >>> suffix = SequentialDenoiser(name="s", noise_density=0.75)
    >>> kept, noise = random_spans(suffix, tf.constant([8, 6]), max_length=8, seed=tf.constant([0, 0]))
    >>> kept.numpy().tolist(), noise.numpy().tolist()
    ([[2, 0], [2, 0]], [[6], [4]])
    """
    # What the denoiser says for every length, as a table, from which each row takes its line: [max_length + 1, 3].
    counts = [(denoiser.noise_counts(length)[1], *denoiser.noise_range(length)) for length in range(1, max_length + 1)]
    table = np.array([(0, 0, 0), *counts], np.int32)
    max_spans = int(table[:, 0].max())
    spans, fewest, most = tf.unstack(tf.gather(table, lengths), axis=1)

    noise = fewest
    seed_noise, seed_kept = _split(seed)
    if (table[:, 1] < table[:, 2]).any():
        noise = fewest + random_below(most - fewest + 1, seed_noise)
        seed_noise = _fold_in(seed_noise)  # so that the span lengths do not depend on this draw

    noise_lengths = random_composition(noise, spans, max_spans, seed_noise)
    if denoiser.placement == "t5":
        kept_lengths = random_composition(lengths - noise, spans, max_spans, seed_kept)
        return tf.pad(kept_lengths, [[0, 0], [0, 1]]), noise_lengths
    # The first and the last kept run may be empty, but the parts of a composition may not. So both get a token that is not
    # there, and lose it again.
    kept_lengths = random_composition(lengths - noise + 2, spans + 1, max_spans + 1, seed_kept)
    ends = tf.one_hot(tf.zeros_like(spans), max_spans + 1, dtype=tf.int32) + tf.one_hot(spans, max_spans + 1, dtype=tf.int32)
    return kept_lengths - ends, noise_lengths


def random_composition(total: tf.Tensor, parts: tf.Tensor, max_parts: int, seed: tf.Tensor) -> tf.Tensor:
    """Draws for each row one of the C(total-1, parts-1) ways to write `total` as an ordered sum of `parts` positive integers.

    A part can end after any unit but the last. So the ends of all parts but the last are `parts - 1` of `total - 1` places,
    and every such set of places shall be equally likely. Floyd's algorithm draws it with one random number for each of its
    elements (Bentley and Floyd, "A sample of brilliance", CACM 30(9), 1987). Step i draws a place from 0 .. total - parts + i,
    and takes it, or, if an earlier step took that one, the last place of its range. For total = 9, parts = 4:

        step                   0        1        2
        range                  0 .. 5   0 .. 6   0 .. 7
        drawn                  4        4        6
        taken                  4        6        7         step 0 took 4, so step 1 takes 6, and step 2 takes 7

        units                  o o o o o | o o | o | o
        the place after each   0 1 2 3 4   5 6   7           composition: 5 + 2 + 1 + 1

    `total` and `parts` are [R] int32, 1 <= parts <= total (one part may also be 0), and `seed` is [2] int32 or int64, or [R]
    uint64. Gives [R, max_parts] int32; a row with fewer parts ends in zeros.

    >>> random_composition(tf.constant([9, 5]), tf.constant([4, 2]), max_parts=4, seed=tf.constant([0, 0])).numpy().tolist()
    [[3, 2, 1, 3], [3, 2, 0, 0]]
    """
    width = max_parts - 1
    if width == 0:
        return total[:, tf.newaxis]
    total, parts = total[:, tf.newaxis], parts[:, tf.newaxis]
    step = tf.range(width)
    last = total - parts + step  # [R, W], the last place of each step's range
    drawn = random_below(tf.maximum(last + 1, 1), seed)
    taken = tf.where(_is_taken_before(drawn, total - parts), last, drawn)
    ends = tf.sort(tf.where(step < parts - 1, taken + 1, total), axis=1)
    edges = tf.concat([tf.zeros_like(total), ends, total], axis=1)
    return edges[:, 1:] - edges[:, :-1]


def _is_taken_before(drawn: tf.Tensor, first_last: tf.Tensor) -> tf.Tensor:
    """Whether the place that each step of Floyd's algorithm drew was taken by an earlier step, for all steps at once.

    It was if an earlier step drew the same place: that step took it, or found it taken. It was also if it is the last place of
    an earlier step's range, and that step took it, having found its own place taken. Then both steps have the same answer, and
    the earlier one may again have that of a still earlier one. In the example of `random_composition`:

        step                   0     1     2
        drawn                  4     4     6
        last of its range      5     6     7
        drawn by an earlier    no    yes   no
        has the answer of      0     1     1       step 2 drew the last of step 1's range
        answer                 no    yes   yes

    The chains of steps are followed by doubling: after a round each step knows the one twice as far along its chain.

    The places `drawn` are [R, W] int32. `first_last`, [R, 1] int32, is the last place of step 0's range; that of step i is i places
    higher. Gives [R, W] bool.
    """
    rows, width = tf.shape(drawn)[0], drawn.shape[1]
    row, step = tf.range(rows)[:, tf.newaxis], tf.range(width)
    places = tf.reduce_max(drawn) + 1
    place = drawn + row * places  # numbers for the places of all rows, and for their steps
    step_of = step + row * width
    drawn_before = tf.gather(tf.math.unsorted_segment_min(step_of, place, rows * places), place) < step_of
    follows = ~drawn_before & (drawn >= first_last) & (drawn < first_last + step)
    leader = tf.reshape(tf.where(follows, drawn - first_last + row * width, step_of), [-1])
    for _ in range((width - 1).bit_length()):
        leader = tf.gather(leader, leader)
    return tf.reshape(tf.gather(tf.reshape(drawn_before, [-1]), leader), [rows, width])


def random_below(bounds: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Draws uniform integers in [0, bound), int32, of the shape of `bounds`, [R] or [R, W] int32.

    Each is floor(bits * bound / 2^32) of 32 random bits, so that no integer's probability is off by more than 2^-32.
    """
    if seed.dtype == tf.uint64:
        draws = tf.constant(
            np.arange(1, (bounds.shape[1] if bounds.shape.rank == 2 else 1) + 1, dtype=np.uint64) * np.uint64(GOLDEN)
        )
        bits = _mix(seed[:, tf.newaxis] + draws) if bounds.shape.rank == 2 else _mix(seed + draws)
        bits = tf.bitwise.right_shift(bits, tf.constant(32, tf.uint64))
    else:
        bits = random_bits(tf.shape(bounds), seed, tf.uint32)
    return tf.cast(tf.bitwise.right_shift(tf.cast(bits, tf.int64) * tf.cast(bounds, tf.int64), 32), tf.int32)


def _mix(values: tf.Tensor) -> tf.Tensor:
    """SplitMix64's finaliser, of [..] uint64; see `order.permutation.mix`."""
    for shift, factor in zip((30, 27), MULTIPLIERS):
        values = _xor_shifted(values, shift) * tf.constant(factor)
    return _xor_shifted(values, 31)


def _xor_shifted(values: tf.Tensor, shift: int) -> tf.Tensor:
    return tf.bitwise.bitwise_xor(values, tf.bitwise.right_shift(values, tf.constant(shift, tf.uint64)))


def _split(seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Two seeds made of one."""
    if seed.dtype != tf.uint64:
        first, second = tf.unstack(random_bits([2, 2], seed, seed.dtype))  # as tf.random.split
        return first, second
    return _mix(tf.bitwise.invert(seed)), _mix(tf.bitwise.invert(seed + tf.constant(GOLDEN, tf.uint64)))


def _fold_in(seed: tf.Tensor) -> tf.Tensor:
    """Another seed made of a seed."""
    return folded(seed, tf.constant(1)) if seed.dtype != tf.uint64 else _mix(seed ^ tf.constant(GOLDEN, tf.uint64))
