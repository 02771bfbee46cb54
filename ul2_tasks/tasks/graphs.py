"""Python functions and TensorFlow's graphs: how TensorFlow traces functions into graphs, and how graphs call functions."""

from __future__ import annotations

import atexit
import functools
import math
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import tensorflow as tf

# For functions that make or trace graphs, and for the functions that they call: TensorFlow takes them as they are written.
# Otherwise it would rewrite the Python of each function that tf.data traces, so that `if` and `for` may ask tensors
# (autograph). No function of this package does, and the rewriting is most of the time in which a pipeline is built. Functions
# that a user may have written, those of a source or of a vocabulary, are left to TensorFlow.
no_autograph = tf.autograph.experimental.do_not_convert


@functools.lru_cache(maxsize=256)
def traced_once(function: Callable, **settings: Hashable) -> Callable:
    """A function with some of its arguments, which is traced once in a program for equal settings and inputs alike.

    tf.data traces the functions of each dataset anew, which is most of what building costs. Those that only call this one are
    traced fast. An iterator of theirs can be saved only if the function has no op with a state; `Assert` is one.
    """
    return tf.function(lambda *inputs: function(*inputs, **settings), autograph=False, reduce_retracing=True)


def python_op(function: Callable, inputs: Sequence[tf.Tensor], dtypes: Any) -> Any:
    """Calls a Python function from a graph, as `tf.numpy_function` does, by an op without state.

    An iterator over a dataset with an op that has a state cannot be saved. `function` takes arrays, and returns what depends on
    them alone, of the `dtypes`. It lives as long as the graph of the function that is traced, and so as the dataset that has it.
    """

    def call(*values: Any) -> Any:
        with _calls:
            return function(*values)

    if not tf.inside_function():
        return tf.numpy_function(call, inputs, dtypes, stateful=False)  # which calls it at once
    graph = tf.compat.v1.get_default_graph()
    while hasattr(graph, "outer_graph"):  # the outermost is the program's, which never goes: TensorFlow keeps functions there
        graph.add_to_collection("ul2_python_ops", call)
        graph = graph.outer_graph
    return tf.numpy_function(weakref.proxy(call), inputs, dtypes, stateful=False)


def ragged(flat: tf.Tensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """What a `python_op` returned as rows one after the other, and the length of each, as a RaggedTensor [rows, values]."""
    return tf.RaggedTensor.from_row_lengths(tf.ensure_shape(flat, [None]), tf.ensure_shape(lengths, [None]), validate=False)


class _Calls:
    """The calls from TensorFlow's threads into Python. None may be under way, or begin, when Python ends.

    A thread that calls Python then waits for ever, and Python's end waits for the thread: a program that leaves behind an
    iterator whose buffers are being filled hangs. So before the end calls are refused until no more come.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._under_way = 0
        self._last = -math.inf
        self._refused = False

    def __enter__(self) -> None:
        with self._lock:
            self._last = time.monotonic()
            if self._refused:
                raise StopIteration  # TensorFlow takes it for the end of the data, and reports no failure
            self._under_way += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._under_way -= 1

    def end(self, quiet: float = 0.2, most: float = 10.0) -> None:
        """Refuses calls from now on, and returns when none has come for `quiet` seconds, or after `most` seconds."""
        self._refused = True
        last = time.monotonic() + most
        while (self._under_way or time.monotonic() < self._last + quiet) and time.monotonic() < last:
            time.sleep(0.01)


_calls = _Calls()
atexit.register(_calls.end)
