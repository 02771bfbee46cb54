"""Reads gin files as t5x does, and checks which tokens their decoder-only model sees, with random weights.

    python tests/t5x/sees_prefix.py --gin_file=FILE ... --gin=NAME=VALUE ...

`tests/t5x/test_t5x.py` runs this.
"""

import argparse

import gin
import jax
import numpy as np
import tensorflow as tf
from t5x import gin_utils

from ul2_tasks import PrefixLMFeatureConverter

INPUTS, TARGETS = 6, 5


def train(*, model, **unused):
    random = np.random.RandomState(0)
    lengths = {"inputs": INPUTS, "targets": TARGETS}
    example = {key: random.randint(5, 99, [length], np.int32) for key, length in lengths.items()}
    rows = PrefixLMFeatureConverter(pack=False)(tf.data.Dataset.from_tensors(example), lengths).batch(1)
    (batch,) = rows.as_numpy_iterator()
    shapes = {key: values.shape for key, values in batch.items()}
    params = model.get_initial_variables(jax.random.PRNGKey(0), shapes)["params"]

    def logits(place=None):
        """Those of the row, or of the row with another token that is read at this place."""
        read = batch["decoder_input_tokens"].copy()
        if place is not None:
            read[0, place] += 1
        return np.asarray(model._compute_logits(params, {**batch, "decoder_input_tokens": read})[0])

    plain = logits()
    for place in range(1, INPUTS + TARGETS):
        changed = np.abs(logits(place) - plain).max(axis=-1) > 1e-6
        first = 0 if place <= INPUTS else place  # the place that tells the first target reads the last of the inputs
        assert changed.tolist() == [at >= first for at in range(INPUTS + TARGETS)], (place, changed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--gin_file", action="append")
    parser.add_argument("--gin", action="append", help="NAME=VALUE")
    arguments = parser.parse_args()
    run = gin.configurable(train)
    gin_utils.parse_gin_flags(["."], arguments.gin_file, arguments.gin)
    run()
