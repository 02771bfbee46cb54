"""What Python functions hand to TensorFlow."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from ul2_tasks.aligned import zeros_for_tensors
from ul2_tasks.graphs import python_op, raised_in


@pytest.mark.parametrize("shape", [[0], [0, 7], [1], [3, 5], [1000, 1000]])
def test_tensorflow_takes_these_zeros_without_a_copy(shape):
    made = []

    def make(_):
        made.extend(zeros_for_tensors(3, shape))
        return made

    (tensors,) = tf.data.Dataset.range(1).map(lambda number: tuple(python_op(make, [number], [tf.int32] * 3)))
    for number, (tensor, zeros) in enumerate(zip(tensors, made)):
        assert tensor.shape == shape
        assert not zeros.any()
        zeros[...] = number + 5  # which the tensor sees if it has the same memory
    for tensor, zeros in zip(tensors, made):
        assert np.array_equal(np.frombuffer(memoryview(tensor), np.int32), zeros.ravel())


def error_of(function) -> tf.errors.OpError:
    with pytest.raises(tf.errors.OpError) as raised:
        list(tf.data.Dataset.range(1).map(lambda number: python_op(function, [number], tf.int64)))
    return raised.value


def test_what_a_function_raised_is_said_and_not_what_another_raised_before():
    def fail(error):
        def function(_):
            raise error

        return error_of(function)

    short, long = fail(ValueError("of")), fail(ValueError("file.jsonl, row 3: of what is there"))
    same, file = fail(OSError("of")), error_of(lambda _: pathlib.Path("/no/such/file").read_text())
    assert [repr(raised_in(each)) for each in (short, long, same)] == [
        "ValueError('of')",
        "ValueError('file.jsonl, row 3: of what is there')",
        "OSError('of')",
    ]
    assert str(raised_in(file)) == "[Errno 2] No such file or directory: '/no/such/file'"
