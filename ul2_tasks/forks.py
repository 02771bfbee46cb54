"""Processes that were forked from one in which TensorFlow had run: it would hang there, so it is an error instead."""

from __future__ import annotations

import os

from tensorflow.python.eager import context

_forked_from_tensorflow = False


def check_process() -> None:
    """Raises a RuntimeError where TensorFlow would hang: in a process forked from one in which it had run."""
    if _forked_from_tensorflow:
        raise RuntimeError(
            f"process {os.getpid()} was forked from one in which TensorFlow had run, and would hang; give the DataLoader"
            ' multiprocessing_context="spawn" (or "forkserver"), or run no TensorFlow before its workers start: no dataset, no'
            " call of the collator"
        )


def tensorflow_has_run() -> bool:
    """Whether TensorFlow has run an op in this process, and so has seen its devices and started its threads."""
    return context.context()._initialized


def _note_fork() -> None:
    global _forked_from_tensorflow
    _forked_from_tensorflow = tensorflow_has_run()


os.register_at_fork(after_in_child=_note_fork)
