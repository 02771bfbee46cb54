"""What Python functions hand to TensorFlow."""

import pathlib

import pytest
import tensorflow as tf

from ul2_tasks.graphs import python_op, raised_in


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
