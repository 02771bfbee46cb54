"""Where the noise goes: span lengths for a block of rows, from counts and a seed.

Span lengths are a uniformly random composition of n into k positive parts, and so are the kept runs between them: the
distribution of `t5.data.preprocessors.random_spans_noise_mask`. It is also what papers call geometric span lengths:
i.i.d. geometric lengths, conditioned on their number and their sum, are uniform over compositions whatever their mean,
and one length alone has P(l) = C(n-l-1, k-2) / C(n-1, k-1).

All functions are vectorised over rows of different lengths, use stateless ops only, and can be traced.
"""

from __future__ import annotations

import tensorflow as tf

from ul2_tasks.denoisers import CausalDenoiser, Denoiser, SequentialDenoiser
from ul2_tasks.graphs import no_autograph
from ul2_tasks.lengths import noise_counts, noise_range


@no_autograph
def random_spans(denoiser: Denoiser, lengths: tf.Tensor, max_length: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Draws the spans of each row.

    Args:
        denoiser: the denoiser.
        lengths: [R] int32, tokens of each row, at most `max_length`.
        max_length: the longest row there can be; fixes the width K, its number of spans.
        seed: [2] int32 or int64.

    Returns:
        kept: [R, K + 1] int32, tokens before each noise span, and after the last.
        noise: [R, K] int32, tokens of each noise span. A row with fewer spans ends in zeros.
        A row reads kept[0] noise[0] kept[1] noise[1] .. kept[K], and sums to its length.
    """
    table = [(*noise_counts(denoiser, length), *noise_range(denoiser, length)) for length in range(max_length + 1)]
    max_spans = max(spans for _, spans, _, _ in table)
    noise, spans, fewest, most = tf.unstack(tf.gather(tf.constant(table, tf.int32), lengths), axis=1)

    seed_noise, seed_kept = tf.unstack(tf.random.split(seed, 2, alg="philox"))
    if isinstance(denoiser, SequentialDenoiser | CausalDenoiser):
        if getattr(denoiser, "split", None) == "uniform":
            noise = fewest + random_below(most - fewest + 1, seed_noise)
        return tf.stack([lengths - noise, tf.zeros_like(noise)], axis=1), noise[:, tf.newaxis]

    noise_lengths = random_composition(noise, spans, max_spans, seed_noise)
    if denoiser.placement == "t5":
        kept_lengths = random_composition(lengths - noise, spans, max_spans, seed_kept)
        return tf.pad(kept_lengths, [[0, 0], [0, 1]]), noise_lengths
    # The first and the last kept run may be empty: one token more for each, taken off again.
    kept_lengths = random_composition(lengths - noise + 2, spans + 1, max_spans + 1, seed_kept)
    ends = tf.one_hot(tf.zeros_like(spans), max_spans + 1, dtype=tf.int32) + tf.one_hot(spans, max_spans + 1, dtype=tf.int32)
    return kept_lengths - ends, noise_lengths


def random_composition(total: tf.Tensor, parts: tf.Tensor, max_parts: int, seed: tf.Tensor) -> tf.Tensor:
    """Draws for each row one of the C(total-1, parts-1) ways to write `total` as an ordered sum of `parts` positive integers.

    A part can end after any unit but the last: where they end is a uniformly random subset of `parts - 1` of these
    `total - 1` places. It is drawn by Floyd's algorithm (Bentley and Floyd, "A sample of brilliance", CACM 30(9), 1987),
    which needs one number for each element of the subset, not one for each place.

    Args:
        total, parts: [R] int32, 1 <= parts <= total (one part may also be 0), parts <= max_parts.
        max_parts: the width of the result.
        seed: [2] int32 or int64.

    Returns:
        [R, max_parts] int32; a row with fewer parts ends in zeros.
    """
    rows, width = tf.size(total), max_parts - 1
    if width == 0:
        return total[:, tf.newaxis]
    total, parts = total[:, tf.newaxis], parts[:, tf.newaxis]
    # Step i draws one of the places 0 .. base + i, and takes it, or, if it was taken before, place base + i.
    step, base = tf.range(width), total - parts
    drawn = random_below(tf.maximum(base + step + 1, 1), seed)

    # It was taken before if it was drawn before; or if it is base + j, and step j < i took that instead of its own. Then
    # step j tells whether it did: a chain, at the end of which stands a step that was drawn before, or one that was not.
    step_of = tf.reshape(tf.range(rows * width), [rows, width])
    first_of_row = tf.range(rows)[:, tf.newaxis]
    places = tf.maximum(tf.reduce_max(total), 1)
    place = tf.minimum(drawn, places - 1) + first_of_row * places
    drawn_before = tf.gather(tf.math.unsorted_segment_min(step_of, place, rows * places), place) < step_of
    follows = ~drawn_before & (drawn >= base) & (drawn < base + step)
    leader = tf.reshape(tf.where(follows, drawn - base + first_of_row * width, step_of), [-1])
    for _ in range((width - 1).bit_length()):
        leader = tf.gather(leader, leader)
    taken_before = tf.reshape(tf.gather(tf.reshape(drawn_before, [-1]), leader), [rows, width])

    chosen = tf.where(taken_before, base + step, drawn) + 1
    ends = tf.sort(tf.where(step < parts - 1, chosen, total), axis=1)
    edges = tf.concat([tf.zeros_like(total), ends, total], axis=1)
    return edges[:, 1:] - edges[:, :-1]


def random_below(bounds: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Draws uniform integers in [0, bound); int32 of any shape to int32. No integer is more than bound / 2^32 too likely."""
    bits = tf.random.stateless_uniform(tf.shape(bounds), seed, None, None, tf.uint32, alg="philox")
    return tf.cast(tf.bitwise.right_shift(tf.cast(bits, tf.int64) * tf.cast(bounds, tf.int64), 32), tf.int32)
