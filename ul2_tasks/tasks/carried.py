"""What a process that is spawned registers again: the descriptions behind a name, which are pickled with a dataset."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import seqio

from ul2_tasks.chat.objective import CHAT
from ul2_tasks.mixtures.chat import Chat
from ul2_tasks.mixtures.image_text import ImageText
from ul2_tasks.mixtures.mixture import Mixture, registered_as
from ul2_tasks.tasks.chat import add_chat
from ul2_tasks.tasks.image_text import add_image_text
from ul2_tasks.tasks.registry import MixConfiguration, add, mix


@dataclasses.dataclass(frozen=True)
class Carried:
    """The descriptions of a name and of what it mixes, those first; and the folders that caches are looked for in.

    `pickled` has them by the names that they register; or in words why one cannot be pickled.
    """

    pickled: Mapping[str, bytes | str]
    cache_dirs: tuple[str, ...]

    def register(self) -> None:
        """Registers what is not registered here. Raises a ValueError where it cannot be."""
        seqio.add_global_cache_dirs(self.cache_dirs)
        for name, pickled in self.pickled.items():
            if name not in seqio.MixtureRegistry.names() and name not in seqio.TaskRegistry.names():
                if isinstance(pickled, str):
                    raise _not_carried(name, pickled)
                try:
                    configuration = pickle.loads(pickled)
                except Exception as error:  # whatever the code of the user raises, such as an AttributeError in a notebook
                    raise _not_carried(name, f"{type(error).__name__}: {error}") from None
                _ADD[type(configuration)](name, configuration)


def carried(name: str) -> Carried:
    """What registers a name in another process, as far as `register`, `mix` and their like made it."""
    pickled = {each: _pickled(configuration) for each, configuration in _configurations(name)}
    return Carried(pickled, tuple(seqio.get_global_cache_dirs()))


def _configurations(name: str) -> Iterator[tuple[str, Any]]:
    """The names of what has to be registered for one, and their arguments; None of a provider that is SeqIO's own."""
    if name not in {*seqio.MixtureRegistry.names(), *seqio.TaskRegistry.names()}:
        return
    provider = seqio.get_mixture_or_task(name)
    if hasattr(provider, "denoiser"):
        yield from _configurations(f"{registered_as(provider)}_mix")
        return
    configuration = getattr(provider, "configuration", None)
    if isinstance(configuration, MixConfiguration):
        for each in configuration.mixtures:
            yield from _configurations(each)
    yield name, configuration if type(configuration) in _ADD else None


def _pickled(configuration: Any) -> bytes | str:
    if configuration is None:
        return "it is not of ul2_tasks.register or mix"
    try:
        return pickle.dumps(configuration)
    except Exception as error:  # which pickle raises depends on the object
        return f"its {_unpicklable(vars(configuration))} cannot be pickled: {error}"


def _unpicklable(fields: Mapping[str, object]) -> str:
    """The first of some fields that cannot be pickled, in words."""
    for name, value in fields.items():
        try:
            pickle.dumps(value)
        except Exception:
            return f"{name}, {value!r:.200},"
    return "arguments"


def _not_carried(name: str, why: str) -> ValueError:
    return ValueError(
        f"{name!r} must be registered in this process, which was spawned, and cannot be sent to it, because {why}. Define functions"
        f" at the top level of a module, and no lambdas, or pass ul2_tasks.Registration({name!r}, modules=[..]) with a module that"
        " registers it. See docs/help/troubleshooting.md#spawned-workers-do-not-know-the-mixture."
    )


def _add_mix(name: str, configuration: MixConfiguration) -> None:
    planned = configuration.schedule
    if planned is None:
        mix(name.removesuffix("_mix"), configuration.mixtures, weigh=configuration.weigh)
    else:
        settings: dict[str, Any] = {"batch_size": planned.batch_size, "steps": planned.steps}
        mix(name.removesuffix("_mix"), schedule=planned.stages, weigh=configuration.weigh, **settings)


_ADD: Mapping[type, Callable[[str, Any], object]] = {
    Mixture: lambda name, mixture: add(mixture),
    Chat: lambda name, chat: add_chat(chat, CHAT),
    ImageText: lambda name, images: add_image_text(images),
    MixConfiguration: _add_mix,
}
