"""What the specification of an example says is what its readers do."""

import doctest

import numpy as np
import tensorflow as tf

from ul2_tasks import example_features
from ul2_tasks.converters.encoder_decoder import pack_rows
from ul2_tasks.example_features import EXAMPLE, NO_TOKEN, Feature


def test_what_stands_beside_tokens_is_packed_with_them():
    """Targets of 2, 4 and 3 tokens, with a value for each token, in rows of 6."""
    spec = {**EXAMPLE, "loss_mask": Feature("int32", per_token_of="targets", padding=7)}
    batch = {
        "inputs": [[11, 0, 0], [12, 0, 0], [13, 0, 0]],
        "targets": [[21, 22, 0, 0], [31, 32, 33, 34], [41, 42, 43, 0]],
        "loss_mask": [[0, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]],
    }
    is_token = {key: np.array(batch[feature.per_token_of]) > 0 for key, feature in spec.items()}
    batch = {key: tf.constant(np.where(is_token[key], values, NO_TOKEN), tf.int32) for key, values in batch.items()}
    rows = pack_rows(batch, {"inputs": 4, "targets": 6, "loss_mask": 6}, spec)
    value_of = {21: 0, 22: 1, 31: 0, 32: 0, 33: 1, 34: 1, 41: 1, 42: 0, 43: 1, 0: 7}
    assert sorted(rows["targets"].numpy().ravel().tolist()) == [0, 0, 0, 21, 22, 31, 32, 33, 34, 41, 42, 43]
    np.testing.assert_array_equal(rows["loss_mask"], np.vectorize(value_of.get)(rows["targets"].numpy()))
    assert not {"loss_mask_segment_ids", "loss_mask_positions"} & rows.keys()


def test_examples_of_the_docstrings():
    results = doctest.testmod(example_features)
    assert (results.failed, results.attempted) == (0, 4)
