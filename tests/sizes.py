"""Shorter buffers than users have, and graphs that TensorFlow leaves as they are built; and the way back from both."""

import functools
import pkgutil

import new_process
import pytest

# A pipeline of the package fills its blocks and shuffle buffers before its first example: for a mixture of five denoisers ten
# seconds, and many passes over a small corpus, each of which takes a new iterator. Nearly all tests read little, and hold for
# any sizes.
SMALL = {
    "ul2_tasks.tasks.preprocessors.TOKENS_AT_A_TIME": 1 << 11,
    "ul2_tasks.tasks.tf_data._TOKENS_AT_A_TIME": 1 << 14,
}


@functools.cache
def released() -> dict[str, int]:
    """The package's own sizes; not read at the import of this file, which xdist does in a third process that runs no test."""
    return {name: pkgutil.resolve_name(name) for name in SMALL}


def shorten(patch: pytest.MonkeyPatch) -> None:
    released()
    for name, value in SMALL.items():
        patch.setattr(name, value)


def release(patch: pytest.MonkeyPatch) -> None:
    """The package's own sizes, also in the processes of `new_process`."""
    patch.setattr(new_process, "ATTRIBUTES", {})
    for name, value in released().items():
        patch.setattr(name, value)


def leave_graphs(patch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf
    from support import iterate_tuned

    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.autotune.enabled = False
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    patch.setattr(tf.data.Dataset, "__iter__", lambda dataset: iterate_tuned(dataset.with_options(options)))
