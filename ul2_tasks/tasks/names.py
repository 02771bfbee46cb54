"""The names in SeqIO's registries: what is registered under them, and whether they are taken."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import seqio

from ul2_tasks.corpus.identity import cannot_tell
from ul2_tasks.mixtures.description import Description, is_same
from ul2_tasks.mixtures.names import as_description, cache_dirs_of
from ul2_tasks.sources.base import DataSource
from ul2_tasks.tasks.providers import UL2Mixture, UL2Task


class OfSeqIO(Description):
    """A task or mixture that is registered with SeqIO, and not by this package, as part of a `Mix`. SeqIO makes its examples."""

    def __init__(self, name: str):
        self._set(name=name)

    def __repr__(self) -> str:
        return f"OfSeqIO({self.name!r})"

    @property
    def rates(self) -> dict[str, float]:
        return {self.name: 1.0}

    @property
    def leaves(self) -> Mapping[Description, float]:
        provider = seqio.get_mixture_or_task(self.name)
        if isinstance(provider, seqio.Task):
            return {self: 1.0}
        return {as_description(task.name): provider.get_rate(task) / provider.total_rate for task in provider.tasks}

    def corpus(self, cache_dirs: Sequence[str | os.PathLike] = ()) -> Any:
        raise self._error()

    def members(self, sequence_length: Mapping[str, int], cache_dirs: Sequence[str | os.PathLike] = ()) -> list[Any]:
        raise self._error()

    def _error(self) -> ValueError:
        return ValueError(
            f"mixture must have tasks that make examples by ul2_tasks alone, got {self.name!r}. Read it with get_dataset, or mix"
            " the same tasks with ul2_tasks.mix."
        )


def description_of(name: str) -> Description:
    """What is registered under a name: of a mixture its description, of a single task that with this part alone.

    Raises a ValueError where nothing of this package has the name.
    """
    found = registered_as(name)
    if isinstance(found, OfSeqIO):
        raise ValueError(f"name must be that of a description that is registered, got {name!r}, which SeqIO makes.")
    return found


def known() -> list[str]:
    """The names of what is registered by this package."""
    providers = {name: seqio.get_mixture_or_task(name) for name in {*seqio.MixtureRegistry.names(), *seqio.TaskRegistry.names()}}
    return sorted(name for name, provider in providers.items() if isinstance(provider, UL2Task | UL2Mixture))


@as_description.register
def registered_as(name: str) -> Description:
    """The same, or an `OfSeqIO`. Raises a ValueError where nothing has the name."""
    if name not in (known := {*seqio.MixtureRegistry.names(), *seqio.TaskRegistry.names()}):
        raise ValueError(f"mixture must be registered in this process, got {name!r}, and {sorted(known)} are. Register it first.")
    provider = seqio.get_mixture_or_task(name)
    return provider.description if isinstance(provider, UL2Task | UL2Mixture) else OfSeqIO(name)


@cache_dirs_of.register
def _(name: str) -> Sequence[str]:
    return tuple(map(os.fspath, seqio.get_global_cache_dirs()))


def takes_arguments_of(description: type) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """Gives a function the signature of a description, of which gin reads what it may bind, and what the arguments are.

    Keywords of its own come last.
    """
    given = inspect.signature(description)

    def documented(function: Callable[..., str]) -> Callable[..., str]:
        own = inspect.signature(function)
        keywords = [each for each in own.parameters.values() if each.kind is each.KEYWORD_ONLY]
        function.__signature__ = own.replace(parameters=[*given.parameters.values(), *keywords])  # type: ignore[attr-defined]
        arguments = (description.__doc__ or "").partition("    Args:\n")[2].partition("\n    Raises:")[0]
        first, separator, rest = (function.__doc__ or "").partition("    Args:\n")
        function.__doc__ = f"{first}    Args:\n{arguments}{rest}" if separator else first
        return function

    return documented


def is_registered(name: str, description: Description) -> bool:
    """Whether a mixture or task of this name is registered with this description.

    Raises a ValueError, which says what differs, where the name is taken by another provider or with another description.
    """
    if name not in {*seqio.MixtureRegistry.names(), *seqio.TaskRegistry.names()}:
        return False
    registered = getattr(seqio.get_mixture_or_task(name), "description", None)
    if registered is None:
        raise ValueError(f"{name!r} is already registered, and not by ul2_tasks.register. Choose another name.")
    present, wanted = vars(registered), vars(description)
    different = [key for key in {**present, **wanted} if not is_same(present.get(key), wanted.get(key))]
    if different:
        changes = "; ".join(f"{key} is {_shown(present.get(key))}, got {_shown(wanted.get(key))}" for key in different)
        sources = [source for source in (present.get("source"), wanted.get("source")) if "source" in different]
        silent = next(
            (
                f" It may be the same one, but {cannot_tell(source)}"
                for source in sources
                if isinstance(source, DataSource) and source.identity is None
            ),
            "",
        )
        raise ValueError(
            f"{name!r} is already registered with other arguments: {changes}. Choose another name.{silent} See"
            " docs/help/troubleshooting.md#a-name-is-already-registered."
        )
    return True


def _shown(value: object) -> str:
    if isinstance(value, Description):
        return f"the corpus of {value.name!r}"
    if not isinstance(value, DataSource):
        return repr(value)
    identity = value.identity
    return repr(value) if identity in (None, repr(value)) else f"{value!r}, that is {identity}"


def check_names_are_free(names: Sequence[str]) -> None:
    """Raises a ValueError where one of the names is taken, or two are the same."""
    taken = sorted({*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()} & {*names})
    if taken or len(set(names)) < len(names):
        raise ValueError(f"{names[-1]!r} cannot be registered, because the names {taken or names} are taken. Choose another name.")
