"""What a command line registers: in its own process, and again in each of a Beam job's workers."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence

import seqio

from ul2_tasks.denoisers import T5GEMMA2, UL2, UL2R
from ul2_tasks.registry import register
from ul2_tasks.sources import open_source

PRESETS = {"T5GEMMA2": T5GEMMA2, "UL2": UL2, "UL2R": UL2R}


@dataclasses.dataclass(frozen=True)
class Registration:
    """A mixture by its name, and what registers it: modules, or arguments.

    Attributes:
        name: of the mixture NAME_mix.
        modules: what is imported first.
        source: arguments of `open_source`; by default of the embedded corpus.
        arguments: of `register`, with the denoisers as the name of a preset. Without these, and without a source, the
            mixture is one that is registered: by one of the modules, or by this package.
    """

    name: str
    modules: Sequence[str] = ()
    source: Mapping[str, object] = dataclasses.field(default_factory=dict)
    arguments: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def apply(self) -> str:
        """Registers it, if that is not done yet, and returns the mixture's name.

        Raises:
            ValueError: see `open_source` and `register`; there is no such mixture.
        """
        for module in self.modules:
            importlib.import_module(module)
        if not self.source and not self.arguments:
            return _registered(f"{self.name}_mix")
        arguments = dict(self.arguments)
        if "denoisers" in arguments:
            arguments["denoisers"] = PRESETS[arguments["denoisers"]]
        return register(self.name, open_source(**{"spec": "embedded", **self.source}), **arguments)


def _registered(mixture: str) -> str:
    names = sorted(seqio.MixtureRegistry.names())
    if mixture not in names:
        raise ValueError(f"there is no mixture {mixture!r}, only {names}; give its corpus, or the module that registers it")
    return mixture
