"""The names of tasks and mixtures: whether they are taken, and by what."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import seqio

from ul2_tasks.corpus.identity import cannot_tell, source_identity
from ul2_tasks.mixtures.description import Description, is_same
from ul2_tasks.mixtures.mix import Mix
from ul2_tasks.scalars import fractions
from ul2_tasks.sources.base import is_source
from ul2_tasks.tasks.providers import DenoisingMixture


def description_of(name: str) -> Description | Mix:
    """What is registered under a name: of a mixture its description, of a single task that with this part alone.

    Of what `mix` registered it is a `Mix`.

    Raises a ValueError where nothing of this package has the name.
    """
    described = {key: seqio.MixtureRegistry.get(key).configuration for key in _of(seqio.MixtureRegistry, Description)}
    if name in described:
        return described[name]
    if name in seqio.MixtureRegistry.names() and (mixed := getattr(seqio.MixtureRegistry.get(name), "configuration", None)):
        return _mix_of(name.removesuffix("_mix"), mixed)
    for description in described.values():
        for denoiser in description.denoisers:
            if name == f"{description.name}_{denoiser.name}":
                return dataclasses.replace(description, denoisers=(denoiser,))
    if name in _of(seqio.TaskRegistry, Description):
        return seqio.TaskRegistry.get(name).configuration
    known = sorted({*described, *_of(seqio.TaskRegistry, Description)})
    raise ValueError(f"name must be that of a description that is registered, one of {known}, got {name!r}. Register it first.")


def _mix_of(name: str, mixed: Any) -> Mix:
    """What `mix` registered under a name, by its arguments, see `registry.MixConfiguration`."""
    if mixed.schedule is None:
        weights: dict[Description, float] = {}
        for each, weight in mixed.mixtures.items():
            found = description_of(each)
            shares = fractions(dict(found.mixtures or {})) if isinstance(found, Mix) else {found: 1.0}
            weights |= {part: weights.get(part, 0.0) + weight * share for part, share in shares.items()}
        return Mix(name, weights, weigh=mixed.weigh)
    stages = [
        dataclasses.replace(stage, mixtures={description_of(each): weight for each, weight in stage.mixtures})
        for stage in mixed.schedule.stages
    ]
    return Mix(name, schedule=stages, batch_size=mixed.schedule.batch_size, steps=mixed.schedule.steps, weigh=mixed.weigh)


def _of(registry: type[seqio.DatasetProviderRegistry], kind: type) -> list[str]:
    """The names of what is registered with a configuration of a kind."""
    return [name for name in registry.names() if isinstance(getattr(registry.get(name), "configuration", None), kind)]


def hand_over(description: Description, suffixes: Sequence[str], tasks: Callable[[], Sequence[seqio.Task]], returned: str) -> str:
    """Registers the tasks of a description, unless they are registered. Their names and that of a mixture are NAME_SUFFIX.

    Gives NAME_RETURNED. If that is "mix", it is a mixture of those tasks that have denoisers, at their weights.
    """
    name = f"{description.name}_{returned}"
    if is_registered(seqio.MixtureRegistry if returned == "mix" else seqio.TaskRegistry, name, description):
        return name
    check_names_are_free(description.name, suffixes)
    made = tasks()
    for task in made:
        seqio.TaskRegistry.add_provider(task.name, task)
    if returned == "mix":
        rates = [(task.name, task.denoiser.weight) for task in made if hasattr(task, "denoiser")]
        seqio.MixtureRegistry.add(name, rates, mixture_cls=DenoisingMixture, configuration=description)
    return name


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


def is_registered(registry: type[seqio.DatasetProviderRegistry], name: str, configuration: object) -> bool:
    """Whether a provider is registered with this configuration, a dataclass, which it has as an attribute of that name.

    Raises a ValueError, which says what differs, where the name is taken by another provider or with another configuration.
    """
    if name not in registry.names():
        return False
    registered = getattr(registry.get(name), "configuration", None)
    if registered is None:
        raise ValueError(f"{name!r} is already registered, and not by ul2_tasks.register. Choose another name.")
    present, wanted = vars(registered), vars(configuration)
    different = [key for key in {**present, **wanted} if not is_same(present.get(key), wanted.get(key))]
    if different:
        changes = "; ".join(f"{key} is {_shown(present.get(key))}, got {_shown(wanted.get(key))}" for key in different)
        sources = [source for source in (present.get("source"), wanted.get("source")) if "source" in different]
        silent = next(
            (
                f" It may be the same one, but {cannot_tell(source)}"
                for source in sources
                if is_source(source) and source_identity(source) is None
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
    if not is_source(value):
        return repr(value)
    identity = source_identity(value)
    return repr(value) if identity in (None, repr(value)) else f"{value!r}, that is {identity}"


def check_names_are_free(name: str, suffixes: Sequence[str]) -> None:
    """Raises a ValueError where one of the names NAME_SUFFIX is taken, or two are the same."""
    wanted = [f"{name}_{suffix}" for suffix in suffixes]
    taken = sorted({*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()} & set(wanted))
    if taken or len(set(wanted)) < len(wanted):
        raise ValueError(f"{name!r} cannot be registered, because the names {taken or wanted} are taken. Choose another name.")
