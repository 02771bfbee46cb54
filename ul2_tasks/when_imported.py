"""What SeqIO and gin have of this package once they are imported: `ul2_mix` with its tasks, and the presets.

`import ul2_tasks` imports neither of them, nor TensorFlow, because some of the package needs none of them. When a registry of SeqIO
is first read or changed, `ul2_mix` and its tasks are registered before. So it looks as if they had always been there.

This does not happen within `import seqio`. There it would import modules of this package, which another thread may be importing
while it waits for SeqIO: each would wait for the other.

Once TensorFlow is imported, triton is imported, too, in a way in which one process can hold both.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator, KeysView, MutableMapping
from types import ModuleType
from typing import Any

import wrapt

from ul2_tasks.denoisers.denoisers import PRESETS

_turn = threading.RLock()
_begun = False  # by the thread that has the turn; or done


class _Registry(MutableMapping[str, Any]):
    """What is registered by name; when it is first read or changed, `ul2_mix` and its tasks come first."""

    def __init__(self, registered: MutableMapping[str, Any]):
        self._registered = registered

    def __getitem__(self, name: str) -> Any:
        return self._whole()[name]

    def __setitem__(self, name: str, provider: Any) -> None:
        self._whole()[name] = provider

    def __delitem__(self, name: str) -> None:
        del self._whole()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole())

    def __len__(self) -> int:
        return len(self._whole())

    def keys(self) -> KeysView[str]:
        return self._whole().keys()  # which shows the names

    def _whole(self) -> MutableMapping[str, Any]:
        _register()
        return self._registered


def _register() -> None:
    """Registers what comes with this package, once. Where that fails, the next one who asks tries again."""
    global _begun
    with _turn:
        if _begun:
            return
        try:
            _begun = True  # so that the registries, which this reads and changes, do not ask again
            from ul2_tasks.tasks.registry import register

            register()
        except BaseException:
            _begun = False
            raise


@wrapt.when_imported("seqio")
def _of_seqio(_: ModuleType) -> None:
    import seqio  # all of it, where another thread is still importing it

    for registry in (seqio.TaskRegistry, seqio.MixtureRegistry):
        registry._REGISTRY = _Registry(registry._REGISTRY)


@wrapt.when_imported("gin")
def _of_gin(_: ModuleType) -> None:
    """The presets by name in gin files: `ul2_tasks.register.denoisers = %ul2_tasks.UL2R`."""
    import gin

    for name, preset in PRESETS.items():
        gin.constant(f"ul2_tasks.{name}", preset)


@wrapt.when_imported("tensorflow")
def _of_tensorflow(_: ModuleType) -> None:
    """Imports triton, which comes with torch for GPUs; else torch would, with its first optimizer.

    TensorFlow 2.20 and later show their LLVM to all libraries that are loaded after them. triton 3.7 needs its own. With that of
    TensorFlow it ends the process with a segmentation fault (tensorflow/tensorflow, issue 124205). Loaded so, it takes its own.
    """
    if "triton" in sys.modules or not hasattr(os, "RTLD_DEEPBIND") or importlib.util.find_spec("triton") is None:
        return
    flags = sys.getdlopenflags()
    sys.setdlopenflags(flags | os.RTLD_DEEPBIND)
    try:
        with contextlib.suppress(Exception):  # who needs triton will see it; TensorFlow does not
            importlib.import_module("triton")
    finally:
        sys.setdlopenflags(flags)
