"""The noise of an example in pieces: texts that are corrupted, and runs between them, such as images, that stay whole.

    pieces   A B C D | P P P | E F G H I J    two texts, and a run
    inputs   A <0> D   P P P   E <1> H <2>
    targets  <0> B C <1> F G <2> I J

Each text is a chunk of its own: it has the noise tokens and spans that its denoiser has for its length. Sentinels are numbered
on through the example. A sequential denoiser may also split once, after the last run: nothing is noise then but all that follows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from ul2_tasks.denoising.corruption import concatenate, corrupt_rows
from ul2_tasks.denoising.denoisers import Denoiser
from ul2_tasks.denoising.piece_lengths import splits_once
from ul2_tasks.denoising.spans import random_spans
from ul2_tasks.graphs import no_autograph
from ul2_tasks.vocabulary.special_ids import SpecialTokens

_FIRST_SENTINEL = 1 << 30  # stands for the first sentinel of a piece, until it is known how many the pieces before it have


@no_autograph
def corrupt_pieces(
    tokens: tf.Tensor,
    pieces: tf.Tensor,
    seed: tf.Tensor,
    *,
    denoiser: Denoiser,
    split: str,
    special: SpecialTokens,
    max_length: int,
    add_eos: tuple[bool, bool],
) -> dict[str, tf.Tensor]:
    """Draws the noise of an example, and makes its inputs and its targets.

    `tokens`, int32, are those of all pieces, one after the other, and `pieces`, [2 P + 1] int32, such as
    `piece_lengths.longest` does not refuse. `seed` is [2] int32 or int64; or [P + 1] uint64, a key for each text, as
    `write_pieces` has them. `special` has at least as many sentinels as `longest` says, and no text is longer than `max_length`.
    For the rest see `longest`. Gives {"inputs": [tokens] int32, "targets": [tokens] int32}.

    >>> from ul2_tasks.denoising.denoisers import IMAGE_SPLITS, SequentialDenoiser
    >>> half = SequentialDenoiser(name="s", noise_density=0.5)
    >>> special = SpecialTokens(sentinels=(90, 91), mode=(), eos=None, reserved=frozenset())
    >>> settings = dict(denoiser=half, special=special, max_length=4, add_eos=(False, False))
    >>> example = [tf.constant(each) for each in ([1, 2, 3, 4, 70, 71, 5, 6], [4, 2, 2], [0, 0])]
    >>> for split in IMAGE_SPLITS:
    ...     made = corrupt_pieces(*example, split=split, **settings)
    ...     print(made["inputs"].numpy(), made["targets"].numpy())
    [ 1  2 90 70 71  5 91] [90  3  4 91  6]
    [ 1  2  3  4 70 71 90] [90  5  6]
    """
    once = splits_once(denoiser, split)
    all_pieces = tf.RaggedTensor.from_row_lengths(tokens, pieces, validate=False)
    number = tf.size(pieces)
    texts, runs = (tf.gather(all_pieces, tf.range(first, number, 2)) for first in (0, 1))
    lengths = tf.cast(texts.row_lengths(), tf.int32)
    if once:
        noise = (pieces[-1] * tf.one_hot(tf.size(lengths) - 1, tf.size(lengths), dtype=tf.int32))[:, tf.newaxis]
        kept = tf.pad(lengths[:, tf.newaxis] - noise, [[0, 0], [0, 1]])
    else:
        kept, noise = random_spans(denoiser, lengths, max_length, seed)
    sentinels = range(_FIRST_SENTINEL, _FIRST_SENTINEL + noise.shape[1]) if denoiser.sentinel else ()
    rows = corrupt_rows(texts.to_tensor(), kept, noise, sentinels=sentinels, mode=(), eos=((), ()))
    spans = tf.math.count_nonzero(noise, axis=1, dtype=tf.int32)
    rows = {key: _numbered_on(row, tf.cumsum(spans, exclusive=True), special.sentinels) for key, row in rows.items()}
    in_turn = tf.reshape(tf.stack([tf.range(0, number // 2), tf.range(number // 2 + 1, number)], axis=1), [1, -1])
    inputs = concatenate(tf.concat([rows["inputs"], runs], axis=0), [in_turn, [[number // 2]]]).flat_values
    endings = [special.ending if wanted else [] for wanted in add_eos]
    return {
        "inputs": tf.concat([np.array(special.mode, np.int32), inputs, np.array(endings[0], np.int32)], axis=0),
        "targets": tf.concat([rows["targets"].flat_values, np.array(endings[1], np.int32)], axis=0),
    }


def _numbered_on(rows: tf.RaggedTensor, before: tf.Tensor, sentinels: Sequence[int]) -> tf.RaggedTensor:
    """The rows of pieces with the sentinels of the example. `before` is how many the pieces before each have, [rows] int32."""
    ids = rows.flat_values
    number = ids - _FIRST_SENTINEL + tf.gather(before, tf.cast(rows.value_rowids(), tf.int32))
    table = np.array([*sentinels, 0], np.int32)  # never empty; the last is for ids that are none, and is not used
    place = tf.where(ids >= _FIRST_SENTINEL, number, len(table) - 1)
    return rows.with_flat_values(tf.where(ids >= _FIRST_SENTINEL, tf.gather(table, place), ids))
