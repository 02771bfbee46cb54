"""Refuses to run TensorFlow in a process that was forked from one in which it had run, because it would hang there."""

from __future__ import annotations

import os
import sys

_forked_from_tensorflow = False


def check_process() -> None:
    """Raises a RuntimeError in a process that was forked from one in which TensorFlow had run."""
    if _forked_from_tensorflow:
        raise RuntimeError(
            f"process {os.getpid()} was forked from one in which TensorFlow had run, and would hang. Pass"
            ' multiprocessing_context="spawn" (or "forkserver") to the DataLoader, or run no TensorFlow before its workers'
            " start: no dataset, no call of the collator. See docs/help/troubleshooting.md#hangs-in-a-forked-worker."
        )


def tensorflow_has_run() -> bool:
    """Whether TensorFlow has run an op in this process: if so, it knows its devices and has started threads."""
    eager = sys.modules.get("tensorflow.python.eager.context")
    return eager is not None and eager.context()._initialized


def _remember_fork() -> None:
    global _forked_from_tensorflow
    _forked_from_tensorflow = tensorflow_has_run()


os.register_at_fork(after_in_child=_remember_fork)
