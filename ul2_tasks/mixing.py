"""How denoisers are mixed: example by example, at random, by rate.

`tf.data.Dataset.sample_from_datasets`, with which SeqIO mixes by default, draws each number in a function call of its own,
which costs several times what making an example costs. Here one call draws the next 4,096.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from ul2_tasks.graphs import no_autograph

_DRAWN_AT_A_TIME = 4096


@no_autograph
def sample_examples(datasets: Sequence[tf.data.Dataset], rates: Sequence[float], seed: int | None = None) -> tf.data.Dataset:
    """Mixes datasets, each element from one drawn independently with probability proportional to its rate.

    A `sample_fn` of `seqio.Mixture`. It ends when the dataset that was drawn has no more, as SeqIO's default.

    Args:
        datasets: of elements of one structure.
        rates: one a dataset, of a sum above 0.
        seed: of the draws; by default another one each time that this is called.
    """
    seed = secrets.randbits(63) if seed is None else seed
    upper_bounds = np.cumsum(rates, dtype=np.float64)[:-1] / np.sum(rates, dtype=np.float64)

    def draw(block: tf.Tensor) -> tf.Tensor:
        uniform = tf.random.stateless_uniform(
            [_DRAWN_AT_A_TIME], tf.stack([tf.cast(seed, tf.int64), block]), dtype=tf.float64, alg="philox"
        )
        return tf.searchsorted(upper_bounds, uniform, side="right", out_type=tf.int64)

    choices = tf.data.Dataset.counter().map(draw).unbatch()
    return tf.data.Dataset.choose_from_datasets(list(datasets), choices, stop_on_empty_dataset=True)
