import pytest
import tensorflow as tf

from ul2_tasks.order.stream_keys import key_of_pass


@pytest.mark.parametrize("seed", [0, 5, (1 << 31) - 1, (1 << 32) - 1])
def test_a_pass_has_the_key_that_tensorflow_gives_it(seed):
    drawn = tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True).take(1).repeat(5)
    assert [key_of_pass(seed, number) for number in range(5)] == list(drawn.as_numpy_iterator())
