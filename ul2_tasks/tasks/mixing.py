"""How denoisers are mixed: example by example, at random, by rate.

SeqIO mixes with `tf.data.Dataset.sample_from_datasets`, which calls a function to draw each number. That costs several times
what making an example costs. Here one call draws 4,096 numbers.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from ul2_tasks.tasks.graphs import no_autograph, traced_once

_DRAWN_AT_A_TIME = 4096


@no_autograph
def sample_examples(datasets: Sequence[tf.data.Dataset], rates: Sequence[float], seed: int | None = None) -> tf.data.Dataset:
    """Mixes datasets: draws for each element the dataset that it comes from, with a probability proportional to its rate.

    A `sample_fn` of `seqio.Mixture`. As SeqIO's own it ends when the dataset that is drawn has no more elements. All elements have
    one structure. Rates are 0 or more, with a sum above 0. Without a seed each call draws anew.
    """
    seed = secrets.randbits(63) if seed is None else seed
    upper_bounds = np.cumsum(rates, dtype=np.float64)[:-1] / np.sum(rates, dtype=np.float64)
    draw = traced_once(_draw, upper_bounds=tuple(upper_bounds))
    choices = tf.data.Dataset.counter().map(lambda block: draw(tf.stack([tf.cast(seed, tf.int64), block]))).unbatch()
    return tf.data.Dataset.choose_from_datasets(list(datasets), choices, stop_on_empty_dataset=True)


@no_autograph
def _draw(seed: tf.Tensor, *, upper_bounds: Sequence[float]) -> tf.Tensor:
    uniform = tf.random.stateless_uniform([_DRAWN_AT_A_TIME], seed, dtype=tf.float64, alg="philox")
    return tf.searchsorted(np.array(upper_bounds), uniform, side="right", out_type=tf.int64)
