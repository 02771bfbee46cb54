"""What is known of a dataset: it adds no step, is lost by no option, and where it is lost that is told."""

import numpy as np
import pytest
import tensorflow as tf

from ul2_tasks import HuggingFaceFeatureConverter
from ul2_tasks.datasets import Facts, facts_of, known, stated_id_shift


def numbers() -> tf.data.Dataset:
    return tf.data.Dataset.range(100).shuffle(10, seed=1)


def named() -> tf.data.Options:
    options = tf.data.Options()
    options.dataset_name = "mine"
    options.deterministic = True
    return options


STEPS = {
    "options": lambda dataset: dataset.with_options(named()),
    "map": lambda dataset: dataset.map(lambda each: each),
    "filter and repeat": lambda dataset: dataset.filter(lambda each: each > 3).repeat(2).prefetch(1),
    "mixed": lambda dataset: tf.data.Dataset.sample_from_datasets([numbers(), dataset.map(lambda each: each)], seed=1),
    "zipped": lambda dataset: tf.data.Dataset.zip(numbers(), dataset),
    "batched": lambda dataset: dataset.batch(3).unbatch(),
}


@pytest.mark.parametrize("step", STEPS)
def test_the_shift_of_ids_is_known_after_any_step(step):
    assert stated_id_shift(STEPS[step](known(numbers(), Facts(1)))) == 1
    assert stated_id_shift(STEPS[step](numbers())) == 0
    assert facts_of(STEPS[step](known(numbers(), Facts(1, numbered="some")))) == Facts(), "but not how it is made"


def test_options_of_a_user_do_not_change_ids():
    """`options.dataset_name` did."""
    examples = tf.data.Dataset.from_tensors({"inputs": tf.constant([7, 8]), "targets": tf.constant([9])})
    converted = HuggingFaceFeatureConverter("longest", batch_size=1, decoder_start_token_id=5)(
        known(examples, Facts(1)).with_options(named()), {"inputs": 8, "targets": 8}
    )
    [batch] = converted.as_numpy_iterator()
    assert batch["input_ids"][0, :2].tolist() == [6, 7]


def test_whole_batches_are_made_where_seqio_asks_for_them():
    rows = known(numbers(), Facts(1, batches=lambda size: tf.data.Dataset.from_tensors(np.full([size], 5))))
    for size in (4, np.int64(4)):
        assert [each.tolist() for each in rows.batch(size, drop_remainder=True).as_numpy_iterator()] == [[5] * 4]
        assert stated_id_shift(rows.batch(size, drop_remainder=True)) == 1
    assert len(list(rows.batch(30))) == 4
    with pytest.raises(Exception, match="Batch size must be greater than zero"):
        list(rows.batch(0, drop_remainder=True))
