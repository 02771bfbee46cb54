"""Where the noise goes: span lengths for a block of rows, from counts and a seed.

Span lengths are a uniformly random composition of n into k positive parts, and so are the kept runs between them: the
distribution of `t5.data.preprocessors.random_spans_noise_mask`. It is also what papers call geometric span lengths:
i.i.d. geometric lengths, conditioned on their number and their sum, are uniform over compositions whatever their mean,
and one length alone has P(l) = C(n-l-1, k-2) / C(n-1, k-1).

All functions are vectorised over rows of different lengths, use stateless ops only, and can be traced.
"""

from __future__ import annotations

import tensorflow as tf

from ul2_tasks.denoisers import Denoiser, SequentialDenoiser
from ul2_tasks.lengths import noise_counts, noise_range


@tf.autograph.experimental.do_not_convert  # it has nothing to convert, and would take seconds over the table
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
    if isinstance(denoiser, SequentialDenoiser):
        if denoiser.split == "uniform":
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

    Args:
        total, parts: [R] int32, 1 <= parts <= total (one part may also be 0), parts <= max_parts.
        max_parts: the width of the result.
        seed: [2] int32 or int64.

    Returns:
        [R, max_parts] int32; a row with fewer parts ends in zeros.
    """
    total, parts = total[:, tf.newaxis], parts[:, tf.newaxis]
    # A part can end after any unit but the last. Of i.i.d. keys for these places, the largest j are a uniform subset.
    places = tf.range(1, tf.maximum(tf.reduce_max(total), max_parts))[tf.newaxis]
    keys = tf.random.stateless_uniform(tf.stack([tf.size(total), tf.size(places)]), seed, None, None, tf.int32, alg="philox")
    _, drawn = tf.math.top_k(tf.where(places < total, keys, tf.int32.min), max_parts - 1)
    ends = tf.sort(tf.where(tf.range(max_parts - 1) < parts - 1, drawn + 1, total), axis=1)
    edges = tf.concat([tf.zeros_like(total), ends, total], axis=1)
    return edges[:, 1:] - edges[:, :-1]


def random_below(bounds: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Draws for each row a uniform integer in [0, bound); [R] int32 to [R] int32."""
    uniform = tf.random.stateless_uniform(tf.shape(bounds), seed, dtype=tf.float64, alg="philox")
    return tf.cast(uniform * tf.cast(bounds, tf.float64), tf.int32)
